"""The query of a request as a struct; unknown, repeated and mistyped parameters are refused."""

from functools import lru_cache
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from penstock.http.problems import Refused

Q = TypeVar("Q", bound=msgspec.Struct)
_MAX_FIELDS = 50


class NoQuery(msgspec.Struct, frozen=True):
    """The query of a route without parameters."""


def parse_query(query_string: bytes, kind: type[Q]) -> Q:
    """Return the query as `kind`; numbers and booleans are written as in JSON, text as it is."""
    is_text = _text_by_name(kind)
    values: dict[str, object] = {}
    for name, text in _pairs(query_string):
        if name not in is_text:
            known = ", ".join(is_text) or "none are allowed"
            raise Refused(HTTPStatus.BAD_REQUEST, f"there is no query parameter {name!r} here ({known})")
        if name in values:
            raise Refused(HTTPStatus.BAD_REQUEST, f"the query parameter {name!r} is given twice")
        values[name] = text if is_text[name] else _literal(name, text)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the query is wrong: {error}") from error


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:  # not ASCII, not UTF-8 after unescaping, or too long
        raise Refused(HTTPStatus.BAD_REQUEST, f"the query cannot be read: {error}") from error


def _literal(name: str, text: str) -> object:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = None
    if not isinstance(value, int | float):
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"the query parameter {name!r} must be a number, true or false, not {text!r}"
        )
    return value


@lru_cache(maxsize=256)
def _text_by_name(kind: type[msgspec.Struct]) -> dict[str, bool]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return {field.encode_name: _is_text(field.type) for field in described.fields}


def _is_text(described: inspect.Type) -> bool:
    if isinstance(described, inspect.UnionType):
        return any(map(_is_text, described.types))
    return isinstance(described, inspect.StrType | inspect.EnumType)
