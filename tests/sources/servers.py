"""The servers that tests of sources share, started once for a session."""

from collections.abc import Iterator

import pytest

from tests.services.sqs_server import SqsServer, running


@pytest.fixture(scope="session")
def source_sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    """An SQS server of ours that keeps nothing; everyone is admin."""
    with running(tmp_path_factory.mktemp("sqs-sources"), "--memory") as server:
        yield server
