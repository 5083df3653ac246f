"""What both of AWS's protocols do alike."""

from typing import Protocol

from penstock.http.server.asgi import Headers
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
