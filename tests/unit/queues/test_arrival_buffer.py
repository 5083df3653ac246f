"""The buffer between a broker that pushes and a router that polls."""

import asyncio

import pytest

from penstock.domain.errors import Unavailable
from penstock.queues.group_order import POLL_S, ArrivalBuffer
from tests.rigs.router import on_virtual_time


@on_virtual_time
async def test_the_first_poll_after_a_failure_says_at_once_that_the_broker_is_back() -> None:
    loop, buffer = asyncio.get_running_loop(), ArrivalBuffer()
    buffer.fail(Unavailable("the connection is lost"))
    with pytest.raises(Unavailable):
        await buffer.receive()
    buffer.recover()

    assert (await buffer.receive(), loop.time()) == ([], 0)
    assert (await buffer.receive(), loop.time()) == ([], POLL_S)
