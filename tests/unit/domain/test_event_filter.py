"""Filters on an event's attributes."""

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.domain.event import Filterable, StoredEvent
from penstock.domain.matching import Comparison, Condition, EventFilter

EU = {"region": "eu-west", "tier": "gold"}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition("region", Comparison.IN, ("us", "eu-west")), True),
        (Condition("region", Comparison.IN, ("eu",)), False),
        (Condition("missing", Comparison.IN, ("eu",)), False),
        (Condition("region", Comparison.NOT_IN, ("us",)), True),
        (Condition("region", Comparison.NOT_IN, ("eu-west",)), False),
        (Condition("missing", Comparison.NOT_IN, ("us",)), True),
        (Condition("region", Comparison.PREFIX, ("us-", "eu-")), True),
        (Condition("region", Comparison.PREFIX, ("us-",)), False),
        (Condition("missing", Comparison.PREFIX, ("",)), False),
        (Condition("tier", Comparison.PRESENT), True),
        (Condition("missing", Comparison.PRESENT), False),
        (Condition("missing", Comparison.ABSENT), True),
        (Condition("tier", Comparison.ABSENT), False),
    ],
)
def test_a_condition(condition: Condition, holds: bool) -> None:
    assert condition.holds(EU) is holds


def test_all_conditions_must_hold_and_none_means_everything() -> None:
    region, silver = Condition("region", values=("eu-west",)), Condition("tier", values=("silver",))

    event = Filterable(EU, b'{"total": 5}', "application/json")

    assert EventFilter((region,)).passes(event)
    assert not EventFilter((region, silver)).passes(event)
    assert EventFilter((region,), "data.total == 5").passes(event)
    assert not EventFilter((silver,), "data.total == 5").passes(event)
    assert not EventFilter((region,), "data.total > 5").passes(event)
    assert EventFilter().passes(Filterable({}, b"", ""))


@pytest.mark.parametrize(
    ("attribute", "comparison", "values", "reason"),
    [
        ("", Comparison.IN, ("x",), "must name an attribute"),
        ("a", Comparison.IN, (), "needs at least one value"),
        ("a", Comparison.PRESENT, ("x",), "takes no values"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(
    attribute: str, comparison: Comparison, values: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        Condition(attribute, comparison, values)


def test_what_every_event_has_can_be_filtered_and_not_faked() -> None:
    event = StoredEvent(
        id="1",
        source="shop",
        type="orders:created",
        subject="17",
        received_ms=0,
        attributes={"source": "fake", "a": "b"},
    )

    assert event.filterable.attributes == {
        "id": "1",
        "source": "shop",
        "type": "orders:created",
        "subject": "17",
        "a": "b",
    }
