"""Policies are stored, not enforced: one that would deny something is warned about when it is stored."""

import json
import logging

import pytest

from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.sqs.model import CreateQueueRequest, SetQueueAttributesRequest
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.testing.clock import VirtualClock
from tests.services.sqs_actions import act

ALLOW = {"Effect": "Allow", "Principal": "*", "Action": "SQS:SendMessage", "Resource": "*"}
DENY = {"Effect": "Deny", "Principal": "*", "Action": ["SQS:PurgeQueue", "SQS:DeleteQueue"], "Resource": "*"}


def policy(*statements: object) -> dict[str, str]:
    return {"Policy": json.dumps({"Version": "2012-10-17", "Statement": list(statements)})}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


async def test_a_denial_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    async with open_service({"": MemoryStore()}, VirtualClock(), TsidFactory(1), SqsServerSettings()) as service:
        await act(service, "CreateQueue", CreateQueueRequest("open", policy(ALLOW)))
        assert warnings(caplog) == []
        url = (await act(service, "CreateQueue", CreateQueueRequest("closed", policy(ALLOW, DENY)))).queue_url
        (warned,) = warnings(caplog)
        assert "policy of queue closed would deny SQS:PurgeQueue, SQS:DeleteQueue on AWS" in warned
        assert "not enforced" in warned
        await act(service, "SetQueueAttributes", SetQueueAttributesRequest(url, {"DelaySeconds": "1"}))
        assert warnings(caplog) == []
        changed = {"Policy": policy({**DENY, "Action": "SQS:*"})["Policy"]}
        await act(service, "SetQueueAttributes", SetQueueAttributesRequest(url, changed))
        (warned,) = warnings(caplog)
        assert "would deny SQS:*" in warned
