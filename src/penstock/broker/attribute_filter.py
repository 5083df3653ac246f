"""The filter language: which messages a subscription wants, by their attributes.

    expression := term (AND term)* | term (OR term)*
    term       := (NOT | "-") term | "(" expression ")" | condition
    condition  := "attributes" ":" key                          the key exists
                | "attributes" "." key ("=" | "!=") string      a missing key differs from every string
                | "hasPrefix" "(" "attributes" "." key "," string ")"
    key        := letters, digits, "_" and "-", or a string

AND and OR cannot be mixed without parentheses, so there is no precedence to know.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.broker.errors import InvalidFilter
from penstock.domain.limits import MAX_FILTER_BYTES

Predicate: TypeAlias = Callable[[Mapping[str, object]], bool]

_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>\w[\w-]*)|(?P<sign>!=|[-():.,=]))', re.ASCII | re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL)
_NAMED_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LITERAL_ESCAPES = "\\\"'`?"


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def compile_filter(text: str) -> Predicate:
    """Compile a filter into a predicate over attributes; raise InvalidFilter with the position of an error."""
    if len(text.encode(errors="replace")) > MAX_FILTER_BYTES:
        raise InvalidFilter(f"a filter has at most {MAX_FILTER_BYTES} bytes", MAX_FILTER_BYTES)
    parser = _Parser(_tokens(text))
    predicate = parser.expression()
    parser.expect("end")
    return predicate


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise InvalidFilter(f"cannot read {text[at : at + 10]!r}", at)
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return [*found, _Token("end", "the end", len(text))]


class _Parser:
    """A recursive-descent parser; each method consumes what it is named after and returns its meaning."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def expression(self) -> Predicate:
        terms = [self._term()]
        joined_by = self._next.text
        if joined_by not in ("AND", "OR"):
            return terms[0]
        while self._take(joined_by):
            terms.append(self._term())
        if self._next.text in ("AND", "OR"):
            raise self._unexpected("AND and OR are not mixed without parentheses")
        return _all_of(terms) if joined_by == "AND" else _any_of(terms)

    def expect(self, *wanted: str) -> str:
        """Consume the next token, which must be one of these texts or kinds."""
        token = self._next
        if token.text not in wanted and token.kind not in wanted:
            raise self._unexpected(f"expected {' or '.join(repr(each) for each in wanted)}")
        self._at += 1
        return token.text

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, text: str) -> bool:
        taken = self._next.text == text and self._next.kind != "string"
        self._at += taken
        return taken

    def _unexpected(self, problem: str) -> InvalidFilter:
        return InvalidFilter(f"{problem}, found {self._next.text!r}", self._next.position)

    def _term(self) -> Predicate:
        if self._take("NOT") or self._take("-"):
            return _opposite_of(self._term())
        if self._take("("):
            inner = self.expression()
            self.expect(")")
            return inner
        if self._take("hasPrefix"):
            return self._prefix_condition()
        if self._take("attributes"):
            return self._attribute_condition()
        raise self._unexpected("expected 'attributes', 'hasPrefix', 'NOT' or '('")

    def _attribute_condition(self) -> Predicate:
        if self.expect(":", ".") == ":":
            return _has(self._key())
        key = self._key()
        equal = self.expect("=", "!=") == "="
        return _equals(key, self._string()) if equal else _differs(key, self._string())

    def _prefix_condition(self) -> Predicate:
        self.expect("(")
        self.expect("attributes")
        self.expect(".")
        key = self._key()
        self.expect(",")
        prefix = self._string()
        self.expect(")")
        return _starts(key, prefix)

    def _key(self) -> str:
        return self._string() if self._next.kind == "string" else self.expect("word")

    def _string(self) -> str:
        position = self._next.position
        literal = self.expect("string")
        return _ESCAPE.sub(lambda match: _unescaped(match, position), literal[1:-1])


def _unescaped(match: re.Match[str], position: int) -> str:
    hexadecimal, octal, name = match[1] or match[2] or match[3], match[4], match[5]
    if name is not None:
        if name not in _NAMED_ESCAPES and name not in _LITERAL_ESCAPES:
            raise InvalidFilter(f"unknown escape \\{name}", position + 1 + match.start())
        return _NAMED_ESCAPES.get(name, name)
    code = int(hexadecimal, 16) if hexadecimal is not None else int(octal, 8)
    if code > 0x10FFFF:
        raise InvalidFilter(f"no character has the number {code:#x}", position + 1 + match.start())
    return chr(code)


def _has(key: str) -> Predicate:
    return lambda attributes: key in attributes


def _equals(key: str, value: str) -> Predicate:
    return lambda attributes: attributes.get(key) == value


def _differs(key: str, value: str) -> Predicate:
    return lambda attributes: attributes.get(key) != value


def _starts(key: str, prefix: str) -> Predicate:
    return lambda attributes: key in attributes and str(attributes[key]).startswith(prefix)


def _opposite_of(term: Predicate) -> Predicate:
    return lambda attributes: not term(attributes)


def _all_of(terms: list[Predicate]) -> Predicate:
    return lambda attributes: all(term(attributes) for term in terms)


def _any_of(terms: list[Predicate]) -> Predicate:
    return lambda attributes: any(term(attributes) for term in terms)
