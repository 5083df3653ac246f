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

from penstock.domain.pace.rate import MAX_RETRY_AFTER_S, TokenBucket
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.queue.throttle import Action, QueueThrottle, Throttles, ThrottleSettings, with_throttles

ACTIONS = st.sampled_from([Action.SEND, Action.RECEIVE])
QUEUES = st.integers(0, 2)


def pair(verb: str, capacity: object, refill: object) -> dict[str, str]:
    return {f"Throttle{verb}Capacity": str(capacity), f"Throttle{verb}RefillPerSecond": str(refill)}


def limited(*pairs: dict[str, str]) -> ThrottleSettings:
    raw = {name: text for each in pairs for name, text in each.items()}
    return with_throttles(ThrottleSettings(), raw)


SEND_10 = pair("Send", 10, 1)


@st.composite
def some_settings(draw: st.DrawFn) -> ThrottleSettings:
    pairs = [
        pair(verb, draw(st.decimals("10", "40", places=2)), draw(st.decimals("0.001", "10", places=3)))
        for verb in ("Send", "Recv", "Default")
        if draw(st.booleans())
    ]
    return limited(*pairs)


def answer(throttle: QueueThrottle, action: Action, n: int, now_ms: int) -> SqsError | None:
    try:
        throttle.charge(action, n, now_ms)
    except SqsError as error:
        return error
    return None


