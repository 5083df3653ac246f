"""Credit: what may be published, whatever was published, counted and delivered before."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.pace.credit import AwakeStream, Count, CreditBook, CreditLimits, lane_room, pool_credit, shares

COUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 300), max_size=5)
WAITING = st.lists(st.sampled_from("abcde"), unique=True, min_size=1)


@given(credit=st.integers(1, 500), on_their_way=COUNTS, waiting=WAITING, shared=st.booleans())
def test_shares_stay_within_the_credit_and_leave_room_for_one_more(
    credit: int, on_their_way: dict[str, int], waiting: list[str], shared: bool
) -> None:
    granted = shares(credit, on_their_way, waiting, shared=shared)

    free = max(0, credit - sum(on_their_way.values()))
    active = len({*waiting, *(name for name, jobs in on_their_way.items() if jobs)})
    part = max(1, credit // (active + 1))
    assert list(granted) == waiting
    assert all(jobs >= 0 for jobs in granted.values())
    if not shared:
        assert sum(granted.values()) == free
        return
    assert all(not jobs or jobs + on_their_way.get(name, 0) <= part for name, jobs in granted.items())
    # Nobody waits for another one to give back what is more than its part.
    assert all(2 * (granted[name] + on_their_way.get(name, 0)) >= part for name in waiting)
    if all(jobs <= part for jobs in on_their_way.values()):
        assert sum(granted.values()) <= max(free, active)


@given(
    concurrency=st.integers(1, 1000),
    rate=st.none() | st.integers(1, 100_000),
    shared=st.booleans(),
    ended=st.floats(0, 1e6),
)
def test_a_pool_has_credit_for_its_permits_and_a_limited_one_for_seconds(
    concurrency: int, rate: int | None, shared: bool, ended: float
) -> None:
    credit = pool_credit(CreditLimits(concurrency, rate, shared), ended)

    assert credit >= concurrency
    if rate is not None:
        assert credit <= max(concurrency, rate // 12 + 1)
    if shared or not ended:
        assert credit <= max(20 * concurrency, 50)


def test_a_lane_has_room_for_a_few_and_for_one_that_is_tried_again() -> None:
    assert [lane_room(sent, 10, tried=False) for sent in (0, 4, 10, 12)] == [10, 6, 0, 0]
    assert [lane_room(sent, 10, tried=True) for sent in (0, 9, 10)] == [1, 1, 0]


@given(steps=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 150)), max_size=30))
def test_what_is_published_never_exceeds_what_was_counted_and_granted(steps: list[tuple[int, int]]) -> None:
    """One pool with an endless backlog: time passes, and deliveries end."""
    limits = CreditLimits(shared=False)
    book = CreditBook(fixed=limits)
    stream = AwakeStream("p", "s")
    now_ms = on_their_way = 0
    for passed_ms, ended in steps:
        now_ms += passed_ms
        on_their_way = max(0, on_their_way - ended)
        grants = book.grants([stream], now_ms, _counting(on_their_way), dict)
        book.published(stream, grants.get(stream, 0))
        on_their_way += grants.get(stream, 0)
        # The most that it could have delivered in two seconds at the pace of any step.
        assert on_their_way <= max(200, 25 * 200)
        assert on_their_way > 0 or book.next_look_ms() is not None


def _counting(jobs: int) -> Count:
    return lambda _: [("p", "s", jobs)]


def test_a_pool_that_ends_nothing_gets_nothing_more_and_is_looked_at_again() -> None:
    book = CreditBook(fixed=CreditLimits(shared=False))
    stream = AwakeStream("p", "s")
    counted = []

    def count(pools: object) -> list[tuple[str, str, int]]:
        counted.append(pools)
        return [("p", "s", 200 if len(counted) > 1 else 0)]

    assert book.grants([stream], 0, count, dict) == {stream: 200}
    book.published(stream, 200)
    assert book.grants([stream], 1, count, dict) == {}
    look_ms = book.next_look_ms()
    assert look_ms is not None
    assert book.grants([stream], look_ms - 1, count, dict) == {}
    assert len(counted) == 2
    assert book.grants([stream], look_ms, count, dict) == {}
    assert len(counted) == 3


def test_a_pool_rests_until_a_quarter_of_its_credit_is_back() -> None:
    stream = AwakeStream("p", "s")

    def granted(on_their_way: int) -> dict[AwakeStream, int]:
        book = CreditBook(fixed=CreditLimits(shared=False))
        return book.grants([stream], 0, lambda _: [("p", "s", on_their_way)], dict)

    assert granted(150) == {stream: 50}
    assert granted(151) == {}


def test_the_limits_are_read_again_for_a_pool_that_is_new_as_it_may_be_shared() -> None:
    reads: list[dict[str, CreditLimits]] = [
        {"old": CreditLimits(shared=False)},
        {"old": CreditLimits(shared=False), "new": CreditLimits(shared=True)},
    ]
    book = CreditBook()

    def granted(pool: str, now_ms: int) -> int:
        stream = AwakeStream(pool, "s")
        return book.grants([stream], now_ms, lambda _: [], lambda: reads.pop(0))[stream]

    assert granted("old", 0) == 200
    assert granted("new", 10) == 100
    # Neither the known nor the pools that have no limits are asked for again.
    reads.append({})
    assert granted("without", 20) == 200
    reads.append({})
    assert [granted(pool, now_ms) for now_ms in (30, 40) for pool in ("without", "another")] == [200] * 4
    assert reads == []


def test_a_subscription_that_joins_a_pool_is_not_held_back_by_what_another_has() -> None:
    assert shares(200, {"first": 200}, ["first", "joining"], shared=True) == {"first": 0, "joining": 33}


def test_a_subscription_that_comes_while_its_pool_rests_need_not_wait() -> None:
    book = CreditBook(fixed=CreditLimits(shared=True))
    slow, quick = AwakeStream("p", "slow"), AwakeStream("p", "quick")

    def granted(streams: list[AwakeStream], now_ms: int) -> dict[AwakeStream, int]:
        return book.grants(streams, now_ms, lambda _: [("p", "slow", 100)], dict)

    assert granted([slow], 0) == {}
    look_ms = book.next_look_ms()
    assert look_ms is not None
    assert granted([slow], look_ms - 1) == {}
    assert granted([slow, quick], look_ms - 1)[quick] > 0
    # The one that has its part still rests.
    assert granted([slow], look_ms - 1) == {}
    assert book.next_look_ms() == look_ms


def test_the_limits_are_read_again_for_a_subscription_that_is_new_to_its_pool() -> None:
    reads = [{"p": CreditLimits(shared=False)}, {"p": CreditLimits(shared=True)}]
    book = CreditBook()

    def granted(subscription: str, now_ms: int) -> int:
        stream = AwakeStream("p", subscription)
        return book.grants([stream], now_ms, lambda _: [], lambda: reads.pop(0))[stream]

    assert granted("first", 0) == 200
    assert granted("second", 10) == 100
    assert granted("first", 20) == 100
