"""Receive webhooks with FastAPI: check the signature, work once per id, answer 200.

WEBHOOK_SECRET is the secret that `penstock subscriptions create` showed; PORT is 9000 unless set.
"""

import os

import uvicorn
from fastapi import FastAPI, HTTPException, Request

from penstock.client import BadSignature, verify_webhook

app = FastAPI()
secret = os.environ["WEBHOOK_SECRET"]
# In a real service this is a table with the ids of the last days, written in the transaction that does the work.
done: set[str] = set()


@app.post("/webhooks")
async def receive(request: Request) -> None:
    try:
        # The bytes as they came: JSON that was decoded and encoded again has another signature.
        webhook = verify_webhook(request.headers, await request.body(), secret)
    except BadSignature as error:
        raise HTTPException(401, error.message) from error
    if webhook.id not in done:
        event = webhook.event
        print(f"{event.type} {event.key} {event.data}\n", end="", flush=True)  # in one piece, among other threads
        done.add(webhook.id)


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "9000")))
