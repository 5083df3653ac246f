"""Fan-out of Arrow batches: the inline rules, column by column; what is damaged is set aside."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.event import StoredEvent
from penstock.domain.job import NewJob
from penstock.domain.matching import Comparison, Condition, EventFilter
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.rule import FanOut
from penstock.events.fan_out.spark_plan import DataOf, Planned, Planner, no_data, packed, planner_of, unpacked
from penstock.events.fan_out.spark_task import new_jobs
from tests.pipeline.fan_out_worlds import NAMES, batch_of, data_of, events, row_of, subscriptions
from tests.rigs.search import examples

# A world has up to 96 pairs of a subscription and an event, and costs 30 ms.
SOME_WORLDS = settings(max_examples=examples(60))
ALL = Subscription(id="S", name="all", pattern="**", target="https://a.example")


def planned(
    wanting: Sequence[Subscription],
    rows: Sequence[dict[str, Any]],
    most_jobs: int = 1000,
    data_of: DataOf = no_data,
) -> list[Planned]:
    return list(planner_of(packed(wanting)).plan(batch_of(rows), most_jobs, data_of))


def inline(wanting: Sequence[Subscription], told: Sequence[StoredEvent]) -> list[NewJob]:
    fan_out = FanOut(wanting)
    return [job for event in told for job in fan_out.jobs(event)]


def by_id(jobs: Sequence[NewJob]) -> list[NewJob]:
    return sorted(jobs, key=lambda job: job.id)


@SOME_WORLDS
@given(st.lists(subscriptions(), max_size=8), st.lists(events(), max_size=12), st.integers(1, 20))
def test_it_plans_what_the_inline_engine_makes(
    wanting: list[Subscription], told: list[StoredEvent], most_jobs: int
) -> None:
    pieces = planned(wanting, [row_of(event) for event in told], most_jobs, data_of(told))

    jobs = [job for piece in pieces for job in new_jobs(piece.jobs)]
    assert by_id(jobs) == by_id(inline(wanting, told))
    assert [key for piece in pieces for key in piece.jobs.column("group_key").to_pylist()] == [
        job.group_key for job in jobs
    ]


def test_it_asks_filters_what_the_inline_engine_asks() -> None:
    asked = [
        Condition(attribute, comparison, () if comparison in (Comparison.PRESENT, Comparison.ABSENT) else (value,))
        for attribute, comparison, value in product(NAMES[:-1], Comparison, ("", "eu", "E1"))
    ]
    wanting = [
        Subscription(id=f"S{number}", name="s", pattern="**", target="t", tenant=tenant, filter=EventFilter((each,)))
        for number, (each, tenant) in enumerate(product(asked, ("", "acme")))
    ]
    told = [
        StoredEvent(
            id=f"E{number}", source="eu", type="a", received_ms=number, external_id=external_id, subject=subject,
            group=group, tenant=tenant, attributes=attributes,
        )
        for number, (external_id, subject, group, tenant, attributes) in enumerate(
            product(("", "eu-1"), (None, "eu"), (None, "", "g"), ("", "acme"), ({}, {"tier": "eu-west", "id": "E1"}))
        )
    ]  # fmt: skip

    pieces = planned(wanting, [row_of(event) for event in told], 100)

    jobs = [job for piece in pieces for job in new_jobs(piece.jobs)]
    assert by_id(jobs) == by_id(inline(wanting, told))
    assert {key for piece in pieces for key in piece.jobs.column("group_key").to_pylist()} == {
        job.group_key for job in inline(wanting, told)
    }


@SOME_WORLDS
@given(st.lists(subscriptions(), max_size=8), st.lists(events(), max_size=12), st.integers(1, 20))
def test_a_piece_has_all_jobs_of_its_events_and_is_as_large_as_asked(
    wanting: list[Subscription], told: list[StoredEvent], most_jobs: int
) -> None:
    pieces = planned(wanting, [row_of(event) for event in told], most_jobs, data_of(told))

    assert [event_id for piece in pieces for event_id in piece.event_ids.to_pylist()] == [event.id for event in told]
    for piece in pieces:
        assert set(piece.jobs.column("event_id").to_pylist()) <= set(piece.event_ids.to_pylist())
        assert len(piece.jobs) <= most_jobs or len(piece.event_ids) == 1


DAMAGED = [
    pytest.param({"attributes": '{"tier": '}, "not a JSON object of strings", id="cut off"),
    pytest.param({"attributes": ""}, "not a JSON object of strings", id="empty"),
    pytest.param({"attributes": "null"}, "not a JSON object of strings", id="null"),
    pytest.param({"attributes": '["tier"]'}, "not a JSON object of strings", id="a list"),
    pytest.param({"attributes": '{"tier": 1}'}, "not a JSON object of strings", id="a number as value"),
    pytest.param({"attributes": '{"tier": "\\ud800"}'}, "not a JSON object of strings", id="half a character"),
    pytest.param({"attributes": '{"a":' * 100_000}, "not a JSON object of strings", id="deep"),
    pytest.param({"attributes": None}, "no attributes", id="missing attributes"),
    pytest.param({"type": None}, "no type", id="missing type"),
    pytest.param({"tenant": None}, "no tenant", id="missing tenant"),
    pytest.param({"received_ms": None}, "no received_ms", id="missing time"),
    pytest.param({"id": None}, "no id", id="missing id"),
]


@pytest.mark.parametrize(("instead", "reason"), DAMAGED)
def test_a_damaged_event_is_set_aside_and_the_others_go_on(instead: dict[str, object], reason: str) -> None:
    before, bad, after = (StoredEvent(id=name, source="shop", type="a", received_ms=1) for name in ("E1", "E2", "E3"))

    (piece,) = planned([ALL], [row_of(before), row_of(bad, **instead), row_of(after)])

    assert [job.event_id for job in new_jobs(piece.jobs)] == ["E1", "E3"]
    assert piece.event_ids.to_pylist() == ["E1", "E3"]
    ((event_id, told),) = piece.set_aside
    assert event_id == (None if "id" in instead else "E2")
    assert reason in told


def test_a_batch_of_damaged_events_only_is_told_too() -> None:
    bad = StoredEvent(id="E1", source="shop", type="a", received_ms=1)

    (piece,) = planned([ALL], [row_of(bad, attributes="?")])

    assert [each.event_id for each in piece.set_aside] == ["E1"]
    assert len(piece.jobs) == len(piece.event_ids) == 0


def test_unusual_events_are_fanned_out_like_any_other() -> None:
    long = "x" * 1_000_000
    told = [
        StoredEvent(id="E1", source=long, type=long, received_ms=1, attributes={long: long}),
        StoredEvent(id="E2", source="", type="", received_ms=2**63 - 1, group="\N{PILE OF POO}\x00"),
        StoredEvent(id="E3", source="shop", type=":".join("a" * 5000), received_ms=-1, attributes={"": ""}),
    ]
    wanting = [ALL, Subscription(id="L", name="l", pattern="**", target="t", filter=EventFilter((_is(long, long),)))]

    (piece,) = planned(wanting, [row_of(event) for event in told])

    assert by_id(new_jobs(piece.jobs)) == by_id(inline(wanting, told))
    assert not piece.set_aside


def test_types_that_a_publisher_makes_up_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.events.fan_out.spark_plan._MOST_REMEMBERED", 10)
    planner = Planner(unpacked(packed([ALL])))
    told = [StoredEvent(id=f"E{number}", source="shop", type=f"t{number}", received_ms=1) for number in range(100)]

    (piece,) = planner.plan(batch_of(row_of(event) for event in told), 1000)

    assert len(piece.jobs) == 100
    assert len(planner._matcher._known) <= 10


def test_the_secrets_of_subscriptions_stay_on_the_driver() -> None:
    assert b"hush" not in packed([Subscription(id="S", name="s", pattern="**", target="t", secrets=("hush",))])


def _is(attribute: str, value: str) -> Condition:
    return Condition(attribute, values=(value,))


def test_only_the_data_that_filters_read_is_read_and_in_pieces() -> None:
    large = Subscription(
        id="L", name="large", pattern="orders", target="t", filter=EventFilter(expression="data.total >= 450")
    )
    told = [
        StoredEvent(id=f"E{number:03}", source="s", type="orders" if number % 2 else "other", received_ms=number)
        for number in range(1000)
    ]
    asked: list[list[str]] = []

    def read(ids: Sequence[str]) -> dict[str, bytes]:
        asked.append(list(ids))
        return {each: b'{"total": %d}' % int(each[1:]) for each in ids}

    pieces = planned([ALL, large], [row_of(event) for event in told], 10_000, read)

    jobs = [job for piece in pieces for job in new_jobs(piece.jobs) if job.subscription_id == "L"]
    assert [job.event_id for job in jobs] == [event.id for event in told if event.type == "orders"][225:]
    assert [len(ids) for ids in asked] == [200, 200, 100]
    assert all(int(each[1:]) % 2 for ids in asked for each in ids)
