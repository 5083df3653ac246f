"""A setting: a field of the tree that carries its own rules and its own documentation."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TypeVar, cast

from penstock.ops.config.kinds import Kind, Plain
from penstock.ops.telemetry import MASK

T = TypeVar("T")


@dataclass(frozen=True)
class Rules:
    """What a field's metadata holds: the kind of value, what it is for, and whether it may be shown."""

    kind: Kind[object]
    doc: str
    secret: bool


@dataclass(frozen=True)
class Setting:
    """One key of the configuration, as found in the tree."""

    section: str
    name: str
    rules: Rules
    default: object

    @property
    def key(self) -> str:
        """The dotted key, as in messages and in the reference."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets this key."""
        return f"PENSTOCK_{self.section}__{self.name}".upper()

    def plain(self, value: object) -> Plain:
        """The value as TOML or JSON would hold it, with what is secret masked."""
        shown = self.rules.kind.plain(value)
        return MASK if self.rules.secret and shown not in ("", None) else shown


def setting(default: T, kind: Kind[T], doc: str, *, secret: bool = False) -> T:
    """A field of a section: its default, what it may be, and what it is for."""
    rules = Rules(cast("Kind[object]", kind), doc, secret)
    return field(default=default, metadata={"rules": rules})


def sections(tree: type) -> Iterator[tuple[str, type]]:
    """The sections of a tree, in order, each with its class."""
    for part in fields(tree):
        yield part.name, cast("type", part.default_factory)


def settings(tree: type) -> Iterator[Setting]:
    """Every setting of a tree, in order."""
    for section, cls in sections(tree):
        for entry in fields(cls):
            yield Setting(section, entry.name, cast("Rules", entry.metadata["rules"]), entry.default)
