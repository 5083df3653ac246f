"""Throttling of queues: limits, fall-through and life cycle, with a virtual clock and with threads."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from itertools import count

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.core.throttle import MAX_RETRY_AFTER_S, TokenBucket
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.throttling import Action, Throttles, ThrottleSettings, TokenLevel, with_throttles

ACTIONS = st.sampled_from([Action.SEND, Action.RECEIVE])
QUEUES = st.integers(0, 2)


def pair(verb: str, capacity: object, refill: object) -> dict[str, str]:
    return {f"Throttle{verb}Capacity": str(capacity), f"Throttle{verb}RefillPerSecond": str(refill)}


def limited(*pairs: dict[str, str]) -> ThrottleSettings:
    raw = {name: text for each in pairs for name, text in each.items()}
    return with_throttles(ThrottleSettings(), raw)


@st.composite
def some_settings(draw: st.DrawFn) -> ThrottleSettings:
    pairs = [
        pair(verb, draw(st.decimals("10", "40", places=2)), draw(st.decimals("0.001", "10", places=3)))
        for verb in ("Send", "Recv", "Default")
        if draw(st.booleans())
    ]
    return limited(*pairs)


def answer(
    throttles: Throttles, queue_id: int, settings: ThrottleSettings, action: Action, n: int, now_ms: int
) -> SqsError | None:
    try:
        throttles.charge(queue_id, f"q{queue_id}", settings, action, n, now_ms)
    except SqsError as error:
        return error
    return None


def granted(
    throttles: Throttles, queue_id: int, settings: ThrottleSettings, action: Action, n: int, now_ms: int
) -> bool:
    return answer(throttles, queue_id, settings, action, n, now_ms) is None


class Budget:
    """For every window of a bucket's life: what may still be granted in it."""

    def __init__(self) -> None:
        self.windows: list[Fraction] = []
        self.latest_ms = 0

    def advance(self, refill: Decimal, now_ms: int) -> None:
        elapsed_s = Fraction(max(0, now_ms - self.latest_ms), 1000)
        self.latest_ms = max(self.latest_ms, now_ms)
        self.windows = [left + elapsed_s * Fraction(refill) for left in self.windows]

    def take(self, capacity: Decimal, n: int) -> None:
        self.windows = [left - n for left in [*self.windows, Fraction(capacity)]]


