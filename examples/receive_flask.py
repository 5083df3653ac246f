"""Receive webhooks with Flask: check the signature, work once per id, notice what is missing, answer 204.

WEBHOOK_SECRET is the secret that `penstock subscriptions create` showed; PORT is 9000 unless set.
"""

import os

from flask import Flask

from penstock.client.receiver import ReceivedDelivery, WebhookReceiver, flask_view


def handle(delivery: ReceivedDelivery) -> None:
    event = delivery.event
    missing = f" missing {list(delivery.missing)}" if delivery.missing else ""
    print(f"{event.type} {event.key} {event.data}{missing}\n", end="", flush=True)  # in one piece, among other threads


app = Flask(__name__)
# It remembers in this process; give SqliteMemory("receiver.db"), or `once` on the database that your work is in.
receiver = WebhookReceiver(handle, os.environ["WEBHOOK_SECRET"])
app.add_url_rule("/webhooks", view_func=flask_view(receiver), methods=["POST"])

if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "9000")))
