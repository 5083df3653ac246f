"""moto's SQS server in its own process: another implementation than ours to test clients against."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from tests.services import unavailable
from tests.services.server_process import ServerProcess

MOTO_SERVER = Path(sys.executable).with_name("moto_server")


class MotoServer(ServerProcess):
    """moto's SQS server."""

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [str(MOTO_SERVER), "-H", "127.0.0.1", "-p", str(self.port)]


@pytest.fixture(scope="session")
def moto_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where moto's server of the session listens."""
    if not MOTO_SERVER.exists():
        unavailable("moto", f"{MOTO_SERVER} is missing; install moto[server]")
    with MotoServer(tmp_path_factory.mktemp("moto")).running() as server:
        yield server.url


def moto_client(url: str) -> Any:
    """A boto3 client of it."""
    return boto3.client(
        "sqs", endpoint_url=url, region_name="us-east-1", aws_access_key_id="anyone", aws_secret_access_key="nothing"
    )
