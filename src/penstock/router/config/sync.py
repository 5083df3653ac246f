"""Applies the router's configuration at the start, every few minutes, and when leadership changes.

The primary instance fetches and applies it; an instance that loses leadership stops consuming. A failed first sync
ends the process; after a later one the last good configuration stays in force (ROUTER-CONFIG-2).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from penstock.domain.errors import FailedPrecondition, PenstockError, Unavailable
from penstock.edge.clock import Clock
from penstock.router.config.configuration import RouterConfiguration, with_usable_queues
from penstock.router.config.fetch import fetch_configuration, is_file
from penstock.router.leadership import RouterLeadership
from penstock.router.monitoring.views import RouterSurface
from penstock.router.monitoring.warnings import WarningCode, Warnings, WarningSeverity
from penstock.router.schedule import Pause
from penstock.router.settings import RouterSettings

log = logging.getLogger(__name__)

Fetch = Callable[[Sequence[str]], Awaitable[RouterConfiguration]]
_SOURCE = "router"
_NOTHING = RouterConfiguration()


class SyncState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of the configuration sync."""

    initialised: bool = False
    # Whether pools and consumers run; a standby or disabled instance has none.
    consuming: bool = False
    synced_at_ms: int | None = None
    last_failure: str | None = None


class ConfigSync:
    """Fetches the configuration and applies it to a router, one sync at a time."""

    def __init__(
        self,
        settings: RouterSettings,
        router: RouterSurface,
        warnings: Warnings,
        leadership: RouterLeadership,
        clock: Clock,
        pause: Pause,
        fetch: Fetch = fetch_configuration,
    ) -> None:
        self._settings = settings
        self._router = router
        self._warnings = warnings
        self._leadership = leadership
        self._clock = clock
        self._pause = pause
        self._fetch = fetch
        self._lock = asyncio.Lock()
        self.state = SyncState()
        # The last good configuration.
        self.configuration: RouterConfiguration | None = None

    async def run(self) -> None:
        """Keep the router in sync until cancelled; raise Unavailable when all attempts of the first sync failed.

        If the router is disabled, return immediately; it consumes nothing.
        """
        await self._pause(0 if all(map(is_file, self._settings.config)) else self._settings.initial_delay_s)
        if not self._settings.enabled:
            self._change(initialised=True)
            return
        while True:
            primary = self._leadership.is_primary()
            role = self._as_primary() if primary else self._as_standby()
            await self._run_until(self._leadership.becomes(not primary), role)

    async def reload(self) -> RouterConfiguration:
        """Sync once, now; raise the error if it fails, and keep the last good configuration."""
        self._require_active()
        try:
            return await self._attempt()
        except PenstockError as error:
            self._warn(WarningSeverity.WARN, f"cannot reload the configuration: {error.message}")
            raise

    def _require_active(self) -> None:
        if not self._settings.enabled:
            raise FailedPrecondition("the router is disabled; set router.enabled = true and restart it")
        if not self._leadership.is_primary():
            raise FailedPrecondition("this instance is on standby and consumes nothing; use the primary instance")

    async def _run_until(self, change: Awaitable[None], role: Awaitable[None]) -> None:
        running, changed = asyncio.ensure_future(role), asyncio.ensure_future(change)
        try:
            await asyncio.wait((running, changed), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
        finally:
            running.cancel()
            changed.cancel()
            await asyncio.gather(running, changed, return_exceptions=True)

    async def _as_primary(self) -> None:
        if self.configuration is not None:
            # Leadership is back: start again even if the source is down or has not changed.
            await self._apply(self.configuration)
        while True:
            await self._sync()
            await self._pause(self._settings.sync_interval_s)

    async def _as_standby(self) -> None:
        if self.state.consuming:
            async with self._lock:
                self._change(consuming=False)
                await self._router.apply(_NOTHING)
        self._change(initialised=True)
        await asyncio.Event().wait()

    async def _sync(self) -> None:
        attempts = self._settings.sync_attempts
        for attempt in range(1, attempts + 1):
            try:
                await self._attempt()
            except PenstockError as error:
                log.warning(
                    "cannot sync the configuration: %s", error.message, extra={"attempt": attempt, "of": attempts}
                )
            else:
                return
            if attempt < attempts:
                await self._pause(self._settings.sync_retry_s)
        self._give_up()

    def _give_up(self) -> None:
        reason = f"{self._settings.sync_attempts} attempts to sync the configuration failed: {self.state.last_failure}"
        if self.configuration is None:
            self._warn(WarningSeverity.CRITICAL, f"{reason}; there is no earlier configuration, so this process ends")
            raise Unavailable(reason)
        self._warn(WarningSeverity.WARN, f"{reason}; the last good configuration stays in force")

    async def _attempt(self) -> RouterConfiguration:
        async with self._lock:
            try:
                fetched = with_usable_queues(await self._fetch(self._settings.config), self._warnings)
                # Leadership may have been lost while this waited for the lock.
                self._require_active()
                await self._apply_locked(fetched)
            except PenstockError as error:
                self._change(last_failure=error.message)
                raise
            except Exception as error:
                log.exception("a sync failed with an unexpected error")
                self._change(last_failure=f"{type(error).__name__}; see the log")
                raise Unavailable(f"the sync failed: {self.state.last_failure}") from error
            self.configuration = fetched
            self._change(initialised=True, synced_at_ms=self._clock.now_ms(), last_failure=None)
            return fetched

    async def _apply(self, configuration: RouterConfiguration) -> None:
        async with self._lock:
            await self._apply_locked(configuration)

    async def _apply_locked(self, configuration: RouterConfiguration) -> None:
        # Set first: a cancelled apply leaves parts running that must be stopped later.
        self._change(consuming=True)
        await self._router.apply(configuration)

    def _warn(self, severity: WarningSeverity, message: str) -> None:
        self._warnings.add(WarningCode.CONFIG_SYNC_FAILED, severity, _SOURCE, message)

    def _change(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)
