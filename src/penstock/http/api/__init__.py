"""JSON APIs: routes, OpenAPI, problems, pages and probes."""

from penstock.http.api.app import ApiApp
from penstock.http.api.changes import LoggedChanges
from penstock.http.api.openapi import Json, documented, openapi_document
from penstock.http.api.paging import check_no_cursor, cursor_after, first_of, key_before, page_of, whole_or_page_of
from penstock.http.api.probes import PATHS, Check, CheckResult, Probes
from penstock.http.api.query import NoQuery, parse_query
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route, RouteTable, route, routes_of

__all__ = [
    "PATHS",
    "AnyRoute",
    "ApiApp",
    "Call",
    "Check",
    "CheckResult",
    "Json",
    "LoggedChanges",
    "NoBody",
    "NoQuery",
    "Probes",
    "Route",
    "RouteTable",
    "check_no_cursor",
    "cursor_after",
    "documented",
    "first_of",
    "key_before",
    "openapi_document",
    "page_of",
    "parse_query",
    "route",
    "routes_of",
    "whole_or_page_of",
]
