"""`/health/live`, `/health/ready` and `/metrics`, alone or in front of another ASGI app."""

import json
from collections.abc import Mapping

from penstock.telemetry.asgi import App, Receive, Scope, Send, accept_lifespan, answer
from penstock.telemetry.checks import Check, CheckResult, Checks
from penstock.telemetry.metrics import Metrics

__all__ = ["Check", "CheckResult", "Probes"]

PATHS = frozenset({"/health/live", "/health/ready", "/metrics"})
_JSON = {"content-type": "application/json", "cache-control": "no-store"}


class Probes:
    """The health and metrics endpoints of one served part, as an ASGI app."""

    def __init__(self, metrics: Metrics, checks: Mapping[str, Check] | None = None, *, timeout_s: float = 2.0) -> None:
        self._metrics = metrics
        self._checks = Checks(checks or {}, timeout_s)

    def wrap(self, app: App) -> App:
        """An app that answers the probes itself and leaves everything else, lifespan too, to `app`."""

        async def probed(scope: Scope, receive: Receive, send: Send) -> None:
            ours = scope["type"] == "http" and scope["path"] in PATHS
            await (self._answer(scope, send) if ours else app(scope, receive, send))

        return probed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as an app of its own: other paths are not found."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, send)

    async def _answer(self, scope: Scope, send: Send) -> None:
        if scope["path"] not in PATHS:
            await answer(scope, send, 404, b'{"error":"no such path"}', _JSON)
        elif scope["method"] not in ("GET", "HEAD"):
            await answer(scope, send, 405, b'{"error":"GET or HEAD only"}', {**_JSON, "allow": "GET, HEAD"})
        elif scope["path"] == "/metrics":
            await answer(scope, send, 200, self._metrics.exposition(), {"content-type": self._metrics.content_type})
        elif scope["path"] == "/health/live":
            await answer(scope, send, 200, b'{"status":"live"}', _JSON)
        else:
            await self._answer_ready(scope, send)

    async def _answer_ready(self, scope: Scope, send: Send) -> None:
        results = await self._checks.run()
        ready = all(result.ok for result in results.values())
        body = {
            "status": "ready" if ready else "not-ready",
            "checks": {name: {"ok": result.ok, "detail": result.detail} for name, result in results.items()},
        }
        await answer(scope, send, 200 if ready else 503, json.dumps(body).encode(), _JSON)
