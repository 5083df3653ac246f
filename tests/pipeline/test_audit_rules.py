"""The rules of the audit without Spark: the sweep is exact, and the screen passes over nothing."""

from collections.abc import Sequence
from random import Random

import numpy
import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.plan import Position
from penstock.pipeline.audit.screen_rows import MOST_BEGUN, NO_OUTCOME, NUMBERS, PLACES, in_order
from penstock.pipeline.audit.screening import (
    BLOCKS,
    LATEST_MS,
    NONE_MS,
    PASSES,
    Reach,
    Rows,
    joined,
    last_job_begins,
    screened,
)
from penstock.pipeline.audit.sweep import Delivery, GroupSweep, Hold

MOMENT = st.integers(0, 12)
POSITION = st.builds(Position, st.integers(1, 2), MOMENT, st.sampled_from("abcd"))
UNTIL = st.none() | MOMENT
HOLDS = st.lists(st.builds(Hold, POSITION, st.just("PENDING"), MOMENT, UNTIL, UNTIL), max_size=8)
DELIVERIES = st.lists(st.builds(Delivery, POSITION, MOMENT, st.booleans()), max_size=8)


def _overtaken(delivery: Delivery, holds: Sequence[Hold], tolerance_ms: int) -> Position | None:
    """By looking at every hold."""
    holding = [
        hold.position
        for hold in holds
        if hold.position < delivery.position
        and hold.from_ms + tolerance_ms < delivery.at_ms
        and (until := hold.strict_until_ms if delivery.is_strict else hold.next_until_ms) is not None
        and until > delivery.at_ms + tolerance_ms
    ]
    return min(holding, default=None)


@given(holds=HOLDS, deliveries=DELIVERIES, tolerance_ms=st.integers(0, 2))
def test_a_sweep_finds_the_first_job_that_was_overtaken(
    holds: list[Hold], deliveries: list[Delivery], tolerance_ms: int
) -> None:
    sweep = GroupSweep(tolerance_ms)
    steps: list[tuple[int, int, Hold | Delivery]] = [(hold.from_ms + tolerance_ms, 1, hold) for hold in holds]
    steps += [(delivery.at_ms, 0, delivery) for delivery in deliveries]
    for _, _, step in sorted(steps, key=lambda step: step[:2]):
        if isinstance(step, Hold):
            sweep.begin_hold(step)
            continue
        found = sweep.overtaken(step)
        assert (None if found is None else found.position) == _overtaken(step, holds, tolerance_ms)


