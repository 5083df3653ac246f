"""What goes over the wire to SQS and back, as far as a consumer and a publisher need it."""

import msgspec

# Carries a group that is not made of SQS's characters.
GROUP_ATTRIBUTE = "PenstockGroup"


class AttributesRequest(msgspec.Struct, rename="pascal"):
    """GetQueueAttributes."""

    queue_url: str
    attribute_names: list[str]


class AttributesAnswer(msgspec.Struct, rename="pascal"):
    """Its answer."""

    attributes: dict[str, str] = {}


class ReceiveRequest(msgspec.Struct, rename="pascal", omit_defaults=True):
    """ReceiveMessage."""

    queue_url: str
    max_number_of_messages: int
    wait_time_seconds: int
    attribute_names: list[str]
    message_attribute_names: list[str]
    visibility_timeout: int | None = None


class AttributeValue(msgspec.Struct, rename="pascal"):
    """A message attribute."""

    data_type: str = "String"
    string_value: str = ""


class SqsMessage(msgspec.Struct, rename="pascal"):
    """A message as it is handed out."""

    message_id: str
    receipt_handle: str
    body: str = ""
    attributes: dict[str, str] = {}
    message_attributes: dict[str, AttributeValue] = {}


class ReceiveAnswer(msgspec.Struct, rename="pascal"):
    """What ReceiveMessage answers."""

    messages: list[SqsMessage] = []


class DeleteEntry(msgspec.Struct, rename="pascal"):
    """One of a DeleteMessageBatch."""

    id: str
    receipt_handle: str


class VisibilityEntry(msgspec.Struct, rename="pascal"):
    """One of a ChangeMessageVisibilityBatch."""

    id: str
    receipt_handle: str
    visibility_timeout: int


class SendEntry(msgspec.Struct, rename="pascal", omit_defaults=True):
    """One of a SendMessageBatch."""

    id: str
    message_body: str
    message_group_id: str | None = None
    message_deduplication_id: str | None = None
    message_attributes: dict[str, AttributeValue] | None = None


class BatchRequest(msgspec.Struct, rename="pascal"):
    """Any of the batches."""

    queue_url: str
    entries: list[DeleteEntry] | list[VisibilityEntry] | list[SendEntry]


class FailedEntry(msgspec.Struct, rename="pascal"):
    """Why one of a batch failed."""

    id: str
    code: str = ""
    message: str = ""
    sender_fault: bool = False

    @property
    def kind(self) -> str:
        """The code without the namespace that older codes have."""
        return self.code.rpartition(".")[2]


class BatchAnswer(msgspec.Struct, rename="pascal"):
    """What a batch answers, as far as it matters: all others succeeded."""

    failed: list[FailedEntry] = []


class ErrorAnswer(msgspec.Struct):
    """What is answered with a status other than 200."""

    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    capital_message: str | None = msgspec.field(name="Message", default=None)
