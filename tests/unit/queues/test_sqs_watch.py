"""Sources of one server share its connections and their waits for messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.domain.errors import PenstockError
from penstock.queues.errors import BrokerUnavailable
from penstock.queues.sqs import watch
from penstock.queues.sqs.client import SqsClient, SqsConnections, SqsPolling
from penstock.queues.sqs.source import SqsSource
from penstock.queues.sqs.watch import SPARE_CALLS, SharedServers
from penstock.queues.uri import SqsUri, parse_uri
from penstock.testing.clock import VirtualClock
from tests.sources.scripted_server import Asked, Reply, ScriptedServer

PATIENCE_S = 60.0
WATCH = "PenstockWatchQueues"


def uri_of(port: int, name: str) -> SqsUri:
    uri = parse_uri(f"http://127.0.0.1:{port}/000000000000/{name}")
    assert isinstance(uri, SqsUri)
    return uri


class Watched:
    """A server whose answers to waits the test gives, and sources of its queues."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.servers = SharedServers()
        self.sources: list[SqsSource] = []
        self._tasks: list[asyncio.Task[list[str]]] = []

    def receive(self, name: str) -> "asyncio.Task[list[str]]":
        """Receive from a queue of its own source, in the background."""
        source = SqsSource(name, uri_of(self.server.port, name), visibility_s=30, servers=self.servers)
        self.sources.append(source)
        return self.receive_again(source)

    def receive_again(self, source: SqsSource) -> "asyncio.Task[list[str]]":
        """Receive again."""

        async def bodies() -> list[str]:
            return [each.body.decode() for each in await source.receive()]

        self._tasks.append(asyncio.create_task(bodies()))
        return self._tasks[-1]

    def watches(self) -> list[set[str]]:
        """The names in each wait that was asked for."""
        asked = [each.body["QueueUrls"] for each in self.server.asked if each.action == WATCH]
        return [{url.rpartition("/")[2] for url in urls} for urls in asked]

    async def watched(self, count: int) -> None:
        """Wait until a number of waits were asked for."""
        while len(self.watches()) < count:  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop receiving."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for source in self.sources:
            await source.close()


# The names that a wait answers; None is silence, an exception an answer of its own.
Answer = list[str] | Reply


@asynccontextmanager
async def watching(*answers: Answer) -> AsyncIterator[Watched]:
    """Waits are answered by these one after the other, then not at all; each receive finds a message."""
    left = list(answers)

    def script(asked: Asked) -> Reply:
        if asked.action != WATCH:
            name = asked.body["QueueUrl"].rpartition("/")[2]
            return {"Messages": [{"MessageId": name, "ReceiptHandle": "h", "Body": f"of {name}"}]}
        answer = left.pop(0) if left else None
        if isinstance(answer, list):
            return {"QueueUrls": [url for url in asked.body["QueueUrls"] if url.rpartition("/")[2] in answer]}
        return answer

    async with ScriptedServer(script) as server, asyncio.timeout(PATIENCE_S):
        rig = Watched(server)
        yield rig
        await rig.close()


async def test_sources_share_one_wait_and_only_those_with_messages_receive() -> None:
    async with watching(["b"]) as rig:
        tasks = [rig.receive(name) for name in "abc"]
        assert await tasks[1] == ["of b"]
        await rig.watched(2)

        assert rig.watches() == [{"a", "b", "c"}, {"a", "c"}]
        assert rig.server.actions().count("ReceiveMessage") == 1
        assert not tasks[0].done()


async def test_a_source_with_messages_polls_by_itself_until_it_finds_none() -> None:
    async with watching(["a"]) as rig:
        await rig.receive("a")
        await rig.receive_again(rig.sources[0])
        assert rig.server.actions() == [WATCH, "ReceiveMessage", "ReceiveMessage"]
        rig.server.script = lambda asked: {}
        await rig.receive_again(rig.sources[0])
        await rig.receive_again(rig.sources[0])

        assert rig.server.actions()[3:] == ["ReceiveMessage", WATCH]


async def test_few_receives_wait_by_themselves_and_the_others_with_the_shared_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "MAX_WAITING_RECEIVES", 2)
    names = ["a", "b", "c"]
    async with watching(names) as rig:
        await asyncio.gather(*(rig.receive(name) for name in names))
        rig.server.asked.clear()
        rig.server.script = lambda asked: {} if asked.body.get("WaitTimeSeconds") == 0 else None
        sources = {rig.receive_again(source): source for source in rig.sources}

        done, waiting = await asyncio.wait(sources, return_when=asyncio.FIRST_COMPLETED)
        (asked,) = done
        assert (await asked, len(waiting)) == ([], 2)
        rig.receive_again(sources[asked])
        await rig.watched(1)
        assert rig.watches() == [{sources[asked].name}]
        assert not any(task.done() for task in waiting)


