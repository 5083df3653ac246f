"""Lanes planned where they are read: the rules of `core.order` on Arrow columns, and how plans travel to tasks."""

from collections import defaultdict
from itertools import accumulate, groupby, pairwise

import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.message import fnv1a_32, partition_of
from penstock.domain.order import LaneKey, Position
from penstock.domain.pointer import DispatchMode
from penstock.events.dispatch.spark.messages import packed, unpacked
from penstock.events.dispatch.spark.plan import BLOCKER, first_lanes, hashes_of, planned, whole_lanes
from tests.rigs.order_worlds import GROUPS, JOBS, Job, blocker_of, run_of

LANE_SIZES = st.lists(st.integers(0, 3), max_size=12)
CUTS = st.lists(st.integers(0, 5), max_size=8)

_NO_JOB = dict.fromkeys(("id", "mode", "sequence", "created_at_ms"))
_SCHEMA = pyarrow.schema(
    {
        "group_key": pyarrow.string(),
        "ordered": pyarrow.bool_(),
        "turn": pyarrow.int64(),
        "paused": pyarrow.bool_(),
        **{name: pyarrow.string() if name.endswith("_id") else pyarrow.int64() for name in BLOCKER},
        **{name: pyarrow.string() if name in ("id", "mode") else pyarrow.int64() for name in _NO_JOB},
    }
)


def rows_of(jobs: list[Job], paused: str) -> pyarrow.RecordBatch:
    """The lanes as they are read, each lane's jobs in any order; and one lane without a job."""
    lanes: dict[LaneKey, list[Job]] = defaultdict(list, {LaneKey("empty", True): []})
    for job in jobs:
        lanes[job.lane] += [job] if job.is_candidate else []
    rows = []
    for turn, (lane, of_lane) in enumerate(lanes.items()):
        blocker = blocker_of(jobs, lane.group_key) if lane.ordered else None
        about = {
            **lane._asdict(),
            "turn": turn,
            "paused": lane.group_key == paused,
            **dict(zip(BLOCKER, blocker or (None, None, None), strict=True)),
        }
        rows += [{**about, **{name: getattr(job, name) for name in _NO_JOB}} for job in of_lane]
        rows += [] if of_lane else [{**about, **_NO_JOB}]
    return pyarrow.RecordBatch.from_pylist(rows, schema=_SCHEMA)


@given(JOBS, st.sampled_from([*GROUPS, ""]), st.integers(1, 6))
def test_each_lane_gives_what_the_rules_say_and_a_lane_with_nothing_to_give_one_row(
    jobs: list[Job], paused: str, share: int
) -> None:
    rows = rows_of(jobs, paused)
    found = planned(rows, share).to_pylist()
    lanes = {
        LaneKey(*key): list(of_lane) for key, of_lane in groupby(found, lambda row: (row["group_key"], row["ordered"]))
    }
    assert lanes.keys() == {LaneKey(row["group_key"], row["ordered"]) for row in rows.to_pylist()}
    for lane, of_lane in lanes.items():
        wanted = [] if lane.group_key == paused else run_of(jobs, lane, share)
        assert [row["id"] for row in of_lane if row["may_go"]] == wanted
        assert [row["rank"] for row in of_lane] == list(range(1, max(1, len(wanted)) + 1))


def batches_of(sizes: list[int], cuts: list[int]) -> tuple[list[str], list[pyarrow.RecordBatch]]:
    """The keys of lanes of these sizes row by row, and the rows cut anywhere."""
    keys = [f"g{lane}" for lane, size in enumerate(sizes) for _ in range(size)]
    columns = {"group_key": keys, "ordered": [True] * len(keys), "turn": [int(key[1:]) for key in keys]}
    rows = pyarrow.RecordBatch.from_pydict(
        columns,
        schema=pyarrow.schema({"group_key": pyarrow.string(), "ordered": pyarrow.bool_(), "turn": pyarrow.int64()}),
    )
    places = [0, *(min(sum(cuts[: end + 1]), len(keys)) for end in range(len(cuts))), len(keys)]
    return keys, [rows.slice(start, end - start) for start, end in pairwise(places)]


@given(LANE_SIZES, CUTS)
def test_batches_are_cut_between_lanes_only(sizes: list[int], cuts: list[int]) -> None:
    keys, cut = batches_of(sizes, cuts)
    batches = list(whole_lanes(cut))
    assert [key for batch in batches for key in batch.column("group_key").to_pylist()] == keys
    seen = [set(batch.column("group_key").to_pylist()) for batch in batches]
    assert all(seen)
    assert sum(map(len, seen)) == len(set(keys))


@given(LANE_SIZES, CUTS, st.integers(0, 30))
def test_the_first_lanes_are_as_many_as_fit(sizes: list[int], cuts: list[int], most_rows: int) -> None:
    keys, cut = batches_of(sizes, cuts)
    ends = list(accumulate(size for size in sizes if size))
    fit = max((end for end in ends if end <= most_rows), default=0)

    batches = list(first_lanes(whole_lanes(cut), most_rows))

    assert all(map(len, batches))
    assert [key for batch in batches for key in batch.column("group_key").to_pylist()] == keys[:fit]


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), min_size=1, max_size=30),
    st.sampled_from([1, 2, 8]),
)
def test_a_packed_plan_comes_to_the_task_of_the_queue_partition_in_order(keys: list[str], tasks: int) -> None:
    schema = pyarrow.schema({"group_key": pyarrow.string(), "place": pyarrow.int64()})
    rows = pyarrow.RecordBatch.from_pydict({"group_key": keys, "place": list(range(len(keys)))}, schema=schema)
    assert hashes_of(rows.column("group_key")).to_pylist() == [fnv1a_32(key) for key in keys]
    batch = packed(rows, hashes_of(rows.column("group_key")), tasks)
    found = []
    for number in range(len(batch)):
        part = batch.slice(number, 1)
        came = [row for rows in unpacked([part]) for row in rows.to_pylist()]
        assert {partition_of(row["group_key"], tasks) for row in came} == set(part.column("task").to_pylist())
        assert [row["place"] for row in came] == sorted(row["place"] for row in came)
        found += came
    assert sorted(row["place"] for row in found) == list(range(len(keys)))


def test_modes_are_told_apart_by_the_blocker_only() -> None:
    """BLOCK_ON_ERROR jobs stop at the first failed one, NEXT_ON_ERROR ones go past it."""
    failed = Position(99, 5, "job 05")
    rows = [
        {
            "group_key": "s:g", "ordered": True, "turn": 1, "paused": False,
            **dict(zip(BLOCKER, failed, strict=True)), "id": f"job {number:02}", "mode": mode.value, "sequence": 99,
            "created_at_ms": number,
        }
        for mode in (DispatchMode.NEXT_ON_ERROR, DispatchMode.BLOCK_ON_ERROR)
        for number in ((2, 9) if mode is DispatchMode.NEXT_ON_ERROR else (1, 4, 8))
    ]  # fmt: skip
    found = planned(pyarrow.RecordBatch.from_pylist(rows, schema=_SCHEMA), 10)
    assert found.column("id").to_pylist() == ["job 01", "job 02", "job 04", "job 09"]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=30))
def test_hashes_of_a_column_are_those_of_the_queue(texts: list[str]) -> None:
    column = pyarrow.array(texts, pyarrow.string())
    assert hashes_of(column).to_pylist() == [fnv1a_32(text) for text in texts]
    assert hashes_of(column[1:]).to_pylist() == [fnv1a_32(text) for text in texts[1:]]
