"""The numbers of a report that reach the driver, of bounded size."""

from collections.abc import Sequence
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


Kind = TypeVar("Kind", bound=msgspec.Struct)


def collect_figures(facts: DataFrame, span: ReportPeriod, source: str, partitions: int = DEFAULT_PARTITIONS) -> Figures:
    """Compute the numbers of a report."""
    facts = facts.persist()
    try:
        (totals,) = _values(ReportTotals, aggregates.totals(facts))
        steps = {step.step_ms: step for step in _values(Step, aggregates.attempts_over_time(facts, span.step_ms))}
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
        )
    finally:
        facts.unpersist()


def _idle(number: int) -> PartitionFigures:
    return PartitionFigures(partition=number, groups=0, attempts=0)


def _values(kind: type[Kind], rows: DataFrame) -> list[Kind]:
    collected: Sequence[Row] = rows.collect()
    values: list[dict[str, Any]] = [row.asDict() for row in collected]
    return [kind(**fields) for fields in values]
