"""Worlds of jobs at random, and what keeps the jobs back: for whoever plans them."""

import msgspec
from hypothesis import strategies as st

from penstock.domain.order import Circumstances, LaneKey, PendingJob, Position
from penstock.domain.pointer import DispatchMode

NOW_MS = 1000


class World(msgspec.Struct, frozen=True):
    """Jobs, and what keeps them back."""

    jobs: list[PendingJob]
    around: Circumstances


GROUPS = ("s:a", "s:b", "t:ä", "default")
SUBSCRIPTIONS = ("s", "s", "t", None)
DUE_AT_MS = (0, 0, NOW_MS, NOW_MS + 1)
EXPIRES_AT_MS = (None, None, NOW_MS, NOW_MS + 1)
PLACES = (None, None, Position(1, 2, "job 03"), Position(99, 1, "job 10"))


def world_of(codes: tuple[list[int], int]) -> World:
    """A world whose parts are the digits of numbers: a few draws instead of hundreds."""
    code = codes[1]
    errors, in_flight, turns = {}, set(), {}
    for group in GROUPS:
        code, place = divmod(code, len(PLACES))
        code, flies = divmod(code, 4)
        code, turn = divmod(code, 4)
        if (position := PLACES[place]) is not None:
            errors[group] = position
        if flies == 3:
            in_flight.add(group)
        turns[LaneKey(group, turn % 2 == 0)] = turn
    paused = frozenset(("s", "t")[code % 6 : code % 6 + 1])
    return World(
        jobs_of(codes[0]), Circumstances(errors=errors, in_flight=frozenset(in_flight), paused=paused, turns=turns)
    )


def jobs_of(codes: list[int]) -> list[PendingJob]:
    """Jobs whose fields are the digits of numbers."""
    return [_job_of(number, code) for number, code in enumerate(codes)]


def _job_of(number: int, code: int) -> PendingJob:
    code, group = divmod(code, len(GROUPS))
    code, mode = divmod(code, len(DispatchMode))
    code, due = divmod(code, len(DUE_AT_MS))
    code, expires = divmod(code, len(EXPIRES_AT_MS))
    code, created_at_ms = divmod(code, 3)
    code, was_tried = divmod(code, 2)
    return PendingJob(
        id=f"job {number:02}",
        group_key=GROUPS[group],
        mode=list(DispatchMode)[mode],
        created_at_ms=created_at_ms,
        due_at_ms=DUE_AT_MS[due],
        sequence=(1, 99)[code % 2],
        expires_at_ms=EXPIRES_AT_MS[expires],
        subscription_id=SUBSCRIPTIONS[group],
        was_tried=bool(was_tried),
    )


JOB_CODES = st.integers(0, 4 * 3 * 4 * 4 * 3 * 2 * 2 - 1)
WORLDS = st.tuples(st.lists(JOB_CODES, max_size=16), st.integers(0, 64**4 * 6 - 1)).map(world_of)
