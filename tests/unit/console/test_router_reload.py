"""A change during a reload causes one more reload; many changes do not cause many."""

import asyncio

from penstock.console.gateways import RELOAD, RouterReload
from penstock.console.upstream import Upstream
from penstock.testing.receiver import RecordingReceiver, Reply


async def test_changes_during_a_reload_cause_one_more_reload() -> None:
    async with RecordingReceiver(Reply(body=b"{}", delay_s=0.2)) as router:
        reload = RouterReload(Upstream(part="router", url=router.url, setting="api.router"))
        reload.request()
        await router.received(1, 60)
        for _ in range(5):
            reload.request()
        await router.received(2, 60)
        await asyncio.gather(*(task for task in asyncio.all_tasks() if "RouterReload" in repr(task.get_coro())))
    assert [request.path for request in router.requests] == [RELOAD, RELOAD]
