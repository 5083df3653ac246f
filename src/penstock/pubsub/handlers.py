"""The gRPC handlers of all calls, with the mapping of errors to gRPC statuses."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias

import grpc  # type: ignore[import-untyped]
from google.iam.v1 import iam_policy_pb2  # type: ignore[import-untyped]
from google.pubsub_v1 import types
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from penstock.domain.errors import PenstockError
from penstock.pubsub.errors import StaleAckIds
from penstock.pubsub.metrics import PubsubMetrics
from penstock.pubsub.services import PubsubServices

log = logging.getLogger(__name__)

# The classes of a request and its response are known only at run time.
Method: TypeAlias = Callable[[Any, Any], Awaitable[object]]

_serialize = methodcaller("SerializeToString")
_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_DOMAIN = "pubsub.googleapis.com"
_INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"


def generic_handlers(services: PubsubServices) -> list[grpc.GenericRpcHandler]:
    """Return all services, for a gRPC server."""
    handlers = {
        "google.pubsub.v1.Publisher": _publisher(services),
        "google.pubsub.v1.Subscriber": _subscriber(services),
        "google.pubsub.v1.SchemaService": _schemas(services),
        "google.iam.v1.IAMPolicy": _policies(services),
    }
    return [grpc.method_handlers_generic_handler(name, methods) for name, methods in handlers.items()]


def _publisher(services: PubsubServices) -> dict[str, grpc.RpcMethodHandler]:
    publisher = services.publisher
    return _unary(
        services.metrics,
        {
            "Publish": (publisher.publish, types.PublishRequest),
            "CreateTopic": (publisher.create_topic, types.Topic),
            "UpdateTopic": (publisher.update_topic, types.UpdateTopicRequest),
            "GetTopic": (publisher.get_topic, types.GetTopicRequest),
            "ListTopics": (publisher.list_topics, types.ListTopicsRequest),
            "ListTopicSubscriptions": (publisher.list_topic_subscriptions, types.ListTopicSubscriptionsRequest),
            "ListTopicSnapshots": (publisher.list_topic_snapshots, types.ListTopicSnapshotsRequest),
            "DeleteTopic": (publisher.delete_topic, types.DeleteTopicRequest),
            "DetachSubscription": (publisher.detach_subscription, types.DetachSubscriptionRequest),
        },
    )


def _subscriber(services: PubsubServices) -> dict[str, grpc.RpcMethodHandler]:
    subscriber, snapshots = services.subscriber, services.snapshots
    methods = _unary(
        services.metrics,
        {
            "Pull": (subscriber.pull, types.PullRequest),
            "Acknowledge": (subscriber.acknowledge, types.AcknowledgeRequest),
            "ModifyAckDeadline": (subscriber.modify_ack_deadline, types.ModifyAckDeadlineRequest),
            "CreateSubscription": (subscriber.create_subscription, types.Subscription),
            "GetSubscription": (subscriber.get_subscription, types.GetSubscriptionRequest),
            "ListSubscriptions": (subscriber.list_subscriptions, types.ListSubscriptionsRequest),
            "UpdateSubscription": (subscriber.update_subscription, types.UpdateSubscriptionRequest),
            "ModifyPushConfig": (subscriber.modify_push_config, types.ModifyPushConfigRequest),
            "DeleteSubscription": (subscriber.delete_subscription, types.DeleteSubscriptionRequest),
            "Seek": (snapshots.seek, types.SeekRequest),
            "CreateSnapshot": (snapshots.create_snapshot, types.CreateSnapshotRequest),
            "GetSnapshot": (snapshots.get_snapshot, types.GetSnapshotRequest),
            "ListSnapshots": (snapshots.list_snapshots, types.ListSnapshotsRequest),
            "UpdateSnapshot": (snapshots.update_snapshot, types.UpdateSnapshotRequest),
            "DeleteSnapshot": (snapshots.delete_snapshot, types.DeleteSnapshotRequest),
        },
    )
    methods["StreamingPull"] = _streaming_pull(services)
    return methods


def _schemas(services: PubsubServices) -> dict[str, grpc.RpcMethodHandler]:
    schemas = services.schemas
    return _unary(
        services.metrics,
        {
            "CreateSchema": (schemas.create_schema, types.CreateSchemaRequest),
            "CommitSchema": (schemas.commit_schema, types.CommitSchemaRequest),
            "RollbackSchema": (schemas.rollback_schema, types.RollbackSchemaRequest),
            "GetSchema": (schemas.get_schema, types.GetSchemaRequest),
            "ListSchemas": (schemas.list_schemas, types.ListSchemasRequest),
            "ListSchemaRevisions": (schemas.list_schema_revisions, types.ListSchemaRevisionsRequest),
            "DeleteSchemaRevision": (schemas.delete_schema_revision, types.DeleteSchemaRevisionRequest),
            "DeleteSchema": (schemas.delete_schema, types.DeleteSchemaRequest),
            "ValidateSchema": (schemas.validate_schema, types.ValidateSchemaRequest),
            "ValidateMessage": (schemas.validate_message, types.ValidateMessageRequest),
        },
    )


def _policies(services: PubsubServices) -> dict[str, grpc.RpcMethodHandler]:
    policies = services.policies
    return _unary(
        services.metrics,
        {
            "SetIamPolicy": (policies.set_iam_policy, iam_policy_pb2.SetIamPolicyRequest),
            "GetIamPolicy": (policies.get_iam_policy, iam_policy_pb2.GetIamPolicyRequest),
            "TestIamPermissions": (policies.iam_permissions, iam_policy_pb2.TestIamPermissionsRequest),
        },
    )


def _unary(metrics: PubsubMetrics, methods: Mapping[str, tuple[Method, Any]]) -> dict[str, grpc.RpcMethodHandler]:
    return {
        name: grpc.unary_unary_rpc_method_handler(
            _guarded(name, method, metrics),
            # Google's Pub/Sub classes wrap raw ones; those of IAM are raw.
            request_deserializer=getattr(request, "pb", lambda kind=request: kind)().FromString,
            response_serializer=_serialize,
        )
        for name, (method, request) in methods.items()
    }


def _streaming_pull(services: PubsubServices) -> grpc.RpcMethodHandler:
    async def streaming_pull(_: object, context: grpc.aio.ServicerContext) -> None:
        await services.streaming_pull(context)

    return grpc.stream_stream_rpc_method_handler(
        _guarded("StreamingPull", streaming_pull, services.metrics),
        request_deserializer=types.StreamingPullRequest.pb().FromString,
        response_serializer=_serialize,
    )


def _guarded(name: str, method: Method, metrics: PubsubMetrics) -> Method:
    """Return a method that counts its calls and ends them with a status on an error."""

    async def answer(request: object, context: grpc.aio.ServicerContext) -> object:
        metrics.begin_call(name)
        code = grpc.StatusCode.CANCELLED
        try:
            response = await method(request, context)
            code = grpc.StatusCode.OK
            return response
        except Exception as error:
            code, message, trailers = _status(name, error)
            return await context.abort(code, message, trailers)
        finally:
            metrics.end_call(name, code.name)

    return answer


class CallStatus(NamedTuple):
    """The status that a call ends with."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, bytes], ...] = ()


def status_of(error: PenstockError) -> CallStatus:
    """Return the gRPC status of an error; Penstock's codes are gRPC's."""
    trailers = (_ack_failures(error),) if isinstance(error, StaleAckIds) else ()
    return CallStatus(_CODES[error.code], error.message, trailers)


def _ack_failures(error: StaleAckIds) -> tuple[str, bytes]:
    """Return the trailer in which clients find the acks that failed permanently."""
    info = error_details_pb2.ErrorInfo(reason="INVALID_ACK_ID", domain=_DOMAIN)
    for ack_id in error.ack_ids:
        info.metadata[ack_id] = _INVALID_ACK_ID
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=error.message)
    status.details.add().Pack(info)
    return "grpc-status-details-bin", status.SerializeToString()


def _status(name: str, error: Exception) -> CallStatus:
    if isinstance(error, PenstockError):
        return status_of(error)
    log.error("a call failed unexpectedly", exc_info=error, extra={"method": name})
    return CallStatus(grpc.StatusCode.INTERNAL, "internal error; see the server's log")