class _Row:
    """What a test says of a row; the rest is nothing."""

    def __init__(self, code: int) -> None:
        self.mode = (0, PASSES, BLOCKS, BLOCKS)[code % 4]
        self.at_ms = (code // 4) % 11 - 1
        self.end_ms = self.at_ms if self.at_ms < 0 else self.at_ms + (code // 44) % 3
        self.strict_ms = (NONE_MS, 3, 6, LATEST_MS)[(code // 132) % 4] if self.mode else NONE_MS
        self.loose_ms = self.end_ms if self.mode else NONE_MS
        self.delivered = (code // 528) % 2 if self.at_ms >= 0 else 0


def _rows(groups: Sequence[Sequence[Sequence[int]]]) -> Rows:
    """Groups of jobs of attempts. Attempts of a job come in order of time, and share what is the job's."""
    columns: list[list[int]] = []
    for group, jobs in enumerate(groups):
        for job, codes in enumerate(jobs):
            tried = sorted((_Row(code) for code in codes), key=lambda row: row.at_ms)
            mode, strict_ms = tried[0].mode, tried[0].strict_ms
            for row in tried:
                loose_ms = row.end_ms if mode else NONE_MS
                columns.append(
                    [group, job, mode, row.at_ms, row.end_ms, strict_ms, loose_ms, row.delivered, 0, 0, 0, -1, 0]
                )
    return Rows(*numpy.array(columns, dtype=numpy.int64).T)


def _suspected(rows: Rows) -> list[int]:
    """By looking at every pair of rows."""
    table = [
        dict(zip(Rows._fields, values, strict=True)) for values in zip(*map(numpy.ndarray.tolist, rows), strict=True)
    ]
    found = set()
    for place, row in enumerate(table):
        for other in table[:place]:
            if other["group"] != row["group"] or row["at_ms"] < 0:
                continue
            if other["job"] == row["job"]:
                repeats = other["delivered"] and row["delivered"]
                overlaps = row["mode"] and row["at_ms"] < other["end_ms"]
            else:
                repeats = 0
                limits = [other["loose_ms"]] + ([other["strict_ms"]] if row["mode"] == BLOCKS else [])
                overlaps = row["mode"] and row["at_ms"] < max(limits)
            if repeats or overlaps:
                found.add(row["group"])
    return sorted(found)


CODES = st.lists(
    st.lists(st.lists(st.integers(0, 1055), min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=4
)


@given(groups=CODES, cuts=st.lists(st.integers(1, 4), max_size=20))
def test_the_screen_suspects_exactly_the_groups_with_a_suspect_pair_however_rows_are_cut(
    groups: list[list[list[int]]], cuts: list[int]
) -> None:
    rows = _rows(groups)
    found: set[int] = set()
    reach, held, start = Reach(), None, 0
    for length in [*cuts, len(rows.job)]:
        batch = rows.cut(start, start + length)
        start += length
        if not len(batch.job):
            break
        batch = batch if held is None else joined(held, batch)
        end = last_job_begins(batch)
        if end:
            seen = screened(batch.cut(0, end), reach)
            reach = seen.reach
            found.update(seen.groups.tolist())
        held = batch.cut(end, len(batch.job))
    assert held is not None
    found.update(screened(held, reach).groups.tolist())
    assert sorted(found) == _suspected(rows)


POSITIONS = st.tuples(
    st.integers(0, 2), st.integers(0, 1), st.sampled_from([NONE_MS, 5, 6]), st.sampled_from(["b", "a", "é", "ab"])
)


@given(st.lists(st.tuples(POSITIONS, st.lists(st.integers(0, 9), min_size=1, max_size=3)), max_size=8), st.randoms())
def test_rows_of_a_partition_come_by_group_position_and_time_whatever_order_they_had(
    made: list[tuple[tuple[int, int, int, str], list[int]]], chance: Random
) -> None:
    jobs = dict(made)
    rows = [(*position, at_ms) for position, times in jobs.items() for at_ms in times]
    chance.shuffle(rows)
    numbers = {position: number for number, position in enumerate(jobs)}
    columns: dict[str, list[object]] = {
        "group": [row[0] for row in rows],
        "sequence": [row[1] for row in rows],
        "created_at_ms": [row[2] for row in rows],
        "at_ms": [row[4] for row in rows],
        "job": [numbers[row[:4]] for row in rows],
        "id": [row[3] for row in rows],
        **{name: [NONE_MS] * len(rows) for name in ("end_ms", "strict_ms", "untried_ms")},
        "parts": [0] * len(rows),
    }
    batches = pyarrow.table(columns).to_batches(max_chunksize=3) if rows else []
    found = [
        (group, job, at) for piece in in_order(batches) for group, job, at in zip(*piece[:2], piece.at_ms, strict=True)
    ]

    # What has no time has no place: such jobs stand together, in any order.
    def place(row: tuple[int, int, int, str, int]) -> tuple[object, ...]:
        return (*row[:3], numbers[row[:4]] if row[2] == NONE_MS else row[3], row[4])

    assert found == [(row[0], numbers[row[:4]], row[4]) for row in sorted(rows, key=place)]


def test_small_numbers_are_packed_and_unpacked() -> None:
    parts = {"mode": BLOCKS, "owes_proof": 1, "suspicious": 2, "status": 11, "outcome": NO_OUTCOME, "begun": MOST_BEGUN}
    packed = sum(value << PLACES[name] for name, value in parts.items())
    columns = {name: [7] for name in (*NUMBERS, "group", "job")} | {"parts": [packed], "id": ["x"]}
    (rows,) = in_order(pyarrow.table(columns).to_batches())
    found = {name: int(getattr(rows, name)[0]) for name in parts}
    assert found == {**parts, "outcome": -1}
