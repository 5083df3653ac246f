"""`penstock serve dispatch` as a process: the settings of the scheduler hold for it too."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from penstock.cli.pipeline.run import chosen
from penstock.ops.parts import Engine, Ports, parts_of
from tests.rigs.dispatch import request
from tests.rigs.penstock_process import PenstockProcess, run_penstock
from tests.rigs.queued_jobs import comes_true
from tests.services.sqs_server import running

PATH = "/api/dispatch/process"


def dispatching(directory: Path, **settings: str) -> PenstockProcess:
    """The API with the scheduler, on a queue in a file."""
    queue = f"sqlite://{directory}/queue.db?queue=dispatch"
    arguments = ("serve", "dispatch", "--port", "{port}", "--data", str(directory), "--queue", queue)
    environment = {f"PENSTOCK_SCHEDULER__{name.upper()}": value for name, value in settings.items()}
    return PenstockProcess(directory, "dispatch", arguments, environment)


def create_job(url: str) -> str:
    body = {"target": "https://orders.example/hook", "payload": {"n": 1}}
    return str(request(url, "POST", "/api/v1/jobs", body).body["id"])


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def metric(process: PenstockProcess, name: str) -> float:
    samples: Mapping[str, float] = {
        sample.name: sample.value
        for family in text_string_to_metric_families(process.get("/metrics"))
        for sample in family.samples
    }
    return samples[name]


async def published(directory: Path) -> dict[str, Any]:
    """The pointer in the queue."""
    found: list[tuple[Any, ...]] = []

    async def is_there() -> bool:
        with suppress(sqlite3.OperationalError):  # there is no table yet
            found[:] = rows(directory / "queue.db", "SELECT body FROM queue_messages")
        return bool(found)

    await comes_true(is_there)
    pointer: dict[str, Any] = json.loads(found[0][0])
    return pointer


async def test_pointers_name_the_process_itself_unless_an_endpoint_is_chosen(tmp_path: Path) -> None:
    elsewhere = "http://processors.example:9000/api/dispatch/process"
    for name, settings in {"default": {}, "chosen": {"endpoint": elsewhere}}.items():
        directory = tmp_path / name
        directory.mkdir()
        with dispatching(directory, **settings) as process:
            job_id = create_job(process.url)
            pointer = await published(directory)
            assert (pointer["id"], pointer["mediationTarget"]) == (job_id, settings.get("endpoint", process.url + PATH))


def test_a_scheduler_that_is_switched_off_leaves_its_jobs_alone(tmp_path: Path) -> None:
    with dispatching(tmp_path, enabled="false") as process:
        job_id = create_job(process.url)
        # A term begins before the process listens.
        assert metric(process, "penstock_scheduler_terms_total") == 0
        assert request(process.url, "GET", f"/api/v1/jobs/{job_id}").body["status"] == "PENDING"


async def test_a_scheduler_beside_the_api_competes_for_the_lease(tmp_path: Path) -> None:
    with dispatching(tmp_path, standby="sql") as process:

        async def leads() -> bool:
            return metric(process, "penstock_scheduler_is_leader") == 1

        await comes_true(leads)
        create_job(process.url)
        await published(tmp_path)
        ((holder, token),) = rows(tmp_path / "jobs.db", "SELECT holder, token FROM leases WHERE name = 'scheduler'")
        assert (bool(holder), token) == (True, 1)


def test_spark_names_the_api_as_the_process_endpoint_unless_another_is_chosen(tmp_path: Path) -> None:
    ports = Ports(http=1, sqs=2, pubsub=3, router=4, pipeline=5)
    with running(tmp_path, "--memory") as sqs:
        at = {"sqs": sqs.url, "pubsub": "127.0.0.1:2", "api": "http://127.0.0.1:3"}
        for endpoint in ("", "http://elsewhere/process"):
            arguments = parts_of(tmp_path, ports, {}, Engine.SPARK, endpoint=endpoint)[-1].arguments(at)
            assert arguments[arguments.index("--endpoint") + 1] == (endpoint or "http://127.0.0.1:3" + PATH)


def test_spark_leaves_dispatch_out_or_refuses_it_if_the_scheduler_is_switched_off(tmp_path: Path) -> None:
    assert chosen("") == ["fan-out", "dispatch", "facts"]
    assert chosen("", dispatches=False) == ["fan-out", "facts"]

    ran = run_penstock(
        "pipeline", "dispatch", "--data", tmp_path, settings={"PENSTOCK_SCHEDULER__ENABLED": "false"}, cwd=tmp_path
    )

    assert ran.returncode == 2
    assert "scheduler.enabled is false" in " ".join(ran.stderr.split())
