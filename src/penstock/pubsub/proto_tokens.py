"""The words of a protocol-buffer definition, with their lines."""

import re
from typing import NamedTuple

from penstock.pubsub.errors import InvalidSchema

_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*|(?:\.[A-Za-z_][A-Za-z0-9_]*)+)"
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<sign>[{}\[\]()<>=;,:.+-])",
    re.DOTALL,
)


_MOST = (1 << 31) - 1


class Token(NamedTuple):
    """A word, number, string or sign."""

    kind: str
    text: str
    line: int


class Tokens:
    """The tokens of a definition, taken one after another."""

    def __init__(self, text: str) -> None:
        self._tokens = _read(text)
        self._at = 0

    @property
    def next(self) -> Token:
        """What comes next."""
        return self._tokens[self._at]

    def take(self, *texts: str) -> bool:
        """Take the next token if it is one of these."""
        taken = self.next.text in texts
        self._at += taken
        return taken

    def expect(self, text: str) -> None:
        """Take the next token, which must be this."""
        if not self.take(text):
            raise self.unexpected(repr(text))

    def word(self) -> str:
        """Take a word."""
        return self._of("word", "a name")

    def string(self) -> str:
        """Take a string."""
        return self._of("string", "a string")[1:-1]

    def number(self) -> int:
        """Take a whole number."""
        line, text = self.next.line, self._of("number", "a number")
        try:
            value = int(text, 0)
        except ValueError:
            value = _MOST + 1
        if not -_MOST <= value <= _MOST:
            raise InvalidSchema(f"line {line} of the definition: expected a whole number of 31 bits, found {text!r}")
        return value

    def skip_statement(self) -> None:
        """Pass over everything up to the next semicolon."""
        while not self.take(";"):
            self.skip_one()

    def skip_brackets(self) -> None:
        """Pass over options in brackets, if there are any."""
        if self.take("["):
            while not self.take("]"):
                self.skip_one()

    def skip_one(self) -> None:
        """Pass over the next token."""
        if self.next.kind == "end":
            raise self.unexpected("more")
        self._at += 1

    def unexpected(self, wanted: str) -> InvalidSchema:
        """What is wrong with the next token."""
        return InvalidSchema(f"line {self.next.line} of the definition: expected {wanted}, found {self.next.text!r}")

    def _of(self, kind: str, wanted: str) -> str:
        if self.next.kind != kind:
            raise self.unexpected(wanted)
        self._at += 1
        return self._tokens[self._at - 1].text


def _read(text: str) -> list[Token]:
    tokens: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidSchema(f"line {line} of the definition: cannot read {text[at : at + 10]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*tokens, Token("end", "the end", line)]
