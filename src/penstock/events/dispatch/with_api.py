"""The API and the scheduler in one process, on one database.

On SQLite that is what makes a job's way short: the scheduler is called in the moment a job is made, where another
process would find it at its next poll.
"""

from penstock.cluster import Alone, running
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.events.api import ApiFront, ApiSettings, api_server
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.server import SchedulerCollector
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.process import PATH as PROCESS_PATH
from penstock.events.process import AuthTokens
from penstock.events.statistics import InlineCounter
from penstock.events.store import JobRepository
from penstock.http.server import stop_signal
from penstock.ops.config import FanOutBy
from penstock.ops.telemetry import Metrics
from penstock.queues import Publisher


async def serve_api_with_scheduler(
    jobs: JobRepository,
    publisher: Publisher,
    clock: Clock,
    ids: TsidFactory,
    api: ApiSettings,
    scheduling: SchedulerSettings,
    front: ApiFront | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; the routers are told this process's own address for the jobs."""
    metrics = Metrics("dispatch")
    async with api_server(jobs, clock, ids, api, metrics, front=front) as server:
        stop = stop_signal(server)
        async with server:
            pointers = Pointers(server.url + PROCESS_PATH, AuthTokens(api.secrets), api.default_pool)
            name = ids.next_id(clock.now_ms())
            leadership = Alone()
            scheduler = Scheduler(jobs, publisher, pointers, leadership, scheduling, clock, name=name)
            metrics.register(SchedulerCollector(scheduler, leadership))
            # Where Spark's pipeline is at work, it counts.
            inline = api.fan_out is FanOutBy.INLINE
            counter = InlineCounter(jobs.statistics, clock, pause) if inline else None
            async with running(scheduler), running(counter):
                print(f"listening on {server.url}", flush=True)
                await stop.wait()
