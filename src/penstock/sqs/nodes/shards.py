"""Which shard a queue belongs to: a pure rule over its key, the same on every node and for ever (SQS-NODE-9).

The shards are fixed when the first node of a cluster creates them. The rule needs no directory, so any node finds the
owner of a queue that it has never heard of.
"""

from collections.abc import Sequence

from penstock.domain.message import fnv1a_32
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.keys import QueueKeys
from penstock.sqs.model import (
    CancelMessageMoveTaskRequest,
    CreateQueueRequest,
    GetQueueUrlRequest,
    ListMessageMoveTasksRequest,
    Shape,
    StartMessageMoveTaskRequest,
)
from penstock.sqs.queue.move_tasks import source_of_handle

FIRST = "sqs"
"""The one shard of an installation that has only one; its schema is that of a server without nodes."""
ONLY_SCHEMA = "penstock_sqs"


def shard_names(count: int) -> tuple[str, ...]:
    """Return the names of the shards of a new installation."""
    return (FIRST,) if count == 1 else tuple(f"{FIRST}-{number}" for number in range(count))


def suffix_of(shard: str) -> str:
    """Return what the names of a shard's schemas end with."""
    return shard.removeprefix(FIRST).replace("-", "_shard_")


class ShardMap:
    """The shards of an installation, in the order of their numbers."""

    def __init__(self, shards: Sequence[str]) -> None:
        self.all = tuple(sorted(shards, key=lambda name: (len(name), name)))

    def of_key(self, key: str) -> str:
        """Return the shard of a queue."""
        return self.all[fnv1a_32(key) % len(self.all)]

    def of_request(self, keys: QueueKeys, caller: SqsCaller, request: Shape) -> str:
        """Return the shard of the queue that a request names; that of a request that names none refuses it."""
        if len(self.all) == 1:
            return self.all[0]
        key = _key_of(keys, caller, request)
        return self.all[0] if key is None else self.of_key(key)


def _key_of(keys: QueueKeys, caller: SqsCaller, request: Shape) -> str | None:
    match request:
        case CreateQueueRequest(queue_name=name):
            return keys.key_for(caller, name)
        case GetQueueUrlRequest(queue_name=name, queue_owner_aws_account_id=account):
            return keys.scope_of(caller, account).key_of(name, keys.home)
        case StartMessageMoveTaskRequest(source_arn=arn) | ListMessageMoveTasksRequest(source_arn=arn):
            return keys.key_of_arn(arn)
        case CancelMessageMoveTaskRequest(task_handle=handle):
            return keys.key_of_arn(source_of_handle(handle))
        case _:
            url = getattr(request, "queue_url", None)
            return keys.key_of_url(caller, url) if isinstance(url, str) else None
