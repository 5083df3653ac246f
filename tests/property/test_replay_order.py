"""The order on disk in which a large replay copies jobs is the rule of `domain.replay.last_copies`."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.ids import encode_tsid
from penstock.domain.job import DispatchJob
from penstock.domain.replay import copy_id, last_copies
from penstock.events.api.jobs.replay_worker import JobOrder
from tests.rigs.made_jobs import dispatch_job
from tests.rigs.search import examples

PLACES = st.lists(st.tuples(st.sampled_from([1, 99]), st.integers(0, 3), st.integers(0, 3)), max_size=12)


def jobs_of(number: int, sequence: int, created_at_ms: int, copies: int) -> list[DispatchJob]:
    """A job and its copies, which have its place."""
    first = encode_tsid(1_000 + number)
    ids = [first, *(copy_id(first, encode_tsid(8_000 + copy)) for copy in range(copies))]
    return [dispatch_job(id=job_id, sequence=sequence, created_at_ms=created_at_ms) for job_id in ids]


@settings(max_examples=examples(50))
@given(places=PLACES, pages=st.randoms(use_true_random=False), at_a_time=st.integers(1, 5))
def test_jobs_come_in_order_whatever_the_pages_are(
    places: list[tuple[int, int, int]], pages: Random, at_a_time: int
) -> None:
    jobs = [job for number, place in enumerate(places) for job in jobs_of(number, *place)]
    wanted = [job.id for job in last_copies(jobs)]
    pages.shuffle(jobs)
    with JobOrder() as order:
        for first in range(0, len(jobs), 4):
            order.add(jobs[first : first + 4])
        assert order.count() == len(wanted)
        found: list[str] = []
        while ids := order.next_ids(at_a_time):
            found += ids
    assert found == wanted
