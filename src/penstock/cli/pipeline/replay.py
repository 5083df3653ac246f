"""`penstock pipeline replay`: deliver finished jobs once more."""

import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import FAILURE, INTERRUPTED
from penstock.cli.family import examples
from penstock.cli.moments import epoch_ms, time_option
from penstock.cli.options import load_config
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson, Conf, DatabaseUrl, DataDir, Lake, Master, OfSubscription, Yes, one_of
from penstock.cli.pipeline.options import database_of, lake_of, session_settings

if TYPE_CHECKING:
    from penstock.delivery import CourierSettings
    from penstock.domain.job_state import JobStatus
    from penstock.domain.replay import Replay, ReplayProgress, ReplayRequest
    from penstock.history.replay.runner import Count, Ended
    from penstock.ops.config import Config
    from penstock.spark.database import SparkDatabase

EXAMPLES = examples(
    "penstock pipeline replay --from 2030-01-01 --to 2030-01-02 --dry-run",
    "penstock pipeline replay --failed-since 24h --rate 50 --yes",
    "penstock pipeline replay --subscription billing --status error --from 2030-01-01T09:00:00Z",
    "penstock pipeline replay --key customer-1 --from 2030-01-01 --direct --yes",
    "penstock pipeline replay --sql 'SELECT job_id FROM deliveries WHERE status = 502' --dry-run",
    "penstock pipeline replay --resume 0S898QRG1D800",
)


def _status(text: str) -> "JobStatus":
    from penstock.domain.job_state import JobStatus
    from penstock.domain.replay import REPLAYABLE

    status = one_of(JobStatus, text)
    if status not in REPLAYABLE:
        raise typer.BadParameter(f"jobs that are {status} are not replayed: give one of {', '.join(REPLAYABLE)}")
    return status


_CLEAR_LINE = "\r\x1b[K"
_RATE_OVER_S = 10.0
_IN_A_PIPE_S = 5.0


