"""Every error of Penstock has a gRPC status, and failed acks say which."""

import grpc  # type: ignore[import-untyped]
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from penstock.domain import errors as core_errors
from penstock.domain.errors import PenstockError
from penstock.pubsub.errors import StaleAckIds
from penstock.pubsub.handlers import status_of
from tests.unit.project.test_errors import ROOT_CODES, error_classes

STATUSES = {
    "InvalidArgument": grpc.StatusCode.INVALID_ARGUMENT,
    "NotFound": grpc.StatusCode.NOT_FOUND,
    "AlreadyExists": grpc.StatusCode.ALREADY_EXISTS,
    "ResourceExhausted": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "FailedPrecondition": grpc.StatusCode.FAILED_PRECONDITION,
    "Unavailable": grpc.StatusCode.UNAVAILABLE,
}


@pytest.mark.parametrize("root", ROOT_CODES)
def test_each_root_has_its_status(root: str) -> None:
    refusal = status_of(getattr(core_errors, root)("what was wrong"))

    assert refusal == (STATUSES[root], "what was wrong", ())


def test_every_error_has_a_status() -> None:
    known = {*STATUSES.values(), grpc.StatusCode.UNKNOWN}
    for kind in error_classes():
        error = kind.__new__(kind)
        PenstockError.__init__(error, "told")
        if kind is StaleAckIds:
            error.__dict__["ack_ids"] = ("a",)
        assert status_of(error).code in known, kind


def test_stale_ack_ids_are_told_as_the_clients_read_them() -> None:
    ((name, value),) = status_of(StaleAckIds(["one", "two"])).trailers

    info = error_details_pb2.ErrorInfo()
    assert status_pb2.Status.FromString(value).details[0].Unpack(info)
    assert name == "grpc-status-details-bin"
    assert dict(info.metadata) == dict.fromkeys(["one", "two"], "PERMANENT_FAILURE_INVALID_ACK_ID")
