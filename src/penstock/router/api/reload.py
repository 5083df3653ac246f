"""`POST /config/reload`: the configuration, now."""

from http import HTTPStatus

import msgspec

from penstock.http.api.query import NoQuery
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route
from penstock.router.config_sync import ConfigSync


class Reloaded(msgspec.Struct, frozen=True):
    """What the configuration holds."""

    pools: int
    queues: int


class ReloadRoutes:
    """The route that syncs at once."""

    def __init__(self, sync: ConfigSync) -> None:
        self._sync = sync

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="POST",
                path="/config/reload",
                summary="Fetch and apply the configuration now, in one attempt.",
                answer=Reloaded,
                handler=self._reload,
                refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE),
            ),
        )

    async def _reload(self, _: Call[NoQuery, NoBody]) -> Reloaded:
        configuration = await self._sync.reload()
        return Reloaded(len(configuration.processing_pools), len(configuration.queues))
