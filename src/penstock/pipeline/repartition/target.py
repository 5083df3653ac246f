"""The new queue: the source's settings with another number of partitions."""

from collections.abc import Mapping

from penstock.pipeline.repartition.errors import CannotRepartition
from penstock.pipeline.repartition.queue_access import QueueAccess
from penstock.sqs.client import SqsClient
from penstock.sqs.model import CreateQueueRequest, EmptyResponse, QueueUrlResponse, SetQueueAttributesRequest

_KEPT = (
    "VisibilityTimeout",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "MaximumMessageSize",
    "Policy",
    "RedrivePolicy",
    "RedriveAllowPolicy",
    "ContentBasedDeduplication",
    "KmsMasterKeyId",
)
# They would hold up the copying: a delay hides what was written, a throttle refuses it.
_AT_THE_END = "DelaySeconds"
_THROTTLES = "Throttle"


def attributes_for(source: Mapping[str, str], partitions: int) -> dict[str, str]:
    """The attributes of the new queue while it is filled."""
    kept = {name: source[name] for name in _KEPT if source.get(name)}
    return {
        **kept,
        "FifoQueue": "true",
        "PartitionCount": str(partitions),
        "FifoThroughputLimit": "perMessageGroupId",
        "DeduplicationScope": "messageGroup",
    }


def attributes_at_the_end(source: Mapping[str, str]) -> dict[str, str]:
    """What is set once everything is there."""
    return {name: value for name, value in source.items() if name == _AT_THE_END or name.startswith(_THROTTLES)}


def make_target(client: SqsClient, source: QueueAccess, target: QueueAccess, partitions: int) -> None:
    """Make the new queue, or find the one that an earlier run made; CannotRepartition if it is another."""
    if all(url.rpartition("/")[2] != target.name for url in client.queue_urls(target.name)):
        wanted = attributes_for(client.attributes(source.url), partitions)
        client.call("CreateQueue", CreateQueueRequest(target.name, wanted), QueueUrlResponse)
    found = client.attributes(target.url, "PartitionCount").get("PartitionCount", "1")
    if found != str(partitions):
        raise CannotRepartition(f"{target.name} exists with {found} partitions, not {partitions}: choose another name")


def finish_target(client: SqsClient, source: QueueAccess, target: QueueAccess) -> None:
    """Set what would have held up the copying."""
    late = attributes_at_the_end(client.attributes(source.url))
    if late:
        client.call("SetQueueAttributes", SetQueueAttributesRequest(target.url, late), EmptyResponse)
