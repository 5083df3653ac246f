"""Which API `penstock publish`, `jobs`, `subscriptions` and `pools` ask, and how."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

from penstock.cli.options import options_of
from penstock.domain.errors import FailedPrecondition, InvalidArgument, NotFound, PenstockError, Unavailable

if TYPE_CHECKING:
    from penstock.client.endpoint import Endpoint

TIMEOUT_S = 660.0
"""Longer than a subscriber may take to answer a test event."""

EndpointOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        show_default=False,
        help="Where the API is; else the setting api.endpoint, which is http://127.0.0.1:8080 unless set.",
    ),
]

T = TypeVar("T")


class ApiAnswer:
    """What the API answered: as a value of a type, or as JSON to be printed."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_as(self, kind: type[T]) -> T:
        """The answer as a value."""
        import msgspec

        return msgspec.json.decode(self.content, type=kind)

    @property
    def json(self) -> object:
        """The answer as plain JSON."""
        return json.loads(self.content)


class ApiClient:
    """Asks one API; the API's problems are raised as Penstock's errors."""

    def __init__(self, endpoint: str, token: str) -> None:
        self._endpoint = _parsed(endpoint, token)

    def get(self, path: str, query: Mapping[str, str | int | bool | None] | None = None) -> ApiAnswer:
        """Look something up; what is None is not asked for."""
        from urllib.parse import urlencode

        given = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in (query or {}).items()
            if value is not None
        }
        return self.send("GET", f"{path}?{urlencode(given)}" if given else path)

    def get_all(self, path: str, name: str) -> ApiAnswer:
        """All pages of a list that the answer has under a name, as one."""
        rows: list[object] = []
        cursor: str | None = None
        while True:
            page = json.loads(self.get(path, {"cursor": cursor}).content)
            rows += page[name]
            cursor = page["cursor"]
            if cursor is None:
                return ApiAnswer(json.dumps({name: rows, "cursor": None}).encode())

    def send(self, method: str, path: str, body: object = None) -> ApiAnswer:
        """Make a request; a body is sent as JSON."""
        from penstock.client.blocking_http import BROKEN, BlockingHttp

        endpoint = self._endpoint
        content = None if body is None else json.dumps(body).encode()
        http = BlockingHttp(endpoint.host, endpoint.port, secure=endpoint.secure, timeout_s=TIMEOUT_S)
        try:
            with http:
                answer = http.send(method, endpoint.base_path + path, content, endpoint.headers(content))
        except BROKEN as error:
            raise Unavailable(
                f"no Penstock API answers at {endpoint.url}: {error}; start one with `penstock serve api`, "
                "or give --endpoint"
            ) from error
        if answer.status != 200:
            raise _refusal(answer.status, answer.body, endpoint.url)
        return ApiAnswer(answer.body)


def connect(ctx: typer.Context, endpoint: str | None) -> ApiClient:
    """A client for the API of this run."""
    from penstock.ops.config import load

    config = load(options_of(ctx).config_file)
    return ApiClient(endpoint or config.api.endpoint, config.api.token)


def path_part(text: str) -> str:
    """A text as one part of a path."""
    from urllib.parse import quote

    return quote(text, safe="")


def _parsed(endpoint: str, token: str) -> "Endpoint":
    from penstock.client.endpoint import Endpoint

    try:
        return Endpoint.parse(endpoint, token)
    except InvalidArgument as error:
        raise typer.BadParameter(error.message, param_hint="--endpoint") from error


def _refusal(status: int, content: bytes, endpoint: str) -> PenstockError:
    try:
        detail = str(json.loads(content)["detail"])
    except (ValueError, KeyError, TypeError):
        return Unavailable(f"{endpoint} answered {status}: it does not seem to be a Penstock API")
    if status == 401:
        return FailedPrecondition(f"{detail}; set api.token, or PENSTOCK_API__TOKEN")
    kinds = {400: InvalidArgument, 404: NotFound, 413: InvalidArgument, 422: InvalidArgument}
    return kinds.get(status, Unavailable if status >= 500 else FailedPrecondition)(detail)
