"""A queue of Penstock's SQS server as a task reaches it: a value that travels, and a client where it is used."""

from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import msgspec

from penstock.edge.clock import SystemClock
from penstock.pipeline.repartition.errors import CannotRepartition
from penstock.sqs.client import Endpoint, SqsClient
from penstock.sqs.signing import Signer
from penstock.sqs.snapshot import MAX_MESSAGES, QueueStanding, SnapshotMessage, SnapshotPage


class QueueAccess(msgspec.Struct, frozen=True):
    """Where a queue is, and as whom to ask for it: an admin principal."""

    url: str
    signer: Signer | None = None

    def __post_init__(self) -> None:
        if not self.name.endswith(".fifo"):
            raise CannotRepartition(f"{self.name or self.url!r} is not a FIFO queue: only those have partitions")

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.url.rpartition("/")[2]

    def beside(self, name: str) -> "QueueAccess":
        """Another queue of the same server."""
        return QueueAccess(f"{self.url.rpartition('/')[0]}/{name}", self.signer)

    def client(self) -> SqsClient:
        """A connection to the server."""
        parts = urlsplit(self.url)
        return SqsClient(Endpoint.parse(f"{parts.scheme}://{parts.netloc}"), SystemClock(), self.signer)

    def standing(self, client: SqsClient) -> QueueStanding:
        """How its partitions stand now."""
        return client.admin("GET", f"queues/{quote(self.name)}/partitions", QueueStanding)

    def retire(self, client: SqsClient, seen: QueueStanding) -> None:
        """Delete it if it is still as it was seen; FailedPrecondition if not."""
        client.admin("POST", f"queues/{quote(self.name)}/retire", dict[str, str], body=msgspec.json.encode(seen))

    def messages(self, client: SqsClient, partition: int) -> Iterator[list[SnapshotMessage]]:
        """The messages of a partition in order, page by page."""
        after: int | None = 0
        path = f"queues/{quote(self.name)}/partitions/{partition}/messages"
        while after is not None:
            page = client.admin("GET", path, SnapshotPage, {"after": str(after), "limit": str(MAX_MESSAGES)})
            if page.messages:
                yield page.messages
            after = page.after
