"""The probes `/health/live`, `/health/ready` and `/metrics`, alone or in front of another ASGI app."""

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from penstock.http.server import App, Receive, Scope, Send, accept_lifespan, send_answer
from penstock.ops.telemetry import Metrics, mask_secrets


@dataclass(frozen=True)
class CheckResult:
    """Whether a check passed, and details."""

    ok: bool
    detail: str = ""


Check: TypeAlias = Callable[[], CheckResult | Awaitable[CheckResult]]


class Checks:
    """Runs named checks concurrently; one that raises or takes too long has failed.

    A plain function runs in a thread, so that it blocks nothing else; a coroutine function runs on the loop.
    """

    def __init__(self, checks: Mapping[str, Check], timeout_s: float) -> None:
        self._checks = dict(checks)
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[CheckResult]] = {}

    async def run(self) -> dict[str, CheckResult]:
        """Return the result of every check by name."""
        results = await asyncio.gather(*(self._result(name) for name in self._checks))
        return dict(zip(self._checks, results, strict=True))

    async def _result(self, name: str) -> CheckResult:
        task = self._start(name)
        await asyncio.wait({task}, timeout=self._timeout_s)
        if not task.done() and inspect.iscoroutinefunction(self._checks[name]):
            task.cancel()
        if not task.done() or task.cancelled():
            return CheckResult(False, f"no answer within {self._timeout_s:g} s")
        if error := task.exception():
            return CheckResult(False, mask_secrets(f"{type(error).__name__}: {error}"))
        return task.result()

    def _start(self, name: str) -> "asyncio.Task[CheckResult]":
        # A thread cannot be stopped: a check that hangs is awaited again, never started twice.
        task = self._running.get(name)
        if task is None or task.done():
            task = self._running[name] = asyncio.create_task(_outcome(self._checks[name]), name=f"check {name}")
        return task


async def _outcome(check: Check) -> CheckResult:
    result = check() if inspect.iscoroutinefunction(check) else await _in_thread(check)
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, CheckResult):
        raise TypeError(f"the check returned {type(result).__name__}, not CheckResult")
    return result


def _in_thread(check: Check) -> "asyncio.Future[CheckResult | Awaitable[CheckResult]]":
    # Not the loop's executor: its threads are joined at exit, so that a check that hangs would block the exit.
    outcome: Future[CheckResult | Awaitable[CheckResult]] = Future()
    outcome.set_running_or_notify_cancel()

    def work() -> None:
        try:
            outcome.set_result(check())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="penstock-check", daemon=True).start()
    return asyncio.wrap_future(outcome)


__all__ = ["Check", "CheckResult", "Probes"]

PATHS = frozenset({"/health/live", "/health/ready", "/metrics"})
_JSON = {"content-type": "application/json", "cache-control": "no-store"}


class Probes:
    """The health and metrics endpoints of a served part, as an ASGI app."""

    def __init__(
        self,
        metrics: Metrics,
        checks: Mapping[str, Check] | None = None,
        *,
        fatal: Callable[[], str | None] | None = None,
        before_metrics: Callable[[], Awaitable[object]] | None = None,
        timeout_s: float = 2.0,
    ) -> None:
        """Create the endpoints; `fatal` says why the process must be restarted, if it must.

        `before_metrics` brings metrics up to date that are not counted as they happen; it is not awaited for long.
        """
        self._metrics = metrics
        self._checks = Checks(checks or {}, timeout_s)
        self._fatal = fatal
        self._before_metrics = before_metrics
        self._timeout_s = timeout_s

    def wrap(self, app: App) -> App:
        """Return an app that answers the probes and leaves everything else, including lifespan, to `app`."""

        async def probed(scope: Scope, receive: Receive, send: Send) -> None:
            ours = scope["type"] == "http" and scope["path"] in PATHS
            await (self._answer(scope, send) if ours else app(scope, receive, send))

        return probed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as a complete app: other paths are not found."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, send)

    async def _answer(self, scope: Scope, send: Send) -> None:
        if scope["path"] not in PATHS:
            await send_answer(scope, send, 404, b'{"error":"no such path"}', _JSON)
        elif scope["method"] not in ("GET", "HEAD"):
            await send_answer(scope, send, 405, b'{"error":"GET or HEAD only"}', {**_JSON, "allow": "GET, HEAD"})
        elif scope["path"] == "/metrics":
            await self._refresh()
            await send_answer(
                scope, send, 200, self._metrics.exposition(), {"content-type": self._metrics.content_type}
            )
        elif scope["path"] == "/health/live":
            await self._answer_live(scope, send)
        else:
            await self._answer_ready(scope, send)

    async def _refresh(self) -> None:
        if self._before_metrics is not None:
            # What is out of date is better than no metrics at all.
            with suppress(Exception):
                await asyncio.wait_for(self._before_metrics(), self._timeout_s)

    async def _answer_live(self, scope: Scope, send: Send) -> None:
        reason = self._fatal() if self._fatal is not None else None
        if reason is None:
            await send_answer(scope, send, 200, b'{"status":"live"}', _JSON)
        else:
            body = {"status": "must-restart", "detail": mask_secrets(reason)}
            await send_answer(scope, send, 503, json.dumps(body).encode(), _JSON)

    async def _answer_ready(self, scope: Scope, send: Send) -> None:
        results = await self._checks.run()
        ready = all(result.ok for result in results.values())
        body = {
            "status": "ready" if ready else "not-ready",
            "checks": {name: {"ok": result.ok, "detail": result.detail} for name, result in results.items()},
        }
        await send_answer(scope, send, 200 if ready else 503, json.dumps(body).encode(), _JSON)
