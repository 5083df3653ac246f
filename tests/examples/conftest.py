"""One `penstock up` for all examples of a session."""

from collections.abc import Iterator

import pytest

from tests.rigs.machine import Machine


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Everything on one machine, on free ports."""
    made = Machine(tmp_path_factory.mktemp("examples"))
    try:
        yield made
    finally:
        assert made.stop() == 0, made.log.read_text()
