import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.ops.config import Config, kinds
from penstock.ops.config.loader import resolve
from penstock.ops.config.setting import setting, settings
from penstock.ops.config.text import as_reference, as_toml, as_tree, shown

REFERENCE = Path(__file__).parents[3] / "docs/reference/configuration.md"


def test_the_generated_toml_loads_to_the_defaults_and_names_every_key() -> None:
    document = tomllib.loads(as_toml())
    assert resolve(Config, document, "generated", {}).config == Config()
    given = {(section, name) for section, content in document.items() for name in content}
    assert {(entry.section, entry.name) for entry in settings(Config)} - given == {("node", "id")}


def test_the_reference_page_is_current() -> None:
    assert REFERENCE.read_text() == as_reference(), "run: penstock config reference > docs/reference/configuration.md"


def test_a_database_password_is_masked() -> None:
    config = Config()
    for url in ("postgresql://me:p@ss/w:rd@db:5432/x", "postgresql://db/x?user=me&password=p%40ss"):
        secret = replace(config, data=replace(config.data, database=url))
        text = str(as_tree(secret)["data"]["database"])
        assert "ss" not in text.removeprefix("postgresql://").replace("password", "")
        assert "***" in text


@dataclass(frozen=True, kw_only=True)
class KeySettings:
    """Keys."""

    signing: str = setting("", kinds.line(), "Signs deliveries.", secret=True)


@dataclass(frozen=True, kw_only=True)
class KeyTree:
    key: KeySettings = field(default_factory=KeySettings)


def test_a_secret_is_masked_and_an_unset_one_is_seen_to_be_unset() -> None:
    values = {entry.key: value for entry, value in shown(KeyTree(key=KeySettings(signing="hunter2")))}
    assert values == {"key.signing": "***"}
    assert as_tree(KeyTree()) == {"key": {"signing": ""}}
