"""Runs a repartitioning from the driver: copies, verifies and, with `commit`, deletes the verified source."""

from collections.abc import Mapping

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.errors import FailedPrecondition, Unavailable
from penstock.history.errors import CannotRepartition, QueueInUse, QueuesDiffer
from penstock.history.repartition.copy import compared, copy_to, placed, summary
from penstock.history.repartition.messages import QueueAccess, messages_of
from penstock.history.replay.task import task_error
from penstock.sqs import CreateQueueRequest, EmptyResponse, QueueStanding, QueueUrlResponse, SetQueueAttributesRequest
from penstock.sqs.client import BlockingSqsClient

MOST_PARTITIONS = 32

ROUNDS = 5
"""How often messages that arrived during a verification are copied before a commit fails."""

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

# Set last: a delay would hide written messages, and a throttle would refuse them.
_AT_THE_END = "DelaySeconds"
_THROTTLES = "Throttle"


class Repartitioned(msgspec.Struct, frozen=True):
    """The result: the messages and groups of the target, and whether the source was deleted."""

    messages: int
    groups: int
    committed: bool


class Repartitioner:
    """Copies one queue to another."""

    def __init__(self, spark: SparkSession, source: QueueAccess, target: QueueAccess, partitions: int) -> None:
        if partitions not in (1, 2, 4, 8, 16, MOST_PARTITIONS):
            raise CannotRepartition(f"a queue has 1, 2, 4, 8, 16 or 32 partitions, not {partitions}")
        if source.name == target.name:
            raise CannotRepartition("the target must not be the source")
        self._spark = spark
        self._source = source
        self._target = target
        self._partitions = partitions

    def run(self, *, commit: bool) -> Repartitioned:
        """Copy what the target lacks, and verify it; with `commit`, then delete the source."""
        with self._source.client() as client:
            create_target(client, self._source, self._target, self._partitions)
            if not commit:
                return self._copied(client)
            for _ in range(ROUNDS):
                seen = self._quiet(client)
                done = self._copied(client)
                finish_target(client, self._source, self._target)
                try:
                    self._source.retire(client, seen)
                except FailedPrecondition:
                    continue
                return msgspec.structs.replace(done, committed=True)
        raise QueueInUse(f"{self._source.name} keeps changing: stop its senders, and commit again")

    def _copied(self, client: BlockingSqsClient) -> Repartitioned:
        seen = self._source.standing(client)
        try:
            source = self._messages(self._source, seen).where(_seen(seen))
            copy_to(self._target, placed(source, self._partitions))
            return self._verified(source, self._target.standing(client))
        except (Py4JError, PySparkException) as error:
            raise Unavailable(f"{task_error(error)}; run the same command again to continue") from error

    def _verified(self, source: DataFrame, there: QueueStanding) -> Repartitioned:
        (found,) = summary(compared(source, self._messages(self._target, there))).collect()
        if found["differ"]:
            group, in_source, in_target = found["first"]
            raise QueuesDiffer(
                f"{self._target.name} does not hold what {self._source.name} holds: {found['differ']} groups differ, "
                f"{group!r} with {in_source} messages there and {in_target} here. If messages were received from "
                f"either meanwhile, stop the consumers, delete {self._target.name} and start again"
            )
        return Repartitioned(found["messages"], found["groups"], committed=False)

    def _messages(self, queue: QueueAccess, standing: QueueStanding) -> DataFrame:
        return messages_of(self._spark, queue, len(standing.partitions))

    def _quiet(self, client: BlockingSqsClient) -> QueueStanding:
        """Return the state of the source while no consumer holds any of its messages."""
        seen = self._source.standing(client)
        if seen.leased:
            raise QueueInUse(
                f"{seen.leased} messages of {self._source.name} are being processed: stop its consumers, wait until "
                "their visibility timeout has expired, and commit again"
            )
        return seen


def _seen(standing: QueueStanding) -> Column:
    """Return whether a message was there when the state was read; later ones wait for the next run."""
    bounds = f.array(*(f.lit(partition.last_sequence) for partition in standing.partitions))
    return f.col("sequence") <= f.element_at(bounds, f.col("partition") + 1)


def create_target(client: BlockingSqsClient, source: QueueAccess, target: QueueAccess, partitions: int) -> None:
    """Create the new queue, or find the one of an earlier run; CannotRepartition if it differs."""
    if all(url.rpartition("/")[2] != target.name for url in client.queue_urls(target.name)):
        wanted = attributes_for(client.attributes(source.url), partitions)
        client.call("CreateQueue", CreateQueueRequest(target.name, wanted), QueueUrlResponse)
    found = client.attributes(target.url, "PartitionCount").get("PartitionCount", "1")
    if found != str(partitions):
        raise CannotRepartition(f"{target.name} exists with {found} partitions, not {partitions}: choose another name")


def finish_target(client: BlockingSqsClient, source: QueueAccess, target: QueueAccess) -> None:
    """Set the attributes that would have delayed the copying."""
    late = attributes_at_the_end(client.attributes(source.url))
    if late:
        client.call("SetQueueAttributes", SetQueueAttributesRequest(target.url, late), EmptyResponse)


def attributes_for(source: Mapping[str, str], partitions: int) -> dict[str, str]:
    """Return the attributes of the new queue while it is filled."""
    kept = {name: source[name] for name in _KEPT if source.get(name)}
    return {
        **kept,
        "FifoQueue": "true",
        "PartitionCount": str(partitions),
        "FifoThroughputLimit": "perMessageGroupId",
        "DeduplicationScope": "messageGroup",
    }


def attributes_at_the_end(source: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes to set once everything is copied."""
    return {name: value for name, value in source.items() if name == _AT_THE_END or name.startswith(_THROTTLES)}
