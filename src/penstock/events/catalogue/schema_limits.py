"""What a JSON Schema may be, so that checking an event by it stays cheap and reaches nothing outside of it.

A reference names a place in the same schema. The number of subschemas that one value of an event may be compared with
is counted before the schema is accepted: references multiply it, up to exponentially, where several lead to the same
place.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.limits import KIB

MOST_SCHEMA_BYTES = 64 * KIB
MOST_SUBSCHEMAS = 2000
MOST_COMPARISONS = 10_000
"""With how many subschemas one value may be compared."""
MOST_DEPTH = 32
"""How deeply the data may be nested if the schema refers to itself."""

DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)

Schema: TypeAlias = Mapping[str, Any]

_DYNAMIC = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_DEFINITIONS = ("$defs", "definitions")
_MAPPINGS = ("properties", "patternProperties", "dependentSchemas", "dependencies", *_DEFINITIONS)


class _Kind(NamedTuple):
    """A kind of values, by the keywords whose subschemas apply to their members."""

    disjoint: tuple[str, ...]
    """At most one subschema of all these applies to a member."""
    overlapping: tuple[str, ...]
    """All of these may apply to the same member."""


_KINDS = (
    _Kind(("properties", "additionalProperties"), ("patternProperties", "propertyNames", "unevaluatedProperties")),
    _Kind(("prefixItems", "items", "additionalItems"), ("contains", "unevaluatedItems")),
)
_KEYWORDS = (*_SAME_VALUE, *_DEFINITIONS, *(name for kind in _KINDS for names in kind for name in names))


def check_schema(schema: Schema) -> bool:
    """Raise InvalidArgument if the schema is not allowed; return whether it refers to itself."""
    dialect = schema.get("$schema", DIALECTS[0])
    if not isinstance(dialect, str) or dialect.rstrip("#") not in DIALECTS:
        raise InvalidArgument(f"the schema's $schema must be one of {', '.join(DIALECTS)}, not {str(dialect)[:100]!r}")
    try:
        size_bytes = len(msgspec.json.encode(schema))
        if size_bytes > MOST_SCHEMA_BYTES:
            raise InvalidArgument(f"the schema has {size_bytes} bytes: at most {MOST_SCHEMA_BYTES} are allowed")
        return _Comparisons(schema, _subschemas(schema)).check()
    except RecursionError:
        raise InvalidArgument("the schema is nested too deeply") from None


def depth_of(value: object, most: int) -> int:
    """Return how deeply lists and objects are nested, or `most + 1` if deeper than `most`."""
    level: list[object] = [value]
    for depth in range(most + 1):
        level = [
            member
            for each in level
            if isinstance(each, dict | list)
            for member in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return depth
    return most + 1


def _subschemas(schema: Schema) -> set[int]:
    """Return the identities of all subschemas, each of which has no keyword that is not allowed."""
    found: set[int] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        found.add(id(node))
        if len(found) > MOST_SUBSCHEMAS:
            raise InvalidArgument(f"the schema has more than {MOST_SUBSCHEMAS} subschemas")
        if node is not schema and "$id" in node:
            raise InvalidArgument("only the whole schema may have an $id, not a part of it")
        dynamic = [name for name in _DYNAMIC if name in node]
        if dynamic:
            raise InvalidArgument(f"{dynamic[0]} is not allowed: use $ref with a place in this schema, #/$defs/…")
        waiting.extend(chain.from_iterable(_parts(node, name) for name in _KEYWORDS))
    return found


def _parts(node: Schema, name: str) -> Iterator[Schema]:
    """Yield the subschemas of a keyword, which has one, a list or a mapping of them."""
    given = node.get(name)
    if isinstance(given, list):
        yield from (each for each in given if isinstance(each, dict))
    elif isinstance(given, dict) and name in _MAPPINGS:
        yield from (each for each in given.values() if isinstance(each, dict))
    elif isinstance(given, dict):
        yield given


class _Comparisons:
    """Counts with how many subschemas of a schema one value of the data, at any depth, is compared at most."""

    def __init__(self, schema: Schema, subschemas: set[int]) -> None:
        self._schema = schema
        self._subschemas = subschemas
        self._known: dict[tuple[int, _Kind, int | None], int] = {}
        self._under_way: set[tuple[int, _Kind, int | None]] = set()

    def check(self) -> bool:
        """Raise InvalidArgument if there are too many; return whether the schema refers to itself."""
        is_recursive = self._refers_to_itself()
        self._of_any_kind(self._schema, MOST_DEPTH if is_recursive else None)
        return is_recursive

    def _refers_to_itself(self) -> bool:
        # Depth first: a subschema that is met again on the way to itself.
        done: set[int] = set()
        on_the_way: set[int] = set()
        waiting: list[tuple[Schema, bool]] = [(self._schema, False)]
        while waiting:
            node, is_done = waiting.pop()
            if is_done:
                on_the_way.discard(id(node))
                done.add(id(node))
                continue
            if id(node) in on_the_way:
                return True
            if id(node) in done:
                continue
            on_the_way.add(id(node))
            waiting.append((node, True))
            below = [*self._referred(node)]
            below.extend(chain.from_iterable(_parts(node, name) for name in _KEYWORDS if name not in _DEFINITIONS))
            for each in below:
                if id(each) in on_the_way:
                    return True
                waiting.append((each, False))
        return False

    def _of_any_kind(self, node: Schema, depth: int | None) -> int:
        return max(self._of(node, kind, depth) for kind in _KINDS)

    def _of(self, node: Schema, kind: _Kind, depth: int | None) -> int:
        key = (id(node), kind, depth)
        if key in self._known:
            return self._known[key]
        if key in self._under_way:
            raise InvalidArgument("the schema refers to itself for the same value, without end")
        self._under_way.add(key)
        same = [*self._referred(node), *chain.from_iterable(_parts(node, name) for name in _SAME_VALUE)]
        count = 1 + sum(self._of(each, kind, depth) for each in same)
        if any(name in node for name in ("unevaluatedProperties", "unevaluatedItems")):
            # What the others have looked at is found by asking them again.
            count *= 2
        if depth is None or depth > 0:
            below = None if depth is None else depth - 1
            disjoint = chain.from_iterable(_parts(node, name) for name in kind.disjoint)
            overlapping = chain.from_iterable(_parts(node, name) for name in kind.overlapping)
            count += max((self._of_any_kind(each, below) for each in disjoint), default=0)
            count += sum(self._of_any_kind(each, below) for each in overlapping)
        if count > MOST_COMPARISONS:
            raise InvalidArgument(
                f"the schema may compare one value with more than {MOST_COMPARISONS} subschemas: "
                "let fewer references lead to the same place"
            )
        self._under_way.discard(key)
        self._known[key] = count
        return count

    def _referred(self, node: Schema) -> tuple[Schema, ...]:
        given = node.get("$ref")
        if given is None:
            return ()
        if not isinstance(given, str) or (given != "#" and not given.startswith("#/")):
            raise InvalidArgument(
                f"$ref must name a place in this schema, such as #/$defs/address, not {str(given)[:100]!r}: "
                "nothing is read from elsewhere"
            )
        found: Any = reduce(_member, given.split("/")[1:], self._schema)
        if isinstance(found, bool):
            return ()
        if id(found) not in self._subschemas:
            raise InvalidArgument(f"$ref names {given[:100]!r}, which is not a schema: put it under $defs")
        return (found,)


def _member(value: Any, name: str) -> Any:
    name = name.replace("~1", "/").replace("~0", "~")
    if isinstance(value, dict) and name in value:
        return value[name]
    if isinstance(value, list) and name.isdigit() and int(name) < len(value):
        return value[int(name)]
    raise InvalidArgument(f"$ref names {name[:100]!r}, which the schema does not have")