class ThrottledQueues(RuleBasedStateMachine):
    """Queues that are charged, changed, deleted, made anew and swept, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.throttles = Throttles()
        self.now_ms = self.seen_ms = 1_000_000
        self.next_id = 3
        self.ids = [0, 1, 2]
        self.settings = [ThrottleSettings()] * 3
        self.budgets: dict[tuple[int, Action], Budget] = {}

    @rule(step_ms=st.one_of(st.integers(0, 3_000), st.integers(0, 1_000_000), st.integers(-2_000, -1)))
    def pass_time(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(queue=QUEUES, action=ACTIONS, n=st.integers(1, 10))
    def charge(self, queue: int, action: Action, n: int) -> None:
        self.charged(queue, action, n)

    @rule(queue=QUEUES, action=ACTIONS, n=st.integers(1, 10))
    def wait_as_told(self, queue: int, action: Action, n: int) -> None:
        error = self.charged(queue, action, n)
        if error is not None:
            assert error.retry_after_s is not None
            self.now_ms += error.retry_after_s * 1000
            if error.retry_after_s < MAX_RETRY_AFTER_S:
                assert self.charged(queue, action, n) is None

    def charged(self, queue: int, action: Action, n: int) -> SqsError | None:
        id, settings = self.ids[queue], self.settings[queue]
        held = {(level.queue_name, level.action): level.tokens for level in self.levels()}
        error = answer(self.throttles, id, settings, action, n, self.clock())
        limit = settings.limit_of(action)
        if limit is None:
            assert error is None
            return None
        if error is not None:
            assert error.kind is ErrorKind.THROTTLING
            assert str(error) == f"Rate exceeded for queue 'q{id}' action '{action}'"
            assert held == {(level.queue_name, level.action): level.tokens for level in self.levels()}
        budget = self.budgets.setdefault((id, limit.bucket), Budget())
        budget.advance(limit.refill_per_s, self.seen_ms)
        if error is None:
            budget.take(limit.capacity, n)
        return error

    def clock(self) -> int:
        """The time as it is told to the buckets, which go by the latest they were told."""
        self.seen_ms = max(self.seen_ms, self.now_ms)
        return self.now_ms

    def levels(self) -> list[TokenLevel]:
        return self.throttles.tokens_remaining(self.clock())

    @rule(queue=QUEUES, settings=some_settings())
    def change(self, queue: int, settings: ThrottleSettings) -> None:
        before, id = self.settings[queue], self.ids[queue]
        now_ms = self.clock()
        held = {limit.bucket: limit for limit in before.limits()}
        kept = {limit.bucket for limit in settings.limits()}
        for action in Action:
            if action not in held or action not in kept:
                # While there was no limit, anything was granted: windows do not reach across that.
                self.budgets.pop((id, action), None)
            elif (id, action) in self.budgets:
                self.budgets[id, action].advance(held[action].refill_per_s, self.seen_ms)
        self.throttles.change(id, f"q{id}", before, settings, now_ms)
        self.settings[queue] = settings

    @rule(queue=QUEUES)
    def write_the_same_values(self, queue: int) -> None:
        before = self.levels()
        self.throttles.change(self.ids[queue], "", self.settings[queue], self.settings[queue], self.clock())
        assert self.levels() == before

    @rule(queue=QUEUES)
    def delete_and_make_anew(self, queue: int) -> None:
        self.throttles.drop(self.ids[queue])
        assert f"q{self.ids[queue]}" not in {level.queue_name for level in self.levels()}
        self.ids[queue] = self.next_id
        self.next_id += 1

    @rule(limit=st.integers(1, 3))
    def sweep(self, limit: int) -> None:
        before = len(self.throttles)
        dropped = self.throttles.sweep(self.clock(), limit)
        assert before - len(self.throttles) == dropped <= 3 * limit

    @invariant()
    def no_window_grants_too_much(self) -> None:
        assert all(left >= 0 for budget in self.budgets.values() for left in budget.windows)

    @invariant()
    def there_are_no_more_buckets_than_limits_ever_set(self) -> None:
        assert len(self.throttles) <= 3 * len(self.ids)


TestThrottledQueues = ThrottledQueues.TestCase
TestThrottledQueues.settings = hypothesis_settings(stateful_step_count=60, deadline=None)


def test_an_action_without_its_own_limit_shares_the_default() -> None:
    throttles, settings = Throttles(), limited(pair("Send", 10, 1), pair("Default", 20, 1))

    assert granted(throttles, 1, settings, Action.SEND, 10, 0)
    assert not granted(throttles, 1, settings, Action.SEND, 1, 0)
    assert granted(throttles, 1, settings, Action.RECEIVE, 10, 0)
    shared = with_throttles(settings, pair("Send", 0, 0))
    assert granted(throttles, 1, shared, Action.SEND, 10, 0)
    assert not granted(throttles, 1, shared, Action.RECEIVE, 1, 0)


def test_queues_have_buckets_of_their_own() -> None:
    throttles, settings = Throttles(), limited(pair("Default", 10, 1))

    assert granted(throttles, 1, settings, Action.SEND, 10, 0)
    assert granted(throttles, 2, settings, Action.SEND, 10, 0)


def test_without_limits_there_are_no_buckets() -> None:
    throttles = Throttles()

    assert all(granted(throttles, id, ThrottleSettings(), Action.SEND, 10, 0) for id in range(100))
    assert all(granted(throttles, 1, limited(pair("Send", 10, 1)), Action.RECEIVE, 10, 0) for _ in range(100))
    assert len(throttles) == 0


def test_a_charge_notices_a_change_by_itself() -> None:
    throttles = Throttles()

    assert granted(throttles, 1, limited(pair("Send", 20, 1)), Action.SEND, 5, 0)
    assert granted(throttles, 1, limited(pair("Send", 10, 1)), Action.SEND, 10, 0)
    assert not granted(throttles, 1, limited(pair("Send", 1000, 1)), Action.SEND, 1, 0)


def test_raising_the_limit_of_an_idle_queue_hands_out_no_burst() -> None:
    throttles, before, after = Throttles(), limited(pair("Send", 10, 1)), limited(pair("Send", 1000, 1))

    throttles.change(1, "q1", before, after, 0)

    assert granted(throttles, 1, after, Action.SEND, 10, 0)
    assert not granted(throttles, 1, after, Action.SEND, 1, 0)


def test_only_full_buckets_are_dropped() -> None:
    throttles, settings = Throttles(), limited(pair("Send", 10, 1), pair("Recv", 10, 1))
    assert granted(throttles, 1, settings, Action.SEND, 10, 0)
    assert granted(throttles, 1, settings, Action.RECEIVE, 5, 0)

    assert [throttles.sweep(now_ms) for now_ms in (0, 4_999, 5_000, 9_999, 10_000)] == [0, 0, 1, 0, 1]
    assert len(throttles) == 0


def test_a_sweep_comes_round_to_every_queue() -> None:
    throttles, settings = Throttles(), limited(pair("Send", 10, 1))
    for id in range(10):
        assert granted(throttles, id, settings, Action.SEND, 1 if id == 9 else 10, 0)

    assert sum(throttles.sweep(1_000, limit=3) for _ in range(4)) == 1
    assert len(throttles) == 9


def test_a_clock_set_back_after_an_eviction_mints_nothing() -> None:
    throttles, settings = Throttles(), limited(pair("Send", 10, 1))
    assert granted(throttles, 1, settings, Action.SEND, 10, 0)
    assert throttles.sweep(10_000) == 1

    assert granted(throttles, 1, settings, Action.SEND, 10, 0)
    assert not granted(throttles, 1, settings, Action.SEND, 1, 10_000)


def test_the_gauge_tells_what_is_left() -> None:
    throttles, settings = Throttles(), limited(pair("Send", 10, "2.5"), pair("Default", 20, 1))
    assert granted(throttles, 1, settings, Action.SEND, 10, 0)
    assert granted(throttles, 1, settings, Action.RECEIVE, 5, 0)

    assert throttles.tokens_remaining(1_000) == [("q1", Action.SEND, 2.5), ("q1", Action.ANY, 16.0)]
    throttles.drop(1)
    assert throttles.tokens_remaining(1_000) == []


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_threads_never_get_more_than_the_bound() -> None:
    throttles, settings = Throttles(), limited(pair("Send", 50, 20))
    ticks = count()

    def charge(n: int) -> int:
        return sum(n for _ in range(3_000) if granted(throttles, 1, settings, Action.SEND, n, next(ticks)))

    def sweep() -> int:
        return sum(throttles.sweep(next(ticks)) for _ in range(3_000))

    with ThreadPoolExecutor(7) as pool:
        charges = [pool.submit(charge, n) for n in range(1, 7)]
        sweeps = pool.submit(sweep)
    total = sum(charge.result() for charge in charges)
    sweeps.result()

    assert 50 <= total <= 50 + 20 * next(ticks) / 1000


def test_a_bucket_that_left_the_map_never_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    throttles, settings, take = Throttles(), limited(pair("Send", 10, 1)), TokenBucket.take
    grants: list[bool] = []
    others: list[threading.Thread] = []

    def sweep_and_charge() -> None:
        throttles.sweep(0)
        grants.append(granted(throttles, 1, settings, Action.SEND, 10, 0))

    def interrupted_take(bucket: TokenBucket, n: int, now_ms: int) -> bool:
        if not others:
            others.append(threading.Thread(target=sweep_and_charge))
            others[0].start()
            others[0].join(timeout=0.1)  # passes in full when the lock holds it off
        return take(bucket, n, now_ms)

    monkeypatch.setattr(TokenBucket, "take", interrupted_take)

    grants.append(granted(throttles, 1, settings, Action.SEND, 10, 0))
    others[0].join()

    assert grants.count(True) == 1
