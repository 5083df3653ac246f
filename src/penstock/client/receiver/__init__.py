"""The receiver kit: verify deliveries, process each once, and notice missing ones; for any framework.

def handle(delivery: ReceivedDelivery) -> None:
    print(delivery.event.type, delivery.missing)

receiver = WebhookReceiver(handle, secrets="whsec_…", memory=SqliteMemory("receiver.db"))
app.add_url_rule("/hook", view_func=flask_view(receiver), methods=["POST"])
"""

from penstock.client.errors import DeliverLater
from penstock.client.receiver.delivery import ReceivedDelivery, read_delivery, read_headers
from penstock.client.receiver.frameworks import django_view, flask_view, starlette_endpoint
from penstock.client.receiver.gaps import KeyArrival, KeyPlace, arrived
from penstock.client.receiver.memory import InMemory, OnceStore, Remembered, SqliteMemory
from penstock.client.receiver.receiver import Answered, WebhookReceiver

__all__ = [
    "Answered",
    "DeliverLater",
    "InMemory",
    "KeyArrival",
    "KeyPlace",
    "OnceStore",
    "ReceivedDelivery",
    "Remembered",
    "SqliteMemory",
    "WebhookReceiver",
    "arrived",
    "django_view",
    "flask_view",
    "read_delivery",
    "read_headers",
    "starlette_endpoint",
]
