"""Errors as gRPC statuses: the one place where they are mapped."""

from collections.abc import Mapping
from typing import NamedTuple

import grpc  # type: ignore[import-untyped]
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from penstock.domain.errors import PenstockError
from penstock.pubsub.errors import StaleAckIds

_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_DOMAIN = "pubsub.googleapis.com"
_INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"


class Refusal(NamedTuple):
    """What a call is ended with."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, bytes], ...] = ()


def refusal_of(error: PenstockError) -> Refusal:
    """The status of an error: Penstock's codes are gRPC's."""
    trailers = (_ack_failures(error),) if isinstance(error, StaleAckIds) else ()
    return Refusal(_CODES[error.code], error.message, trailers)


def _ack_failures(error: StaleAckIds) -> tuple[str, bytes]:
    """What the clients read to tell which of their acks failed for good."""
    info = error_details_pb2.ErrorInfo(reason="INVALID_ACK_ID", domain=_DOMAIN)
    for ack_id in error.ack_ids:
        info.metadata[ack_id] = _INVALID_ACK_ID
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=error.message)
    status.details.add().Pack(info)
    return "grpc-status-details-bin", status.SerializeToString()
