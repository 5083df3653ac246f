"""Event-type patterns: what they match, what is refused, and that the index agrees with asking one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidArgument
from penstock.domain.matching import EventPattern, PatternIndex


def matches(pattern: EventPattern, event_type: str) -> bool:
    """Say whether one pattern wants a type: the rule that the index must agree with."""
    wanted, segments = pattern.segments, event_type.split(":")
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        segments = segments[: len(wanted)]
    return len(wanted) == len(segments) and all(
        want in ("*", segment) for want, segment in zip(wanted, segments, strict=True)
    )


@pytest.mark.parametrize(
    ("pattern", "event_type", "wanted"),
    [
        ("orders:created", "orders:created", True),
        ("orders:created", "orders:created:twice", False),
        ("orders:created", "orders", False),
        ("orders:created", "Orders:created", False),
        ("orders:*:shipment:*", "orders:eu:shipment:sent", True),
        ("orders:*:shipment:*", "orders:eu:refund:sent", False),
        ("orders:*:shipment:*", "orders:eu:shipment", False),
        ("orders:*", "orders:eu:created", False),
        ("*", "orders", True),
        ("*", "orders:created", False),
        ("orders:**", "orders:eu:shipment:sent", True),
        ("orders:**", "orders:created", True),
        ("orders:**", "orders", True),
        ("orders:**", "order", False),
        ("orders:*:**", "orders", False),
        ("orders:*:**", "orders:eu", True),
        ("**", "anything:at:all", True),
        ("com.shop.order", "com.shop.order", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, event_type: str, wanted: bool) -> None:
    parsed = EventPattern.parse(pattern)

    assert matches(parsed, event_type) is wanted
    assert bool(PatternIndex([(parsed, "subscriber")]).matching(event_type)) is wanted
    assert str(parsed) == pattern


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "a segment is empty"),
        ("orders::created", "a segment is empty"),
        ("orders:**:created", "can only be the last segment"),
        ("orders:ship*", "'ship\\*' mixes"),
        ("orders:***", "mixes"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        EventPattern.parse(pattern)


SEGMENTS = st.sampled_from(["a", "b", "c"])
TYPES = st.lists(SEGMENTS, min_size=1, max_size=4).map(":".join)
PATTERNS = st.builds(
    lambda segments, rest: EventPattern((*segments, "**") if rest else tuple(segments)),
    st.lists(st.one_of(SEGMENTS, st.just("*")), min_size=1, max_size=4),
    st.booleans(),
)


@given(st.lists(PATTERNS, max_size=20), TYPES)
def test_the_index_finds_what_asking_one_by_one_finds(patterns: list[EventPattern], event_type: str) -> None:
    index = PatternIndex((pattern, number) for number, pattern in enumerate(patterns))

    assert sorted(index.matching(event_type)) == [
        number for number, pattern in enumerate(patterns) if matches(pattern, event_type)
    ]
