"""A setting: a field of the tree with its own rules and documentation."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TypeVar, cast

from penstock.ops.config.kinds import Kind, Plain
from penstock.ops.telemetry import MASK

T = TypeVar("T")


@dataclass(frozen=True)
class Rules:
    """A field's metadata: the kind of value, its purpose, and whether it is secret."""

    kind: Kind[object]
    doc: str
    secret: bool


@dataclass(frozen=True)
class Setting:
    """A key of the configuration."""

    section: str
    name: str
    rules: Rules
    default: object

    @property
    def key(self) -> str:
        """Return the dotted key, as in messages and in the reference."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """Return the environment variable that sets this key."""
        return f"PENSTOCK_{self.section}__{self.name}".upper()

    def plain(self, value: object) -> Plain:
        """Return the value for TOML or JSON, with secrets masked."""
        shown = self.rules.kind.plain(value)
        return MASK if self.rules.secret and shown not in ("", None) else shown


def setting(default: T, kind: Kind[T], doc: str, *, secret: bool = False) -> T:
    """Return a field of a section: its default, the kind of its value, and its purpose."""
    rules = Rules(cast("Kind[object]", kind), doc, secret)
    return field(default=default, metadata={"rules": rules})


def sections(tree: type) -> Iterator[tuple[str, type]]:
    """Yield the sections of a tree in order, each with its class."""
    for part in fields(tree):
        yield part.name, cast("type", part.default_factory)


def settings(tree: type) -> Iterator[Setting]:
    """Yield every setting of a tree in order."""
    for section, cls in sections(tree):
        for entry in fields(cls):
            yield Setting(section, entry.name, cast("Rules", entry.metadata["rules"]), entry.default)
