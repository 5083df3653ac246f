"""Errors as an HTTP API reports them: problem details (RFC 9457) with a stable code."""

from http import HTTPStatus

from penstock.client.types import Problem
from penstock.domain.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PenstockError,
    ResourceExhausted,
    Unavailable,
)

_STATUSES: tuple[tuple[type[PenstockError], HTTPStatus], ...] = (
    (InvalidArgument, HTTPStatus.BAD_REQUEST),
    (NotFound, HTTPStatus.NOT_FOUND),
    (AlreadyExists, HTTPStatus.CONFLICT),
    (FailedPrecondition, HTTPStatus.CONFLICT),
    (ResourceExhausted, HTTPStatus.TOO_MANY_REQUESTS),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (PenstockError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


class Refused(Exception):
    """Ends a request with a problem."""

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.problem = problem(status, detail)
        self.headers = headers or {}


def problem(status: HTTPStatus, detail: str) -> Problem:
    """Return the problem of a status."""
    return Problem(status.value, status.name, status.phrase, detail)


def problem_of(error: PenstockError) -> Problem:
    """Return one of Penstock's errors as a problem."""
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    return problem(status, error.message)
