"""Telling the router that its configuration has changed, so that it need not wait for its next sync."""

import asyncio
import logging

from penstock.api.errors import PartNotConfigured
from penstock.api.upstream import TIMEOUT_S, Upstream
from penstock.core.errors import PenstockError
from penstock.router.pool import SHRINK_WAIT_S
from penstock.telemetry.problems import Refused

log = logging.getLogger(__name__)

RELOAD = "/config/reload"
RELOAD_S = SHRINK_WAIT_S + TIMEOUT_S
"""A lower concurrency waits for deliveries to end."""


class RouterNews:
    """Lets the router fetch its configuration, without keeping waiting who changed it.

    What changes while the router fetches may have come too late for it, so it is told once more.
    """

    def __init__(self, router: Upstream) -> None:
        self._router = router
        self._telling: asyncio.Task[None] | None = None
        self._is_news = False

    def tell(self) -> None:
        """The configuration has changed."""
        self._is_news = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._is_news:
            self._is_news = False
            try:
                await self._router.ask("POST", RELOAD, timeout_s=RELOAD_S)
            except PartNotConfigured:
                return
            except (PenstockError, Refused) as error:
                log.warning("the router does not follow before its next sync", extra={"reason": str(error)})
