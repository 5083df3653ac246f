"""An SQS-compatible server: AWS's protocols over the queue engine, with per-queue throttling and partitioned FIFO."""

from penstock.sqs.actions.message_attributes import TRACE_HEADER
from penstock.sqs.admin.routes import ADMIN_PREFIX
from penstock.sqs.admin.shapes import (
    PeekedPage,
    PeekQuery,
    Purged,
    QueueDescription,
    QueueSummaries,
    RedriveRequest,
    RedriveStarted,
)
from penstock.sqs.auth.credentials import is_access_key, load_credentials, parts_credentials
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
from penstock.sqs.queue.placement import OWN_DATABASE, parse_partition_map
from penstock.sqs.queue.snapshot import MAX_MESSAGES, QueueStanding, SnapshotMessage, SnapshotPage
from penstock.sqs.server import SqsServerSettings, serve_sqs
from penstock.sqs.service import ServiceSettings
from penstock.sqs.wire.protocol import SignedRequest

__all__ = [
    "ADMIN_PREFIX",
    "FIFO_SUFFIX",
    "MAX_MESSAGES",
    "OWN_DATABASE",
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
    "RedriveRequest",
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
    "is_access_key",
    "load_credentials",
    "parse_partition_map",
    "parts_credentials",
    "serve_sqs",
]
