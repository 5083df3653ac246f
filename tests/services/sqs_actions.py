"""Actions of an SQS service in this process, without HTTP."""

import asyncio
from typing import Any

from penstock.sqs.actions.answer import AfterCommit
from penstock.sqs.actions.table import ACTIONS
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.model import Shape
from penstock.sqs.service import SqsService


async def act(service: SqsService, action: str, request: object) -> Any:
    """Carry out an action to its end."""
    answer = ACTIONS[action](service, SqsCaller(b"here"), request)
    if isinstance(answer, AfterCommit):
        done = asyncio.Event()
        answer.when_done(done.set)
        await done.wait()
        return answer.result()
    return answer if isinstance(answer, Shape) else await answer
