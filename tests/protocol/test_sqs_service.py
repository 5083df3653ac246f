"""What needs a limit of AWS made small or a database that fails: the actions in this process."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.domain.errors import PenstockError, Unavailable
from penstock.domain.ids import TsidFactory
from penstock.engine.errors import StoreFailed
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Shares, Store, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from penstock.http.server.asgi import Headers
from penstock.sqs.actions.queues import live_counters
from penstock.sqs.app import SqsApp
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.metrics import MAX_QUEUE_LABELS, OTHER
from penstock.sqs.model import (
    ChangeMessageVisibilityRequest,
    CreateQueueRequest,
    DeleteMessageBatchRequest,
    DeleteMessageBatchRequestEntry,
    DeleteMessageRequest,
    GetQueueAttributesRequest,
    QueueUrlRequest,
    ReceiveMessageRequest,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageRequest,
    StartMessageMoveTaskRequest,
)
from penstock.sqs.queue.other_shards import AcceptMessages, ShardAnswer, ShardRequest
from penstock.sqs.server import SqsServerSettings, open_service, sqs_app
from penstock.sqs.service import ServiceSettings, SqsService
from penstock.testing.clock import VirtualClock
from tests.services.sqs_actions import act


class TouchyStore(SqliteStore):
    """A store that refuses commits while told to, and can be taken by another process."""

    local = False
    refuse = False
    taken = False
    during: Callable[[], None] | None = None
    """What happens while a commit is under way."""

    def require_owned(self) -> None:
        if self.taken:
            raise Unavailable("taken by the test")

    def apply(self, batch: WriteBatch) -> Shares:
        if self.refuse:
            raise StoreFailed("refused by the test")
        if self.during is not None:
            self.during()
        return super().apply(batch)


class Rig:
    """A service and short words for its actions."""

    def __init__(self, service: SqsService) -> None:
        self.service = service

    async def act(self, action: str, request: object) -> Any:
        return await act(self.service, action, request)

    async def create(self, name: str, **attributes: str) -> str:
        url: str = (await self.act("CreateQueue", CreateQueueRequest(name, attributes))).queue_url
        return url

    async def send(self, url: str, group: str) -> None:
        number = self.service.ids.next_id(self.service.clock.now_ms())
        request = SendMessageRequest(url, group, message_group_id=group)
        if url.endswith(".fifo"):
            request.message_deduplication_id = number
        await self.act("SendMessage", request)

    async def receive(self, url: str) -> int:
        answer = await self.act("ReceiveMessage", ReceiveMessageRequest(url, max_number_of_messages=10))
        return len(answer.messages)


async def opened(stack: AsyncExitStack, stores: dict[str, Store], **settings: Any) -> Rig:
    service = ServiceSettings(**settings)
    opening = open_service(stores, VirtualClock(), TsidFactory(1), SqsServerSettings(service=service))
    return Rig(await stack.enter_async_context(opening))


@pytest.fixture
def twelve_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 12 messages in flight instead of 120,000."""
    monkeypatch.setattr("penstock.sqs.queue.queue.MAX_IN_FLIGHT", 12)
    monkeypatch.setattr("penstock.sqs.actions.receive.MAX_IN_FLIGHT", 12)


@pytest.mark.usefixtures("twelve_in_flight")
@pytest.mark.parametrize("partitions", ["1", "4"])
async def test_a_fifo_queue_at_its_in_flight_limit_gives_nothing(partitions: str) -> None:
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": MemoryStore()})
        url = await rig.create("q.fifo", FifoQueue="true", PartitionCount=partitions)
        for number in range(20):
            await rig.send(url, f"g{number}")
        assert [await rig.receive(url) for _ in range(3)] == [10, 2, 0]


@pytest.mark.usefixtures("twelve_in_flight")
async def test_a_standard_queue_at_its_in_flight_limit_says_so() -> None:
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": MemoryStore()})
        url = await rig.create("q")
        for _ in range(20):
            await rig.send(url, "g")
        assert [await rig.receive(url) for _ in range(2)] == [10, 2]
        with pytest.raises(SqsError) as caught:
            await rig.receive(url)
        assert caught.value.kind is ErrorKind.OVER_LIMIT


