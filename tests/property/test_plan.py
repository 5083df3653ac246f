"""The plan of what may be published: order within groups, blocks, fairness."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.order import Circumstances, PendingJob, Position, group_key, plan, share_of
from penstock.domain.pointer import DispatchMode
from tests.plan_worlds import GROUPS, JOB_CODES, NOW_MS, jobs_of


def pending_jobs() -> st.SearchStrategy[list[PendingJob]]:
    return st.lists(JOB_CODES, max_size=20).map(jobs_of)


def circumstances() -> st.SearchStrategy[Circumstances]:
    positions = st.builds(Position, st.sampled_from([1, 99]), st.integers(0, 3), st.just("job 10"))
    return st.builds(
        Circumstances,
        errors=st.dictionaries(st.sampled_from(GROUPS), positions),
        in_flight=st.frozensets(st.sampled_from(GROUPS)),
        paused=st.frozensets(st.sampled_from(["s", "t"]), max_size=1),
    )


LIMITS = st.integers(1, 12)


def unlimited(jobs: list[PendingJob], around: Circumstances) -> list[PendingJob]:
    return plan(jobs, around, NOW_MS, most=10_000, per_group=10_000)


@given(pending_jobs(), circumstances(), LIMITS, LIMITS)
def test_a_planned_ordered_job_leaves_no_earlier_one_behind_that_may_go(
    jobs: list[PendingJob], around: Circumstances, most: int, per_group: int
) -> None:
    may_go = unlimited(jobs, around)
    planned = plan(jobs, around, NOW_MS, most=most, per_group=per_group)
    for job in planned:
        before = [other for other in may_go if other.lane == job.lane and other.position < job.position]
        assert all(other in planned[: planned.index(job)] for other in before)


@given(pending_jobs(), circumstances())
def test_nothing_passes_a_block_on_error_job_that_is_in_the_way(jobs: list[PendingJob], around: Circumstances) -> None:
    for job in unlimited(jobs, around):
        if job.mode is not DispatchMode.BLOCK_ON_ERROR:
            continue
        error = around.errors.get(job.group_key)
        assert error is None or job.position < error
        for other in jobs:
            waits = other.was_tried and other.due_at_ms > NOW_MS and other.mode is not DispatchMode.IMMEDIATE
            assert not (waits and other.group_key == job.group_key and other.position < job.position)


@given(pending_jobs(), circumstances())
def test_nothing_goes_that_is_early_late_paused_or_of_a_group_in_flight(
    jobs: list[PendingJob], around: Circumstances
) -> None:
    for job in unlimited(jobs, around):
        assert job.due_at_ms <= NOW_MS
        assert job.expires_at_ms is None or job.expires_at_ms > NOW_MS
        assert job.subscription_id not in around.paused
        assert job.mode is DispatchMode.IMMEDIATE or job.group_key not in around.in_flight


@given(pending_jobs(), circumstances())
def test_every_job_that_nothing_keeps_back_goes(jobs: list[PendingJob], around: Circumstances) -> None:
    free = [
        job
        for job in jobs
        if job.due_at_ms <= NOW_MS
        and (job.expires_at_ms is None or job.expires_at_ms > NOW_MS)
        and job.subscription_id not in around.paused
        and (job.mode is DispatchMode.IMMEDIATE or job.group_key not in around.in_flight)
        and job.mode is not DispatchMode.BLOCK_ON_ERROR
    ]
    planned = unlimited(jobs, around)

    assert all(job in planned for job in free)


@given(pending_jobs(), circumstances(), LIMITS, LIMITS)
def test_a_group_that_is_kept_back_delays_no_other(
    jobs: list[PendingJob], around: Circumstances, most: int, per_group: int
) -> None:
    stuck = [
        PendingJob(
            id=f"stuck {number:03}",
            group_key="stuck:group",
            mode=DispatchMode.BLOCK_ON_ERROR,
            created_at_ms=0,
            due_at_ms=0,
        )
        for number in range(50)
    ]
    errors = {**around.errors, "stuck:group": Position(-1, 0, "")}
    with_stuck = Circumstances(errors=errors, in_flight=around.in_flight, paused=around.paused)

    planned = plan([*stuck, *jobs], with_stuck, NOW_MS, most=most, per_group=per_group)

    assert planned == plan(jobs, around, NOW_MS, most=most, per_group=per_group)


@given(pending_jobs(), circumstances(), LIMITS, LIMITS)
def test_lanes_share_alike_and_the_limits_hold(
    jobs: list[PendingJob], around: Circumstances, most: int, per_group: int
) -> None:
    planned = plan(jobs, around, NOW_MS, most=most, per_group=per_group)
    lanes = {job.lane for job in unlimited(jobs, around)}
    taken = {lane: sum(job.lane == lane for job in planned) for lane in lanes}

    assert len(planned) <= most
    assert all(count <= per_group for count in taken.values())
    assert sum(count > 0 for count in taken.values()) == min(most, len(lanes))


@given(pending_jobs(), circumstances(), LIMITS, LIMITS)
def test_the_first_of_every_lane_comes_before_the_second_of_any(
    jobs: list[PendingJob], around: Circumstances, most: int, per_group: int
) -> None:
    seen: dict[object, int] = {}
    ranks = []
    for job in plan(jobs, around, NOW_MS, most=most, per_group=per_group):
        seen[job.lane] = seen.get(job.lane, 0) + 1
        ranks.append(seen[job.lane])

    assert ranks == sorted(ranks)


@given(pending_jobs(), circumstances())
def test_the_order_in_which_jobs_are_told_does_not_matter(jobs: list[PendingJob], around: Circumstances) -> None:
    assert unlimited(jobs[::-1], around) == unlimited(jobs, around)


def test_the_lane_served_longest_ago_goes_first() -> None:
    jobs = [
        PendingJob(id=name, group_key=name, mode=DispatchMode.BLOCK_ON_ERROR, created_at_ms=0, due_at_ms=0)
        for name in ("a", "b", "c")
    ]
    around = Circumstances(turns={jobs[0].lane: 5, jobs[1].lane: 3, jobs[2].lane: 4})

    assert [job.id for job in plan(jobs, around, NOW_MS, most=2, per_group=1)] == ["b", "c"]


def test_shares() -> None:
    assert [share_of(10, lanes, 4) for lanes in (0, 1, 3, 5, 10)] == [0, 4, 3, 2, 1]


def test_a_group_key_names_its_scope_and_the_default_group() -> None:
    assert group_key("billing", "17") == "billing:17"
    assert group_key("billing", None) == group_key("billing", "") == "billing:default"
