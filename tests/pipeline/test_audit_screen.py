"""The screen without Spark: it suspects exactly the groups with something suspect in them, whatever order rows have."""

from collections.abc import Sequence
from itertools import chain, combinations
from random import Random

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.history.audit import packed_rows, suspects
from penstock.history.audit.packed_rows import PARTS, RowPacker, columns_of, numbers_of, packed_numbers, unpacked
from penstock.history.audit.screen_rows import JOB_WIDTH, PLACE_WIDTH, job_columns
from penstock.history.audit.suspects import (
    BLOCKS,
    LATEST_MS,
    NONE_MS,
    PASSES,
    AttemptColumns,
    Jobs,
    Matched,
    Places,
    match_attempts,
    out_of_turn,
)

LARGEST = (1 << 63) - 1


class _Attempt:
    """An attempt as a test says it."""

    def __init__(self, at_ms: int, lasted_ms: int, delivered: bool, is_damaged: bool) -> None:
        self.at_ms = at_ms
        self.end_ms = at_ms + lasted_ms
        self.delivered = delivered
        self.is_damaged = is_damaged


class _Job:
    """A job as a test says it; `name` and `rest` are its id, of which some are the same."""

    def __init__(
        self,
        position: tuple[int, int, int, int],
        mode: int,
        strict_ms: int,
        marks: tuple[bool, bool, bool],
        attempts: Sequence[_Attempt],
    ) -> None:
        self.position = position
        self.mode = mode
        self.strict_ms = strict_ms if mode else NONE_MS
        self.untried, self.owes_proof, self.is_damaged = marks
        self.attempts = attempts

    @property
    def marks(self) -> list[int]:
        """What stands between its position and its deliveries."""
        return [self.mode, self.strict_ms, self.untried, self.owes_proof, self.is_damaged]

    @property
    def loose_ms(self) -> int:
        """Until when it holds back whatever is ordered."""
        ends = [each.end_ms for each in self.attempts] + ([self.strict_ms] if self.untried else [])
        return max(ends, default=NONE_MS)

    def is_suspect(self) -> bool:
        """By itself."""
        delivered = sum(each.delivered for each in self.attempts)
        in_time = sorted(self.attempts, key=lambda each: (each.at_ms, each.end_ms))
        overlaps = any(later.at_ms >= 0 and later.at_ms < each.end_ms for each, later in combinations(in_time, 2))
        return (
            self.is_damaged
            or any(each.is_damaged for each in self.attempts)
            or delivered > 1
            or (self.owes_proof and not delivered)
            or (self.mode > 0 and overlaps)
        )

    def holds_back(self, other: "_Job") -> bool:
        """Whether another one behind it began too early."""
        until_ms = max(self.loose_ms, self.strict_ms) if other.mode == BLOCKS else self.loose_ms
        return any(0 <= each.at_ms < until_ms for each in other.attempts)


def _is_suspect(jobs: Sequence[_Job]) -> bool:
    """By looking at every pair of jobs."""
    ordered = sorted((job for job in jobs if job.mode), key=lambda job: job.position)
    return any(job.is_suspect() for job in jobs) or any(
        first.holds_back(second) or first.position == second.position for first, second in combinations(ordered, 2)
    )


# One attempt in so many is damaged, or a job: otherwise hardly a group would be clean.
SELDOM = st.sampled_from([False] * 20 + [True])
ATTEMPT = st.builds(_Attempt, st.integers(-1, 12), st.integers(0, 2), st.booleans(), SELDOM)
JOB = st.builds(
    _Job,
    st.tuples(st.sampled_from([-LARGEST, 1, 1, 1, LARGEST]), st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)),
    st.sampled_from([0, PASSES, BLOCKS, BLOCKS]),
    st.sampled_from([NONE_MS, 0, 3, 6, LATEST_MS]),
    st.tuples(SELDOM, SELDOM, SELDOM),
    st.lists(ATTEMPT, max_size=3),
)
GROUPS = st.lists(st.lists(JOB, min_size=1, max_size=4), max_size=5)
NO_BYTES = numpy.uint64(1 << 63)


def _met(groups: Sequence[Sequence[_Job]], chance: Random) -> Matched:
    jobs = [(group, job) for group, members in enumerate(groups) for job in members]
    tried = [(number, attempt) for number, (_, job) in enumerate(jobs) for attempt in job.attempts]
    numbered = list(enumerate(jobs))
    chance.shuffle(numbered)
    chance.shuffle(tried)
    of_jobs = [
        [number * 7 % 101, group - 2, *job.position[:2], *job.marks, len(job.attempts) + 1, *job.position[2:]]
        for number, (group, job) in numbered
    ]
    of_attempts = [
        [number * 7 % 101, each.at_ms, each.end_ms, each.delivered, each.is_damaged] for number, each in tried
    ]
    jobs_columns = Jobs(*numpy.array(of_jobs, dtype=numpy.int64).reshape(-1, len(Jobs._fields)).T.copy())
    attempt_columns = AttemptColumns(*numpy.array(of_attempts, dtype=numpy.int64).reshape(-1, 5).T.copy())
    return match_attempts(
        jobs_columns._replace(
            untried=jobs_columns.untried > 0,
            owes_proof=jobs_columns.owes_proof > 0,
            is_damaged=jobs_columns.is_damaged > 0,
            # Above the largest number with a sign, where one without is meant.
            first_bytes=(jobs_columns.first_bytes.view(numpy.uint64) * NO_BYTES).view(numpy.int64),
        ),
        attempt_columns._replace(delivered=attempt_columns.delivered > 0, is_damaged=attempt_columns.is_damaged > 0),
    )


