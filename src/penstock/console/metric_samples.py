"""`/api/v1/metrics` and `/api/router/metrics`: Prometheus metrics as JSON, for the charts of the page."""

from collections.abc import Iterator

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from penstock.console.errors import PartUnreachable
from penstock.console.upstream import Upstream
from penstock.edge.clock import Clock
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.ops.telemetry import Metrics

_PREFIX = "penstock_"


class Sample(msgspec.Struct, frozen=True):
    """A value; the name is without `penstock_`."""

    name: str
    labels: dict[str, str]
    value: float


class Samples(msgspec.Struct, frozen=True, rename="camel"):
    """All values of a part at one moment."""

    at_ms: int
    samples: list[Sample]


class MetricRoutes:
    """The metrics of this process and of the router."""

    def __init__(self, metrics: Metrics, router: Upstream, clock: Clock) -> None:
        self._metrics = metrics
        self._router = router
        self._clock = clock

    @route("GET", "/api/v1/metrics", summary="The metrics of the API, as JSON.")
    def _own(self, _: Call[NoQuery, NoBody]) -> Samples:
        return Samples(self._clock.now_ms(), list(samples_of(self._metrics.exposition().decode())))

    @route("GET", "/api/router/metrics", summary="The metrics of the router, as JSON.")
    async def _of_router(self, _: Call[NoQuery, NoBody]) -> Samples:
        content = await self._router.ask("GET", "/metrics")
        try:
            return Samples(self._clock.now_ms(), list(samples_of(content.decode())))
        except ValueError:
            router = self._router
            reason = "its metrics cannot be read"
            raise PartUnreachable(router.part, router.url, reason, router.setting) from None


def samples_of(text: str) -> Iterator[Sample]:
    """Yield our samples in Prometheus' text format; ValueError if the text is not in that format."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_PREFIX) and not sample.name.endswith("_created"):
                yield Sample(sample.name.removeprefix(_PREFIX), dict(sample.labels), float(sample.value))
