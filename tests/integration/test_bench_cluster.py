"""`penstock bench cluster`: loads end with their time, and Ctrl-C shows what was measured until then."""

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from penstock.tools.bench.servers import create_queue, port_of, server_process
from penstock.tools.bench.sqs import LoadClient, load_client
from penstock.tools.bench.sqs_load import SqsLoadRequest
from tests.rigs.penstock_process import PENSTOCK, descendants, wait_until

SERVE = ("-m", "penstock", "--log-level", "warning", "serve", "sqs", "--port", "0", "--memory")


@pytest.fixture
def client() -> Iterator[LoadClient]:
    with load_client() as client:
        yield client


def test_a_load_ends_with_its_time_or_with_its_queue(client: LoadClient) -> None:
    with server_process(*SERVE) as url:
        queue = create_queue(url, "q", {})
        request = SqsLoadRequest(
            work="send", port=port_of(url), queue_url=queue, operations=10**9, seconds=0.5, connections=2
        )
        sent = client.run(request)
        received = client.run(
            SqsLoadRequest(work="receive_delete", port=port_of(url), queue_url=queue, operations=10**9, seconds=600)
        )
    assert sent.messages > 0
    assert received.messages == sent.messages


@pytest.mark.long
def test_an_interrupted_run_shows_its_figures_and_leaves_no_process(postgres_url: str) -> None:
    command = [str(PENSTOCK), "bench", "cluster", "--rounds", "1", "--json", "--database", postgres_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "on 1 node" not in (line := process.stderr.readline()):
            assert line, "it ended"
        wait_until(lambda: len(descendants(process.pid)) >= 2)
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    figures = json.loads(out.splitlines()[-1])
    assert (figures["lost"], figures["doubled"]) == (0, 0)
    assert {"takeover_kill_s", "takeover_stop_s", "ttl_s"} <= figures.keys()
    assert "send_per_s_3_nodes" not in figures
    table = subprocess.run(["ps", "-eo", "pid="], capture_output=True, text=True, check=True).stdout
    assert not set(started) & set(map(int, table.split()))
