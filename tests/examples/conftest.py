"""One `penstock up` for all examples of a session."""

from collections.abc import Iterator

import pytest

from tests.rigs.penstock_process import Machine


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Everything on one machine, on free ports."""
    with Machine(tmp_path_factory.mktemp("examples")) as made:
        yield made