def replay(
    ctx: typer.Context,
    from_: Annotated[
        datetime | None, time_option("--from", "Only jobs of events at or after this time.", "--since")
    ] = None,
    to: Annotated[datetime | None, time_option("--to", "Only jobs of events before this time.", "--until")] = None,
    subscription: OfSubscription = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only jobs of this key (a group's name).")] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only jobs of this event type.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(parser=_status, metavar="STATUS", help="Only jobs that are COMPLETED, in ERROR or EXPIRED."),
    ] = None,
    failed_since: Annotated[
        datetime | None, time_option("--failed-since", "Only jobs that failed at or after this time.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="QUERY", help="Only jobs that a query over the lake names in its column job_id."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the jobs, and deliver none.")] = False,
    rate: Annotated[int | None, typer.Option(min=1, metavar="N", help="Deliveries per second at most, in all.")] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Deliver from Spark's executors instead of through the queue.")
    ] = False,
    resume: Annotated[str | None, typer.Option(metavar="ID", help="Continue a replay that was stopped.")] = None,
    yes: Yes = False,
    master: Master = "",
    conf: Conf = None,
    lake: Lake = "",
    database: DatabaseUrl = None,
    data: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Deliver jobs once more: of a time range, a subscription, a key, a type or a status, of a query, or failed ones.

    The jobs are counted first; without a terminal to ask on, --yes is required. Order per key is kept. With --direct,
    the command ends when they are delivered, and refuses while other jobs of the same keys are on their way; else it
    ends when they are in the queue. The exit code is 1 if a job could not be delivered.
    """
    config = load_config(ctx)
    place = database_of(config, data, database)
    selection = {
        "from_ms": epoch_ms(from_),
        "to_ms": epoch_ms(to),
        "subscription_id": None if subscription is None else _subscription_id(place, subscription),
        "key": key,
        "type": event_type,
        "status": status,
        "failed_since_ms": epoch_ms(failed_since),
        "sql": sql,
    }
    request = _request(selection, rate, direct=direct, resume=resume)
    if request is not None and not (yes or dry_run or sys.stdin.isatty()):
        raise typer.BadParameter("without a terminal, give --yes to deliver, or --dry-run to count")
    found, request = _begun(place, request, resume)
    from penstock.edge.clock import SystemClock
    from penstock.history.errors import LanesBusy
    from penstock.history.replay.runner import ReplayRunner
    from penstock.spark.session import spark_session

    clock = SystemClock()
    with spark_session(session_settings(config, master, conf, app_name="penstock-replay")) as spark:
        runner = ReplayRunner(spark, place, clock, lake_of(config, data, lake))
        as_of_ms = clock.now_ms() if found is None else found.requested_at_ms
        count = runner.count(request.selection, as_of_ms)
        _print_count(count, request, as_json=as_json and dry_run)
        if dry_run or not (count.jobs or found):
            return
        if request.direct and count.live_groups:
            raise LanesBusy(count.live_groups)
        # A replay that is continued was confirmed when it began.
        if not (yes or found or typer.confirm(f"Deliver {count.jobs} jobs once more?", err=True)):
            return
        run = _begin(place, request, count, as_of_ms, found)
        progress = ProgressLine(count.jobs, quiet=as_json)
        with _stopping() as stop:
            ended = runner.run(run, count, _direct_settings(config), stop, progress.show)
        progress.clear()
    _print_end(ended, as_json=as_json)


class ProgressLine:
    """How far a replay is, on one line that is overwritten; in a pipe a new line every few seconds."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._on_terminal = sys.stderr.isatty()
        self._seen: deque[tuple[float, int]] = deque()
        self._shown_s = 0.0

    def show(self, progress: "ReplayProgress") -> None:
        """Show the progress."""
        now_s = time.monotonic()
        self._seen.append((now_s, progress.looked_at))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - _RATE_OVER_S:
            self._seen.popleft()
        if self._quiet or (not self._on_terminal and now_s < self._shown_s + _IN_A_PIPE_S):
            return
        self._shown_s = now_s
        line = progress_text(progress, self._total, self._rate(), datetime.now(UTC))
        typer.echo(f"{_CLEAR_LINE}{line}" if self._on_terminal else line, err=True, nl=not self._on_terminal)

    def clear(self) -> None:
        """Empty the line for what comes next."""
        if self._on_terminal and not self._quiet:
            typer.echo(_CLEAR_LINE, err=True, nl=False)

    def _rate(self) -> float:
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def progress_text(progress: "ReplayProgress", total: int, per_s: float, now: datetime) -> str:
    """Return the line for a reader."""
    left = max(0, total - progress.looked_at)
    parts = [f"{progress.looked_at} of {total} jobs", f"{per_s:.0f}/s"]
    if per_s > 0 and left:
        left_s = left / per_s
        parts.append(f"{_duration(left_s)} left, until {now + timedelta(seconds=left_s):%H:%M:%SZ}")
    if progress.failed or progress.held_back:
        parts.append(f"{progress.failed} failed, {progress.held_back} held back")
    return ", ".join(parts)


def _request(fields: "dict[str, Any]", rate: int | None, *, direct: bool, resume: str | None) -> "ReplayRequest | None":
    """Return the request; None if an earlier one is continued."""
    from penstock.domain.errors import InvalidArgument
    from penstock.domain.replay import ReplayRequest, ReplaySelection

    if resume is not None:
        if direct or rate is not None or any(value is not None for value in fields.values()):
            raise typer.BadParameter("a replay continues as it was requested: give --resume alone")
        return None
    selection = ReplaySelection(**fields)
    if selection == ReplaySelection():
        raise InvalidArgument(
            "say what to replay: a time range, a subscription, a key, a type, a status, a query, or what failed"
        )
    if selection.from_ms is not None and selection.to_ms is not None and selection.from_ms >= selection.to_ms:
        raise InvalidArgument("there is no time between --from and --to: give an earlier and a later moment")
    return ReplayRequest(selection=selection, direct=direct, per_s=rate)


