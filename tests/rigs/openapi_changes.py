"""What of one OpenAPI document breaks in the next, for programs written by the first."""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def broken(old: Json, new: Json) -> Iterator[str]:
    """Yield each operation, parameter or field that programs may rely on and that is gone or newly required."""
    for path, operations in old["paths"].items():
        for method, before in operations.items():
            name = f"{method.upper()} {path}"
            after = new["paths"].get(path, {}).get(method)
            if after is None:
                yield f"{name} is gone"
                continue
            yield from _parameters(name, before, after)
            yield from _Schemas(old, new).sent(f"{name} body", _body(before), _body(after))
            yield from _Schemas(old, new).answered(f"{name} answer", _answer(before), _answer(after))


def _parameters(name: str, before: Json, after: Json) -> Iterator[str]:
    known = {(each["in"], each["name"]) for each in before["parameters"]}
    now = {(each["in"], each["name"]): each for each in after["parameters"]}
    yield from (f"{name}: the parameter {key[1]} is gone" for key in sorted(known - now.keys()))
    added = sorted(key for key in now.keys() - known if now[key]["required"])
    yield from (f"{name}: the parameter {key[1]} is required now" for key in added)


def _body(operation: Json) -> Json:
    return _schema(operation.get("requestBody", {}))


def _answer(operation: Json) -> Json:
    return _schema(operation["responses"]["200"])


def _schema(content: Json) -> Json:
    media: list[Json] = list(content.get("content", {}).values())
    schema: Json = media[0]["schema"] if media else {}
    return schema


class _Schemas:
    """Compares schemas of two documents, following their references, each pair once."""

    def __init__(self, old: Json, new: Json) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()

    def sent(self, name: str, before: Json, after: Json) -> Iterator[str]:
        """Yield what an old request has that is refused now, or what it lacks."""
        yield from self._compared(name, before, after, is_sent=True)

    def answered(self, name: str, before: Json, after: Json) -> Iterator[str]:
        """Yield what an old program expects of an answer that it no longer has."""
        yield from self._compared(name, before, after, is_sent=False)

    def _compared(self, name: str, before: Json, after: Json, *, is_sent: bool) -> Iterator[str]:
        pair = (str(before.get("$ref")), str(after.get("$ref")))
        if "$ref" in before and pair in self._seen:
            return
        self._seen.add(pair)
        before, after = _found(self._old, before), _found(self._new, after)
        old, new = before.get("properties", {}), after.get("properties", {})
        if old and not (new or after.get("anyOf") or not after):
            yield f"{name} has no fields any more"
            return
        if new:
            yield from (f"{name}: the field {field} is gone" for field in sorted(old.keys() - new.keys()))
        if is_sent:
            added = set(after.get("required", ())) - set(before.get("required", ()))
            yield from (f"{name}: the field {field} is required now" for field in sorted(added))
            values = set(map(str, before.get("enum", ())))
            gone = values - set(map(str, after["enum"])) if "enum" in after else set()
            yield from (f"{name}: the value {value} is gone" for value in sorted(gone))
        for field in sorted(old.keys() & new.keys()):
            yield from self._compared(f"{name}.{field}", old[field], new[field], is_sent=is_sent)
        if isinstance(before.get("items"), dict) and isinstance(after.get("items"), dict):
            yield from self._compared(f"{name}[]", before["items"], after["items"], is_sent=is_sent)
        kinds = _kinds(before), _kinds(after)
        if all(kinds) and kinds[0].isdisjoint(kinds[1]):
            yield f"{name} is {'/'.join(sorted(kinds[1]))}, no longer {'/'.join(sorted(kinds[0]))}"


def _found(document: Json, schema: Json) -> Json:
    while "$ref" in schema:
        # The document of 0.1.0 left some out that are also of queries.
        schema = document["components"]["schemas"].get(schema["$ref"].rpartition("/")[2], {})
    return schema


def _kinds(schema: Json) -> set[str]:
    given = schema.get("type", [])
    return {given} if isinstance(given, str) else set(given)
