from pathlib import Path

import pytest

from penstock.ops.config import Config, kinds
from penstock.ops.config.kinds import Kind
from penstock.ops.config.setting import Setting, settings


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.key) for entry in settings(Config)])
def test_every_default_is_allowed_and_documented(entry: Setting) -> None:
    plain = entry.plain(entry.default)
    assert plain is None or entry.rules.kind.check(plain) == entry.default
    assert entry.rules.doc.endswith(".")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (kinds.integer(1, 9), "7", 7),
        (kinds.optional_integer(1, 9), " ", None),
        (kinds.number(0, 1), "0.5", 0.5),
        (kinds.number(0, 1), "1", 1.0),
        (kinds.flag(), "True", True),
        (kinds.flag(), "0", False),
        (kinds.host(), "::1", "::1"),
        (kinds.directory(), "~/x", Path.home() / "x"),
        (kinds.networks(), "", ()),
        (kinds.pairs(), "spark.a=1, spark.b=x=y", ("spark.a=1", "spark.b=x=y")),
        (kinds.database_url(), "postgresql://h/db", "postgresql://h/db"),
        (kinds.database_url(), "postgresql://u:p@h:1,i:2/db", "postgresql://u:p@h:1,i:2/db"),
        (kinds.named_databases(), "a=postgresql://h,i/db, b=/x,", ("a=postgresql://h,i/db", "b=/x")),
    ],
)
def test_text_from_the_environment_is_parsed(kind: Kind[object], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (kinds.integer(1, 9), 0),
        (kinds.integer(0, 9), True),
        (kinds.integer(0, 9), 1.0),
        (kinds.number(0, 1), float("nan")),
        (kinds.number(0, 1), 10**400),
        (kinds.number(0, 1), True),
        (kinds.flag(), 1),
        (kinds.line(), "two\nlines"),
        (kinds.host(), "http://x"),
        (kinds.host(), ""),
        (kinds.directory(), ""),
        (kinds.directory(), "a\0b"),
        (kinds.directory(), "~no-such-user-here/x"),
        (kinds.networks(), "10.0.0.0/8"),
        (kinds.networks(), ["10.0.0.1/8"]),
        (kinds.networks(), [10]),
        (kinds.pairs(), "a=1"),
        (kinds.pairs(), ["a"]),
        (kinds.pairs(), ["=1"]),
        (kinds.database_url(), "postgresql://h:99999/db"),
        (kinds.database_url(), "postgresql://h:1,i:99999/db"),
        (kinds.database_url(), "postgresql://[h/db"),
        (kinds.database_url(), "sqlite:///x"),
    ],
)
def test_what_is_not_allowed_raises_value_or_type_error(kind: Kind[object], value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        kind.check(value)


def test_a_flag_in_the_environment_is_a_known_word() -> None:
    with pytest.raises(ValueError, match="not allowed"):
        kinds.flag().parse("yep")
