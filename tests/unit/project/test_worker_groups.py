"""Tests of one group run on one worker, so that they share Spark, a browser or a broker."""

import pytest


@pytest.mark.xdist_group("groups")
@pytest.mark.parametrize("number", [1, 2])
def test_workers_are_given_whole_groups(request: pytest.FixtureRequest, number: int) -> None:
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith(f"[{number}]@groups")
