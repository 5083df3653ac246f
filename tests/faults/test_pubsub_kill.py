"""A server killed while Google's clients publish and stream: they reconnect, nothing is lost, keys keep their order."""

import random
import threading
from collections import defaultdict
from concurrent.futures import Future
from pathlib import Path
from time import sleep
from typing import Any

from tests.rigs.penstock_process import wait_until
from tests.services.pubsub_server import clients_of, running

KEYS = ("a", "b", "c", "d")
TOPIC, SUBSCRIPTION = "projects/test/topics/kill", "projects/test/subscriptions/kill"


class Story:
    """What was published and what came, in the order it came."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Future[str]]] = []
        self.came: dict[str, list[int]] = defaultdict(list)
        self.lock = threading.Lock()

    def take(self, message: Any) -> None:
        """Note a message and ack it."""
        key, _, number = message.data.decode().partition(":")
        with self.lock:
            self.came[key].append(int(number))
        message.ack()

    def publish(self, publisher: Any, start: int, count: int) -> None:
        """Publish numbered messages to every key."""
        for number in range(start, start + count):
            for key in KEYS:
                body = f"{key}:{number}"
                self.sent.append((body, publisher.publish(TOPIC, body.encode(), ordering_key=key)))

    def first_seen(self, key: str) -> list[int]:
        """A key's numbers without repetitions, which at-least-once allows."""
        with self.lock:
            return list(dict.fromkeys(self.came[key]))


def test_killed_while_clients_publish_and_stream(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # shown when the test fails
    pause_s = random.Random(seed).uniform(0.05, 0.3)
    story = Story()
    with running(tmp_path, "--data", str(tmp_path / "data")) as server, clients_of(server) as clients:
        clients.publisher.create_topic(name=TOPIC)
        clients.subscriber.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
        )
        pulling = clients.subscriber.subscribe(SUBSCRIPTION, callback=story.take)
        story.publish(clients.publisher, 0, 200)
        wait_until(lambda: story.came)
        sleep(pause_s)  # the moment of the kill is what is random here

        server.kill()
        server.start()

        story.publish(clients.publisher, 200, 20)
        assert all(future.result(timeout=60) for _, future in story.sent)
        wait_until(lambda: all(len(story.first_seen(key)) >= 220 for key in KEYS), within_s=60)
        pulling.cancel()
        pulling.result(timeout=60)
        for key in KEYS:
            assert story.first_seen(key) == list(range(220)), key
