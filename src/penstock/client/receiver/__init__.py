"""The receiver kit: verify deliveries, process each once, and notice missing ones; for any framework.

def handle(delivery: Delivery) -> None:
    print(delivery.event.type, delivery.missing)

receiver = Receiver(handle, secrets="whsec_…", memory=SqliteMemory("receiver.db"))
app.add_url_rule("/hook", view_func=flask_view(receiver), methods=["POST"])
"""

from penstock.client.errors import DeliverLater
from penstock.client.receiver.delivery import Delivery, read_delivery, read_headers
from penstock.client.receiver.frameworks import django_view, flask_view, starlette_endpoint
from penstock.client.receiver.gaps import Arrival, KeyPlace, arrived
from penstock.client.receiver.memory import InMemory, OnceStore, Remembered, SqliteMemory
from penstock.client.receiver.receiver import Answered, Receiver

__all__ = [
    "Answered",
    "Arrival",
    "DeliverLater",
    "Delivery",
    "InMemory",
    "KeyPlace",
    "OnceStore",
    "Receiver",
    "Remembered",
    "SqliteMemory",
    "arrived",
    "django_view",
    "flask_view",
    "read_delivery",
    "read_headers",
    "starlette_endpoint",
]
