"""Receive webhooks with Flask: check the signature, work once per id, answer 200.

WEBHOOK_SECRET is the secret that `penstock subscriptions create` showed; PORT is 9000 unless set.
"""

import os

from flask import Flask, Response, request

from penstock.client import BadSignature, verify_webhook

app = Flask(__name__)
secret = os.environ["WEBHOOK_SECRET"]
# In a real service this is a table with the ids of the last days, written in the transaction that does the work.
done: set[str] = set()


@app.post("/webhooks")
def receive() -> Response:
    try:
        # The bytes as they came: JSON that was decoded and encoded again has another signature.
        webhook = verify_webhook(request.headers, request.get_data(), secret)
    except BadSignature as error:
        return Response(error.message, status=401)
    if webhook.id not in done:
        event = webhook.event
        print(f"{event.type} {event.key} {event.data}\n", end="", flush=True)  # in one piece, among other threads
        done.add(webhook.id)
    return Response(status=200)


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "9000")))
