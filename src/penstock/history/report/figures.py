"""The numbers of a report that reach the driver, of bounded size."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from pyspark.sql import DataFrame, Row

from penstock.history.report import aggregates
from penstock.history.report.period import ReportPeriod

MOST = 20
DEFAULT_PARTITIONS = 16


class ReportTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts together."""

    attempts: int
    delivered: int
    failed: int
    refused: int
    deferred: int
    jobs: int = 0
    groups: int = 0
    repaired: int
    wait_mean_ms: float | None
    wait_longest_ms: int | None
    p50_ms: int | None
    p99_ms: int | None
    wait_p50_ms: int | None = None
    wait_p99_ms: int | None = None


class SubscriptionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a type for a subscription; `subscription` is its name, or its id if it was deleted."""

    subscription_id: str | None
    event_type: str | None
    attempts: int
    failed: int
    wait_p50_ms: int | None
    wait_p99_ms: int | None
    p99_ms: int | None
    subscription: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group and its share."""

    group_key: str
    attempts: int
    failed: int
    busy_ms: int


class PartitionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a partition."""

    partition: int
    groups: int
    attempts: int


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why attempts did not deliver."""

    reason: str
    outcome: str
    attempts: int
    endpoints: int


class EndpointFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How quickly an endpoint answers."""

    endpoint: str
    attempts: int
    failed: int
    p50_ms: int
    p95_ms: int
    p99_ms: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a time step."""

    step_ms: int
    first: int = 0
    retries: int = 0
    failed: int = 0
    waiting: int = 0
    """Jobs that were due at its end, and had their first attempt later in the period."""


class BacklogChange(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the backlog grew in a time step."""

    step_ms: int
    change: int


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """How many attempts of a time step fell into a latency bucket."""

    step_ms: int
    bucket: int
    attempts: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report shows."""

    span: ReportPeriod
    source: str
    totals: ReportTotals
    groups: list[Group]
    partitions: list[PartitionFigures]
    reasons: list[Reason]
    endpoints: list[EndpointFigures]
    steps: list[Step]
    cells: list[Cell]
    subscriptions: list[SubscriptionFigures] = []


Kind = TypeVar("Kind", bound=msgspec.Struct)


def collect_figures(
    facts: DataFrame,
    span: ReportPeriod,
    source: str,
    partitions: int = DEFAULT_PARTITIONS,
    names: Mapping[str, str] | None = None,
) -> Figures:
    """Compute the numbers of a report; `names` are those of subscriptions, by their ids."""
    facts = facts.persist()
    try:
        (totals,) = _values(ReportTotals, aggregates.totals(facts))
        steps = {step.step_ms: step for step in _values(Step, aggregates.attempts_over_time(facts, span.step_ms))}
        for step_ms, waiting in _backlog(facts, span).items():
            steps[step_ms] = msgspec.structs.replace(steps.get(step_ms, Step(step_ms=step_ms)), waiting=waiting)
        loads = {
            load.partition: load for load in _values(PartitionFigures, aggregates.partition_load(facts, partitions))
        }
        return Figures(
            span=span,
            source=source,
            totals=msgspec.structs.replace(
                totals,
                jobs=aggregates.jobs(facts).collect()[0]["jobs"],
                groups=sum(each.groups for each in loads.values()),
            ),
            groups=_values(Group, aggregates.groups_by_volume(facts, MOST)),
            partitions=[loads.get(number, _idle(number)) for number in range(partitions)] if loads else [],
            reasons=_values(Reason, aggregates.failure_reasons(facts, MOST)),
            endpoints=_values(EndpointFigures, aggregates.slowest_endpoints(facts, MOST)),
            steps=[steps.get(step_ms, Step(step_ms=step_ms)) for step_ms in span.steps] if steps else [],
            cells=_values(Cell, aggregates.latency_over_time(facts, span.step_ms)),
            subscriptions=[
                _named(each, names or {})
                for each in _values(SubscriptionFigures, aggregates.subscriptions_by_volume(facts, MOST))
            ],
        )
    finally:
        facts.unpersist()


def _backlog(facts: DataFrame, span: ReportPeriod) -> dict[int, int]:
    changes = _values(BacklogChange, aggregates.backlog_changes(facts, span.since_ms, span.step_ms))
    if not changes:
        return {}
    by_step = {each.step_ms: each.change for each in changes}
    return dict(zip(span.steps, accumulate(by_step.get(step_ms, 0) for step_ms in span.steps), strict=True))


def _named(found: SubscriptionFigures, names: Mapping[str, str]) -> SubscriptionFigures:
    subscription_id = found.subscription_id or ""
    return msgspec.structs.replace(found, subscription=names.get(subscription_id, subscription_id))


def _idle(number: int) -> PartitionFigures:
    return PartitionFigures(partition=number, groups=0, attempts=0)


def _values(kind: type[Kind], rows: DataFrame) -> list[Kind]:
    collected: Sequence[Row] = rows.collect()
    values: list[dict[str, Any]] = [row.asDict() for row in collected]
    return [kind(**fields) for fields in values]
