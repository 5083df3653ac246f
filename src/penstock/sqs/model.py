"""Requests and responses of the 23 actions, in AWS's field names on the wire.

A field that AWS requires is required here; the wire protocols turn a missing one into MissingParameter. What an entry
of a batch lacks, except for its id, fails that entry alone, so the actions check it. In the Query protocol a batch
without entries is an empty one.
"""

from typing import Annotated

import msgspec
from msgspec import field

# AWS's integers have 32 bits; the decoder refuses others, so that no later sum or column can overflow.
Integer = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class Shape(msgspec.Struct, omit_defaults=True, rename="pascal"):
    """The base of requests and responses: Pascal case on the wire, and fields that are not set are left out."""


class MessageAttributeValue(Shape):
    """A typed attribute; binary values are base64 text in JSON."""

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[bytes] | None = None


MessageAttributes = dict[str, MessageAttributeValue]


class BatchResultErrorEntry(Shape):
    """Why one entry of a batch failed."""

    id: str
    code: str
    message: str
    sender_fault: bool


# Queues


class CreateQueueRequest(Shape):
    queue_name: str
    attributes: dict[str, str] = {}
    tags: dict[str, str] = field(name="tags", default_factory=dict)


class QueueUrlResponse(Shape):
    queue_url: str


class QueueUrlRequest(Shape):
    """The request of DeleteQueue, PurgeQueue and ListQueueTags."""

    queue_url: str


class GetQueueUrlRequest(Shape):
    queue_name: str
    queue_owner_aws_account_id: str | None = field(name="QueueOwnerAWSAccountId", default=None)


class ListQueuesRequest(Shape):
    queue_name_prefix: str = ""
    next_token: str | None = None
    max_results: Integer | None = None


class ListQueuesResponse(Shape):
    queue_urls: list[str] = []
    next_token: str | None = None


class GetQueueAttributesRequest(Shape):
    queue_url: str
    attribute_names: list[str] = []


class GetQueueAttributesResponse(Shape):
    attributes: dict[str, str] = {}


class SetQueueAttributesRequest(Shape):
    queue_url: str
    attributes: dict[str, str]


class TagQueueRequest(Shape):
    queue_url: str
    tags: dict[str, str]


class UntagQueueRequest(Shape):
    queue_url: str
    tag_keys: list[str]


class ListQueueTagsResponse(Shape):
    tags: dict[str, str] = {}


class AddPermissionRequest(Shape):
    queue_url: str
    label: str
    aws_account_ids: list[str] = field(name="AWSAccountIds")
    actions: list[str]


class RemovePermissionRequest(Shape):
    queue_url: str
    label: str


class EmptyResponse(Shape):
    """The response of actions that return nothing."""


# Messages


class SendMessageRequest(Shape):
    queue_url: str
    message_body: str
    delay_seconds: Integer | None = None
    message_attributes: MessageAttributes = {}
    message_system_attributes: MessageAttributes = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageResponse(Shape):
    message_id: str
    md5_of_message_body: str = field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    md5_of_message_system_attributes: str | None = field(name="MD5OfMessageSystemAttributes", default=None)
    sequence_number: str | None = None


class SendMessageBatchRequestEntry(Shape):
    id: str
    message_body: str = ""
    delay_seconds: Integer | None = None
    message_attributes: MessageAttributes = {}
    message_system_attributes: MessageAttributes = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatchRequest(Shape):
    queue_url: str
    entries: list[SendMessageBatchRequestEntry]


class SendMessageBatchResultEntry(Shape):
    id: str
    message_id: str
    md5_of_message_body: str = field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    md5_of_message_system_attributes: str | None = field(name="MD5OfMessageSystemAttributes", default=None)
    sequence_number: str | None = None


class SendMessageBatchResponse(Shape):
    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class ReceiveMessageRequest(Shape):
    queue_url: str
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: Integer | None = None
    visibility_timeout: Integer | None = None
    wait_time_seconds: Integer | None = None
    receive_request_attempt_id: str | None = None


class ReceivedMessage(Shape):
    message_id: str
    receipt_handle: str
    md5_of_body: str = field(name="MD5OfBody")
    body: str
    attributes: dict[str, str] = {}
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    message_attributes: MessageAttributes = {}


class ReceiveMessageResponse(Shape):
    messages: list[ReceivedMessage] = []


class DeleteMessageRequest(Shape):
    queue_url: str
    receipt_handle: str


class DeleteMessageBatchRequestEntry(Shape):
    id: str
    receipt_handle: str = ""


