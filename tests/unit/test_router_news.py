"""The router is told of a change made while it fetched, and not of each one of many."""

import asyncio

from penstock.console.gateways import RELOAD, RouterNews
from penstock.console.upstream import Upstream
from penstock.testing.receiver import RecordingReceiver, Reply


async def test_changes_during_a_reload_are_told_together_when_it_is_over() -> None:
    async with RecordingReceiver(Reply(body=b"{}", delay_s=0.2)) as router:
        news = RouterNews(Upstream(part="router", url=router.url, setting="api.router"))
        news.tell()
        await router.received(1, 60)
        for _ in range(5):
            news.tell()
        await router.received(2, 60)
        await asyncio.gather(*(task for task in asyncio.all_tasks() if "RouterNews" in repr(task.get_coro())))
    assert [request.path for request in router.requests] == [RELOAD, RELOAD]
