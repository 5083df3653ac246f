"""What is sent for each action of SQS, and what is answered, in its JSON protocol."""

import msgspec


class AttributesRequest(msgspec.Struct, rename="pascal"):
    """GetQueueAttributes."""

    queue_url: str
    attribute_names: list[str]


class AttributesAnswer(msgspec.Struct, rename="pascal"):
    """The answer to GetQueueAttributes."""

    attributes: dict[str, str] = {}


class CreateRequest(msgspec.Struct, rename="pascal"):
    """CreateQueue."""

    queue_name: str
    attributes: dict[str, str]


class CreateAnswer(msgspec.Struct, rename="pascal"):
    """The answer to CreateQueue."""

    queue_url: str = ""


class DeleteRequest(msgspec.Struct, rename="pascal"):
    """DeleteQueue."""

    queue_url: str


class ReceiveRequest(msgspec.Struct, rename="pascal", omit_defaults=True):
    """ReceiveMessage."""

    queue_url: str
    max_number_of_messages: int
    wait_time_seconds: int
    attribute_names: list[str]
    message_attribute_names: list[str]
    visibility_timeout: int | None = None


class WatchRequest(msgspec.Struct, rename="pascal"):
    """PenstockWatchQueues."""

    queue_urls: list[str]
    wait_time_seconds: int


class WatchAnswer(msgspec.Struct, rename="pascal"):
    """The answer to PenstockWatchQueues."""

    queue_urls: list[str] = []


class AttributeValue(msgspec.Struct, rename="pascal"):
    """A message attribute."""

    data_type: str = "String"
    string_value: str = ""


class SqsMessage(msgspec.Struct, rename="pascal"):
    """A received message."""

    message_id: str
    receipt_handle: str
    body: str = ""
    attributes: dict[str, str] = {}
    message_attributes: dict[str, AttributeValue] = {}


class ReceiveAnswer(msgspec.Struct, rename="pascal"):
    """The answer to ReceiveMessage."""

    messages: list[SqsMessage] = []


class DeleteEntry(msgspec.Struct, rename="pascal"):
    """An entry of a DeleteMessageBatch."""

    id: str
    receipt_handle: str


class VisibilityEntry(msgspec.Struct, rename="pascal"):
    """An entry of a ChangeMessageVisibilityBatch."""

    id: str
    receipt_handle: str
    visibility_timeout: int


class SendEntry(msgspec.Struct, rename="pascal", omit_defaults=True):
    """An entry of a SendMessageBatch."""

    id: str
    message_body: str
    message_group_id: str | None = None
    message_deduplication_id: str | None = None
    message_attributes: dict[str, AttributeValue] | None = None


class BatchRequest(msgspec.Struct, rename="pascal"):
    """A request with any of the batches."""

    queue_url: str
    entries: list[DeleteEntry] | list[VisibilityEntry] | list[SendEntry]


class FailedEntry(msgspec.Struct, rename="pascal"):
    """The error of an entry of a batch."""

    id: str
    code: str = ""
    message: str = ""
    sender_fault: bool = False

    @property
    def kind(self) -> str:
        """The code without the namespace that older codes have."""
        return self.code.rpartition(".")[2]


class BatchAnswer(msgspec.Struct, rename="pascal"):
    """The failed entries of a batch; all others succeeded."""

    failed: list[FailedEntry] = []


class ErrorAnswer(msgspec.Struct):
    """An answer with a status other than 200."""

    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    capital_message: str | None = msgspec.field(name="Message", default=None)