class DeleteMessageBatchRequest(Shape):
    queue_url: str
    entries: list[DeleteMessageBatchRequestEntry]


class ChangeMessageVisibilityRequest(Shape):
    queue_url: str
    receipt_handle: str
    visibility_timeout: Integer


class ChangeMessageVisibilityBatchRequestEntry(Shape):
    id: str
    receipt_handle: str = ""
    visibility_timeout: Integer | None = None


class ChangeMessageVisibilityBatchRequest(Shape):
    queue_url: str
    entries: list[ChangeMessageVisibilityBatchRequestEntry]


class BatchResultEntry(Shape):
    id: str


class BatchResponse(Shape):
    """The response of DeleteMessageBatch and ChangeMessageVisibilityBatch."""

    successful: list[BatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


# Dead letters and moves


class ListDeadLetterSourceQueuesRequest(Shape):
    queue_url: str
    next_token: str | None = None
    max_results: Integer | None = None


class ListDeadLetterSourceQueuesResponse(Shape):
    queue_urls: list[str] = field(name="queueUrls", default_factory=list)
    next_token: str | None = None


class StartMessageMoveTaskRequest(Shape):
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: Integer | None = None


class TaskHandleResponse(Shape):
    task_handle: str


class CancelMessageMoveTaskRequest(Shape):
    task_handle: str


class CancelMessageMoveTaskResponse(Shape, omit_defaults=False):
    approximate_number_of_messages_moved: int = 0


class ListMessageMoveTasksRequest(Shape):
    source_arn: str
    max_results: Integer | None = None


class MessageMoveTask(Shape):
    """A move task in a list; the handle is shown only while the task runs."""

    status: str
    source_arn: str
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int | None = None


class ListMessageMoveTasksResponse(Shape):
    results: list[MessageMoveTask] = []


REQUESTS: dict[str, type[Shape]] = {
    "AddPermission": AddPermissionRequest,
    "CancelMessageMoveTask": CancelMessageMoveTaskRequest,
    "ChangeMessageVisibility": ChangeMessageVisibilityRequest,
    "ChangeMessageVisibilityBatch": ChangeMessageVisibilityBatchRequest,
    "CreateQueue": CreateQueueRequest,
    "DeleteMessage": DeleteMessageRequest,
    "DeleteMessageBatch": DeleteMessageBatchRequest,
    "DeleteQueue": QueueUrlRequest,
    "GetQueueAttributes": GetQueueAttributesRequest,
    "GetQueueUrl": GetQueueUrlRequest,
    "ListDeadLetterSourceQueues": ListDeadLetterSourceQueuesRequest,
    "ListMessageMoveTasks": ListMessageMoveTasksRequest,
    "ListQueueTags": QueueUrlRequest,
    "ListQueues": ListQueuesRequest,
    "PurgeQueue": QueueUrlRequest,
    "ReceiveMessage": ReceiveMessageRequest,
    "RemovePermission": RemovePermissionRequest,
    "SendMessage": SendMessageRequest,
    "SendMessageBatch": SendMessageBatchRequest,
    "SetQueueAttributes": SetQueueAttributesRequest,
    "StartMessageMoveTask": StartMessageMoveTaskRequest,
    "TagQueue": TagQueueRequest,
    "UntagQueue": UntagQueueRequest,
}

RESPONSES: dict[str, type[Shape]] = {
    "AddPermission": EmptyResponse,
    "CancelMessageMoveTask": CancelMessageMoveTaskResponse,
    "ChangeMessageVisibility": EmptyResponse,
    "ChangeMessageVisibilityBatch": BatchResponse,
    "CreateQueue": QueueUrlResponse,
    "DeleteMessage": EmptyResponse,
    "DeleteMessageBatch": BatchResponse,
    "DeleteQueue": EmptyResponse,
    "GetQueueAttributes": GetQueueAttributesResponse,
    "GetQueueUrl": QueueUrlResponse,
    "ListDeadLetterSourceQueues": ListDeadLetterSourceQueuesResponse,
    "ListMessageMoveTasks": ListMessageMoveTasksResponse,
    "ListQueueTags": ListQueueTagsResponse,
    "ListQueues": ListQueuesResponse,
    "PurgeQueue": EmptyResponse,
    "ReceiveMessage": ReceiveMessageResponse,
    "RemovePermission": EmptyResponse,
    "SendMessage": SendMessageResponse,
    "SendMessageBatch": SendMessageBatchResponse,
    "SetQueueAttributes": EmptyResponse,
    "StartMessageMoveTask": TaskHandleResponse,
    "TagQueue": EmptyResponse,
    "UntagQueue": EmptyResponse,
}
