"""What both of AWS's protocols do alike.

An HTTP request as it arrived, before anything in it is believed.

Response headers that both protocols share.
"""

from typing import Protocol

import msgspec

from penstock.http.server import Headers
from penstock.sqs.errors import SqsError
from penstock.sqs.model import Shape


class WireProtocol(Protocol):
    """How answers are written; `json_protocol` and `query_protocol` are the two."""

    def headers(self, request_id: str) -> Headers:
        """The headers of an answer."""
        ...

    def encode(self, action: str, response: Shape, request_id: str) -> bytes:
        """The body of an answer."""
        ...

    def error_headers(self, error: SqsError, request_id: str) -> Headers:
        """The headers of an error."""
        ...

    def encode_error(self, error: SqsError, request_id: str) -> bytes:
        """The body of an error."""
        ...


class SignedRequest(msgspec.Struct, frozen=True):
    """What a signature covers; path, query and headers are the bytes of the wire, not decoded."""

    method: str
    path: bytes
    query_string: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def answer_headers(content_type: bytes, request_id: str) -> Headers:
    """The headers of any answer."""
    return [(b"content-type", content_type), (b"x-amzn-requestid", request_id.encode())]


def refusal_headers(content_type: bytes, request_id: str, error: SqsError) -> Headers:
    """The headers of an error: as any answer, and when to come back if the error knows."""
    headers = answer_headers(content_type, request_id)
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    return headers
