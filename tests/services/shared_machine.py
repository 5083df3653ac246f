"""One `penstock up` for the tests of a session that leave it as it is; they are in the group "up"."""

from collections.abc import Iterator

import pytest

from tests.rigs.penstock_process import Machine


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Everything on one machine, on free ports."""
    with Machine(tmp_path_factory.mktemp("shared-machine")) as made:
        yield made
