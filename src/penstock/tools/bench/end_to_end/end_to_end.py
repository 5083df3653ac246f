"""Measures one engine on one database, phase by phase, or all combinations of them."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import uvloop

from penstock.client.asynchronous import AsyncPenstock
from penstock.ops.parts import Engine
from penstock.tools.bench.end_to_end.figures import EndToEndFigures, Faults
from penstock.tools.bench.end_to_end.installation import Installation, installation
from penstock.tools.bench.end_to_end.isolation import isolation
from penstock.tools.bench.end_to_end.phases import EndToEndRun, RushSize, bare, calm, first_events, publish_first, rush
from penstock.tools.bench.end_to_end.processor_time import require_proc
from penstock.tools.bench.end_to_end.receiver import receiver
from penstock.tools.bench.servers import postgres_server

# Publishing a batch, or cancelling the jobs of a neighbour, takes this long at most.
_CALL_S = 120.0


class EndToEndSizes(NamedTuple):
    """How much is published."""

    rush: RushSize
    calm_events: int
    calm_per_s: float
    isolation_s: float
    """How long the quick subscriber is measured beside each other one; 0 leaves isolation out."""


class Combination(NamedTuple):
    """An engine, and whether the database is PostgreSQL."""

    engine: Engine
    postgres: bool

    @property
    def name(self) -> str:
        """The key of its figures."""
        return f"{self.engine}_{'postgres' if self.postgres else 'sqlite'}"


def bench_end_to_end(
    combinations: Sequence[Combination], sizes: EndToEndSizes, server_url: str | None, show: Callable[[str], None]
) -> Iterator[tuple[str, EndToEndFigures]]:
    """Yield the figures of each combination; `show` is called with what runs now."""
    require_proc()
    for combination in combinations:
        show(f"{combination.name}: starting penstock up")
        with _server(server_url, combination) as url, installation(combination.engine, url) as running:

            def shown(text: str, name: str = combination.name) -> None:
                show(f"{name}: {text}")

            figures = uvloop.run(_measure(running, sizes, shown))
        yield combination.name, figures


@contextmanager
def _server(url: str | None, combination: Combination) -> Iterator[str | None]:
    if not combination.postgres:
        yield None
        return
    # Directly under the temporary directory: a Unix socket's path may not exceed some 100 bytes.
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as directory, postgres_server(url, directory) as server:
        yield server


async def _measure(running: Installation, sizes: EndToEndSizes, show: Callable[[str], None]) -> EndToEndFigures:
    load_1m = os.getloadavg()[0]
    async with receiver() as its_receiver, AsyncPenstock(running.url, timeout_s=_CALL_S) as penstock:
        run = EndToEndRun(running, penstock, its_receiver, Faults(), show, {})
        await publish_first(run)
        alone = await bare(run, sizes.rush.events, sizes.rush.keys)
        rushed = await rush(run, sizes.rush)
        calmed = await calm(run, sizes.calm_events, sizes.calm_per_s)
        neighbours = await isolation(run, sizes.isolation_s) if sizes.isolation_s else []
        await run.check()
        first = await first_events(run)
    cpu_us = sum(rushed.cpu_us_by_part.values())
    row_versions, wal_bytes, transactions = rushed.written or (None, None, None)
    return EndToEndFigures(
        deliveries_per_s=rushed.deliveries_per_s,
        cpu_us_per_delivery=cpu_us,
        cpu_ratio=cpu_us / alone.cpu_us,
        cpu_us_by_part=rushed.cpu_us_by_part,
        bare_per_s=alone.per_s,
        bare_cpu_us=alone.cpu_us,
        ratio=rushed.deliveries_per_s / alone.per_s,
        published_per_s=rushed.published_per_s,
        calm_p50_ms=calmed.p50_ms,
        calm_p99_ms=calmed.p99_ms,
        first_event_ms=first.first_ms,
        hundredth_event_ms=first.hundredth_ms,
        processes=rushed.after.processes,
        memory_mb=rushed.after.memory_mb,
        row_versions=row_versions,
        wal_bytes=wal_bytes,
        transactions=transactions,
        isolation_p99_ratio=max((each.ratio for each in neighbours), default=None),
        isolation=neighbours,
        load_1m=load_1m,
        faults=run.faults,
    )
