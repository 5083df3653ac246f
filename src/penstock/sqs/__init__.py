"""The SQS-compatible server: AWS's protocol over the queue engine, with per-queue throttling and partitioned FIFO."""

from penstock.sqs.actions.message_attributes import TRACE_HEADER
from penstock.sqs.admin.admin import PREFIX
from penstock.sqs.admin.shapes import (
    PeekedPage,
    PeekQuery,
    Purged,
    QueueDescription,
    QueueSummaries,
    RedriveOrder,
    RedriveStarted,
)
from penstock.sqs.auth.credentials import load
from penstock.sqs.model import (
    BatchResponse,
    CreateQueueRequest,
    DeleteMessageBatchRequest,
    DeleteMessageBatchRequestEntry,
    EmptyResponse,
    ListMessageMoveTasksRequest,
    ListMessageMoveTasksResponse,
    MessageAttributes,
    MessageAttributeValue,
    MessageMoveTask,
    QueueUrlRequest,
    QueueUrlResponse,
    ReceivedMessage,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageBatchResponse,
    SendMessageRequest,
    SendMessageResponse,
    SetQueueAttributesRequest,
    StartMessageMoveTaskRequest,
    TaskHandleResponse,
)
from penstock.sqs.names import FIFO_SUFFIX
from penstock.sqs.queue.placement import HOME, parse_partition_map
from penstock.sqs.queue.snapshot import MAX_MESSAGES, QueueStanding, SnapshotMessage, SnapshotPage
from penstock.sqs.server import SqsServerSettings, serve_sqs
from penstock.sqs.service import ServiceSettings
from penstock.sqs.wire.protocol import SignedRequest

__all__ = [
    "FIFO_SUFFIX",
    "HOME",
    "MAX_MESSAGES",
    "PREFIX",
    "TRACE_HEADER",
    "BatchResponse",
    "CreateQueueRequest",
    "DeleteMessageBatchRequest",
    "DeleteMessageBatchRequestEntry",
    "EmptyResponse",
    "ListMessageMoveTasksRequest",
    "ListMessageMoveTasksResponse",
    "MessageAttributeValue",
    "MessageAttributes",
    "MessageMoveTask",
    "PeekQuery",
    "PeekedPage",
    "Purged",
    "QueueDescription",
    "QueueStanding",
    "QueueSummaries",
    "QueueUrlRequest",
    "QueueUrlResponse",
    "ReceiveMessageRequest",
    "ReceiveMessageResponse",
    "ReceivedMessage",
    "RedriveOrder",
    "RedriveStarted",
    "SendMessageBatchRequest",
    "SendMessageBatchRequestEntry",
    "SendMessageBatchResponse",
    "SendMessageRequest",
    "SendMessageResponse",
    "ServiceSettings",
    "SetQueueAttributesRequest",
    "SignedRequest",
    "SnapshotMessage",
    "SnapshotPage",
    "SqsServerSettings",
    "StartMessageMoveTaskRequest",
    "TaskHandleResponse",
    "load",
    "parse_partition_map",
    "serve_sqs",
]
