"""What the pipeline's driver serves: all on loopback; to other machines the probes, and the rest with a token."""

import asyncio
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from penstock.http.server import HttpServer
from penstock.ops.telemetry import Metrics
from penstock.spark.metrics import BatchTimes
from penstock.spark.pipeline import RunSettings, run_app
from penstock.spark.session import SessionSettings
from penstock.spark.supervisor import QuerySupervisor

PROBES = ("/health/live", "/health/ready", "/metrics")


def status(url: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        with urlopen(Request(f"{url}{path}", headers=headers), timeout=30) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize(
    ("host", "token", "given", "api"),
    [
        ("127.0.0.1", "", None, 200),
        ("127.0.0.1", "secret", None, 200),
        ("0.0.0.0", "", None, 404),
        ("0.0.0.0", "secret", None, 401),
        ("0.0.0.0", "secret", "secret", 200),
    ],
)
async def test_who_is_answered(host: str, token: str, given: str | None, api: int) -> None:
    metrics = Metrics("pipeline")
    supervisor = QuerySupervisor([], "checkpoint", BatchTimes(metrics))
    settings = RunSettings(session=SessionSettings(), checkpoint="checkpoint", host=host, token=token)
    async with HttpServer(run_app(supervisor, metrics, settings), "127.0.0.1", 0) as server:
        answers = [await asyncio.to_thread(status, server.url, path, given) for path in (*PROBES, "/api/pipeline")]

    assert answers == [200, 200, 200, api]
