"""The work of one task: its part of a replay, delivered or copied in the order in which the jobs come."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.settings import DeliverySettings
from penstock.delivery.webhook.courier import Courier
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock, pause
from penstock.events.api.subscription_types import LONGEST_TIMEOUT_S
from penstock.events.store.replays import Part, Replays
from penstock.pipeline.replay.errand import DirectSettings, Errand, replays_in
from penstock.pipeline.replay.outcomes import Outcomes
from penstock.pipeline.replay.pace import Pace
from penstock.pipeline.replay.rounds import Rounds
from penstock.pipeline.replay.visit import Visits

LOOK_S = 1.0
"""How often a task that has nothing to write down asks whether it is to stop."""

KNOWN_FOR_MS = 5 * SECOND_MS
"""How long what is known of subscriptions is relied on."""

NextIds = Callable[[], list[str]]


async def do_part(errand: Errand, part: Part, next_ids: NextIds, clock: Clock) -> None:
    """Do a part to its end, or until the replay is to stop; `next_ids` gives jobs in order, then an empty list."""
    async with replays_in(errand.database, clock) as replays:
        if not await replays.own(part):
            return
        pace = Pace(errand.timetable, part.number, clock)
        if errand.direct is None:
            await _copy(replays, part, next_ids, pace)
        else:
            async with _courier(errand.direct, clock) as courier:
                await _deliver(replays, part, next_ids, courier, pace, clock)


async def _copy(replays: Replays, part: Part, next_ids: NextIds, pace: Pace) -> None:
    """One transaction after another: a later job of a group never comes to the queue before an earlier one."""
    while ids := await asyncio.to_thread(next_ids):
        if not await replays.make_copies(part, [(job_id, pace.due_ms()) for job_id in ids]):
            return


async def _deliver(replays: Replays, part: Part, next_ids: NextIds, courier: Courier, pace: Pace, clock: Clock) -> None:
    outcomes = Outcomes(replays, part)
    visits = Visits(part.replay_id, courier, outcomes, pace, clock)
    async with asyncio.TaskGroup() as looking:
        look = looking.create_task(_look(outcomes), name="look whether to stop")
        try:
            async with asyncio.TaskGroup() as tasks:
                await _feed(replays, part, next_ids, Rounds(visits, outcomes, tasks), outcomes, clock)
        finally:
            look.cancel()


async def _feed(
    replays: Replays, part: Part, next_ids: NextIds, rounds: Rounds, outcomes: Outcomes, clock: Clock
) -> None:
    known_until_ms = 0
    while not outcomes.stopped.is_set() and (ids := await asyncio.to_thread(next_ids)):
        if clock.now_ms() >= known_until_ms:
            rounds.subscriptions = await replays.subscriptions()
            known_until_ms = clock.now_ms() + KNOWN_FOR_MS
        for load in await replays.loads(part.replay_id, ids):
            await rounds.take(load)


async def _look(outcomes: Outcomes) -> None:
    while not outcomes.stopped.is_set():
        await pause(LOOK_S)
        await outcomes.keep(None)


@asynccontextmanager
async def _courier(settings: DirectSettings, clock: Clock) -> AsyncIterator[Courier]:
    delivery = DeliverySettings(
        request_timeout_s=LONGEST_TIMEOUT_S,
        connect_timeout_s=settings.connect_timeout_s,
        http_version=settings.http_version,
    )
    guard = EgressGuard(settings.egress_allow)
    try:
        async with HttpClient(guard, delivery) as client:
            yield Courier(client, Breakers(clock), clock)
    finally:
        guard.close()


def in_chunks(ids: Iterator[str], most: int) -> NextIds:
    """Hands out ids in lists; one that comes twice in a row, seen while it went to the archive, is given once."""
    last: list[str] = []

    def next_ids() -> list[str]:
        chunk: list[str] = []
        for job_id in ids:
            if chunk[-1:] == [job_id] or last == [job_id]:
                continue
            chunk.append(job_id)
            if len(chunk) == most:
                break
        last[:] = chunk[-1:]
        return chunk

    return next_ids