@given(groups=GROUPS, chance=st.randoms(use_true_random=False), lanes=st.integers(1, 4))
def test_the_screen_suspects_exactly_the_groups_in_which_something_is_suspect(
    groups: list[list[_Job]], chance: Random, lanes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspects, "_LANES_AT_ONCE", lanes)
        seen = _met(groups, chance)
        found = {*seen.suspect_groups.tolist(), *out_of_turn(_sent(seen.places)).tolist()}
    assert found == {number - 2 for number, jobs in enumerate(groups) if _is_suspect(jobs)}
    assert not seen.without_job.any()
    times = [each.at_ms >= 0 for jobs in groups for job in jobs for each in job.attempts]
    assert seen.unrecorded == len(times) + sum(map(len, groups)) - sum(times)


def _sent(places: Places) -> Places:
    """As they arrive, part by part."""
    sender = RowPacker("places")
    arrived = unpacked([*sender.add(places), *sender.rest()])
    return Places(*columns_of(list(chain(*arrived.values())), PLACE_WIDTH))


def _jobs(*hashes: int) -> Jobs:
    numbers = numpy.array(hashes, dtype=numpy.int64)
    nothing = numpy.zeros(len(hashes), dtype=numpy.int64)
    no = nothing > 0
    return Jobs(numbers, numbers, nothing, nothing, nothing, nothing, no, no, no, nothing, nothing, nothing)


def test_an_attempt_without_a_job_is_told_wherever_it_stands() -> None:
    hashes = numpy.array([9, -9, 5, 6, 5], dtype=numpy.int64)
    at_ms = numpy.arange(5, dtype=numpy.int64)
    seen = match_attempts(_jobs(7, 5, -8), AttemptColumns(hashes, at_ms, at_ms, at_ms < 0, at_ms < 0))
    assert seen.without_job.tolist() == [True, True, False, True, False]
    assert match_attempts(_jobs(), AttemptColumns(hashes, at_ms, at_ms, at_ms < 0, at_ms < 0)).without_job.all()


def test_a_job_that_is_there_twice_is_suspect() -> None:
    nothing = numpy.zeros(0, dtype=numpy.int64)
    attempts = AttemptColumns(nothing, nothing, nothing, nothing > 0, nothing > 0)
    assert match_attempts(_jobs(7, 5, 7, -8), attempts).suspect_groups.tolist() == [7]


@given(
    st.lists(st.lists(st.integers(-LARGEST - 1, LARGEST), max_size=30), max_size=6),
    st.integers(1, 40),
)
def test_rows_arrive_whole_and_those_of_one_hash_together(pieces: list[list[int]], rows_at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_rows, "_ROWS_AT_ONCE", rows_at_once)
        sender, sent = RowPacker("rows"), []
        for piece in pieces:
            key = numpy.array(piece, dtype=numpy.int64)
            sent += list(sender.add([key, ~key]))
        sent += list(sender.rest())
    arrived = unpacked([*sent, packed_numbers("others", numpy.arange(3), part=1)])
    assert numbers_of(arrived.pop((1, "others")))[0].tolist() == [0, 1, 2]
    found = {part: columns_of(some, 2) for (part, what), some in arrived.items() if what == "rows"}
    assert len(found) == len(arrived)
    assert sorted(key for keys, _ in found.values() for key in keys.tolist()) == sorted(chain(*pieces))
    for part, (keys, others) in found.items():
        assert (keys == ~others).all()
        assert {(key % (1 << 64)) * PARTS >> 64 for key in keys.tolist()} == {part}


def test_no_parcels_are_no_rows() -> None:
    assert columns_of([], PLACE_WIDTH).shape == (PLACE_WIDTH, 0)
    assert len(out_of_turn(Places(*columns_of([], PLACE_WIDTH)))) == 0


@given(st.lists(st.none() | st.text(max_size=30)) | st.lists(st.text("09AZ-", min_size=16, max_size=27)), st.booleans())
def test_of_an_id_its_first_bytes_are_sent_in_their_order(ids: list[str | None], is_cut: bool) -> None:
    numbers = dict.fromkeys(("job", "group", "sequence", "created", "held"), numpy.zeros(len(ids), dtype=numpy.int64))
    batch = pyarrow.RecordBatch.from_pydict({**numbers, "id": pyarrow.array(ids, pyarrow.string())})
    start = int(is_cut and len(ids) > 0)
    columns = job_columns(batch.slice(start))
    assert len(columns) == JOB_WIDTH
    sent = numpy.stack(columns[-2:], axis=1).astype(">i8").tobytes()
    assert sent == b"".join((each or "").encode()[:16].ljust(16, b"\0") for each in ids[start:])
