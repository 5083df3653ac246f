"""What an OpenAPI document describes, for schemathesis to make requests of.

Tests take it from a fixture: schemathesis makes its requests while it collects otherwise, in every process of a run.
"""

from typing import Any

import pytest
import schemathesis
from schemathesis.schemas import BaseSchema


def described(document: dict[str, Any], test: pytest.Item) -> BaseSchema:
    """Return the schema for a test, with numbers as our clients write them."""
    # schemathesis 4 names its subtests by an attribute that pytest 9.2 no longer has.
    vars(test).setdefault("_nodeid", test.nodeid)
    schema = schemathesis.openapi.from_dict(document)
    schema.hook(map_body)
    return schema


def map_body(_: schemathesis.HookContext, body: Any) -> Any:
    """Write 5.0 as 5: to JSON Schema both are whole numbers, to our APIs only the second is."""
    if isinstance(body, dict):
        return {name: int(value) if is_whole_float(value) else value for name, value in body.items()}
    return body


def is_whole_float(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()
