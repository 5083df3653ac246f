import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

from penstock.http.api.probes import Check, CheckResult, Probes
from penstock.http.server.asgi import App, Message, Receive, Scope, Send
from penstock.ops.telemetry.metrics import Metrics


async def ask(app: App, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http", "path": path, "method": method}, receive, send)
    start, body = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, body["body"]


async def ready(checks: Mapping[str, Check], timeout_s: float = 2.0) -> tuple[int, Any]:
    status, _, body = await ask(Probes(Metrics("x"), checks, timeout_s=timeout_s), "/health/ready")
    return status, json.loads(body)


async def fine() -> CheckResult:
    return CheckResult(True, "3 open")


async def test_live_and_metrics() -> None:
    probes = Probes(Metrics("x"))
    assert (await ask(probes, "/health/live"))[::2] == (200, b'{"status":"live"}')
    status, headers, body = await ask(probes, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"penstock_build_info" in body


async def test_live_fails_when_the_process_must_be_restarted() -> None:
    reasons: list[str] = []
    probes = Probes(Metrics("x"), fatal=lambda: reasons[0] if reasons else None)
    assert (await ask(probes, "/health/live"))[0] == 200
    reasons.append("another process took over")
    status, _, body = await ask(probes, "/health/live")
    assert (status, json.loads(body)) == (503, {"status": "must-restart", "detail": "another process took over"})


async def test_ready_when_every_check_is_fine() -> None:
    status, body = await ready({"store": fine, "disk": lambda: CheckResult(True)})
    assert status == 200
    assert body == {
        "status": "ready",
        "checks": {"store": {"ok": True, "detail": "3 open"}, "disk": {"ok": True, "detail": ""}},
    }


async def test_one_check_that_fails_raises_or_returns_nonsense_is_not_ready() -> None:
    def broken() -> CheckResult:
        raise OSError("postgres://u:hunter2@h is down")

    status, body = await ready(
        {"a": fine, "b": lambda: CheckResult(False, "full"), "c": broken, "d": lambda: True}  # type: ignore[dict-item,return-value]
    )
    assert (status, body["status"]) == (503, "not-ready")
    assert {name: result["detail"] for name, result in body["checks"].items() if not result["ok"]} == {
        "b": "full",
        "c": "OSError: postgres://u:***@h is down",
        "d": "TypeError: the check returned bool, not CheckResult",
    }


async def test_a_check_that_takes_too_long_is_not_ready_and_is_stopped() -> None:
    stopped = asyncio.Event()

    async def slow() -> CheckResult:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return CheckResult(True)

    status, body = await ready({"slow": slow}, timeout_s=0.01)
    assert (status, body["checks"]["slow"]["detail"]) == (503, "no answer within 0.01 s")
    await asyncio.wait_for(stopped.wait(), 60)


async def test_a_function_that_blocks_delays_nobody_and_runs_once() -> None:
    release, calls = threading.Event(), []

    def stuck() -> CheckResult:
        calls.append(1)
        release.wait(30)
        return CheckResult(True)

    probes = Probes(Metrics("x"), {"stuck": stuck, "fine": fine}, timeout_s=0.05)
    for _ in range(3):
        status, _, body = await ask(probes, "/health/ready")
        assert status == 503
        assert json.loads(body)["checks"]["fine"]["ok"]
    assert len(calls) == 1
    release.set()
    while (await ask(probes, "/health/ready"))[0] != 200:
        pass


async def test_only_get_and_head() -> None:
    probes = Probes(Metrics("x"))
    status, headers, body = await ask(probes, "/health/live", "HEAD")
    assert (status, body, headers["content-length"]) == (200, b"", "17")
    status, headers, _ = await ask(probes, "/metrics", "POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert (await ask(probes, "/else"))[0] == 404


async def test_wrapped_other_paths_and_other_scopes_go_to_the_app() -> None:
    seen: list[str] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope.get("path", scope["type"]))
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b"tea"})

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    app = Probes(Metrics("x")).wrap(inner)
    assert (await ask(app, "/orders"))[0] == 418
    assert (await ask(app, "/health/live"))[0] == 200
    await app({"type": "lifespan"}, receive, send)
    assert seen == ["/orders", "lifespan"]
