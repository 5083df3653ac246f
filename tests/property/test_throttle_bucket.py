"""The token bucket against an exact model, under a clock that may stumble."""

from decimal import Decimal
from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.pace.rate import MAX_RETRY_AFTER_S, TokenBucket

CAPACITIES = st.decimals("10", "100000", places=3)
REFILLS = st.decimals("0.001", "10", places=7)
LIMITS = st.tuples(CAPACITIES, REFILLS)
AMOUNTS = st.integers(1, 10)
# Mostly forward; a clock that is set back, or threads that read it at odds, must not mint.
STEPS = st.one_of(st.just(0), st.integers(1, 2_000), st.integers(0, 10_000_000), st.integers(-5_000, -1))
OPERATIONS = st.lists(st.tuples(STEPS, st.one_of(AMOUNTS, LIMITS)), max_size=60)


class Model:
    """What the bucket promises, in fractions."""

    def __init__(self, capacity: Decimal, refill: Decimal) -> None:
        self.capacity, self.refill = Fraction(capacity), Fraction(refill)
        self.tokens = self.capacity
        self.now_ms = 0

    def advance(self, now_ms: int) -> None:
        if now_ms > self.now_ms:
            gained = Fraction(now_ms - self.now_ms, 1000) * self.refill
            self.tokens = min(self.capacity, self.tokens + gained)
            self.now_ms = now_ms


@given(LIMITS, OPERATIONS)
def test_the_bucket_is_exact(
    limits: tuple[Decimal, Decimal], operations: list[tuple[int, int | tuple[Decimal, Decimal]]]
) -> None:
    bucket, model, now_ms = TokenBucket(*limits, 0), Model(*limits), 0
    for step_ms, operation in operations:
        now_ms = max(0, now_ms + step_ms)
        model.advance(now_ms)
        if isinstance(operation, int):
            granted = bucket.take(operation, now_ms)
            assert granted == (operation <= model.tokens)
            model.tokens -= operation if granted else 0
        else:
            bucket.reconfigure(*operation, now_ms)
            model.capacity, model.refill = Fraction(operation[0]), Fraction(operation[1])
            model.tokens = min(model.tokens, model.capacity)
            # A new unit may round what is there down, never up.
            kept = bucket_tokens(bucket)
            assert model.tokens - Fraction(1, 1000) < kept <= model.tokens
            model.tokens = kept
        assert bucket.is_full(now_ms) == (model.tokens == model.capacity)
        assert bucket.tokens(now_ms) == float(model.tokens)


def bucket_tokens(bucket: TokenBucket) -> Fraction:
    return Fraction(bucket._level, bucket._token)


@given(LIMITS, OPERATIONS)
def test_no_window_grants_more_than_a_burst_and_the_refill(
    limits: tuple[Decimal, Decimal], operations: list[tuple[int, int | tuple[Decimal, Decimal]]]
) -> None:
    bucket, now_ms, latest_ms = TokenBucket(*limits, 0), 0, 0
    allowed = [Fraction(limits[0])]  # for every window's start: what may still be granted in it
    refill = Fraction(limits[1])
    for step_ms, operation in operations:
        now_ms = max(0, now_ms + step_ms)
        elapsed_s = Fraction(max(0, now_ms - latest_ms), 1000)
        latest_ms = max(latest_ms, now_ms)
        allowed = [left + elapsed_s * refill for left in allowed]
        if isinstance(operation, int):
            allowed.append(Fraction(bucket.capacity))
            if bucket.take(operation, now_ms):
                allowed = [left - operation for left in allowed]
        else:
            bucket.reconfigure(*operation, now_ms)
            refill = Fraction(operation[1])
        assert min(allowed) >= 0


@given(LIMITS, st.lists(st.tuples(st.integers(0, 500), AMOUNTS), max_size=40), AMOUNTS, st.integers(-2_000, 2_000))
def test_waiting_as_told_suffices(
    limits: tuple[Decimal, Decimal], before: list[tuple[int, int]], amount: int, step_ms: int
) -> None:
    bucket, now_ms = TokenBucket(*limits, 10_000), 10_000
    for elapsed_ms, taken in before:
        now_ms += elapsed_ms
        bucket.take(taken, now_ms)
    now_ms += step_ms
    held = bucket.tokens(now_ms)
    if bucket.take(amount, now_ms):
        return

    wait_s = bucket.retry_after_s(amount, now_ms)

    assert bucket.tokens(now_ms) == held
    assert 1 <= wait_s <= MAX_RETRY_AFTER_S
    if step_ms >= 0:
        short = amount - bucket_tokens(bucket)
        assert wait_s == min(MAX_RETRY_AFTER_S, max(1, ceil(short / Fraction(limits[1]))))
    if wait_s < MAX_RETRY_AFTER_S:
        assert bucket.take(amount, now_ms + wait_s * 1000)


def test_a_bucket_is_full_at_birth_and_never_fuller() -> None:
    bucket = TokenBucket(Decimal(10), Decimal("0.1"), 0)

    assert bucket.is_full(0)
    assert bucket.is_full(10**12)
    assert [bucket.take(10, 10**12), bucket.take(1, 10**12)] == [True, False]
    assert not bucket.take(1, 10**12 + 9_999)
    assert bucket.take(1, 10**12 + 10_000)


def test_many_small_refills_add_up_to_one_large() -> None:
    bucket = TokenBucket(Decimal(10), Decimal("0.3"), 0)
    bucket.take(10, 0)

    assert not any(bucket.take(3, now_ms) for now_ms in range(1, 10_000))
    assert bucket.take(3, 10_000)


def test_a_raised_limit_hands_out_no_burst_and_a_lowered_one_bites_at_once() -> None:
    bucket = TokenBucket(Decimal(20), Decimal(1), 0)
    bucket.take(15, 0)

    bucket.reconfigure(Decimal(1000), Decimal(1), 0)
    assert bucket.tokens(0) == 5
    bucket.reconfigure(Decimal(20), Decimal(1), 15_000)
    assert bucket.tokens(15_000) == 20
    bucket.reconfigure(Decimal(10), Decimal(1), 15_000)
    assert bucket.tokens(15_000) == 10
