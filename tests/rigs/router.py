"""A router on virtual time between scripted queues and a scripted mediator, and everything it did to them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, cast

import msgspec

from penstock.delivery.breakers import Breakers
from penstock.domain.outcome import (
    SUCCESS,
    CircuitOpen,
    Deferred,
    HttpError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    RateLimited,
    Timeout,
)
from penstock.domain.pointer import DispatchMode, MessagePointer, encode_pointer
from penstock.ops.config.router_options import RouterOptions
from penstock.queues.open import QueueSpec
from penstock.queues.port import Confirmation, Received
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.intake.tracker import BatchGroup, TrackedMessage
from penstock.router.monitoring.views import RouterPoolView
from penstock.router.monitoring.warnings import RouterWarning, WarningCode, WarningFilter, Warnings
from penstock.router.pools.counts import RouterMetrics
from penstock.router.pools.permits import Permit
from penstock.router.router import Router
from penstock.testing.virtual_loop import LoopClock, run_virtual

P = ParamSpec("P")

SERVER_ERROR = MediationOutcome(MediationResult.ERROR_PROCESS, error=HttpError(500), status=500)
TIMED_OUT = MediationOutcome(MediationResult.ERROR_PROCESS, error=Timeout(900))
UNREACHABLE = MediationOutcome(MediationResult.ERROR_CONNECTION, error=NetworkError("refused"))
REFUSED = MediationOutcome(MediationResult.ERROR_CONFIG, error=HttpError(404), status=404)
CIRCUIT_OPEN = MediationOutcome(MediationResult.ERROR_CONNECTION, error=CircuitOpen("http://e.test/"))
FAILED_AT_ONCE = MediationOutcome(MediationResult.ERROR_PROCESS)

Scripted = MediationOutcome | Exception | None
QUEUE = "q"
_IDLE_STEP_S = 0.05
_IDLE_STEPS = 100_000


def deferred(delay_s: int | None = None) -> MediationOutcome:
    """The outcome of `ack: false`."""
    return MediationOutcome(MediationResult.ERROR_PROCESS, delay_s, Deferred(), 200)


def rate_limited(retry_after_s: int) -> MediationOutcome:
    """The outcome of a 429."""
    return MediationOutcome(MediationResult.ERROR_PROCESS, retry_after_s, RateLimited(retry_after_s), 429)


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a virtual loop."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(lambda _: test(*args, **kwargs))

    return run


async def quiet() -> None:
    """Let everyone go on as far as they can at this moment: virtual time passes only when nothing else is left."""
    await asyncio.sleep(1e-6)


def pointer(
    message_id: str,
    group: str | None = "g",
    pool: str = "P",
    *,
    high_priority: bool = False,
    mode: DispatchMode = DispatchMode.BLOCK_ON_ERROR,
) -> MessagePointer:
    """A pointer to a message."""
    return MessagePointer(
        id=message_id,
        mediation_target="http://e.test/",
        pool_code=pool,
        message_group_id=group,
        high_priority=high_priority,
        dispatch_mode=mode,
    )


def received(of: MessagePointer, handle: str = "h1", broker_id: str | None = None) -> Received:
    """A hand-out of a message; its broker id is b-ID unless told."""
    return Received(broker_id or f"b-{of.id}", encode_pointer(of), of.message_group_id, handle)


class Settled(msgspec.Struct, frozen=True):
    """An ack (no delay) or a nack."""

    broker_id: str
    handle: str
    delay_s: int | None
    at_ms: int


class ScriptedSource:
    """A queue that hands out what the test gives it, and remembers how each hand-out was settled."""

    def __init__(self, name: str = QUEUE) -> None:
        self.name = name
        self.address = f"scripted:{name}"
        self.ordered = True
        self.exclusive = False
        self.visibility_s: float | None = None
        self.settled: list[Settled] = []
        self.extended: list[tuple[int, tuple[str, ...]]] = []
        self.polls_ms: list[int] = []
        self.opened = 0
        self.closed = 0
        # The errors of the next calls; a call takes one from the left.
        self.open_errors: deque[Exception] = deque()
        self.receive_errors: deque[Exception] = deque()
        self.settle_errors: deque[Exception] = deque()
        self.extend_errors: deque[Exception] = deque()
        # How long a settlement takes; None is for ever.
        self.settle_s: float | None = 0.0
        # How long it takes to open it.
        self.open_s = 0.0
        # How long an extension takes.
        self.extend_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[list[Received]] = asyncio.Queue()
        self._unconfirmed: list[Confirmation] = []

    def give(self, *batch: Received | MessagePointer) -> None:
        """Let the next poll return this batch."""
        messages = [each if isinstance(each, Received) else received(each) for each in batch]
        for message in messages:
            message.ordered = self.ordered
        self._batches.put_nowait(messages)

    async def open(self) -> None:
        self.opened += 1
        if self.open_s:
            await asyncio.sleep(self.open_s)
        if self.open_errors:
            raise self.open_errors.popleft()

    async def receive(self) -> list[Received]:
        self.polls_ms.append(self._now_ms())
        if self.receive_errors:
            raise self.receive_errors.popleft()
        return await self._batches.get()

    def ack(self, message: Received) -> Confirmation:
        return self._settle(message, None)

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        return self._settle(message, delay_s)

    def _settle(self, message: Received, delay_s: int | None) -> Confirmation:
        self.settled.append(Settled(message.broker_id, message.handle, delay_s, self._now_ms()))
        settlement = Confirmation()
        error = self.settle_errors.popleft() if self.settle_errors else None
        if self.settle_s is None:
            self._unconfirmed.append(settlement)
        else:
            self._loop.call_later(self.settle_s, settlement.resolve, error)
        return settlement

    def confirm_all(self) -> None:
        """Confirm the settlements that would have taken for ever."""
        self.settle_s = 0.0
        for settlement in self._unconfirmed:
            settlement.resolve(None)

    async def extend(self, messages: Sequence[Received]) -> None:
        self.extended.append((self._now_ms(), tuple(message.handle for message in messages)))
        if self.extend_s:
            await asyncio.sleep(self.extend_s)
        if self.extend_errors:
            raise self.extend_errors.popleft()

    async def close(self) -> None:
        self.closed += 1

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    @property
    def acked(self) -> list[str]:
        """Broker ids in the order they were acked."""
        return [each.broker_id for each in self.settled if each.delay_s is None]

    @property
    def nacked(self) -> dict[str, int]:
        """Delays by broker id."""
        return {each.broker_id: each.delay_s for each in self.settled if each.delay_s is not None}


class Delivery(msgspec.Struct):
    """One attempt; `ended_ms` is None while it runs."""

    message_id: str
    group: str
    attempt: int
    started_ms: int
    ended_ms: int | None = None


class ScriptedMediator:
    """Takes so long for a delivery, and gives the outcomes of a message's script, then SUCCESS."""

    def __init__(self, takes_s: float, script: Mapping[str, Iterable[Scripted]]) -> None:
        self.takes_s = takes_s
        self.deliveries: list[Delivery] = []
        self.most_at_once = 0
        # Deliveries of these messages end when the test says so.
        self.held: dict[str, asyncio.Event] = {}
        self._script = {message_id: deque(outcomes) for message_id, outcomes in script.items()}
        self._at_once = 0
        self._loop = asyncio.get_running_loop()

    def hold(self, *message_ids: str) -> None:
        """Let deliveries of these messages last until `let_go`."""
        self.held.update((message_id, asyncio.Event()) for message_id in message_ids)

    def let_go(self, *message_ids: str) -> None:
        """Let held deliveries end."""
        for message_id in message_ids:
            self.held.pop(message_id).set()

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome | None:
        delivery = Delivery(pointer.id, pointer.group, attempt, round(self._loop.time() * 1000))
        self.deliveries.append(delivery)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if pointer.id in self.held:
                await self.held[pointer.id].wait()
            elif self.takes_s:
                await asyncio.sleep(self.takes_s)
        finally:
            self._at_once -= 1
            delivery.ended_ms = round(self._loop.time() * 1000)
        outcomes = self._script.get(pointer.id)
        outcome = outcomes.popleft() if outcomes else SUCCESS
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def order(self) -> list[str]:
        """Message ids in the order their deliveries started."""
        return [delivery.message_id for delivery in self.deliveries]

    def starts_ms(self, message_id: str) -> list[int]:
        """When the attempts of a message started."""
        return [each.started_ms for each in self.deliveries if each.message_id == message_id]


