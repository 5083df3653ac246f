"""The OpenAPI 3.1 document of a table of routes, derived from the types that the routes decode and encode."""

from http import HTTPStatus
from typing import Any

import msgspec

from penstock import __version__
from penstock.client.types import PROBLEM_MEDIA_TYPE, Problem
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import AnyRoute, Call, NoBody, RouteTable, route, routes_of

# OpenAPI is a tree of JSON.
Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_EVERY_ROUTE = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_WITH_BODY = (
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


def openapi_document(table: RouteTable, title: str, description: str) -> Json:
    """Return the document as a tree."""
    types = [Problem, *(each.answer for each in table.routes), *(r.body for r in table.routes if r.takes_body)]
    queries = [each.query for each in table.routes]
    # A query is described by its parameters; a type that is a query here and a body there is a component too.
    _, of_bodies = msgspec.json.schema_components(types, ref_template=_REF)
    _, described = msgspec.json.schema_components([*types, *queries], ref_template=_REF)
    only_queries = {query.__name__ for query in queries} - of_bodies.keys()
    paths: dict[str, Json] = {}
    for each in table.routes:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, described)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": description},
        "paths": paths,
        "components": {"schemas": {name: of for name, of in described.items() if name not in only_queries}},
    }


def documented(table: RouteTable, document: Json) -> RouteTable:
    """Return the table with one more route, which serves the document of the others."""

    @route("GET", "/openapi.json", summary="This document.")
    def describe(_: Call[NoQuery, NoBody]) -> Json:
        return document

    return RouteTable(*table.routes, *routes_of(describe))


def _operation(route: AnyRoute, described: dict[str, Json]) -> Json:
    operation: Json = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "parameters": [*map(_path_parameter, route.path_names), *_query_parameters(described[route.query.__name__])],
        "responses": {"200": _content("The answer.", "application/json", route.answer), **_problems(route)},
    }
    if route.takes_body:
        operation["requestBody"] = {"required": True, **_media(route.media_types, route.body)}
    elif route.changes:
        operation["parameters"].append(_change_header())
    return operation


def _operation_id(route: AnyRoute) -> str:
    words = route.path.replace("{", "by-").replace("}", "").replace(".", "-").replace("/", "-").strip("-")
    return f"{route.method.lower()}-{words}"


def _path_parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(query: Json) -> list[Json]:
    return [
        {"name": name, "in": "query", "required": name in query["required"], "schema": _without_null(schema)}
        for name, schema in query["properties"].items()
    ]


def _without_null(schema: Json) -> Json:
    """Return the schema without null: an optional parameter is left out, never null."""
    kept = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    return {**kept, **options[0]} if len(options) == 1 else {**kept, **({"anyOf": options} if options else {})}


def _change_header() -> Json:
    about = "Required unless the content type is JSON. Pages of other sites cannot send it."
    return {
        "name": "X-Penstock",
        "in": "header",
        "required": True,
        "description": about,
        "schema": {"type": "string", "enum": ["1"]},
    }


def _problems(route: AnyRoute) -> Json:
    statuses = {*_EVERY_ROUTE, *route.refusals, *(_WITH_BODY if route.takes_body else ())}
    if route.path_names:
        statuses.add(HTTPStatus.NOT_FOUND)
    ordered = sorted(statuses)
    return {str(status.value): _content(f"{status.phrase}.", PROBLEM_MEDIA_TYPE, Problem) for status in ordered}


def _content(description: str, media_type: str, kind: type) -> Json:
    return {"description": description, **_media((media_type,), kind)}


def _media(media_types: tuple[str, ...], kind: type) -> Json:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return {"content": {media_type: {"schema": schema} for media_type in media_types}}
