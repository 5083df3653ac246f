"""Receive webhooks with nothing but the standard library: check the signature, work once per id, answer 200.

WEBHOOK_SECRET is the secret that `penstock subscriptions create` showed; PORT is 9000 unless set.
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.client import BadSignature, verify_webhook

secret = os.environ["WEBHOOK_SECRET"]
# In a real service this is a table with the ids of the last days, written in the transaction that does the work.
done: set[str] = set()


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            webhook = verify_webhook(self.headers, body, secret)
        except BadSignature as error:
            self.answer(401, error.message)
            return
        if webhook.id not in done:
            event = webhook.event
            # In one piece, with its end of line: other threads print at the same time.
            print(f"{event.type} {event.key} {event.data}\n", end="", flush=True)
            done.add(webhook.id)
        self.answer(200, "")

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Only what was received is printed."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Receiver)
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
