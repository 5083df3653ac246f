"""A message that arrives while a wait for queues begins ends that wait, whichever of the two comes first."""

import asyncio

import msgspec
import pytest

from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.model import CreateQueueRequest, SendMessageRequest
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.sqs.watch import WatchQueuesRequest, watch_queues
from penstock.testing.clock import VirtualClock
from tests.services.sqs_actions import act


@pytest.mark.parametrize("turns", range(12))
async def test_a_message_that_arrives_while_the_wait_begins(turns: int) -> None:
    async with open_service({"": MemoryStore()}, VirtualClock(), TsidFactory(1), SqsServerSettings()) as service:
        url = (await act(service, "CreateQueue", CreateQueueRequest("q", {}))).queue_url
        sending = asyncio.create_task(act(service, "SendMessage", SendMessageRequest(url, "m")))
        for _ in range(turns):
            await asyncio.sleep(0)
        caller = SqsCaller(b"localhost", asyncio.Event().wait)
        answer = await watch_queues(service, caller, msgspec.json.encode(WatchQueuesRequest([url], 2)))
        await sending
        assert answer.queue_urls == [url]
