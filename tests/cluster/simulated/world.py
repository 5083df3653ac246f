"""Clients, nodes and faults of one seed, and the promises that clients see kept or broken."""

import asyncio
import json
import tempfile
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from penstock.delivery import DeliveryFailed
from penstock.sqs.nodes.shards import shard_names
from penstock.testing.simulation.chance import Chance
from penstock.testing.simulation.history import InvariantBroken
from penstock.testing.virtual_loop import START_MS, LoopClock
from tests.cluster.history import ClusterHistory, Deletion, Receipt, Sent
from tests.cluster.simulated.database import TTL_S, ClusterLoop, SimulatedDatabase
from tests.cluster.simulated.network import SimulatedNetwork
from tests.cluster.simulated.node import NodeLife

NODES = ("a", "b", "c")
QUEUES = ("orders.fifo", "bills.fifo", "mails.fifo")
LEASE_S = 4
TROUBLE_S = 60.0
RECOVERY_S = 300.0
_PATIENCE_S = 15.0


class ClusterFindings(ClusterHistory):
    """What clients saw, and how often each fault happened."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: Counter[str] = Counter()


def simulate_cluster(seed: int) -> ClusterFindings:
    """Run the simulation of a seed; raise InvariantBroken if a promise was broken."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-simulated-") as place,
        asyncio.Runner(loop_factory=ClusterLoop) as runner,
    ):
        found = runner.run(ClusterWorld(Chance(seed), runner.get_loop(), Path(place)).run())
    if breaches := found.breaches():
        raise InvariantBroken(f"seed {seed}: {len(breaches)} breaches, as {breaches[0]}")
    return found


