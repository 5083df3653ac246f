"""Response headers that both protocols share."""

from penstock.http.server.asgi import Headers
from penstock.sqs.errors import SqsError


def answer_headers(content_type: bytes, request_id: str) -> Headers:
    """The headers of any answer."""
    return [(b"content-type", content_type), (b"x-amzn-requestid", request_id.encode())]


def refusal_headers(content_type: bytes, request_id: str, error: SqsError) -> Headers:
    """The headers of an error: as any answer, and when to come back if the error knows."""
    headers = answer_headers(content_type, request_id)
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    return headers
