"""Requests to an SQS server as they are on the wire, in both of AWS's protocols, from the same fields.

The service model that botocore ships says of which type a field is. It has no names for the Query protocol; those are
the names of AWS's API reference.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree

import botocore.session  # type: ignore[import-untyped]

from tests.services.sqs_server import Answer, SqsServer

MODEL = botocore.session.get_session().get_service_model("sqs")
ACTIONS: list[str] = list(MODEL.operation_names)
JSON, QUERY = "JSON", "Query"

_NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
_SINGULAR = {
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "AttributeNames": "AttributeName",
    "Attributes": "Attribute",
    "BinaryListValues": "BinaryListValue",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "StringListValues": "StringListValue",
    "TagKeys": "TagKey",
    "Tags": "Tag",
    "tags": "Tag",
}


class Outcome(NamedTuple):
    """What an answer says: the error's code in the Query protocol, or none, and the names of the answer's fields."""

    status: int
    code: str
    fields: frozenset[str]
    entry_code: str = ""
    """The code of the first entry of a batch that failed by itself."""


def parameters_of(action: str) -> dict[str, Any]:
    """The parameters of an action by name."""
    members: dict[str, Any] = MODEL.operation_model(action).input_shape.members
    return members


def modelled_errors(action: str) -> set[str]:
    """The errors that the model lists for an action, without the prefix that some have in the Query protocol."""
    return {shape.name for shape in MODEL.operation_model(action).error_shapes}


def answer_fields(action: str) -> frozenset[str]:
    """The fields that an answer may have."""
    shape = MODEL.operation_model(action).output_shape
    return frozenset() if shape is None else frozenset(shape.members)


def ask(server: SqsServer, protocol: str, action: str, fields: dict[str, Any]) -> Outcome:
    """Send one request."""
    return ask_json(server, action, json.dumps(fields)) if protocol == JSON else ask_query(server, action, fields)


def ask_json(server: SqsServer, action: str, body: str) -> Outcome:
    """Send one request of the JSON protocol."""
    headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    answer = server.http("POST", "/", body, headers)
    if answer.status == 200:
        fields = answer.json if answer.body else {}
        failed = fields.get("Failed", [])
        return Outcome(200, "", frozenset(fields), failed[0]["Code"] if failed else "")
    kind, code = answer.json["__type"], answer.headers["x-amzn-query-error"].partition(";")[0]
    modelled = kind.startswith("com.amazonaws.sqs#")
    assert modelled == (kind.partition("#")[2] in MODEL.shape_names), kind
    return Outcome(answer.status, code, frozenset())


def ask_query(
    server: SqsServer, action: str, fields: dict[str, Any], more: tuple[tuple[str, str], ...] = ()
) -> Outcome:
    """Send one request of the Query protocol; `more` parameters follow as they are."""
    pairs = [("Action", action), ("Version", "2012-11-05"), *flat(action, fields), *more]
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return _read_xml(action, server.http("POST", "/", urlencode(pairs), headers))


def _read_xml(action: str, answer: Answer) -> Outcome:
    root = ElementTree.fromstring(answer.body)
    if answer.status == 200:
        assert root.tag == f"{_NAMESPACE}{action}Response"
        result = root.find(f"{_NAMESPACE}{action}Result")
        names = () if result is None else (re.sub("{.*}", "", child.tag) for child in result)
        entry_code = root.findtext(f".//{_NAMESPACE}BatchResultErrorEntry/{_NAMESPACE}Code") or ""
        return Outcome(200, "", frozenset(names), entry_code)
    code = root.findtext(f"{_NAMESPACE}Error/{_NAMESPACE}Code")
    assert code is not None, answer.body
    return Outcome(answer.status, code, frozenset())


def flat(action: str, fields: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The fields as parameters of the Query protocol."""
    for name, value in fields.items():
        if value is None:
            continue
        place = prefix + query_name(action, name)
        if isinstance(value, dict) and name in _SINGULAR:
            key_name = "Key" if name.lower() == "tags" else "Name"
            for number, (key, item) in enumerate(value.items(), 1):
                yield f"{place}.{number}.{key_name}", key
                yield from flat("", {"Value": item}, f"{place}.{number}.")
        elif isinstance(value, dict):
            yield from flat(action, value, f"{place}.")
        elif isinstance(value, list):
            for number, item in enumerate(value, 1):
                yield from (
                    flat(action, item, f"{place}.{number}.")
                    if isinstance(item, dict)
                    else [(f"{place}.{number}", str(item))]
                )
        else:
            yield place, b64encode(value).decode() if isinstance(value, bytes) else str(value)


def query_name(action: str, name: str) -> str:
    """The name of a parameter in the Query protocol."""
    return f"{action}RequestEntry" if name == "Entries" else _SINGULAR.get(name, name)
