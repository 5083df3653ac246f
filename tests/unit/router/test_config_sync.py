import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from penstock.domain.errors import FailedPrecondition, Unavailable
from penstock.queues.open import QueueSpec
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.config.sync import ConfigSync, SyncState
from penstock.router.leadership import AlwaysPrimary, RouterLeadership
from penstock.router.monitoring.warnings import Warnings, WarningSeverity
from penstock.router.settings import RouterSettings
from penstock.testing.clock import VirtualClock
from tests.rigs.router_surface import FakeRouter
from tests.rigs.virtual_pauses import VirtualPauses, settle

ONE = RouterConfiguration((PoolConfiguration("P", 1),))
TWO = RouterConfiguration((PoolConfiguration("P", 2),))
NOTHING = RouterConfiguration()
URL = ("http://host/router.json",)


class Source:
    """A configuration source that a test can change, break and hold."""

    def __init__(self, content: RouterConfiguration | Exception = ONE) -> None:
        self.content = content
        self.fetches = 0
        self.fetching = 0
        self.most_at_once = 0
        self.open = asyncio.Event()
        self.open.set()

    async def fetch(self, sources: Sequence[str]) -> RouterConfiguration:
        self.fetches += 1
        self.fetching += 1
        self.most_at_once = max(self.most_at_once, self.fetching)
        try:
            await self.open.wait()
        finally:
            self.fetching -= 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content


class SwitchedLeadership:
    """Leadership that a test gives and takes."""

    def __init__(self, primary: bool) -> None:
        self._primary = primary
        self._changed = asyncio.Condition()

    def is_primary(self) -> bool:
        return self._primary

    async def becomes(self, primary: bool) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._primary == primary)

    async def switch(self, primary: bool) -> None:
        async with self._changed:
            self._primary = primary
            self._changed.notify_all()
        await settle()


class Rig:
    """A sync of a router that records, in virtual time."""

    def __init__(self, source: Source, leadership: RouterLeadership, settings: RouterSettings) -> None:
        self.clock = VirtualClock()
        self.time = VirtualPauses(self.clock)
        self.source = source
        self.router = FakeRouter()
        self.warnings = Warnings(self.clock)
        self.sync = ConfigSync(
            settings, self.router, self.warnings, leadership, self.clock, self.time.pause, source.fetch
        )
        self.task: asyncio.Task[None]

    def severities(self) -> list[WarningSeverity]:
        return [warning.severity for warning in self.warnings.listed()]


@asynccontextmanager
async def running(
    source: Source | None = None, leadership: RouterLeadership | None = None, **settings: object
) -> AsyncIterator[Rig]:
    options = RouterSettings(**{"config": URL, **settings})  # type: ignore[arg-type]
    rig = Rig(source or Source(), leadership or AlwaysPrimary(), options)
    rig.task = asyncio.create_task(rig.sync.run())
    try:
        yield rig
    finally:
        rig.task.cancel()
        await asyncio.gather(rig.task, return_exceptions=True)


async def test_the_first_sync_comes_after_two_seconds_and_then_every_five_minutes() -> None:
    async with running() as rig:
        await rig.time.advance(1.999)
        assert rig.router.applied == []
        assert rig.sync.state == SyncState()
        await rig.time.advance(0.001)
        assert rig.router.applied == [ONE]
        assert rig.sync.state.initialised
        assert rig.sync.state.synced_at_ms == rig.clock.now_ms()
        rig.source.content = TWO
        await rig.time.advance(300)
        assert rig.router.applied == [ONE, TWO]
        assert rig.sync.configuration == TWO


async def test_a_configuration_in_files_is_read_at_once() -> None:
    async with running(config=("router.json",)) as rig:
        await rig.time.advance(0)
        assert rig.router.applied == [ONE]


async def test_a_first_sync_that_fails_twelve_times_ends_with_a_critical_warning() -> None:
    async with running(Source(Unavailable("nobody there"))) as rig:
        await rig.time.advance(2 + 11 * 5 - 0.001)
        assert rig.source.fetches == 11
        assert not rig.task.done()
        await rig.time.advance(0.001)

        assert rig.source.fetches == 12
        assert rig.time.asked == [2, *[5] * 11]
        with pytest.raises(Unavailable, match=r"12 attempts .* nobody there"):
            await rig.task
        (warning,) = rig.warnings.listed()
        assert (warning.code, warning.severity) == ("CONFIG_SYNC_FAILED", WarningSeverity.CRITICAL)
        assert rig.router.applied == []
        assert not rig.sync.state.initialised


async def test_a_first_sync_may_succeed_at_its_last_attempt() -> None:
    async with running(Source(Unavailable("nobody there"))) as rig:
        await rig.time.advance(2 + 10 * 5)
        rig.source.content = ONE
        await rig.time.advance(5)

        assert rig.router.applied == [ONE]
        assert rig.severities() == []


async def test_a_later_sync_that_fails_keeps_the_old_configuration_and_tries_again() -> None:
    async with running() as rig:
        await rig.time.advance(2)
        rig.source.content = Unavailable("nobody there")
        await rig.time.advance(300 + 55)
        assert rig.source.fetches == 13
        assert rig.severities() == [WarningSeverity.WARN]
        assert (rig.sync.configuration, rig.router.applied) == (ONE, [ONE])
        assert rig.sync.state.last_failure == "nobody there"
        assert not rig.task.done()

        rig.source.content = TWO
        await rig.time.advance(300)
        assert rig.router.applied == [ONE, TWO]
        assert rig.sync.state.last_failure is None


