"""`penstock pipeline replay`: deliver once more what is over.

How far a replay is, on one line that is written over; in a pipe a line now and then.
"""

import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.failures import FAILURE, INTERRUPTED
from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.pipeline.options import Conf, Data, DatabaseUrl, Master, database_of, session_settings

if TYPE_CHECKING:
    from penstock.events.replay import Replay, ReplayOrder
    from penstock.history.replay.runner import Count, Ended
    from penstock.history.replay.task import DirectSettings
    from penstock.ops.config import Config
    from penstock.spark.database import Database

EXAMPLES = examples(
    "penstock pipeline replay --from 2030-01-01 --to 2030-01-02 --dry-run",
    "penstock pipeline replay --subscription 0S898QREHD800 --failed-since 2030-01-01T09:00:00Z --rate 50",
    "penstock pipeline replay --key customer-1 --from 2030-01-01 --direct --yes",
    "penstock pipeline replay --resume 0S898QRG1D800",
)

Moment: TypeAlias = str | None


def replay(
    ctx: typer.Context,
    from_: Annotated[
        Moment, typer.Option("--from", metavar="TIME", help="Jobs of events since (RFC 3339, or a day in UTC).")
    ] = None,
    to: Annotated[Moment, typer.Option("--to", metavar="TIME", help="Jobs of events before.")] = None,
    subscription: Annotated[str | None, typer.Option(metavar="ID", help="Jobs of this subscription.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Jobs of this key (a group's name).")] = None,
    failed_since: Annotated[Moment, typer.Option(metavar="TIME", help="Jobs that were given up since.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    rate: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most so many a second in all.")] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Deliver from Spark's executors instead of through the queue.")
    ] = False,
    resume: Annotated[str | None, typer.Option(metavar="ID", help="Go on with a replay that did not end.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Deliver jobs once more: of a time range, a subscription, a key, or what failed.

    What would be delivered is counted first. Order per key is kept. Exit code 1 if something could not be delivered.
    """
    config = load_config(ctx)
    order = _order(from_, to, subscription, key, failed_since, rate, direct=direct, resume=resume)
    place = database_of(config, data, database)
    found, order = _begun(place, order, resume)
    from penstock.edge.clock import SystemClock
    from penstock.history.replay.runner import ReplayRunner
    from penstock.spark.session import spark_session

    clock = SystemClock()
    with spark_session(session_settings(config, master, conf, app_name="penstock-replay")) as spark:
        runner = ReplayRunner(spark, place, clock)
        as_of_ms = clock.now_ms() if found is None else found.requested_at_ms
        count = runner.count(order.selection, as_of_ms)
        _tell_count(count, order, as_json=as_json and dry_run)
        if dry_run or not (count.jobs or found) or not _confirmed(count, yes=yes):
            return
        run = _begin(place, order, count, as_of_ms, found)
        progress = _progress_line(count, quiet=as_json)
        with _stopping() as stop:
            ended = runner.run(run, count, _direct_settings(config), stop, progress.show)
        progress.clear()
    _tell_end(ended, as_json=as_json)


def _order(
    from_: Moment,
    to: Moment,
    subscription: str | None,
    key: str | None,
    failed_since: Moment,
    rate: int | None,
    *,
    direct: bool,
    resume: str | None,
) -> "ReplayOrder | None":
    """What is asked for; None if it is to go on with what was asked before."""
    from penstock.domain.errors import InvalidArgument
    from penstock.events.replay import ReplayOrder, ReplaySelection

    given = (from_, to, subscription, key, failed_since, rate)
    if resume is not None:
        if direct or any(value is not None for value in given):
            raise typer.BadParameter("a replay goes on as it was asked for: give --resume alone")
        return None
    selection = ReplaySelection(
        from_ms=_moment_ms(from_, "--from"),
        to_ms=_moment_ms(to, "--to"),
        subscription_id=subscription,
        key=key,
        failed_since_ms=_moment_ms(failed_since, "--failed-since"),
    )
    if selection == ReplaySelection():
        raise InvalidArgument("say what to replay: a time range, a subscription, a key, or what failed since when")
    if selection.from_ms is not None and selection.to_ms is not None and selection.from_ms >= selection.to_ms:
        raise InvalidArgument("there is no time between --from and --to: give an earlier and a later moment")
    return ReplayOrder(selection=selection, direct=direct, per_s=rate)


def _begun(place: "Database", order: "ReplayOrder | None", resume: str | None) -> "tuple[Replay | None, ReplayOrder]":
    """The replay to go on with, if it is one, and what was asked for."""
    import asyncio

    from penstock.edge.clock import SystemClock
    from penstock.history.replay.task import replays_in

    async def look(replay_id: str) -> "Replay":
        async with replays_in(place, SystemClock()) as replays:
            return await replays.get(replay_id)

    if order is not None:
        return None, order
    found = asyncio.run(look(resume or ""))
    return found, found.order


def _begin(place: "Database", order: "ReplayOrder", count: "Count", now_ms: int, found: "Replay | None") -> "Replay":
    import asyncio

    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.history.replay.task import replays_in

    async def begin() -> "Replay":
        async with replays_in(place, SystemClock()) as replays:
            if found is not None:
                return await replays.go_on(found.id)
            return await replays.add(process_ids().next_id(now_ms), order, count.jobs, now_ms)

    return asyncio.run(begin())


def _moment_ms(given: Moment, option: str) -> int | None:
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise typer.BadParameter(
            f"{given!r} is no time: write 2030-01-01 or 2030-01-01T09:00:00Z", param_hint=option
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _tell_count(count: "Count", order: "ReplayOrder", *, as_json: bool) -> None:
    if as_json:
        print_json({"jobs": count.jobs, "groups": count.groups, "onTheirWay": count.on_their_way})
        return
    way = "directly" if order.direct else "through the queue"
    pace = "" if order.per_s is None else f", at most {order.per_s}/s ({_duration(count.jobs / order.per_s)} at least)"
    typer.echo(f"{count.jobs} jobs of {count.groups} groups would be delivered once more {way}{pace}", err=True)
    if count.on_their_way:
        typer.echo(f"{count.on_their_way} more are still on their way, and are left out", err=True)


def _confirmed(count: "Count", *, yes: bool) -> bool:
    if yes or not sys.stdin.isatty():
        return True
    return typer.confirm(f"Deliver {count.jobs} jobs once more?", err=True)


def _direct_settings(config: "Config") -> "DirectSettings":
    from penstock.history.replay.task import DirectSettings

    return DirectSettings(
        egress_allow=config.egress.allow,
        connect_timeout_s=config.jobs.connect_timeout_s,
        http_version=config.jobs.http_version,
    )


def _progress_line(count: "Count", *, quiet: bool) -> "ProgressLine":

    return ProgressLine(count.jobs, quiet=quiet)


@contextmanager
def _stopping() -> Iterator[Event]:
    """Set once somebody wants an end; who asks a second time gets it at once."""
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        typer.echo("\nstopping: deliveries under way are finished; once more to break off", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_end(ended: "Ended", *, as_json: bool) -> None:
    progress, replay_id = ended.progress, ended.replay.id
    gone = 0 if ended.stopped else max(0, ended.replay.total - progress.looked_at)
    if as_json:
        print_json(
            {
                "replay": replay_id,
                "jobs": ended.replay.total,
                "done": progress.done,
                "failed": progress.failed,
                "heldBack": progress.held_back,
                "notFound": gone,
                "stopped": ended.stopped,
            }
        )
    else:
        print_table(
            ("replay", "jobs", "done", "failed", "held back", "not found"),
            [(replay_id, *map(str, (ended.replay.total, progress.done, progress.failed, progress.held_back, gone)))],
        )
    if ended.stopped or progress.failed or progress.held_back:
        typer.echo(f"go on with: penstock pipeline replay --resume {replay_id}", err=True)
        raise typer.Exit(INTERRUPTED if ended.stopped else FAILURE)


def _duration(seconds: float) -> str:
    minutes, left_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left_s:02}"


if TYPE_CHECKING:
    from penstock.events.replay import ReplayProgress

_CLEAR_LINE = "\r\x1b[K"
_OVER_S = 10.0
_IN_A_PIPE_S = 5.0


class ProgressLine:
    """Shows rows, rate and how long it will take."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._on_terminal = sys.stderr.isatty()
        self._seen: deque[tuple[float, int]] = deque()
        self._told_s = 0.0

    def show(self, progress: "ReplayProgress") -> None:
        """Tell what is known now."""
        now_s = time.monotonic()
        self._seen.append((now_s, progress.looked_at))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - _OVER_S:
            self._seen.popleft()
        if self._quiet or (not self._on_terminal and now_s < self._told_s + _IN_A_PIPE_S):
            return
        self._told_s = now_s
        line = progress_text(progress, self._total, self._rate())
        typer.echo(f"{_CLEAR_LINE}{line}" if self._on_terminal else line, err=True, nl=not self._on_terminal)

    def clear(self) -> None:
        """Leave the line empty for what comes next."""
        if self._on_terminal and not self._quiet:
            typer.echo(_CLEAR_LINE, err=True, nl=False)

    def _rate(self) -> float:
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def progress_text(progress: "ReplayProgress", total: int, per_s: float) -> str:
    """The line for a reader."""
    left = max(0, total - progress.looked_at)
    parts = [f"{progress.looked_at} of {total} jobs", f"{per_s:.0f}/s"]
    if per_s > 0 and left:
        parts.append(f"{left / per_s:.0f} s left")
    if progress.failed or progress.held_back:
        parts.append(f"{progress.failed} failed, {progress.held_back} held back")
    return ", ".join(parts)
