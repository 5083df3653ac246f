import asyncio
import json
import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.http.api import Probes
from penstock.http.server import HttpServer, Receive, Scope, Send, send_answer
from penstock.ops import doctor
from penstock.ops.config import load
from penstock.ops.doctor import Diagnosis, Status
from penstock.ops.telemetry import Metrics
from penstock.spark.requirements import java_major

runner = CliRunner()


@pytest.fixture(autouse=True)
def quiet_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose ports are free, whatever else runs during the tests."""
    monkeypatch.chdir(tmp_path)
    for setting in ("HTTP__PORT", "PORTS__SQS", "PORTS__PUBSUB", "PORTS__ROUTER", "PORTS__PIPELINE"):
        monkeypatch.setenv(f"PENSTOCK_{setting}", "0")


def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin/java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


def test_a_machine_that_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, monkeypatch, "echo 'openjdk version \"21.0.2\" 2024-01-16' >&2")
    monkeypatch.setattr(doctor, "DISK_WANTED_BYTES", 0)
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert all(line.startswith(("ok ", "STATUS")) for line in result.stdout.splitlines())
    assert "21.0.2" in result.stdout
    assert not (tmp_path / "penstock-data").exists()


def test_json_has_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert body["ok"] is True
    names = {check["name"] for check in body["checks"]}
    assert {"configuration", "Python", "Java", "Spark", "data directory", "disk space", "database"} <= names


def test_a_failed_check_is_exit_code_1_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("PENSTOCK_HTTP__PORT", str(port))
        result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 1
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("FAILED"))
    assert f"port {port}" in line
    assert "stop the program that listens there, or set PENSTOCK_HTTP__PORT" in line


def test_settings_that_cannot_be_used_are_findings_and_the_rest_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_NODE__ID", "x")
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "node.id (PENSTOCK_NODE__ID)" in result.stdout
    assert "Python" in result.stdout


def test_an_old_python_fails() -> None:
    assert doctor.python_version((3, 10, 1)) == Diagnosis(
        "Python", Status.FAILED, "3.10.1", "install Python 3.11 or newer"
    )


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("echo 'java version \"1.8.0_402\"' >&2", "1.8.0_402 is too old"),
        ("echo hello", "reports no version"),
        ("exit 3", "does not run"),
    ],
)
def test_a_java_of_no_use_is_a_warning(
    script: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, monkeypatch, script)
    finding = doctor.java()
    assert finding.status is Status.WARNING
    assert detail in finding.detail
    assert "the inline engine will be used" in finding.remedy


def test_no_java_is_a_warning_that_does_not_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "the inline engine will be used" in result.stdout


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("22-ea", 22)])
def test_java_versions(version: str, major: int) -> None:
    assert java_major(version) == major


def test_a_data_directory_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert doctor.data_directory(tmp_path / "file" / "data").status is Status.FAILED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_cannot_be_written_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    finding = doctor.data_directory(tmp_path / "data")
    tmp_path.chmod(0o700)
    assert finding.status is Status.FAILED
    assert "PENSTOCK_DATA__DIR" in finding.remedy


@pytest.mark.parametrize(
    ("needed", "wanted", "status"),
    [(0, 0, Status.OK), (0, 2**60, Status.WARNING), (2**60, 2**60, Status.FAILED)],
)
def test_disk_space(needed: int, wanted: int, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_NEEDED_BYTES", needed)
    monkeypatch.setattr(doctor, "DISK_WANTED_BYTES", wanted)
    finding = doctor.disk_space(tmp_path / "data")
    assert finding.status is status
    assert bool(finding.remedy) is (status is not Status.OK)


def test_a_database_that_does_not_answer_fails_without_telling_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    finding = doctor.database(f"postgresql://me:hunter2@127.0.0.1:{port}/x")
    assert finding.status is Status.FAILED
    assert "hunter2" not in finding.sentence
    assert "data.database" in finding.remedy


def test_an_api_that_others_reach_needs_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.api_keys(load(None, {})).status is Status.OK
    exposed = {"PENSTOCK_HTTP__HOST": "0.0.0.0"}
    assert doctor.api_keys(load(None, exposed)).status is Status.FAILED
    assert doctor.api_keys(load(None, {**exposed, "PENSTOCK_API__TOKEN": "t"})).status is Status.OK
    with_keys = {**exposed, "PENSTOCK_API__KEYS": str(tmp_path / "keys.toml")}
    missing = doctor.api_keys(load(None, with_keys))
    assert (missing.status, "cannot be read" in missing.detail) == (Status.FAILED, True)
    made = runner.invoke(app, ["keys", "create", "ann", "--role", "admin", "--file", str(tmp_path / "keys.toml")])
    assert made.exit_code == 0
    assert doctor.api_keys(load(None, with_keys)).detail == "1 in api.keys, no token"


def test_a_queue_of_aws_needs_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    queue = "https://sqs.eu-west-1.amazonaws.com/123456789012/dispatch.fifo"
    assert doctor.aws_credentials("").status is Status.OK
    assert doctor.aws_credentials(queue).status is Status.FAILED
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    assert doctor.aws_credentials(queue).status is Status.OK


async def test_a_running_penstock_is_no_trouble() -> None:
    async def live(scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(scope, send, 200, b'{"status":"live"}', {})

    async with HttpServer(Probes(Metrics("api"), {}).wrap(live), "127.0.0.1", 0) as server:
        port = int(server.url.rpartition(":")[2])
        found = await asyncio.to_thread(doctor.port_free, "HTTP", port, "")
    assert (found.status, found.detail) == (
        Status.OK,
        "HTTP of a running Penstock; `penstock status` says how it is",
    )


def test_a_port_of_another_program_is_a_trouble() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = doctor.port_free("HTTP", other.getsockname()[1], "set PENSTOCK_HTTP__PORT")
    assert found.status is Status.FAILED
