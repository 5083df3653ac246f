"""Receive webhooks with FastAPI: check the signature, work once per id, notice what is missing, answer 204.

WEBHOOK_SECRET is the secret that `penstock subscriptions create` showed; PORT is 9000 unless set.
"""

import os

import uvicorn
from fastapi import FastAPI

from penstock.client.receiver import ReceivedDelivery, WebhookReceiver, starlette_endpoint


async def handle(delivery: ReceivedDelivery) -> None:
    event = delivery.event
    missing = f" missing {list(delivery.missing)}" if delivery.missing else ""
    print(f"{event.type} {event.key} {event.data}{missing}\n", end="", flush=True)


app = FastAPI()
# It remembers in this process; give SqliteMemory("receiver.db"), or `once` on the database that your work is in.
receiver = WebhookReceiver(handle, os.environ["WEBHOOK_SECRET"])
app.add_route("/webhooks", starlette_endpoint(receiver), methods=["POST"])

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "9000")))
