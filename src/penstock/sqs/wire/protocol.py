"""What both of AWS's protocols share: the request that is signed, the interface of a protocol, and headers."""

from typing import Protocol

import msgspec

from penstock.http.server import Headers
from penstock.sqs.errors import SqsError
from penstock.sqs.model import Shape


class WireProtocol(Protocol):
    """How answers are encoded; `json_protocol` and `query_protocol` are the two protocols."""

    def headers(self, request_id: str) -> Headers:
        """Return the headers of an answer."""
        ...

    def encode(self, action: str, response: Shape, request_id: str) -> bytes:
        """Return the body of an answer."""
        ...

    def error_headers(self, error: SqsError, request_id: str) -> Headers:
        """Return the headers of an error."""
        ...

    def encode_error(self, error: SqsError, request_id: str) -> bytes:
        """Return the body of an error."""
        ...


class SignedRequest(msgspec.Struct, frozen=True):
    """What a signature covers. Path, query and headers are the bytes as received, not decoded."""

    method: str
    path: bytes
    query_string: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def answer_headers(content_type: bytes, request_id: str) -> Headers:
    """Return the headers of any answer."""
    return [(b"content-type", content_type), (b"x-amzn-requestid", request_id.encode())]


def refusal_headers(content_type: bytes, request_id: str, error: SqsError) -> Headers:
    """Return the headers of an error, with Retry-After if the error knows it."""
    headers = answer_headers(content_type, request_id)
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    return headers
