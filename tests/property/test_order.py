"""The rules of order: who may be published, and who must wait at the delivery."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.job_state import FINAL, JobStatus
from penstock.domain.order import LaneKey, Position, group_key, holds_back, is_expired
from penstock.domain.pointer import DispatchMode
from tests.rigs.order_worlds import GROUPS, JOBS, Job, blocker_of, is_held_back, run_of
from tests.rigs.search import examples

LANES = st.builds(LaneKey, st.sampled_from(GROUPS), st.booleans())
ALL = 1000


@settings(max_examples=examples(500))
@given(JOBS, LANES, st.integers(1, 5))
def test_a_lane_gives_its_first_jobs_in_order(jobs: list[Job], lane: LaneKey, most: int) -> None:
    every = run_of(jobs, lane, ALL)
    places = {job.id: job.position for job in jobs}

    assert run_of(jobs, lane, most) == every[:most]
    assert [places[job_id] for job_id in every] == sorted(places[job_id] for job_id in every)
    assert run_of(jobs[::-1], lane, ALL) == every


@given(JOBS, LANES)
def test_block_on_error_jobs_stop_at_the_first_job_that_failed_and_others_go_on(jobs: list[Job], lane: LaneKey) -> None:
    blocker = blocker_of(jobs, lane.group_key)
    went = run_of(jobs, lane, ALL)
    for job in jobs:
        if job.lane == lane and job.is_candidate:
            may_go = job.mode is not DispatchMode.BLOCK_ON_ERROR or blocker is None or job.position < blocker
            assert (job.id in went) is may_go


@given(JOBS, LANES)
def test_what_may_not_be_published_is_not(jobs: list[Job], lane: LaneKey) -> None:
    went = run_of(jobs, lane, ALL)
    assert all(job.is_candidate and job.lane == lane for job in jobs if job.id in went)


@given(JOBS)
def test_an_immediate_job_neither_waits_nor_makes_wait_unless_it_failed(jobs: list[Job]) -> None:
    for job in jobs:
        for other in jobs:
            stands_aside = other.mode is DispatchMode.IMMEDIATE and other.status is not JobStatus.ERROR
            if job.mode is DispatchMode.IMMEDIATE or stands_aside:
                assert not holds_back(other.standing, job.standing)


@given(JOBS)
def test_only_an_earlier_job_holds_back_unless_it_is_being_delivered(jobs: list[Job]) -> None:
    for job in jobs:
        for other in jobs:
            if other.position > job.position and other.status is not JobStatus.PROCESSING:
                assert not holds_back(other.standing, job.standing)


@given(JOBS)
def test_a_job_that_is_over_holds_nothing_back_but_an_error_holds_back_block_on_error_jobs(jobs: list[Job]) -> None:
    for job in jobs:
        for other in jobs:
            if other.status in FINAL:
                is_error = other.status is JobStatus.ERROR and other.position <= job.position
                held = holds_back(other.standing, job.standing)
                assert held is (is_error and job.mode is DispatchMode.BLOCK_ON_ERROR)


@settings(max_examples=examples(500))
@given(JOBS)
def test_of_an_ordered_lane_that_waits_at_most_one_may_be_delivered(jobs: list[Job]) -> None:
    """Of BLOCK_ON_ERROR jobs, that is; others pass those that were tried."""
    for group in GROUPS:
        strict = [job for job in jobs if job.group_key == group and job.mode is DispatchMode.BLOCK_ON_ERROR]
        queued = [job for job in strict if job.status is JobStatus.QUEUED]
        assert sum(not is_held_back(jobs, job) for job in queued) <= 1


@given(JOBS, LANES)
def test_the_first_job_that_is_published_may_be_delivered_when_nothing_is_on_its_way(
    jobs: list[Job], lane: LaneKey
) -> None:
    on_their_way = (JobStatus.QUEUED, JobStatus.PROCESSING)
    resting = [job for job in jobs if job.status not in on_their_way and (job.is_candidate or not _is_late(job))]
    for job_id in run_of(resting, lane, 1):
        (first,) = (job for job in resting if job.id == job_id)
        assert not is_held_back(resting, first)


def _is_late(job: Job) -> bool:
    """Expired, but not given up yet: it is in no one's way for long."""
    return job.status is JobStatus.PENDING and job.is_due


def test_a_group_key_names_its_scope_and_the_default_group() -> None:
    assert group_key("billing", "17") == "billing:17"
    assert group_key("billing", None) == group_key("billing", "") == "billing:default"


def test_a_job_expires_at_its_moment() -> None:
    assert [is_expired(moment, 5) for moment in (None, 4, 5, 6)] == [False, True, True, False]


def test_positions_compare_by_sequence_then_age_then_id() -> None:
    places = [Position(1, 9, "z"), Position(2, 1, "b"), Position(2, 1, "c"), Position(2, 3, "a")]
    assert sorted([*places[2:], *places[:2]]) == places
