"""moto's SQS server in its own process: another implementation than ours to test clients against."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from tests.services import unavailable
from tests.services.nats import free_port, wait_until_listening

MOTO_SERVER = Path(sys.executable).with_name("moto_server")
START_S = 60
STOP_S = 60


@pytest.fixture(scope="session")
def moto_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where moto's server of the session listens."""
    if not MOTO_SERVER.exists():
        unavailable("moto", f"{MOTO_SERVER} is missing; install moto[server]")
    port = free_port()
    log_path = tmp_path_factory.mktemp("moto") / "server.log"
    command = [str(MOTO_SERVER), "-H", "127.0.0.1", "-p", str(port)]
    with (
        log_path.open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=os.environ.copy()) as process,
    ):
        try:
            wait_until_listening(process, port, START_S)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(STOP_S)


def moto_client(url: str) -> Any:
    """A boto3 client of it."""
    return boto3.client(
        "sqs", endpoint_url=url, region_name="us-east-1", aws_access_key_id="anyone", aws_secret_access_key="nothing"
    )