class StagedMediatorScript(ScriptedMediator):
    """A scripted mediator that also takes so long before and after each delivery."""

    prepares_s = 0.02
    concludes_s = 0.02

    async def attempt_in_stages(self, pointer: MessagePointer, attempt: int, permit: Permit) -> MediationOutcome | None:
        await asyncio.sleep(self.prepares_s)
        await permit.take()
        outcome = await self.attempt(pointer, attempt)
        permit.give_back(self.answer_of(pointer.group))
        await asyncio.sleep(self.concludes_s)
        return outcome

    def answer_of(self, group: str) -> MediationOutcome | None:
        """What the subscriber's endpoint said, if all messages of the subscription go there."""
        return None


class RouterRig:
    """A router that consumes scripted queues."""

    def __init__(self, mediator: ScriptedMediator, limits: RouterOptions | None = None) -> None:
        self.clock = LoopClock(asyncio.get_running_loop())
        self.mediator = mediator
        self.warnings = Warnings(self.clock)
        self.metrics = RouterMetrics()
        # The sources made, the newest last.
        self.sources: list[ScriptedSource] = []
        # Settings of sources yet to be made.
        self.prepare: Callable[[ScriptedSource], None] = lambda _: None
        # The errors of the next sources to be made.
        self.make_errors: deque[Exception] = deque()
        breakers = Breakers(self.clock)
        self.router = Router(self._make, mediator, self.clock, self.warnings, self.metrics, breakers, limits)

    def _make(self, queue: QueueSpec) -> ScriptedSource:
        if self.make_errors:
            raise self.make_errors.popleft()
        source = ScriptedSource(queue.queue_name)
        self.prepare(source)
        self.sources.append(source)
        return source

    @property
    def source(self) -> ScriptedSource:
        """The newest source."""
        return self.sources[-1]

    def now_ms(self) -> int:
        """Milliseconds since the loop was made."""
        return round(asyncio.get_running_loop().time() * 1000)

    def warned(self, code: WarningCode) -> list[RouterWarning]:
        """The warnings of a code, newest first."""
        return self.warnings.listed(WarningFilter(code=code))

    def pool(self, code: str = "P") -> RouterPoolView:
        """A pool as it is shown."""
        return next(view for view in self.router.pools() if view.code == code)

    async def idle(self) -> None:
        """Wait, for as long as it takes, until nothing is on its way."""
        await self.idle_but()

    async def idle_but(self, *message_ids: str) -> None:
        """Wait, for as long as it takes, until only these messages are on their way."""
        await quiet()
        for _ in range(_IDLE_STEPS):
            if sum(queue.in_flight for queue in self.router.queues()) == len(message_ids):
                return
            await asyncio.sleep(_IDLE_STEP_S)
        raise AssertionError(f"still on their way: {self.router.in_flight(5).messages}")