async def test_a_configuration_that_cannot_be_applied_is_not_the_last_good_one() -> None:
    async with running(sync_attempts=1) as rig:
        await rig.time.advance(2)
        rig.router.apply_fails = RuntimeError("a bug")
        rig.source.content = TWO
        await rig.time.advance(300)

        assert rig.sync.configuration == ONE
        assert rig.severities() == [WarningSeverity.WARN]
        assert not rig.task.done()


async def test_a_queue_that_cannot_be_used_is_left_out_with_a_warning() -> None:
    good = QueueSpec("good", "nats://host/stream/consumer")
    bad = QueueSpec("bad", "gopher://me:hunter2@host/queue")
    async with running(Source(RouterConfiguration((), (bad, good)))) as rig:
        await rig.time.advance(2)

        assert rig.router.applied == [RouterConfiguration((), (good,))]
        (warning,) = rig.warnings.listed()
        assert (warning.code, warning.severity) == ("QUEUE_VALIDATION", WarningSeverity.WARN)
        assert "queue bad is not consumed" in warning.message
        assert "hunter2" not in warning.message


async def test_a_reload_syncs_at_once() -> None:
    async with running() as rig:
        await rig.time.advance(2)
        rig.source.content = TWO

        assert await rig.sync.reload() == TWO
        assert rig.router.applied == [ONE, TWO]


async def test_a_reload_that_fails_is_one_attempt_and_keeps_what_was() -> None:
    async with running() as rig:
        await rig.time.advance(2)
        rig.source.content = Unavailable("nobody there")
        with pytest.raises(Unavailable, match="nobody there"):
            await rig.sync.reload()

        assert rig.source.fetches == 2
        assert rig.severities() == [WarningSeverity.WARN]
        assert rig.sync.configuration == ONE


async def test_there_is_one_sync_at_a_time() -> None:
    async with running() as rig:
        rig.source.open.clear()
        await rig.time.advance(2)
        reloads = [asyncio.create_task(rig.sync.reload()) for _ in range(3)]
        await settle()
        assert rig.source.fetches == 1
        rig.source.open.set()
        await asyncio.gather(*reloads)

        assert rig.source.fetches == 4
        assert (rig.source.most_at_once, rig.router.most_applies_at_once) == (1, 1)


async def test_a_standby_instance_is_initialised_and_does_nothing() -> None:
    async with running(leadership=SwitchedLeadership(False)) as rig:
        await rig.time.advance(1000)

        assert rig.sync.state.initialised
        assert not rig.sync.state.consuming
        assert (rig.source.fetches, rig.router.applied) == (0, [])
        with pytest.raises(FailedPrecondition, match="on standby"):
            await rig.sync.reload()


async def test_a_router_that_is_switched_off_is_initialised_and_does_nothing() -> None:
    async with running(enabled=False) as rig:
        await rig.time.advance(1000)

        assert rig.task.done()
        assert rig.task.exception() is None
        assert rig.sync.state.initialised
        assert (rig.source.fetches, rig.router.applied) == (0, [])
        with pytest.raises(FailedPrecondition, match="disabled"):
            await rig.sync.reload()


async def test_lost_leadership_gives_everything_up_at_once() -> None:
    leadership = SwitchedLeadership(True)
    async with running(leadership=leadership) as rig:
        await rig.time.advance(2)
        await leadership.switch(False)

        assert rig.router.applied == [ONE, NOTHING]
        assert not rig.sync.state.consuming
        await rig.time.advance(1000)
        assert rig.source.fetches == 1


async def test_leadership_lost_during_retries_stops_them() -> None:
    leadership = SwitchedLeadership(True)
    async with running(Source(Unavailable("nobody there")), leadership) as rig:
        await rig.time.advance(2 + 10)
        await leadership.switch(False)
        await rig.time.advance(1000)

        assert rig.source.fetches == 3
        assert not rig.task.done()


@pytest.mark.parametrize("content", [ONE, Unavailable("nobody there")], ids=["unchanged", "source down"])
async def test_regained_leadership_starts_the_pools_again(content: RouterConfiguration | Exception) -> None:
    leadership = SwitchedLeadership(True)
    async with running(leadership=leadership) as rig:
        await rig.time.advance(2)
        await leadership.switch(False)
        rig.source.content = content
        await leadership.switch(True)
        await rig.time.advance(0)

        assert rig.router.applied[:3] == [ONE, NOTHING, ONE]
        assert rig.router.applied[-1] == ONE
        assert rig.sync.state.consuming


async def test_a_reload_that_outlives_its_leadership_applies_nothing() -> None:
    leadership = SwitchedLeadership(True)
    async with running(leadership=leadership) as rig:
        await rig.time.advance(2)
        rig.source.open.clear()
        reload = asyncio.create_task(rig.sync.reload())
        await settle()
        await leadership.switch(False)
        rig.source.open.set()

        with pytest.raises(FailedPrecondition, match="on standby"):
            await reload
        await settle()
        assert rig.router.applied == [ONE, NOTHING]


async def test_a_first_sync_that_fails_after_leadership_came_ends_the_process_too() -> None:
    leadership = SwitchedLeadership(False)
    async with running(Source(Unavailable("nobody there")), leadership) as rig:
        await rig.time.advance(2)
        await leadership.switch(True)
        await rig.time.advance(60)

        with pytest.raises(Unavailable):
            await rig.task
        assert rig.severities() == [WarningSeverity.CRITICAL]