def granted(throttle: QueueThrottle, action: Action, n: int, now_ms: int) -> bool:
    return answer(throttle, action, n, now_ms) is None


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
    """Queues that are charged, changed, deleted, made again and swept, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.throttles = Throttles()
        self.now_ms = 1_000_000
        self.settings = [ThrottleSettings()] * 3
        self.made = 0
        self.queues = [self.make(number) for number in range(3)]
        self.budgets: dict[tuple[str, Action], Budget] = {}

    def make(self, number: int) -> QueueThrottle:
        self.made += 1
        return self.throttles.of_queue(f"q{self.made}", self.settings[number])

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
        throttle, settings = self.queues[queue], self.settings[queue]
        held = self.levels()
        error = answer(throttle, action, n, self.now_ms)
        limit = settings.limit_of(action)
        if limit is None:
            assert error is None
            return None
        if error is not None:
            assert error.kind is ErrorKind.THROTTLING
            assert str(error) == f"Rate exceeded for queue '{throttle.name}' action '{action}'"
            assert held == self.levels()
        budget = self.budgets.setdefault((throttle.name, limit.bucket), Budget())
        budget.advance(limit.refill_per_s, self.now_ms)
        if error is None:
            budget.take(limit.capacity, n)
        return error

    def levels(self) -> dict[tuple[str, Action], float]:
        return {(name, action): tokens for name, action, tokens in self.throttles.tokens_remaining(self.now_ms)}

    @rule(queue=QUEUES, settings=some_settings())
    def change(self, queue: int, settings: ThrottleSettings) -> None:
        throttle = self.queues[queue]
        before = {limit.bucket: limit for limit in self.settings[queue].limits()}
        after = {limit.bucket: limit for limit in settings.limits()}
        for action in Action:
            bucket = (throttle.name, action)
            if action not in before or action not in after:
                # While there was no limit, anything was granted: windows do not reach across that.
                self.budgets.pop(bucket, None)
            elif bucket in self.budgets and before[action] != after[action]:
                self.budgets[bucket].advance(before[action].refill_per_s, self.now_ms)
        throttle.change(settings, self.now_ms)
        self.settings[queue] = settings

    @rule(queue=QUEUES)
    def write_the_same_values(self, queue: int) -> None:
        before = self.levels()
        self.queues[queue].change(self.settings[queue], self.now_ms)
        assert self.levels() == before

    @rule(queue=QUEUES)
    def delete_and_make_anew(self, queue: int) -> None:
        gone = self.queues[queue]
        gone.drop()
        assert gone.name not in {name for name, _ in self.levels()}
        self.queues[queue] = self.make(queue)

    @rule(limit=st.integers(1, 3))
    def sweep(self, limit: int) -> None:
        before = self.levels()
        dropped = self.throttles.sweep(self.now_ms, limit)
        gone = before.keys() - self.levels().keys()
        assert len(gone) == dropped <= 3 * limit
        limits = {
            (throttle.name, each.bucket): each
            for throttle, settings in zip(self.queues, self.settings, strict=True)
            for each in settings.limits()
        }
        for bucket in gone & limits.keys() & self.budgets.keys():
            # It was refilled for the time until now, whatever the clock says later.
            self.budgets[bucket].advance(limits[bucket].refill_per_s, self.now_ms)

    @invariant()
    def no_window_grants_too_much(self) -> None:
        assert all(left >= 0 for budget in self.budgets.values() for left in budget.windows)

    @invariant()
    def there_are_at_most_three_buckets_of_a_queue(self) -> None:
        assert len(self.throttles) == len(self.levels()) <= 3 * len(self.queues)


TestThrottledQueues = ThrottledQueues.TestCase
TestThrottledQueues.settings = hypothesis_settings(stateful_step_count=60, deadline=None)


def throttle_of(settings: ThrottleSettings) -> QueueThrottle:
    return Throttles().of_queue("q", settings)


def test_an_action_without_its_own_limit_shares_the_default() -> None:
    settings = limited(pair("Send", 10, 1), pair("Default", 20, 1))
    throttle = throttle_of(settings)

    assert granted(throttle, Action.SEND, 10, 0)
    assert not granted(throttle, Action.SEND, 1, 0)
    assert granted(throttle, Action.RECEIVE, 10, 0)
    throttle.change(with_throttles(settings, pair("Send", 0, 0)), 0)
    assert granted(throttle, Action.SEND, 10, 0)
    assert not granted(throttle, Action.RECEIVE, 1, 0)


def test_queues_have_buckets_of_their_own() -> None:
    throttles, settings = Throttles(), limited(pair("Default", 10, 1))

    assert all(granted(throttles.of_queue(name, settings), Action.SEND, 10, 0) for name in ("one", "two"))


def test_without_limits_there_are_no_buckets() -> None:
    throttles = Throttles()
    unlimited, sends_limited = (throttles.of_queue("q", each) for each in (ThrottleSettings(), limited(SEND_10)))

    assert all(granted(unlimited, Action.SEND, 10, 0) for _ in range(100))
    assert all(granted(sends_limited, Action.RECEIVE, 10, 0) for _ in range(100))
    assert len(throttles) == 0


def test_a_change_keeps_the_tokens_there_are() -> None:
    throttle = throttle_of(limited(pair("Send", 20, 1)))

    assert granted(throttle, Action.SEND, 5, 0)
    throttle.change(limited(SEND_10), 0)
    assert granted(throttle, Action.SEND, 10, 0)
    throttle.change(limited(pair("Send", 1000, 1)), 0)
    assert not granted(throttle, Action.SEND, 1, 0)


def test_raising_the_limit_of_an_idle_queue_hands_out_no_burst() -> None:
    throttle = throttle_of(limited(SEND_10))

    throttle.change(limited(pair("Send", 1000, 1)), 0)

    assert granted(throttle, Action.SEND, 10, 0)
    assert not granted(throttle, Action.SEND, 1, 0)


def test_only_full_buckets_are_dropped() -> None:
    throttles = Throttles()
    throttle = throttles.of_queue("q", limited(SEND_10, pair("Recv", 10, 1)))
    assert granted(throttle, Action.SEND, 10, 0)
    assert granted(throttle, Action.RECEIVE, 5, 0)

    assert [throttles.sweep(now_ms) for now_ms in (0, 4_999, 5_000, 9_999, 10_000)] == [0, 0, 1, 0, 1]
    assert len(throttles) == 0


def test_a_sweep_comes_round_to_every_queue() -> None:
    throttles = Throttles()
    for number in range(10):
        throttle = throttles.of_queue(f"q{number}", limited(SEND_10))
        assert granted(throttle, Action.SEND, 1 if number == 9 else 10, 0)

    assert sum(throttles.sweep(1_000, limit=3) for _ in range(4)) == 1
    assert len(throttles) == 9


def test_a_clock_set_back_after_an_eviction_mints_nothing() -> None:
    throttles = Throttles()
    throttle = throttles.of_queue("q", limited(SEND_10))
    assert granted(throttle, Action.SEND, 10, 0)
    assert throttles.sweep(10_000) == 1

    assert granted(throttle, Action.SEND, 10, 0)
    assert not granted(throttle, Action.SEND, 1, 10_000)


def test_a_bucket_that_had_seen_a_later_time_mints_nothing_when_it_is_evicted() -> None:
    throttles = Throttles()
    throttle = throttles.of_queue("q", limited(pair("Send", 20, 10)))
    assert granted(throttle, Action.SEND, 1, 0)
    throttle.change(limited(pair("Send", 10, 10)), 2_000)
    assert throttles.sweep(1_000) == 1

    assert granted(throttle, Action.SEND, 10, 1_000)
    assert not granted(throttle, Action.SEND, 1, 2_000)


def test_the_gauge_tells_what_is_left() -> None:
    throttles = Throttles()
    throttle = throttles.of_queue("q1", limited(pair("Send", 10, "2.5"), pair("Default", 20, 1)))
    assert granted(throttle, Action.SEND, 10, 0)
    assert granted(throttle, Action.RECEIVE, 5, 0)

    assert throttles.tokens_remaining(1_000) == [("q1", Action.SEND, 2.5), ("q1", Action.ANY, 16.0)]
    throttle.drop()
    assert throttles.tokens_remaining(1_000) == []


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_threads_never_get_more_than_the_bound() -> None:
    throttles = Throttles()
    throttle = throttles.of_queue("q", limited(pair("Send", 50, 20)))
    ticks = count()

    def charge(n: int) -> int:
        return sum(n for _ in range(3_000) if granted(throttle, Action.SEND, n, next(ticks)))

    def sweep() -> int:
        return sum(throttles.sweep(next(ticks)) for _ in range(3_000))

    with ThreadPoolExecutor(7) as pool:
        charges = [pool.submit(charge, n) for n in range(1, 7)]
        sweeps = pool.submit(sweep)
    total = sum(charge.result() for charge in charges)
    sweeps.result()

    assert 50 <= total <= 50 + 20 * next(ticks) / 1000


def test_a_bucket_that_left_the_map_never_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    throttles, take = Throttles(), TokenBucket.take
    throttle = throttles.of_queue("q", limited(SEND_10))
    grants: list[bool] = []
    others: list[threading.Thread] = []

    def sweep_and_charge() -> None:
        throttles.sweep(0)
        grants.append(granted(throttle, Action.SEND, 10, 0))

    def interrupted_take(bucket: TokenBucket, n: int, now_ms: int) -> bool:
        if not others:
            others.append(threading.Thread(target=sweep_and_charge))
            others[0].start()
            others[0].join(timeout=0.1)  # passes in full when the lock holds it off
        return take(bucket, n, now_ms)

    monkeypatch.setattr(TokenBucket, "take", interrupted_take)

    grants.append(granted(throttle, Action.SEND, 10, 0))
    others[0].join()

    assert grants.count(True) == 1
