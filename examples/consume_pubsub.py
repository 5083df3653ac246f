"""Use a topic with Google's client: messages of an ordering key come in order.

Address: PUBSUB_EMULATOR_HOST (127.0.0.1:8085), which Google's client reads by itself.
"""

import os
from contextlib import suppress
from threading import Event

from google.api_core.exceptions import AlreadyExists
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.types import PublisherOptions

TOPIC = "projects/example/topics/orders"
SUBSCRIPTION = {
    "name": "projects/example/subscriptions/billing",
    "topic": TOPIC,
    "enable_message_ordering": True,
}
STEPS = ("placed", "paid", "packed")


def main() -> None:
    os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
    publisher = pubsub_v1.PublisherClient(publisher_options=PublisherOptions(enable_message_ordering=True))
    last_has_come = Event()

    def take(message: pubsub_v1.subscriber.message.Message) -> None:
        print(message.ordering_key, message.data.decode(), flush=True)
        message.ack()
        if message.data.decode() == STEPS[-1]:
            last_has_come.set()

    with pubsub_v1.SubscriberClient() as subscriber:
        with suppress(AlreadyExists):
            publisher.create_topic(name=TOPIC)
        with suppress(AlreadyExists):
            subscriber.create_subscription(SUBSCRIPTION)
        for step in STEPS:
            publisher.publish(TOPIC, step.encode(), ordering_key="order-1").result()
        pull = subscriber.subscribe(SUBSCRIPTION["name"], take)
        last_has_come.wait(30)
        pull.cancel()
        pull.result()
    publisher.stop()


if __name__ == "__main__":
    main()