def pools(*wanted: PoolConfiguration, queues: Sequence[str] = (QUEUE,), connections: int = 1) -> RouterConfiguration:
    """A configuration of these pools and queues."""
    return RouterConfiguration(wanted, tuple(QueueSpec(name, f"scripted:{name}", connections) for name in queues))


def pool_p(
    concurrency: int = 10, rate_limit_per_minute: int | None = None, *, shared: bool = False
) -> PoolConfiguration:
    """The pool that pointers name unless told."""
    return PoolConfiguration("P", concurrency, rate_limit_per_minute, shared)


@asynccontextmanager
async def running(
    *wanted: PoolConfiguration,
    takes_s: float = 0.1,
    script: Mapping[str, Iterable[Scripted]] | None = None,
    prepare: Callable[[ScriptedSource], None] = lambda _: None,
    limits: RouterOptions | None = None,
    mediator: type[ScriptedMediator] = ScriptedMediator,
) -> AsyncIterator[RouterRig]:
    """A router with these pools (or pool P of concurrency 10) and queue q, polling; shut down at the end."""
    rig = RouterRig(mediator(takes_s, script or {}), limits)
    rig.prepare = prepare
    await rig.router.apply(pools(*(wanted or (pool_p(),))))
    await quiet()
    yield rig
    await rig.router.shut_down()
    assert rig.router.in_flight(1).messages == []


def tracked(
    of: MessagePointer, batch_group: BatchGroup | None = None, tracked_s: float = 0.0, *, ordered: bool = True
) -> TrackedMessage:
    """A message for tests of what never looks at where it came from, nor at the pool it is in."""
    nowhere = cast(Any, None)
    message = received(of)
    message.ordered = ordered
    return TrackedMessage(of, message, nowhere, nowhere, batch_group or BatchGroup(), tracked_s)
