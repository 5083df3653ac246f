"""Load the settings from a file and the environment, reporting every problem at once."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from penstock.ops.config.errors import ConfigError, ConfigProblem
from penstock.ops.config.setting import Setting, sections, settings
from penstock.ops.config.tree import Config
from penstock.ops.telemetry import MASK, mask_whole_url

T = TypeVar("T")
DEFAULT_FILE = Path("penstock.toml")
PREFIX = "PENSTOCK_"

# Kubernetes sets these for a Service named penstock or penstock-…; they are not settings.
_SERVICE_LINK = re.compile(r"PENSTOCK(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")
_LINK_TO_PORT = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True)
class Loaded(Generic[T]):
    """A tree, and the file or variable of every setting that is not a default."""

    config: T
    sources: Mapping[str, str]


@dataclass(frozen=True)
class _Value:
    setting: Setting
    source: str
    value: object


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Return the configuration from `file` (else ./penstock.toml, if it exists), overridden by the environment."""
    return trace(file, environ).config


def trace(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Loaded[Config]:
    """Return the configuration and the source of each value."""
    path = file if file is not None else DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    document = {} if path is None else read_toml(path)
    return resolve(Config, document, str(path), os.environ if environ is None else environ)


def read_toml(path: Path) -> dict[str, object]:
    """Return the TOML document at `path`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}; name an existing file, or run `penstock config init`"
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: TOML's own errors, and numbers too long to read
        reason = f"is not valid TOML: {error}"
    raise ConfigError([ConfigProblem("", str(path), reason)])


def resolve(tree: type[T], document: Mapping[str, object], source: str, environ: Mapping[str, str]) -> Loaded[T]:
    """Return the tree of a TOML document and an environment; ConfigError lists all problems."""
    found = [*_from_document(tree, document, source), *_from_environment(tree, environ)]
    problems = [entry for entry in found if isinstance(entry, ConfigProblem)]
    if problems:
        raise ConfigError(problems)
    given = {entry.setting.key: entry for entry in found if isinstance(entry, _Value)}
    parts = {name: cls(**_section_values(name, given.values())) for name, cls in sections(tree)}
    return Loaded(tree(**parts), {key: entry.source for key, entry in given.items()})


def _section_values(section: str, given: Iterable[_Value]) -> dict[str, object]:
    return {entry.setting.name: entry.value for entry in given if entry.setting.section == section}


def _from_document(tree: type, document: Mapping[str, object], source: str) -> Iterator[_Value | ConfigProblem]:
    known = {(entry.section, entry.name): entry for entry in settings(tree)}
    names = {name for name, _ in sections(tree)}
    for section, content in document.items():
        if not isinstance(content, Mapping):
            yield (_not_a_table(section, source) if section in names else _unknown(known.values(), section, source))
        elif not content and section not in names:
            yield _unknown(known.values(), section, source)
        else:
            for name, value in content.items():
                entry = known.get((section, name))
                if entry is None:
                    yield _unknown(known.values(), f"{section}.{name}", source)
                else:
                    yield _checked(entry, value, source)


def _from_environment(tree: type, environ: Mapping[str, str]) -> Iterator[_Value | ConfigProblem]:
    known = {entry.variable: entry for entry in settings(tree)}
    for variable, text in environ.items():
        if variable in known:
            yield _parsed(known[variable], text)
        elif variable.startswith(PREFIX) and not _is_service_link(variable, text):
            (nearest,) = difflib.get_close_matches(variable, known, n=1, cutoff=0.0)
            yield ConfigProblem(
                _spelled(variable),
                "environment",
                f"no such setting; the nearest is {nearest} ({known[nearest].key})",
            )


def _checked(entry: Setting, value: object, source: str) -> _Value | ConfigProblem:
    try:
        return _Value(entry, source, entry.rules.kind.check(value))
    except (ValueError, TypeError):
        return _refused(entry, value, source)


def _parsed(entry: Setting, text: str) -> _Value | ConfigProblem:
    try:
        return _Value(entry, entry.variable, entry.rules.kind.parse(text))
    except (ValueError, TypeError):
        return _refused(entry, text, entry.variable)


def _refused(entry: Setting, value: object, source: str) -> ConfigProblem:
    shown = MASK if entry.rules.secret else _shown(value)
    return ConfigProblem(entry.key, source, f"{shown} is not allowed; give {entry.rules.kind.allowed}")


def _not_a_table(section: str, source: str) -> ConfigProblem:
    return ConfigProblem(section, source, f"is a section, not a value; write [{section}] and its settings below it")


def _unknown(known: Iterable[Setting], key: str, source: str) -> ConfigProblem:
    # The value is not shown: a misspelt key may contain a secret.
    (nearest,) = difflib.get_close_matches(key, [entry.key for entry in known], n=1, cutoff=0.0)
    return ConfigProblem(_spelled(key), source, f"no such setting; the nearest is {nearest}")


def _is_service_link(variable: str, text: str) -> bool:
    if _SERVICE_LINK.fullmatch(variable) is None:
        return False
    return not variable.endswith("_PORT") or variable.endswith("SERVICE_PORT") or _LINK_TO_PORT.match(text) is not None


def _shown(value: object, limit_chars: int = 80) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number or a nesting that Python refuses to print
        return f"a {type(value).__name__} too large to show"
    masked = mask_whole_url(text)
    return masked if len(masked) <= limit_chars else f"{masked[: limit_chars - 1]}…"


def _spelled(key: str) -> str:
    return key if key.isprintable() and " " not in key else repr(key)
