"""A way through the API to another part, for pages that may ask their own origin only.

No open proxy: the part is fixed, and so is every method, path and query that gets through.
"""

from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Raw

from penstock.api.errors import PartUnreachable
from penstock.api.upstream import TIMEOUT_S, Upstream
from penstock.telemetry.query import NoQuery
from penstock.telemetry.routes import AnyRoute, Call, NoBody, Route


class Gateway:
    """Makes the routes to one part: what is `prefix` here is `upstream_prefix` there."""

    def __init__(self, upstream: Upstream, prefix: str, upstream_prefix: str = "") -> None:
        self._upstream = upstream
        self._prefix = prefix
        self._upstream_prefix = upstream_prefix

    def route(
        self,
        method: str,
        path: str,
        summary: str,
        answer: type,
        *,
        query: type[msgspec.Struct] = NoQuery,
        body: type = NoBody,
        timeout_s: float = TIMEOUT_S,
    ) -> AnyRoute:
        """One operation that gets through; its query and body are checked here before the part sees them."""

        async def passed(call: Call[Any, Any]) -> Raw:
            target = self._upstream_prefix + _filled(path, call.path)
            content = await self._upstream.ask(method, target, _query_of(call.query), call.content, timeout_s)
            return self._json(content)

        return Route(
            method=method,
            path=self._prefix + path,
            summary=summary,
            answer=answer,
            handler=passed,
            query=query,
            body=body,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE),
        )

    def _json(self, content: bytes) -> Raw:
        try:
            msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            upstream = self._upstream
            raise PartUnreachable(upstream.part, upstream.url, "its answer is not JSON", upstream.setting) from None
        return Raw(content)


def _filled(path: str, variables: Any) -> str:
    return path.format_map({name: quote(value, safe="") for name, value in variables.items()})


def _query_of(query: msgspec.Struct) -> str:
    given = {
        name: value for name, value in msgspec.to_builtins(query).items() if value is not None and value is not UNSET
    }
    return urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()})