async def test_a_move_that_a_database_refuses_gives_everything_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        touchy = TouchyStore(tmp_path / "a.db")
        stores: dict[str, Store] = {"": SqliteStore(tmp_path / "home.db"), "a": touchy}
        rig = await opened(stack, stores, placements={"goal.fifo": ["a"] * 4})
        goal = await rig.create("goal.fifo", FifoQueue="true", PartitionCount="4")
        source = await rig.create("source.fifo", FifoQueue="true")
        groups = ["a", "alpha", "gamma", "delta"]
        for group in groups:
            await rig.send(source, group)
        (partition,) = rig.service.find("source.fifo").partitions
        entries = partition.queue.engine.take_for_move(rig.service.clock.now_ms(), 10)
        assert len(entries) == len(groups)
        touchy.refuse = True
        with pytest.raises(PenstockError, match="refused by the test"):
            await rig.service.transfers.move(partition, entries, rig.service.find("goal.fifo"), None)
        touchy.refuse = False
        assert await rig.receive(goal) == 0
        assert await rig.receive(source) == len(groups)


async def test_a_move_task_to_several_queues_gives_back_what_it_did_not_move(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        touchy = TouchyStore(tmp_path / "a.db")
        stores: dict[str, Store] = {"": SqliteStore(tmp_path / "home.db"), "a": touchy}
        rig = await opened(stack, stores, placements={"first.fifo": ["a"]})
        service = rig.service
        dead = await rig.create("dead.fifo", FifoQueue="true")
        policy = f'{{"deadLetterTargetArn": "{service.arn_of("dead.fifo")}", "maxReceiveCount": 1}}'
        for name in ("first", "second"):
            source = await rig.create(f"{name}.fifo", FifoQueue="true", RedrivePolicy=policy, VisibilityTimeout="0")
            await rig.send(source, name)
            assert [await rig.receive(source), await rig.receive(source)] == [1, 0]
        while live_counters(service, service.find("dead.fifo")).visible < 2:  # noqa: ASYNC110 nothing tells of it
            await asyncio.sleep(0)
        touchy.refuse = True
        await rig.act("StartMessageMoveTask", StartMessageMoveTaskRequest(service.arn_of("dead.fifo")))
        (task,) = service.moves.listed(service.find("dead.fifo"), 10)
        while task.status == "RUNNING":
            await asyncio.sleep(0)
            (task,) = service.moves.listed(service.find("dead.fifo"), 10)
        assert task.status == "FAILED"
        touchy.refuse = False
        assert await rig.receive(dead) == 2


async def test_nothing_is_kept_of_the_move_tasks_of_a_deleted_queue() -> None:
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": MemoryStore()})
        service = rig.service
        dead = await rig.create("dead")
        policy = f'{{"deadLetterTargetArn": "{service.arn_of("dead")}", "maxReceiveCount": 1}}'
        source = await rig.create("source", RedrivePolicy=policy, VisibilityTimeout="0")
        await rig.send(source, "g")
        assert [await rig.receive(source), await rig.receive(source)] == [1, 0]
        await rig.act("StartMessageMoveTask", StartMessageMoveTaskRequest(service.arn_of("dead"), None, 1))
        deleted = service.find("dead")
        await rig.act("DeleteQueue", QueueUrlRequest(dead))
        assert service.moves.listed(deleted, 10) == []
        assert not service.moves._moves


async def test_a_send_that_the_store_refuses_fails_and_leaves_nothing(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        touchy = TouchyStore(tmp_path / "home.db")
        rig = await opened(stack, {"": touchy})
        url = await rig.create("q")
        touchy.refuse = True
        with pytest.raises(StoreFailed):
            await rig.send(url, "lost")
        touchy.refuse = False
        await rig.send(url, "kept")
        assert await rig.receive(url) == 1


@pytest.mark.parametrize("name", ["q", "q.fifo"])
@pytest.mark.parametrize("action", ["DeleteMessage", "DeleteMessageBatch", "SendMessageBatch"])
async def test_nothing_is_successful_that_the_store_refuses(tmp_path: Path, name: str, action: str) -> None:
    async with AsyncExitStack() as stack:
        store = TouchyStore(tmp_path / "home.db")
        rig = await opened(stack, {"": store})
        more = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        url = await rig.create(name, **more)
        await rig.send(url, "g")
        (message,) = (await rig.act("ReceiveMessage", ReceiveMessageRequest(url))).messages
        request = {
            "DeleteMessage": DeleteMessageRequest(url, message.receipt_handle),
            "DeleteMessageBatch": DeleteMessageBatchRequest(
                url, [DeleteMessageBatchRequestEntry("a", message.receipt_handle)]
            ),
            "SendMessageBatch": SendMessageBatchRequest(
                url,
                [
                    SendMessageBatchRequestEntry(
                        "a", "lost", message_group_id="h", message_deduplication_id="d" if more else None
                    )
                ],
            ),
        }[action]
        store.refuse = True
        with pytest.raises(StoreFailed):
            await rig.act(action, request)
        store.refuse = False
        live = live_counters(rig.service, rig.service.queues[name])
        assert (live.visible, live.not_visible) == (0, 1)
        answer = await rig.act(action, request)
        assert not getattr(answer, "failed", [])
        live = live_counters(rig.service, rig.service.queues[name])
        assert (live.visible, live.not_visible) == ((1, 1) if action == "SendMessageBatch" else (0, 0))


@pytest.mark.parametrize("timeout_s", [0, 5])
@pytest.mark.parametrize("late", [False, True])
async def test_a_change_of_visibility_that_the_store_refuses_fails(tmp_path: Path, timeout_s: int, late: bool) -> None:
    """In a queue that keeps its leases an answer means that the change survives a crash."""
    async with AsyncExitStack() as stack:
        store = TouchyStore(tmp_path / "home.db")
        rig = await opened(stack, {"": store})
        url = await rig.create("q", DurableLeases="true", VisibilityTimeout="60")
        await rig.send(url, "g")
        (message,) = (await rig.act("ReceiveMessage", ReceiveMessageRequest(url))).messages
        change = ChangeMessageVisibilityRequest(url, message.receipt_handle, timeout_s)
        if late:  # a handle that is not the latest
            await rig.act("ChangeMessageVisibility", ChangeMessageVisibilityRequest(url, message.receipt_handle, 0))
            assert await rig.receive(url) == 1
        store.refuse = True
        with pytest.raises(StoreFailed):
            await rig.act("ChangeMessageVisibility", change)
        store.refuse = False


async def test_a_message_is_hidden_for_twelve_hours_in_all() -> None:
    async with AsyncExitStack() as stack:
        clock = VirtualClock()
        opening = open_service({"": MemoryStore()}, clock, TsidFactory(1), SqsServerSettings())
        rig = Rig(await stack.enter_async_context(opening))
        url = await rig.create("q")
        await rig.send(url, "g")
        (message,) = (await rig.act("ReceiveMessage", ReceiveMessageRequest(url))).messages

        async def hide(seconds: int) -> None:
            request = ChangeMessageVisibilityRequest(url, message.receipt_handle, seconds)
            await rig.act("ChangeMessageVisibility", request)

        await hide(43_200)
        clock.advance(0.9)
        await hide(43_200)
        clock.advance(10.1)
        with pytest.raises(SqsError, match=r"beyond the limit \[43200 seconds\]\.") as caught:
            await hide(43_190)
        assert caught.value.kind is ErrorKind.INVALID_PARAMETER_VALUE
        await hide(43_189)


@pytest.mark.parametrize(("name", "attributes"), [("q", {}), ("q.fifo", {"FifoQueue": "true", "PartitionCount": "4"})])
async def test_the_age_of_the_oldest_message(name: str, attributes: dict[str, str]) -> None:
    async with AsyncExitStack() as stack:
        clock = VirtualClock()
        opening = open_service({"": MemoryStore()}, clock, TsidFactory(1), SqsServerSettings())
        rig = Rig(await stack.enter_async_context(opening))
        url = await rig.create(name, **attributes)

        async def age(*more: str) -> str | None:
            request = GetQueueAttributesRequest(url, ["ApproximateAgeOfOldestMessage", *more])
            found: dict[str, str] = (await rig.act("GetQueueAttributes", request)).attributes
            return found.get("ApproximateAgeOfOldestMessage")

        assert await age() is None
        for group in ("a", "b", "c"):
            await rig.send(url, group)
            clock.advance(10)
        assert (await age(), await age("All")) == ("30", "30")
        answer = await rig.act("ReceiveMessage", ReceiveMessageRequest(url, max_number_of_messages=10))
        assert await age() == "30"  # received or not
        (oldest,) = (each for each in answer.messages if each.body == "a")
        await rig.act("DeleteMessage", DeleteMessageRequest(url, oldest.receipt_handle))
        assert await age() == "20"
        everything = await rig.act("GetQueueAttributes", GetQueueAttributesRequest(url, ["All"]))
        assert "ApproximateAgeOfOldestMessage" not in everything.attributes


class RecordedExchange:
    """A request as the HTTP server would hand it over, and the answer to it."""

    method = "POST"
    target = b"/"

    is_too_long = False
    peer = "127.0.0.1"
    secure = False

    def __init__(self, action: str, request: object) -> None:
        self.headers = [(b"host", b"here"), (b"x-amz-target", f"AmazonSQS.{action}".encode())]
        self.body = msgspec.json.encode(request)
        self.answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        self.answered.set_result(status)

    def run_in_task(self, work: Coroutine[Any, Any, None]) -> None:
        raise AssertionError("nothing here has to wait")

    async def hung_up(self) -> None:
        raise AssertionError("nothing here has to wait")


async def test_requests_leave_no_cycles_behind(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": SqliteStore(tmp_path / "home.db")})
        url = await rig.create("q")
        app = sqs_app(rig.service, None)
        assert isinstance(app, SqsApp)
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        for _ in range(50):
            for action, request in (
                ("SendMessage", SendMessageRequest(url, "body")),
                ("ReceiveMessage", ReceiveMessageRequest(url, max_number_of_messages=10)),
            ):
                exchange = RecordedExchange(action, request)
                assert app.take_on(exchange)
                assert await exchange.answered == 200
        assert gc.collect() < 50


async def test_at_most_512_queues_have_a_label_of_their_own() -> None:
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": MemoryStore()})
        for number in range(MAX_QUEUE_LABELS + 3):
            await rig.send(await rig.create(f"q{number}"), "g")
        visible = {
            sample.labels["queue"]: sample.value
            for metric in rig.service.metrics.collect()
            if metric.name == "sqs_queue_messages"
            for sample in metric.samples
            if sample.labels["state"] == "visible"
        }
        assert len(visible) == MAX_QUEUE_LABELS + 1
        assert visible.pop(OTHER) == 3
        assert set(visible.values()) == {1}


PLACED = {"placements": {"spread.fifo": ["a", "a", "b", "b"]}}
SPREAD = {"FifoQueue": "true", "PartitionCount": "4"}


@pytest.mark.parametrize("restart", [False, True])
async def test_a_queue_half_made_over_two_databases_can_be_made_again(tmp_path: Path, restart: bool) -> None:
    home, a, b = (TouchyStore(tmp_path / f"{name}.db") for name in ("home", "a", "b"))
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": home, "a": a, "b": b}, **PLACED)
        a.refuse = True
        with pytest.raises(PenstockError, match="refused by the test"):
            await rig.create("spread.fifo", **SPREAD)
        a.refuse = False
        if restart:
            await stack.aclose()
            rig = await opened(stack, {"": home, "a": a, "b": b}, **PLACED)
        url = await rig.create("spread.fifo", **SPREAD)
        for number in range(8):
            await rig.send(url, f"g{number}")
        assert await rig.receive(url) == 8


@pytest.mark.parametrize("restart", [False, True])
async def test_what_is_left_of_a_queue_half_deleted_goes_when_its_database_works_again(
    tmp_path: Path, restart: bool
) -> None:
    home, a, b = (TouchyStore(tmp_path / f"{name}.db") for name in ("home", "a", "b"))
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": home, "a": a, "b": b}, **PLACED)
        url = await rig.create("spread.fifo", **SPREAD)
        b.refuse = True
        await rig.act("DeleteQueue", QueueUrlRequest(url))
        assert rig.service.queues == {}
        b.refuse = False
        if restart:
            await stack.aclose()
            rig = await opened(stack, {"": home, "a": a, "b": b}, **PLACED)
        assert rig.service.queues == {}
        while rig.service._catalog.work.is_set():  # noqa: ASYNC110 its end is not announced
            await asyncio.sleep(0.01)
    assert [stream.name for stream in b.open()[0]] == ["#databases"]
    b.close()


async def test_a_queue_whose_deletion_is_refused_everywhere_is_served_on(tmp_path: Path) -> None:
    home = TouchyStore(tmp_path / "home.db")
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": home})
        url = await rig.create("q")
        await rig.send(url, "g")
        home.refuse = True
        with pytest.raises(PenstockError, match="refused by the test"):
            await rig.act("DeleteQueue", QueueUrlRequest(url))
        home.refuse = False
        assert await rig.receive(url) == 1


async def test_one_receive_over_several_partitions_holds_at_most_a_mebibyte() -> None:
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": MemoryStore()})
        url = await rig.create("large.fifo", **SPREAD, ContentBasedDeduplication="true")
        for group in ("g0", "g1", "g2", "g3"):
            await rig.act("SendMessage", SendMessageRequest(url, group + "x" * 700_000, message_group_id=group))
        assert [await rig.receive(url) for _ in range(5)] == [1, 1, 1, 1, 0]


class LossyShards:
    """Two shards in one process; answers to messages that were accepted may be lost."""

    def __init__(self) -> None:
        self.services: list[SqsService] = []
        self.lost = 0
        self.losing = False

    def seen_by(self, number: int) -> "LossyView":
        return LossyView(self, number)


class LossyView:
    """The other shard: queues of the first are called `source…`, those of the second have other names."""

    def __init__(self, shards: LossyShards, number: int) -> None:
        self._shards, self._number = shards, number

    def have(self, key: str) -> bool:
        return key.startswith("source") is (self._number == 1)

    async def ask(self, key: str, request: ShardRequest) -> ShardAnswer:
        (answer,) = await self.ask_all(request)
        if isinstance(request, AcceptMessages) and self._shards.losing:
            self._shards.lost += 1
            raise SqsError(ErrorKind.SERVICE_UNAVAILABLE, "the answer is lost")
        return answer

    async def ask_all(self, request: ShardRequest) -> list[ShardAnswer]:
        sent = msgspec.json.decode(msgspec.json.encode(request), type=ShardRequest)  # as on its way
        return [await self._shards.services[1 - self._number].transfers.answer(sent)]


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_a_dead_letter_for_another_shard_arrives_once_though_the_answer_was_lost(
    tmp_path: Path, suffix: str
) -> None:
    shards = LossyShards()
    kind = {"FifoQueue": "true"} if suffix else {}
    redrive = f'{{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead{suffix}", "maxReceiveCount": 1}}'

    async def open_shard(stack: AsyncExitStack, number: int) -> Rig:
        stores: dict[str, Store] = {"": SqliteStore(tmp_path / f"{number}.db")}
        opening = open_service(stores, clock, TsidFactory(number), SqsServerSettings(), others=shards.seen_by(number))
        rig = Rig(await stack.enter_async_context(opening))
        shards.services.insert(number, rig.service)
        return rig

    clock = VirtualClock()
    async with AsyncExitStack() as first_stack:
        source_rig = await open_shard(first_stack, 0)
        async with AsyncExitStack() as stack:
            dead_rig = await open_shard(stack, 1)
            await dead_rig.create(f"dead{suffix}", **kind)
            url = await source_rig.create(f"source{suffix}", RedrivePolicy=redrive, VisibilityTimeout="1", **kind)
            for group in ("a", "b", "c"):
                await source_rig.send(url, group)
            assert await source_rig.receive(url) == 3
            clock.advance(1500)
            shards.losing = True
            assert await source_rig.receive(url) == 0
            # They have arrived, though the source does not know it and keeps them.
            assert shards.lost > 1
            assert dead_rig.service.find(f"dead{suffix}").counters()[0].total == 3
            assert source_rig.service.find(f"source{suffix}").counters()[0].total == 3
        # Whoever serves the dead-letter queue next knows them too.
        del shards.services[1]
        shards.losing = False
        async with AsyncExitStack() as stack:
            dead_rig = await open_shard(stack, 1)
            assert await source_rig.receive(url) == 0
            assert source_rig.service.find(f"source{suffix}").counters()[0].total == 0
            assert dead_rig.service.find(f"dead{suffix}").counters()[0].total == 3


async def test_without_its_dead_letter_queue_in_another_shard_a_queue_delivers_on(tmp_path: Path) -> None:
    shards = LossyShards()
    clock = VirtualClock()
    async with AsyncExitStack() as stack:
        rigs = []
        for number in range(2):
            stores: dict[str, Store] = {"": MemoryStore()}
            opening = open_service(
                stores, clock, TsidFactory(number), SqsServerSettings(), others=shards.seen_by(number)
            )
            rigs.append(Rig(await stack.enter_async_context(opening)))
            shards.services.append(rigs[-1].service)
        dead = await rigs[1].create("dead")
        redrive = '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead", "maxReceiveCount": 1}'
        url = await rigs[0].create("source", RedrivePolicy=redrive, VisibilityTimeout="1")
        await rigs[1].act("DeleteQueue", QueueUrlRequest(dead))
        await rigs[0].send(url, "a")
        for _ in range(3):
            await rigs[0].receive(url)
            clock.advance(1500)
        assert await rigs[0].receive(url) == 1
        await rigs[1].create("dead")
        await rigs[0].service.transfers.look()
        clock.advance(1500)
        assert await rigs[0].receive(url) == 0
        assert rigs[1].service.find("dead").counters()[0].total == 1


async def test_an_error_in_one_partition_keeps_back_nothing_of_the_others(tmp_path: Path) -> None:
    """A lease on one of two databases ends between the two halves of a receive."""
    home, a, b = (TouchyStore(tmp_path / f"{name}.db") for name in ("home", "a", "b"))
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": home, "a": a, "b": b}, **PLACED)
        url = await rig.create("spread.fifo", **SPREAD)
        for number in range(8):
            await rig.send(url, f"g{number}")
        assert [each.visible for each in rig.service.find("spread.fifo").counters()] == [2, 2, 2, 2]
        a.taken = True
        assert await rig.receive(url) == 4
        with pytest.raises(Unavailable):
            await rig.receive(url)
        a.taken = False
        assert await rig.receive(url) == 4


@pytest.mark.parametrize("late", ["after the lease", "after another process may have it"])
async def test_messages_are_not_answered_when_others_may_have_them(tmp_path: Path, late: str) -> None:
    store = TouchyStore(tmp_path / "sqs.db")
    async with AsyncExitStack() as stack:
        rig = await opened(stack, {"": store}, durable_leases=True)
        clock = rig.service.clock
        assert isinstance(clock, VirtualClock)
        url = await rig.create("q.fifo", FifoQueue="true", VisibilityTimeout="4")
        await rig.send(url, "g")

        def pause() -> None:
            if late == "after the lease":
                clock.advance(5)
            else:
                store.taken = True

        store.during = pause
        with pytest.raises(PenstockError) as caught:
            await rig.receive(url)
        assert "received too late" in caught.value.message or "taken by the test" in caught.value.message
        store.during, store.taken = None, False
        clock.advance(5)
        assert await rig.receive(url) == 1
