"""What an OpenAPI document describes, for schemathesis to make requests of.

Tests take it from a fixture: schemathesis makes its requests while it collects otherwise, in every process of a run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
import schemathesis
from schemathesis.schemas import BaseSchema


def described(document: dict[str, Any], test: pytest.Item) -> BaseSchema:
    """Return the schema for a test, with numbers as our clients write them."""
    # schemathesis 4 names its subtests by an attribute that pytest 9.2 no longer has.
    vars(test).setdefault("_nodeid", test.nodeid)
    schema = schemathesis.openapi.from_dict(document)
    schema.hook(map_body)
    return schema


@contextmanager
def kept_connection() -> Iterator[requests.Session]:
    """A connection for all requests of a test: thousands of its own cost as much as all the rest."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


def map_body(_: schemathesis.HookContext, body: Any) -> Any:
    """Write 5.0 as 5: to JSON Schema both are whole numbers, to our APIs only the second is."""
    if isinstance(body, dict):
        return {name: int(value) if is_whole_float(value) else value for name, value in body.items()}
    return body


def is_whole_float(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()
