"""A search of payloads by one field, such as `customer.id=17`."""

import msgspec

from penstock.domain.errors import InvalidArgument

MOST_STEPS = 20
_PREFIX = "data."


class PayloadField(msgspec.Struct, frozen=True):
    """A path of names into a payload, and the value that is looked for there, as text."""

    path: tuple[str, ...]
    value: str

    def matches(self, payload: bytes) -> bool:
        """Return whether the payload is JSON and has the value at the path; of a list, any element may have it."""
        try:
            return _has(msgspec.json.decode(payload), self.path, self.value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False


def payload_field(text: str) -> PayloadField:
    """Return the search of a text such as `customer.id=17`; `data.` may stand before it, as in the CloudEvent."""
    path, equals, value = text.partition("=")
    names = tuple(path.strip().removeprefix(_PREFIX).split("."))
    if not equals or not all(names) or len(names) > MOST_STEPS:
        raise InvalidArgument(f"{text[:100]!r} is not a field and a value, such as customer.id=17")
    return PayloadField(names, value.strip())


def _has(found: object, path: tuple[str, ...], value: str) -> bool:
    if isinstance(found, list):
        return any(_has(each, path, value) for each in found)
    if path:
        return isinstance(found, dict) and path[0] in found and _has(found[path[0]], path[1:], value)
    if isinstance(found, str):
        return found == value
    return not isinstance(found, dict) and msgspec.json.encode(found).decode() == value
