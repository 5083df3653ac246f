"""A subscription whose breaker is open has no turns until probes may be made; its messages wait in the pool."""

import asyncio

from penstock.domain.outcome import SUCCESS, CircuitOpen, MediationOutcome, MediationResult
from penstock.domain.pointer import MessagePointer
from tests.rigs.router import (
    RouterRig,
    ScriptedMediator,
    StagedMediatorScript,
    on_virtual_time,
    pointer,
    pool_p,
    quiet,
    running,
)

OPEN_S = 5
CONCURRENCY = 10
REFUSED = MediationOutcome(MediationResult.ERROR_PROCESS, error=CircuitOpen("http://down", OPEN_S))


class Subscribers(StagedMediatorScript):
    """`down` is refused until it is up, `quick` always succeeds, and others have targets of their own."""

    is_up = False

    def answer_of(self, group: str) -> MediationOutcome | None:
        subscription = group.partition(":")[0]
        if subscription not in ("down", "quick"):
            return None
        return SUCCESS if self.is_up or subscription == "quick" else REFUSED


class Elsewhere(ScriptedMediator):
    """The process endpoint of another machine: it says of the subscription `down` that it is refused."""

    is_up = False

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome | None:
        await super().attempt(pointer, attempt)
        is_refused = pointer.group.startswith("down") and not self.is_up
        return MediationOutcome(MediationResult.SUCCESS, hold_s=OPEN_S) if is_refused else SUCCESS


def mediator(rig: RouterRig) -> Subscribers:
    assert isinstance(rig.mediator, Subscribers)
    return rig.mediator


def turns(rig: RouterRig, subscription: str) -> int:
    return sum(each.group.startswith(subscription) for each in rig.mediator.deliveries)


@on_virtual_time
async def test_a_subscription_that_is_refused_has_one_turn_whenever_probes_may_be_made() -> None:
    async with running(pool_p(CONCURRENCY), takes_s=0.01, mediator=Subscribers) as rig:
        rig.source.give(*(pointer(f"m{number}", f"down:{number}") for number in range(150)))
        await asyncio.sleep(1)
        at_first = turns(rig, "down")
        await asyncio.sleep(12 * OPEN_S)

        assert 0 < at_first <= 2 * CONCURRENCY
        assert 0 < turns(rig, "down") - at_first <= 12
        assert rig.pool().queued > 0

        mediator(rig).is_up = True
        await asyncio.sleep(OPEN_S + 1)
        assert len(rig.source.acked) == 150


@on_virtual_time
async def test_a_subscription_that_the_process_endpoint_refuses_waits_in_the_pool_too() -> None:
    async with running(pool_p(CONCURRENCY, shared=True), takes_s=0.01, mediator=Elsewhere) as rig:
        rig.source.give(*(pointer(f"m{number}", f"down:{number}") for number in range(60)))
        await asyncio.sleep(1)
        at_first = turns(rig, "down")
        rig.source.give(*(pointer(f"q{number}", f"quick:{number}") for number in range(50)))
        await asyncio.sleep(4 * OPEN_S)

        assert 0 < at_first <= CONCURRENCY
        assert 0 < turns(rig, "down") - at_first <= 4
        assert turns(rig, "quick") == 50

        assert isinstance(rig.mediator, Elsewhere)
        rig.mediator.is_up = True
        await asyncio.sleep(OPEN_S + 1)
        assert turns(rig, "down") == 60
        assert len(rig.source.acked) == 110


@on_virtual_time
async def test_others_of_its_pool_have_their_turns_meanwhile() -> None:
    async with running(pool_p(CONCURRENCY, shared=True), takes_s=0.01, mediator=Subscribers) as rig:
        rig.source.give(*(pointer(f"m{number}", f"down:{number}") for number in range(50)))
        await asyncio.sleep(1)
        rig.source.give(*(pointer(f"q{number}", f"quick:{number}") for number in range(50)))
        await asyncio.sleep(1)

        assert turns(rig, "quick") == 50
        assert rig.pool().queued > 30


@on_virtual_time
async def test_messages_for_a_target_of_their_own_say_nothing_about_the_others() -> None:
    async with running(pool_p(CONCURRENCY), takes_s=0.01, mediator=Subscribers) as rig:
        rig.source.give(*(pointer(f"m{number}", f"own:{number}") for number in range(50)))
        await asyncio.sleep(1)

        assert len(rig.source.acked) == 50


@on_virtual_time
async def test_a_pool_that_drains_returns_what_waits_for_a_breaker() -> None:
    async with running(pool_p(CONCURRENCY), takes_s=0.01, mediator=Subscribers) as rig:
        rig.source.give(*(pointer(f"m{number}", f"down:{number}") for number in range(40)))
        await asyncio.sleep(1)
        waiting = rig.pool().queued
        await rig.router.shut_down()
        await quiet()

        assert waiting > 0
        assert len(rig.source.nacked) == waiting
