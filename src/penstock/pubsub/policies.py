"""IAM policies are stored and returned, but not enforced, because callers have no identity here."""

from zlib import crc32

from google.iam.v1 import iam_policy_pb2, policy_pb2  # type: ignore[import-untyped]

from penstock.broker import AsyncBroker, TopicNotFound
from penstock.pubsub.errors import InvalidName, PolicyChanged
from penstock.pubsub.schemas.store import SchemaStore
from penstock.pubsub.wire import GrpcCall

_KEY = "policy "


class Policies:
    """The calls of google.iam.v1.IAMPolicy."""

    def __init__(self, broker: AsyncBroker, schemas: SchemaStore) -> None:
        self._broker = broker
        self._schemas = schemas

    async def set_iam_policy(self, request: iam_policy_pb2.SetIamPolicyRequest, _: GrpcCall) -> policy_pb2.Policy:
        """Store a policy; refuse it if the stored one has changed since it was read."""
        self._check_exists(request.resource)
        current = self._policy(request.resource)
        if request.policy.etag and request.policy.etag != current.etag:
            raise PolicyChanged(request.resource)
        policy = policy_pb2.Policy()
        policy.CopyFrom(request.policy)
        policy.etag = _etag(policy, current.etag)
        await self._broker.put_record(_KEY + request.resource, policy.SerializeToString())
        return policy

    async def get_iam_policy(self, request: iam_policy_pb2.GetIamPolicyRequest, _: GrpcCall) -> policy_pb2.Policy:
        """Return the policy of a resource, an empty one if none was set."""
        self._check_exists(request.resource)
        return self._policy(request.resource)

    async def iam_permissions(
        self, request: iam_policy_pb2.TestIamPermissionsRequest, _: GrpcCall
    ) -> iam_policy_pb2.TestIamPermissionsResponse:
        """Return all requested permissions, because every caller has them."""
        self._check_exists(request.resource)
        return iam_policy_pb2.TestIamPermissionsResponse(permissions=request.permissions)

    async def forget(self, resource: str) -> None:
        """Remove the policy of a deleted resource."""
        await self._broker.drop_record(_KEY + resource)

    def _policy(self, resource: str) -> policy_pb2.Policy:
        stored = self._broker.records.get(_KEY + resource)
        return policy_pb2.Policy(etag=b"ACAB") if stored is None else policy_pb2.Policy.FromString(stored)

    def _check_exists(self, resource: str) -> None:
        kind = resource.split("/")[2:3]
        if kind == ["topics"]:
            if self._broker.rules.topic(resource) is None:
                raise TopicNotFound(resource)
        elif kind == ["subscriptions"]:
            self._broker.rules.subscription(resource)
        elif kind == ["snapshots"]:
            self._broker.replay.snapshot(resource)
        elif kind == ["schemas"]:
            self._schemas.revision(resource, None)
        else:
            raise InvalidName(
                f"Invalid resource name {resource!r}: it must be a topic, subscription, snapshot or schema"
            )


def _etag(policy: policy_pb2.Policy, before: bytes) -> bytes:
    return f"{crc32(policy.SerializeToString(), crc32(before)):08x}".encode()
