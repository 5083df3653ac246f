"""The AsyncAPI 3.0 document of the catalogue: what a subscriber may receive, for generators of code and of pages."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock import __version__
from penstock.client.types import EventTypeVersion, EventTypeView
from penstock.http.api import Json

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_CLOUDEVENTS = "application/cloudevents+json"


def asyncapi_document(event_types: Iterable[EventTypeView]) -> Json:
    """Return the document: a channel for each type, a message for each version."""
    names = _Names()
    channels: Json = {}
    operations: Json = {}
    messages: Json = {}
    schemas: Json = {}
    for each in event_types:
        channel = names.of(each.type)
        found: Json = {}
        for version in each.versions or (None,):
            name = names.of(each.type if version is None else f"{each.type}.{version.version}")
            if version is not None:
                schemas[name] = _moved(_json(version.schema), f"#/components/schemas/{name}")
            messages[name] = _message(each, version, name)
            found[name] = {"$ref": f"#/components/messages/{name}"}
        channels[channel] = {"address": each.type, "messages": found, **_described(each.description)}
        operations[f"receive.{channel}"] = {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{channel}"},
            "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in found],
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Penstock events",
            "version": __version__,
            "description": "Events that subscribers receive as signed webhooks, in order per partitionkey.",
        },
        "defaultContentType": _CLOUDEVENTS,
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def _message(event_type: EventTypeView, version: EventTypeVersion | None, name: str) -> Json:
    text = {"type": "string"}
    properties: Json = {
        "specversion": {"const": "1.0"},
        "id": text,
        "source": text,
        "type": {"const": event_type.type},
        "partitionkey": text,
    }
    message: Json = {
        "name": event_type.type,
        "title": event_type.type if version is None else f"{event_type.type}, version {version.version}",
        "contentType": _CLOUDEVENTS,
        **_described(event_type.description),
    }
    if version is not None:
        properties["data"] = {"$ref": f"#/components/schemas/{name}"}
        if version.examples:
            message["examples"] = [
                {"name": f"example-{number}", "payload": {"type": event_type.type, "data": _json(example)}}
                for number, example in enumerate(version.examples, 1)
            ]
    required = ["specversion", "id", "source", "type", *(["data"] if version is not None else [])]
    message["payload"] = {"type": "object", "required": required, "properties": properties}
    return message


def _described(description: str) -> Json:
    return {"description": description} if description else {}


def _json(value: object) -> Any:
    return msgspec.to_builtins(value)


def _moved(schema: Any, place: str) -> Any:
    """Return a schema whose references to itself name its place in the document; its own `$id` would hide that."""
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: f"{place}{value[1:]}" if name == "$ref" and isinstance(value, str) else _moved(value, place)
        for name, value in schema.items()
        if name != "$id" or not isinstance(value, str)
    }


class _Names:
    """Gives each text a name of the characters that AsyncAPI allows, its own."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, text: str) -> str:
        """Return the name of a text, always the same."""
        if text not in self._of:
            plain = _NOT_IN_NAMES.sub("_", text)
            names = (plain if number == 1 else f"{plain}-{number}" for number in range(1, len(self._taken) + 2))
            self._of[text] = next(name for name in names if name not in self._taken)
            self._taken.add(self._of[text])
        return self._of[text]