async def test_a_receive_that_has_ended_leaves_its_place_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_WAITING_RECEIVES", 1)
    async with watching(["a"]) as rig:
        await rig.receive("a")
        await rig.receive_again(rig.sources[0])
        waits = [each.body["WaitTimeSeconds"] for each in rig.server.asked if each.action == "ReceiveMessage"]
        assert waits == [20, 20]


async def test_a_wait_that_ends_without_messages_is_an_empty_poll() -> None:
    async with watching([]) as rig:
        assert await rig.receive("a") == []
        assert rig.server.actions() == [WATCH]


async def test_a_source_that_joins_does_not_wait_for_the_wait_under_way() -> None:
    async with watching(None, ["b"]) as rig:
        rig.receive("a")
        await rig.watched(1)
        assert await rig.receive("b") == ["of b"]
        assert rig.watches() == [{"a"}, {"b"}]


async def test_several_polls_of_one_queue_are_one_name() -> None:
    async with watching(["a"]) as rig:
        first = rig.receive("a")
        second = rig.receive_again(rig.sources[0])
        assert await first == await second == ["of a"]
        assert rig.watches() == [{"a"}]


async def test_waits_that_were_begun_one_by_one_are_merged() -> None:
    async with watching() as rig:
        names = [f"q{number}" for number in range(3 * SPARE_CALLS)]
        for number, name in enumerate(names, 1):
            rig.receive(name)
            await rig.watched(number)

        # Each new wait has taken over the smallest that were under way.
        assert max(len(names) for names in rig.watches()) > 2
        under_way = set().union(*rig.watches()[-SPARE_CALLS - 1 :])
        assert under_way <= set(names)


@pytest.mark.parametrize("unknown", [(400, {"__type": "com.amazonaws.sqs#InvalidAction"}), (500, {}), b"not HTTP"])
async def test_a_server_that_does_not_know_the_wait_is_asked_once(unknown: Reply) -> None:
    async with watching(unknown) as rig:
        assert await rig.receive("a") == ["of a"]
        assert await rig.receive("b") == ["of b"]
        assert rig.server.actions() == [WATCH, "ReceiveMessage", "ReceiveMessage"]


async def test_a_server_that_did_not_know_the_wait_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "ASK_AGAIN_S", 0.0)
    async with watching((500, {}), ["b"]) as rig:
        assert await rig.receive("a") == ["of a"]
        assert await rig.receive("b") == ["of b"]
        assert rig.watches() == [{"a"}, {"b"}]


async def test_all_sources_learn_that_the_server_is_away() -> None:
    async with watching(["first"], (503, {})) as rig:
        await rig.receive("first")
        results = await asyncio.gather(*(rig.receive(name) for name in "abc"), return_exceptions=True)
        assert [type(result) for result in results] == [BrokerUnavailable] * 3
        assert isinstance(results[0], PenstockError)


async def test_a_source_that_was_stopped_does_not_disturb_the_others() -> None:
    async with watching(["a"], ["b"]) as rig:
        stopped = rig.receive("a")
        await asyncio.sleep(0)
        stopped.cancel()
        assert await rig.receive("b") == ["of b"]


async def test_queues_of_one_server_share_connections() -> None:
    async with watching(["a"], ["b"], ["c"]) as rig:
        for name in "abc":
            await rig.receive(name)
        assert rig.server.connections == 1


@pytest.mark.parametrize(
    ("uri", "wait_s"),
    [
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/q", 20),
        ("http://127.0.0.1:9324/000000000000/q", 0),
    ],
)
def test_aws_and_polls_that_do_not_wait_share_no_wait(uri: str, wait_s: int) -> None:
    parsed = parse_uri(uri)
    assert isinstance(parsed, SqsUri)
    assert SharedServers().of(parsed, VirtualClock(), SqsPolling(wait_s=wait_s)).watch is None


async def test_beyond_a_number_of_connections_requests_wait_for_those_before_them() -> None:
    def script(asked: Asked) -> Reply:
        return None if asked.action == WATCH else {}

    async with ScriptedServer(script) as server, asyncio.timeout(PATIENCE_S):
        uri = uri_of(server.port, "a")
        connections = SqsConnections(uri, SqsPolling(), most=1)
        client = SqsClient(uri, VirtualClock(), SqsPolling(), connections)
        first = asyncio.create_task(client.watch([uri.queue_url]))
        while not server.asked:  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.01)
        second = asyncio.create_task(client.receive(client.receive_body(30, waits=False)))
        await asyncio.sleep(0.05)
        assert server.actions() == [WATCH]

        first.cancel()
        assert await second == []
        client.close()
