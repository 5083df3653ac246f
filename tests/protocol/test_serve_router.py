"""`penstock serve router` as a process: start, exit codes, workers."""

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

PENSTOCK = Path(sys.executable).with_name("penstock")
WAIT_S = 120
LISTENING = re.compile(r"listening on (http://[\w.]+:\d+)")
EMPTY = '{"processingPools":[{"code":"P","concurrency":3}],"queues":[]}'


@contextmanager
def router(
    directory: Path, *options: str, environment: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    command = [str(PENSTOCK), "serve", "router", "--port", "0", *options]
    environ = {**os.environ, **(environment or {})}
    with (
        (directory / "router.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory, env=environ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def urls(process: "subprocess.Popen[str]", count: int) -> list[str]:
    """Where its workers listen. They share a pipe: two that start at once may write into each other's line."""
    assert process.stdout is not None
    text = ""
    while text.count("\n") < count:
        line = process.stdout.readline()
        assert line, f"it ended after {text!r}"
        text += line
    found = LISTENING.findall(text)
    assert len(found) == count, text
    return found


def status(url: str, path: str) -> int:
    address = urlsplit(url)
    with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=WAIT_S)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    (tmp_path / "router.json").write_text(EMPTY)
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_its_api_and_stops_well_on_a_signal(configured: Path, number: signal.Signals) -> None:
    with router(configured, "--config", "router.json") as process:
        (url,) = urls(process, 1)
        assert status(url, "/health/live") == 200
        assert status(url, "/openapi.json") == 200
        process.send_signal(number)

        assert process.wait(WAIT_S) == 0


def test_the_configuration_may_be_named_by_a_variable(configured: Path) -> None:
    with router(configured, environment={"MESSAGE_ROUTER_CONFIG_URL": "router.json"}) as process:
        (url,) = urls(process, 1)
        process.terminate()

        assert process.wait(WAIT_S) == 0
        assert url


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_a_first_configuration_it_ends_with_exit_code_1_and_says_why(tmp_path: Path, workers: str) -> None:
    few = {"PENSTOCK_ROUTER__SYNC_ATTEMPTS": "2", "PENSTOCK_ROUTER__SYNC_RETRY_S": "0"}
    with router(tmp_path, "--config", "none.json", "--workers", workers, environment=few) as process:
        assert process.wait(WAIT_S) == 1
    log = (tmp_path / "router.log").read_text()
    assert '"level": "critical"' in log
    assert "there is no router configuration at none.json" in log.splitlines()[-1]
    assert "Traceback" not in log


def test_without_any_configuration_it_says_where_to_give_one(tmp_path: Path) -> None:
    with router(tmp_path) as process:
        assert process.wait(WAIT_S) == 2
    assert "give --config URL or FILE" in (tmp_path / "router.log").read_text()


def test_other_machines_are_kept_out_without_a_token(configured: Path) -> None:
    with router(configured, "--config", "router.json", "--host", "0.0.0.0") as process:
        assert process.wait(WAIT_S) == 1
    assert "will not listen on 0.0.0.0" in (configured / "router.log").read_text()


def test_workers_each_serve_an_api_and_stop_together(configured: Path) -> None:
    with router(configured, "--config", "router.json", "--workers", "2") as process:
        found = urls(process, 2)
        assert [status(url, "/health/live") for url in found] == [200, 200]
        process.terminate()

        assert process.wait(WAIT_S) == 0
        assert refused(found)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers through /proc")
def test_a_worker_that_dies_takes_the_others_along(configured: Path) -> None:
    with router(configured, "--config", "router.json", "--workers", "2") as process:
        found = urls(process, 2)
        os.kill(children(process.pid)[0], signal.SIGKILL)

        assert process.wait(WAIT_S) == 1
        assert refused(found)


def test_workers_end_when_their_parent_is_killed(configured: Path) -> None:
    with router(configured, "--config", "router.json", "--workers", "2") as process:
        urls(process, 2)
        process.kill()

        # The workers hold the other end of the pipe: it ends when they do.
        assert process.communicate(timeout=WAIT_S)[0] == ""


def refused(found: Sequence[str]) -> bool:
    for url in found:
        with pytest.raises(ConnectionRefusedError):
            status(url, "/health/live")
    return True


def children(pid: int) -> list[int]:
    """The worker processes, without the helper that Python starts beside them."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
