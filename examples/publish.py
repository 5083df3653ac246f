"""Publish what happens to an order: every subscriber gets it, in order per key.

Address: PENSTOCK_URL (http://127.0.0.1:8080), and PENSTOCK_TOKEN if the API wants one.
"""

import os

from penstock.client import Event, Penstock

STEPS = ("placed", "paid", "packed")


def main() -> None:
    url = os.environ.get("PENSTOCK_URL", "http://127.0.0.1:8080")
    events = [
        # The id says what happened to what: when this runs again, nothing is delivered twice.
        Event(type=f"orders:{step}", key="order-1", source="/shop", id=f"order-1-{step}", data={"order": 1})
        for step in STEPS
    ]
    with Penstock(url, os.environ.get("PENSTOCK_TOKEN")) as penstock:
        for event, receipt in zip(events, penstock.publish_all(events), strict=True):
            print(event.type, event.key, "published" if receipt.is_new else "was known")


if __name__ == "__main__":
    main()