class ClusterWorld:
    """Three nodes, which come and go, and clients of any of them."""

    def __init__(self, chance: Chance, loop: asyncio.AbstractEventLoop, directory: Path) -> None:
        self._chance = chance.fork("world")
        self._clients = chance.fork("clients")
        # As machines whose clocks are set differently.
        self._clocks = {name: LoopClock(loop, START_MS + chance.fork(name).whole(-30_000, 30_000)) for name in NODES}
        self._directory = directory
        self._shards = shard_names(chance.fork("shards").whole(1, 6))
        self._groups = [
            (queue, f"{queue}-{number}") for queue in QUEUES for number in range(chance.fork(queue).whole(1, 3))
        ]
        self._calls = count()
        self._starts = count()
        self._receiving = True
        self._undisturbed = asyncio.Event()
        self._received = asyncio.Event()
        self.history = ClusterFindings()

    async def run(self) -> ClusterFindings:
        """Send and receive among faults; then let everything arrive."""
        self._database = SimulatedDatabase(self._directory, self._shards)
        self._network = SimulatedNetwork(self._chance.fork("network"))
        self._lives = {name: self._start(name) for name in NODES}
        await self._create_queues()
        consumers = [asyncio.create_task(self._consume(number)) for number in range(len(QUEUES) + 1)]
        producers = [asyncio.create_task(self._produce(queue, group)) for queue, group in self._groups]
        await self._trouble()
        self._undisturbed.set()
        await asyncio.gather(*producers)
        await self._until_all_came()
        self._receiving = False
        await asyncio.gather(*consumers)
        for life in self._lives.values():
            await life.stop()
        self._database.close()
        return self.history

    # Nodes

    def _start(self, name: str) -> NodeLife:
        number = next(self._starts)
        chance = self._chance.fork(f"life {number}")
        return NodeLife(name, number, self._database, self._network, self._clocks[name], chance)

    async def _trouble(self) -> None:
        kinds = [self._kill, self._restart, self._suspend, self._cut_database, self._cut_links, self._two_at_once]
        while asyncio.get_running_loop().time() < TROUBLE_S:
            await asyncio.sleep(self._chance.between(0.1, 6.0))
            kind = self._chance.one_of(kinds)
            self.history.faults[kind.__name__.strip("_")] += 1
            await kind(self._chance.one_of(NODES))

    async def _lasts(self) -> None:
        await asyncio.sleep(self._chance.between(0.05, 2 * TTL_S))

    async def _kill(self, name: str) -> None:
        await self._lives[name].kill()
        await self._lasts()
        self._lives[name] = self._start(name)

    async def _restart(self, name: str) -> None:
        await self._lives[name].stop()
        await self._lasts()
        self._lives[name] = self._start(name)

    async def _suspend(self, name: str) -> None:
        life = self._lives[name]
        life.suspend()
        await asyncio.sleep(self._chance.between(0.5, 3 * TTL_S))
        life.go_on()

    async def _cut_database(self, name: str) -> None:
        link = self._lives[name].link
        link.refusing = self._chance.happens(0.5)
        link.stalled = not link.refusing
        await self._lasts()
        link.refusing = link.stalled = False

    async def _cut_links(self, name: str) -> None:
        listener = self._lives[name].listener
        listener.refusing = self._chance.happens(0.5)
        listener.stalled = not listener.refusing
        await self._lasts()
        listener.refusing = listener.stalled = False

    async def _two_at_once(self, name: str) -> None:
        other = self._chance.one_of([each for each in NODES if each != name])
        kinds = [self._kill, self._restart, self._suspend, self._cut_database, self._cut_links]
        await asyncio.gather(self._chance.one_of(kinds)(name), self._chance.one_of(kinds)(other))

    # Clients

    async def _ask(self, chance: Chance, queue: str, action: str, **parameters: object) -> tuple[int, dict[str, Any]]:
        """Ask any node; status 0 if it does not answer."""
        address = self._lives[chance.one_of(NODES)].address
        body = json.dumps({"QueueUrl": f"http://{address}/000000000000/{queue}", **parameters}).encode()
        headers = [
            (b"host", address.encode()),
            (b"x-amz-target", f"AmazonSQS.{action}".encode()),
            (b"content-type", b"application/x-amz-json-1.0"),
        ]
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await self._network.ask(address, "POST", b"/", headers, body, between=False)
        except (DeliveryFailed, TimeoutError):
            return 0, {}
        return answer.status, json.loads(answer.body or b"{}")

    async def _is_done(self, chance: Chance, queue: str, action: str, **parameters: object) -> bool:
        """Return whether a request succeeds; a client that tries again waits a little."""
        status, _ = await self._ask(chance, queue, action, **parameters)
        if status != 200:
            await asyncio.sleep(0.1)
        return status == 200

    async def _create_queues(self) -> None:
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(LEASE_S)}
        for name in QUEUES:
            while not await self._is_done(self._clients, name, "CreateQueue", QueueName=name, Attributes=attributes):
                if asyncio.get_running_loop().time() > RECOVERY_S:
                    raise InvariantBroken(f"queue {name} cannot be created")

    async def _produce(self, queue: str, group: str) -> None:
        chance = self._clients.fork(group)
        for number in count():
            message = {
                "MessageBody": str(number),
                "MessageGroupId": group,
                "MessageDeduplicationId": f"{group}-{number}",
            }
            while not await self._is_done(chance, queue, "SendMessage", **message):
                pass
            self.history.sends.append(Sent(group, number))
            if self._undisturbed.is_set():
                return
            await asyncio.sleep(chance.between(0.0, 3.0))

    async def _consume(self, which: int) -> None:
        chance, loop = self._clients.fork(f"consumer {which}"), asyncio.get_running_loop()
        while self._receiving:
            asked_s, queue = loop.time(), chance.one_of(QUEUES)
            wanted = {"MaxNumberOfMessages": 5, "WaitTimeSeconds": chance.one_of([0, 1, 5])}
            status, answer = await self._ask(
                chance, queue, "ReceiveMessage", AttributeNames=["MessageGroupId"], **wanted
            )
            answered_s, call = loop.time(), next(self._calls)
            messages = answer.get("Messages", []) if status == 200 else []
            found = [
                (each["Attributes"]["MessageGroupId"], int(each["Body"]), each["ReceiptHandle"]) for each in messages
            ]
            self._received.set()
            self.history.receipts += [
                Receipt(group, number, call, asked_s, answered_s, LEASE_S) for group, number, _ in found
            ]
            for group, number, handle in found:
                if not chance.happens(0.1):
                    await self._delete(chance, queue, group, number, handle)
            await asyncio.sleep(chance.between(0.0, 0.5))

    async def _delete(self, chance: Chance, queue: str, group: str, number: int, handle: str) -> None:
        asked_s = asyncio.get_running_loop().time()
        self.history.attempt_delete(group, number, asked_s)
        status, _ = await self._ask(chance, queue, "DeleteMessage", ReceiptHandle=handle)
        if status == 200:
            self.history.deletions.append(Deletion(group, number, asked_s, asyncio.get_running_loop().time()))

    async def _until_all_came(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RECOVERY_S):
                while self.history.undelivered():
                    await self._received.wait()
                    self._received.clear()
