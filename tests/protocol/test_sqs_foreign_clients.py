"""Clients of other languages and frameworks, unchanged: the JavaScript SDK, sqs-consumer and Celery."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.protocol.conftest import MakeQueue
from tests.rigs.penstock_process import wait_until
from tests.services import sqs_programs
from tests.services.foreign_packages import celery_path, node_modules
from tests.services.sqs_server import REGION, SqsServer, counts

__all__ = ["celery_path", "node_modules"]

PROGRAMS = Path(sqs_programs.__file__).parent
RUN_S = 120


def node(directory: Path, modules: Path, program: str, *words: str) -> Any:
    """What a program prints last."""
    # Node looks for packages beside the program.
    shutil.copy(PROGRAMS / program, directory)
    (directory / "node_modules").symlink_to(modules)
    command = ["node", str(directory / program), *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_the_javascript_sdk(memory_sqs: SqsServer, node_modules: Path, tmp_path: Path) -> None:
    prefix = f"js-{uuid4().hex}"
    seen = node(tmp_path, node_modules, "sdk.mjs", memory_sqs.url, prefix)
    listed = [f"{memory_sqs.url}/000000000000/{prefix}", f"{memory_sqs.url}/000000000000/{prefix}.fifo"]
    assert seen == {
        "body": "one",
        "text": "ä",
        "bytes": [0, 255],
        "receives": "2",
        "successful": 3,
        "failed": 0,
        "order": ["m0", "m1", "m2"],
        "left": 0,
        "arn": f"arn:aws:sqs:{REGION}:000000000000:{prefix}.fifo",
        "listed": listed,
        "isModelled": True,
        "status": 400,
    }


@pytest.mark.parametrize("fifo", [False, True])
def test_sqs_consumer(
    memory_sqs: SqsServer, make_queue: MakeQueue, node_modules: Path, tmp_path: Path, fifo: bool
) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=fifo, **({"ContentBasedDeduplication": "true"} if fifo else {}))
    expected = [f"m{n}" for n in range(12)]
    for body in expected:
        client.send_message(QueueUrl=url, MessageBody=body, **({"MessageGroupId": "g"} if fifo else {}))
    seen = node(tmp_path, node_modules, "consumer.mjs", memory_sqs.url, url, str(len(expected)))
    assert sorted(seen["handled"], key=expected.index) == expected
    assert seen["errors"] == []
    wait_until(lambda: counts(client, url) == (0, 0, 0))


@pytest.mark.long  # the first run installs Celery
@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_celery(sqlite_sqs: SqsServer, celery_path: Path, tmp_path: Path, suffix: str) -> None:
    client = sqlite_sqs.anyone
    name = f"celery-{uuid4().hex}{suffix}"
    notes = tmp_path / "notes"
    notes.touch()

    def noted() -> list[str]:
        return notes.read_text().splitlines()

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(celery_path), str(PROGRAMS)]),
        "BROKER": f"sqs://anyone:nothing@{urlsplit(sqlite_sqs.url).netloc}",
        "QUEUE": name,
        "NOTES": str(notes),
    }
    program = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "celery_tasks",
        "worker",
        "--pool",
        "solo",
        "--loglevel",
        "WARNING",
    ]
    log = tmp_path / "worker.log"
    with (
        log.open("w") as output,
        subprocess.Popen(program, env=environment, cwd=tmp_path, stdout=output, stderr=output) as worker,
    ):
        try:
            send = [sys.executable, str(PROGRAMS / "celery_tasks.py")]
            sent = subprocess.run(
                send, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False
            )
            assert sent.returncode == 0, sent.stderr
            expected = [f"word {n}" for n in range(20)]
            wait_until(lambda: worker.poll() is not None or len(noted()) >= 20, RUN_S, log.read_text)
            assert worker.poll() is None, log.read_text()
            assert (noted() if suffix else sorted(noted(), key=expected.index)) == expected
            url = client.get_queue_url(QueueName=name)["QueueUrl"]
            wait_until(lambda: counts(client, url) == (0, 0, 0), RUN_S, log.read_text)
        finally:
            worker.terminate()
            worker.wait(RUN_S)
    client.delete_queue(QueueUrl=url)
