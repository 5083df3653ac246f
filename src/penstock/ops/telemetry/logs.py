"""Logs on stderr: JSON lines for machines, aligned text on a terminal; secrets are masked and sizes bounded."""

import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TextIO

from penstock.ops.telemetry.redaction import MASK, is_secret_name, mask_secrets

__all__ = ["configure_logging", "log_context"]

_EMPTY: Mapping[str, object] = MappingProxyType({})
_fields: ContextVar[Mapping[str, object]] = ContextVar("penstock_log_fields", default=_EMPTY)

FIELD_MAX_CHARS = 2_000
TEXT_MAX_CHARS = 16_000
_ITEMS_MAX = 50
_DEPTH_MAX = 4
# Attributes that every record has; all others come from `extra=`.
_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}
_RESERVED = frozenset({"time", "level", "logger", "message", "exception"})
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def configure_logging(format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (stderr) as auto, json or human; a second call replaces the first."""
    target = sys.stderr if stream is None else stream
    handler = _PenstockHandler(target)
    handler.setFormatter(_formatter(format, target))
    root = logging.getLogger()
    for old in [entry for entry in root.handlers if isinstance(entry, _PenstockHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields (message_id=…, group=…, pool=…, queue=…) to every log line of the block and its tasks."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def current_fields() -> Mapping[str, object]:
    """Return the fields that `log_context` has set."""
    return _fields.get()


class _PenstockHandler(logging.StreamHandler[TextIO]):
    """A handler that can be distinguished from those of a test runner or an embedding program."""


def _formatter(format: str, stream: TextIO) -> logging.Formatter:
    on_terminal = stream.isatty()
    if format == "json" or (format == "auto" and not on_terminal):
        return JsonFormatter()
    return HumanFormatter(colour=on_terminal and "NO_COLOR" not in os.environ)


class JsonFormatter(logging.Formatter):
    """Formats records as JSON, one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **{f"{key}_" if key in _RESERVED else key: value for key, value in _fields_of(record).items()},
        }
        if failure := _failure(self, record):
            line["exception"] = failure
        return json.dumps(line)


class HumanFormatter(logging.Formatter):
    """Formats records for a terminal: fields after the message, a stack trace below it."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        level = f"{record.levelname:<7}"
        if self._colour:
            level = f"\x1b[{_COLOURS.get(record.levelname, '0')}m{level}\x1b[0m"
        fields = "".join(f" {key}={_quoted(value)}" for key, value in _fields_of(record).items())
        line = f"{_utc(record.created)} {level} {record.name}: {_escaped(_message(record))}{fields}"
        failure = _failure(self, record)
        return f"{line}\n{failure}" if failure else line


def _utc(created_s: float) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created_s))
    return f"{moment}.{int(created_s % 1 * 1000):03d}Z"


def _message(record: logging.LogRecord) -> str:
    return _shortened(mask_secrets(record.getMessage()), TEXT_MAX_CHARS)


def _failure(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return _shortened(mask_secrets("\n".join(parts)), TEXT_MAX_CHARS)


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    extra = {key: value for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES}
    return {key: _safe(key, value, _DEPTH_MAX) for key, value in {**current_fields(), **extra}.items()}


def _safe(key: str, value: object, depth: int) -> object:
    """Return the value for JSON, with secrets masked and size and depth bounded."""
    if is_secret_name(key) and value is not None:
        return MASK
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth and isinstance(value, Mapping):
        return {str(name): _safe(str(name), item, depth - 1) for name, item in list(value.items())[:_ITEMS_MAX]}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_safe("", item, depth - 1) for item in list(value)[:_ITEMS_MAX]]
    return _shortened(mask_secrets(str(value)), FIELD_MAX_CHARS)


def _shortened(text: str, limit_chars: int) -> str:
    if len(text) <= limit_chars:
        return text
    # Keep both ends: a body is recognized by its start, a stack trace by its end.
    half = limit_chars // 2
    return f"{text[:half]}…[{len(text) - 2 * half} characters cut]…{text[-half:]}"


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    plain = bool(text) and text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain or not isinstance(value, str) else json.dumps(text)


def _escaped(text: str) -> str:
    # A message may contain foreign input: it must not forge lines or control the terminal.
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)
