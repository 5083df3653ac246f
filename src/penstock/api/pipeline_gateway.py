"""`/api/pipeline`: how Spark's streaming queries do. That there are none is an answer too: not everybody has Spark."""

from typing import Any

import msgspec

from penstock.api.errors import PartNotConfigured, PartUnreachable
from penstock.api.upstream import Upstream
from penstock.telemetry.query import NoQuery
from penstock.telemetry.routes import AnyRoute, Call, NoBody, Route

PATH = "/api/pipeline"


class PipelineState(msgspec.Struct, frozen=True, rename="camel"):
    """The streaming queries as the pipeline tells them, or why there is nothing to tell."""

    reachable: bool
    detail: str = ""
    master: str = ""
    queries: list[dict[str, Any]] = []


class _Told(msgspec.Struct):
    master: str = ""
    queries: list[dict[str, Any]] = []


class PipelineRoutes:
    """The route to the pipeline."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path=PATH,
                summary="The pipeline's streaming queries, or why there are none.",
                answer=PipelineState,
                handler=self._state,
            ),
        )

    async def _state(self, _: Call[NoQuery, NoBody]) -> PipelineState:
        try:
            told = msgspec.json.decode(await self._upstream.ask("GET", PATH), type=_Told)
        except (PartUnreachable, PartNotConfigured) as error:
            return PipelineState(False, error.message)
        except msgspec.DecodeError:
            return PipelineState(False, f"{self._upstream.url} is not a pipeline; set {self._upstream.setting}")
        return PipelineState(True, "", told.master, told.queries)
