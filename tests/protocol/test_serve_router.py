"""`penstock serve router` as a process: start, exit codes, workers."""

import http.client
import os
import re
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.rigs.penstock_process import ServedPart

WAIT_S = 120
LISTENING = re.compile(r"listening on (http://[\w.]+:\d+)")
EMPTY = '{"processingPools":[{"code":"P","concurrency":3}],"queues":[]}'


def router(directory: Path, *options: str, settings: dict[str, str] | None = None) -> ServedPart:
    return ServedPart(directory, "router", ("router", *options), settings)


class Workers(ServedPart):
    """A router of two workers, each of which says where it listens."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "router", ("router", "--config", "router.json", "--workers", "2"))
        self.urls: list[str] = []

    def read_addresses(self) -> None:
        """Read both. They share a pipe: two that start at once may write into each other's line."""
        text = self.line() + self.line()
        self.urls = LISTENING.findall(text)
        assert len(self.urls) == 2, text + self.log()


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
        assert status(process.url, "/health/live") == 200
        assert status(process.url, "/openapi.json") == 200
        process.send(number)

        assert process.wait() == 0


def test_the_configuration_may_be_named_by_a_variable(configured: Path) -> None:
    with router(configured, settings={"MESSAGE_ROUTER_CONFIG_URL": "router.json"}) as process:
        assert status(process.url, "/health/live") == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_a_first_configuration_it_ends_with_exit_code_1_and_says_why(tmp_path: Path, workers: str) -> None:
    few = {"PENSTOCK_ROUTER__SYNC_ATTEMPTS": "2", "PENSTOCK_ROUTER__SYNC_RETRY_S": "0"}
    code, log = refusal(router(tmp_path, "--config", "none.json", "--workers", workers, settings=few))
    assert code == 1
    assert '"level": "critical"' in log
    assert "there is no router configuration at none.json" in log.splitlines()[-1]
    assert "Traceback" not in log


def test_without_any_configuration_it_says_where_to_give_one(tmp_path: Path) -> None:
    code, log = refusal(router(tmp_path))
    assert (code, "give --config URL or FILE" in log) == (2, True)


def test_other_machines_are_kept_out_without_a_token(configured: Path) -> None:
    code, log = refusal(router(configured, "--config", "router.json", "--host", "0.0.0.0"))
    assert (code, "will not listen on 0.0.0.0" in log) == (1, True)


def test_workers_each_serve_an_api_and_stop_together(configured: Path) -> None:
    with Workers(configured) as process:
        found = process.urls
        assert [status(url, "/health/live") for url in found] == [200, 200]
        process.terminate()

        assert process.wait() == 0
        assert refused(found)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers through /proc")
def test_a_worker_that_dies_takes_the_others_along(configured: Path) -> None:
    with Workers(configured) as process:
        found = process.urls
        os.kill(children(process.pid)[0], signal.SIGKILL)

        assert process.wait() == 1
        assert refused(found)


def test_workers_end_when_their_parent_is_killed(configured: Path) -> None:
    with Workers(configured) as process:
        process.send(signal.SIGKILL)

        # The workers hold the other end of the pipe: it ends when they do.
        assert process.finish() == (-signal.SIGKILL, "")


def refusal(process: ServedPart) -> tuple[int, str]:
    """How it ends that will not start: the exit code, and what it logs."""
    process.launch()
    return process.wait(), process.log()


def refused(found: Sequence[str]) -> bool:
    for url in found:
        with pytest.raises(ConnectionRefusedError):
            status(url, "/health/live")
    return True


def children(pid: int) -> list[int]:
    """The worker processes, without the helper that Python starts beside them."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