def _begun(
    place: "SparkDatabase", request: "ReplayRequest | None", resume: str | None
) -> "tuple[Replay | None, ReplayRequest]":
    """Return the replay to continue, if there is one, and the request."""
    import asyncio

    from penstock.edge.clock import SystemClock
    from penstock.history.replay.task import replays_in

    async def look(replay_id: str) -> "Replay":
        async with replays_in(place, SystemClock()) as replays:
            return await replays.get(replay_id)

    if request is not None:
        return None, request
    found = asyncio.run(look(resume or ""))
    return found, found.request


def _begin(
    place: "SparkDatabase", request: "ReplayRequest", count: "Count", now_ms: int, found: "Replay | None"
) -> "Replay":
    import asyncio

    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.history.replay.task import replays_in

    async def begin() -> "Replay":
        async with replays_in(place, SystemClock()) as replays:
            if found is not None:
                return await replays.go_on(found.id)
            return await replays.add(process_ids().next_id(now_ms), request, count.jobs, now_ms)

    return asyncio.run(begin())


def _print_count(count: "Count", request: "ReplayRequest", *, as_json: bool) -> None:
    if as_json:
        print_json({"jobs": count.jobs, "groups": count.groups, "onTheirWay": count.on_their_way})
        return
    way = "directly" if request.direct else "through the queue"
    pace = (
        ""
        if request.per_s is None
        else f", at most {request.per_s}/s ({_duration(count.jobs / request.per_s)} at least)"
    )
    typer.echo(f"{count.jobs} jobs of {count.groups} groups would be delivered once more {way}{pace}", err=True)
    if count.on_their_way:
        typer.echo(f"{count.on_their_way} more are not finished yet, and are left out", err=True)


def _subscription_id(place: "SparkDatabase", name: str) -> str:
    """Return the id of a subscription with this name; else the text, which may be the id of a deleted one."""
    import asyncio

    from penstock.edge.clock import SystemClock

    async def look() -> str:
        repository = place.repository()
        await repository.open(SystemClock().now_ms())
        try:
            return next((each.id for each in await repository.list_subscriptions() if each.name == name), name)
        finally:
            await repository.close()

    return asyncio.run(look())


def _direct_settings(config: "Config") -> "CourierSettings":
    from penstock.delivery import CourierSettings, encryption_keys

    return CourierSettings(
        egress_allow=config.egress.allow,
        egress_deny_ports=config.egress.deny_ports,
        egress_proxy=config.egress.proxy,
        connect_timeout_s=config.jobs.connect_timeout_s,
        http_version=config.jobs.http_version,
        encryption_keys=encryption_keys(config.jobs),
    )


@contextmanager
def _stopping() -> Iterator[Event]:
    """Yield a flag that a first signal sets; a second signal stops immediately."""
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        typer.echo("\nstopping after the deliveries under way; press Ctrl-C again to stop now", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_end(ended: "Ended", *, as_json: bool) -> None:
    progress, replay_id = ended.progress, ended.replay.id
    gone = 0 if ended.stopped else max(0, ended.replay.total - progress.looked_at)
    if as_json:
        print_json(
            {
                "replay": replay_id,
                "jobs": ended.replay.total,
                "done": progress.done,
                "doneMeans": _done_means(ended),
                "failed": progress.failed,
                "heldBack": progress.held_back,
                "notFound": gone,
                "stopped": ended.stopped,
            }
        )
    else:
        print_table(
            ("replay", "jobs", _done_means(ended), "failed", "held back", "not found"),
            [(replay_id, *map(str, (ended.replay.total, progress.done, progress.failed, progress.held_back, gone)))],
        )
    if ended.stopped or progress.failed or progress.held_back:
        typer.echo(f"continue with: penstock pipeline replay --resume {replay_id}", err=True)
        raise typer.Exit(INTERRUPTED if ended.stopped else FAILURE)


def _done_means(ended: "Ended") -> str:
    return "delivered" if ended.replay.request.direct else "queued"


def _duration(seconds: float) -> str:
    minutes, left_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left_s:02}"
