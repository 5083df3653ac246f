"""The filter language of subscriptions: a condition on the attributes and the JSON data of an event.

    expression := all ("or" all)*
    all        := term ("and" term)*
    term       := "not" term | "(" expression ")" | path test
    test       := ("==" | "!=" | "<" | "<=" | ">" | ">=") literal
                | ["not"] "in" "(" literal ("," literal)* ")"
                | ["not"] "prefix" string
                | ["not"] "contains" literal
                | ["not"] "exists"
    path       := attribute | "data" ("." name | "[" number "]" | "[" string "]")*
    literal    := string | number | "true" | "false" | "null"

Values of different kinds are never equal and have no order. A path that leads nowhere, as in data that is not JSON,
meets no test; `!=` and the tests with `not` are the opposites of the others, so it meets these.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, TypeAlias

from penstock.domain.errors import InvalidArgument
from penstock.domain.event import MISSING, Filterable

MOST_EXPRESSION_CHARS = 2000
_DEEPEST = 50
_DATA = "data"
_KEYWORDS = frozenset(("and", "or", "not", "in", "prefix", "contains", "exists", "true", "false", "null"))
_CONSTANTS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<word>[^\W\d][\w-]*)|(?P<sign>==|!=|<=|>=|[<>().,\[\]]))""",
    re.DOTALL,
)
_SPACE = re.compile(r"\s*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}

Scalar: TypeAlias = str | int | float | bool | None
Predicate: TypeAlias = Callable[[Filterable], bool]
_Path: TypeAlias = Callable[[Filterable], object]
_Test: TypeAlias = Callable[[object], bool]


class Expression(NamedTuple):
    """A compiled expression, and whether it looks at the data."""

    matches: Predicate
    reads_data: bool


@lru_cache(maxsize=10_000)
def compiled(text: str) -> Expression:
    """Compile an expression; raise InvalidArgument with the position of an error."""
    if len(text) > MOST_EXPRESSION_CHARS:
        raise InvalidArgument(f"the filter has {len(text)} characters: use up to {MOST_EXPRESSION_CHARS}")
    parser = _Parser(text)
    return Expression(parser.whole(), parser.reads_data)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else self.text


class _Parser:
    """A recursive-descent parser; each method consumes what it is named after and returns its meaning."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self.reads_data = False

    def whole(self) -> Predicate:
        meaning = self._expression()
        if self._next.kind != "end":
            raise self._unexpected("`and`, `or` or the end")
        return meaning

    def _expression(self) -> Predicate:
        terms = [self._all()]
        while self._take("or"):
            terms.append(self._all())
        return terms[0] if len(terms) == 1 else _any_of(terms)

    def _all(self) -> Predicate:
        terms = [self._term()]
        while self._take("and"):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else _all_of(terms)

    def _term(self) -> Predicate:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _error(self._next.position, f"more than {_DEEPEST} levels of `not` and parentheses")
        try:
            if self._take("not"):
                return _opposite(self._term())
            if self._take("("):
                inner = self._expression()
                self._expect(")")
                return inner
            return self._condition()
        finally:
            self._depth -= 1

    def _condition(self) -> Predicate:
        first = self._next
        path = self._path()
        is_text = first.text != _DATA
        sign = self._next.text
        if self._take("=="):
            return _met(path, _equals(self._literal(is_text)))
        if self._take("!="):
            return _opposite(_met(path, _equals(self._literal(is_text))))
        if sign in _ORDER and self._take(sign):
            return _met(path, self._ordered(sign, is_text))
        if self._take("not"):
            return _opposite(_met(path, self._named_test(is_text)))
        return _met(path, self._named_test(is_text))

    def _ordered(self, sign: str, is_text: bool) -> _Test:
        token = self._next
        limit = self._literal(is_text)
        if limit is None or isinstance(limit, bool):
            raise _error(token.position, f"{token.text} has no order: compare it with == or !=")
        kinds, compare = _kinds(limit), _ORDER[sign]
        return lambda value: isinstance(value, kinds) and not isinstance(value, bool) and compare(value, limit)

    def _named_test(self, is_text: bool) -> _Test:
        if self._take("exists"):
            return lambda value: True
        if self._take("in"):
            return self._among(is_text)
        if self._take("prefix"):
            prefix = self._string()
            return lambda value: isinstance(value, str) and value.startswith(prefix)
        if self._take("contains"):
            return _contains(self._literal(is_text))
        raise self._unexpected("a comparison (==, !=, <, <=, >, >=, in, prefix, contains or exists)")

    def _among(self, is_text: bool) -> _Test:
        self._expect("(")
        tests = [_equals(self._literal(is_text))]
        while self._take(","):
            tests.append(_equals(self._literal(is_text)))
        self._expect(")")
        return lambda value: any(test(value) for test in tests)

    def _path(self) -> _Path:
        token = self._next
        if token.kind != "word" or token.text in _KEYWORDS:
            raise self._unexpected("an attribute, or a path that begins with data")
        self._at += 1
        if token.text == _DATA:
            self.reads_data = True
            return _data_at(self._steps())
        if self._next.text in (".", "["):
            raise _error(
                token.position, f"{token.text!r} is an attribute and has no parts; paths into the data begin with data"
            )
        return _attribute(token.text)

    def _steps(self) -> tuple[str | int, ...]:
        steps: list[str | int] = []
        while True:
            if self._take("."):
                if self._next.kind != "word":
                    raise self._unexpected('a name; one with other characters is written as ["name"]')
                steps.append(self._next.text)
                self._at += 1
            elif self._take("["):
                steps.append(self._index())
                self._expect("]")
            else:
                return tuple(steps)

    def _index(self) -> str | int:
        if self._next.kind == "string":
            return self._string()
        if self._next.kind != "number" or not self._next.text.isdecimal():
            raise self._unexpected("a place in a list, counted from 0, or a name as a string")
        self._at += 1
        return int(self._tokens[self._at - 1].text)

    def _literal(self, is_text: bool) -> Scalar:
        token = self._next
        if token.kind == "string":
            return self._string()
        if token.kind != "number" and token.text not in _CONSTANTS:
            raise self._unexpected("a string in quotes, a number, true, false or null")
        if is_text:
            raise _error(
                token.position,
                f"attributes are text, so write {token.text} in quotes; paths into the data begin with data",
            )
        self._at += 1
        return _number(token) if token.kind == "number" else _CONSTANTS[token.text]

    def _string(self) -> str:
        token = self._next
        if token.kind != "string":
            raise self._unexpected("a string in quotes")
        self._at += 1
        return _ESCAPE.sub(lambda match: _unescaped(match, token.position), token.text[1:-1])

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, text: str) -> bool:
        taken = self._next.text == text and self._next.kind != "string"
        self._at += taken
        return taken

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f"`{text}`")

    def _unexpected(self, wanted: str) -> InvalidArgument:
        return _error(self._next.position, f"expected {wanted}, found {self._next}")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while match := _TOKEN.match(text, at):
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    rest = _SPACE.match(text, at)
    at = at if rest is None else rest.end()
    if at < len(text):
        raise _error(at, _unreadable(text[at:]))
    return [*found, _Token("end", "", len(text))]


def _unreadable(rest: str) -> str:
    if rest[0] in "\"'":
        return "the string has no closing quote"
    if rest[0] == "=":
        return "equality is written =="
    return f"cannot read {rest[:10]!r}"


def _error(position: int, problem: str) -> InvalidArgument:
    return InvalidArgument(f"the filter is wrong at character {position + 1}: {problem}")


def _number(token: _Token) -> int | float:
    value = int(token.text) if token.text.lstrip("-").isdecimal() else float(token.text)
    if value in (float("inf"), float("-inf")):
        raise _error(token.position, f"{token.text} is too large a number")
    return value


def _unescaped(match: re.Match[str], start: int) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    if match[2] not in _ESCAPES:
        raise _error(start + 1 + match.start(), f"unknown escape \\{match[2]}; a backslash is written \\\\")
    return _ESCAPES[match[2]]


def _attribute(name: str) -> _Path:
    return lambda event: event.attributes.get(name, MISSING)


def _data_at(steps: tuple[str | int, ...]) -> _Path:
    def find(event: Filterable) -> object:
        value = event.data
        for step in steps:
            if isinstance(step, str):
                value = value.get(step, MISSING) if isinstance(value, dict) else MISSING
            else:
                value = value[step] if isinstance(value, list) and step < len(value) else MISSING
            if value is MISSING:
                break
        return value

    return find


def _kinds(literal: Scalar) -> tuple[type, ...]:
    """Return the types of values that can equal a literal; a boolean is not a number."""
    return (int, float) if isinstance(literal, (int, float)) and not isinstance(literal, bool) else (type(literal),)


def _equals(literal: Scalar) -> _Test:
    kinds, is_boolean = _kinds(literal), isinstance(literal, bool)
    return lambda value: isinstance(value, kinds) and isinstance(value, bool) == is_boolean and value == literal


def _contains(literal: Scalar) -> _Test:
    equals = _equals(literal)

    def test(value: object) -> bool:
        if isinstance(value, str):
            return isinstance(literal, str) and literal in value
        return isinstance(value, list) and any(equals(each) for each in value)

    return test


def _met(path: _Path, test: _Test) -> Predicate:
    return lambda event: (value := path(event)) is not MISSING and test(value)


def _opposite(term: Predicate) -> Predicate:
    return lambda event: not term(event)


def _all_of(terms: list[Predicate]) -> Predicate:
    return lambda event: all(term(event) for term in terms)


def _any_of(terms: list[Predicate]) -> Predicate:
    return lambda event: any(term(event) for term in terms)
