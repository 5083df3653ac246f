import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from penstock.ops.telemetry.logs import FIELD_MAX_CHARS, TEXT_MAX_CHARS, configure_logging, log_context

log = logging.getLogger("penstock.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    configure_logging(stream=stream)
    return stream


def the_line(out: io.StringIO) -> dict[str, object]:
    (line,) = out.getvalue().splitlines()
    parsed = json.loads(line)
    assert isinstance(parsed, dict)
    return parsed


def test_not_on_a_terminal_lines_are_json_in_utc(out: io.StringIO) -> None:
    record = logging.makeLogRecord(
        {
            "name": "penstock.x",
            "levelno": 20,
            "levelname": "INFO",
            "msg": "sent %d",
            "args": (3,),
            "created": 0.5,
        }
    )
    logging.getLogger().handle(record)
    assert the_line(out) == {
        "time": "1970-01-01T00:00:00.500Z", "level": "info", "logger": "penstock.x", "message": "sent 3"
    }  # fmt: skip


def test_the_default_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    log.info("hello")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "hello"


def test_a_second_set_up_replaces_the_first(out: io.StringIO) -> None:
    second = io.StringIO()
    configure_logging(level="warning", stream=second)
    log.info("dropped")
    log.warning("kept")
    assert out.getvalue() == ""
    assert the_line(second)["message"] == "kept"


def test_context_and_extra_become_fields_and_extra_wins(out: io.StringIO) -> None:
    with log_context(message_id="m1", pool="p"), log_context(group="g"):
        log.info("x", extra={"pool": "q", "attempt": 2})
    line = the_line(out)
    assert (line["message_id"], line["group"], line["pool"], line["attempt"]) == ("m1", "g", "q", 2)


def test_context_ends_with_its_block_and_tasks_keep_apart(out: io.StringIO) -> None:
    async def deliver(name: str) -> None:
        with log_context(message_id=name):
            await asyncio.sleep(0)
            log.info("%s", name)

    async def both() -> None:
        await asyncio.gather(deliver("a"), deliver("b"))
        log.info("none")

    asyncio.run(both())
    lines = [json.loads(line) for line in out.getvalue().splitlines() if '"penstock.test"' in line]
    assert [(line["message"], line.get("message_id")) for line in lines] == [
        ("a", "a"),
        ("b", "b"),
        ("none", None),
    ]


def test_a_field_cannot_replace_what_a_line_says_itself(out: io.StringIO) -> None:
    log.info("x", extra={"time": "never", "level": "high"})
    line = the_line(out)
    assert (line["level"], line["time_"], line["level_"]) == ("info", "never", "high")


def test_exceptions_are_rendered_and_masked(out: io.StringIO) -> None:
    try:
        raise ValueError("cannot reach postgres://u:hunter2@h/db")
    except ValueError:
        log.exception("failed")
    line = the_line(out)
    assert "ValueError: cannot reach postgres://u:***@h/db" in str(line["exception"])
    assert "Traceback" in str(line["exception"])
    assert "hunter2" not in out.getvalue()


def test_secrets_are_masked_wherever_they_stand(out: io.StringIO) -> None:
    log.info("token=hunter2", extra={"authToken": "hunter2", "headers": {"Authorization": "hunter2", "n": 1}})
    line = the_line(out)
    assert line["authToken"] == "***"
    assert line["headers"] == {"Authorization": "***", "n": 1}
    assert "hunter2" not in out.getvalue()


def test_large_values_are_cut(out: io.StringIO) -> None:
    log.info("m" * 10**6, extra={"body": "b" * 10**6, "items": list(range(10**4)), "deep": [[[[[[1]]]]]]})
    line = the_line(out)
    assert len(str(line["message"])) < TEXT_MAX_CHARS + 100
    assert len(str(line["body"])) < FIELD_MAX_CHARS + 100
    assert "characters cut" in str(line["body"])
    assert len(out.getvalue()) < 25_000


def test_any_value_can_be_a_field(out: io.StringIO) -> None:
    log.info("x", extra={"a": float("nan"), "b": object, "c": b"\xff", "d": {1: {2}}, "e": "\ud800", "f": None})
    line = the_line(out)
    assert line["a"] == "nan"
    assert line["d"] == {"1": [2]}
    assert line["f"] is None


def test_on_a_terminal_lines_are_for_readers_and_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    configure_logging(stream=terminal)
    log.warning("low on %s", "water", extra={"pool": "p 1", "left": 3})
    assert '\x1b[33mWARNING\x1b[0m penstock.test: low on water pool="p 1" left=3\n' in terminal.getvalue()


def test_human_lines_elsewhere_have_no_colour_and_a_terminal_can_have_json() -> None:
    elsewhere, terminal = io.StringIO(), Terminal()
    configure_logging("human", stream=elsewhere)
    log.info("x")
    configure_logging("json", stream=terminal)
    log.info("y")
    assert "\x1b" not in elsewhere.getvalue()
    assert " INFO    penstock.test: x\n" in elsewhere.getvalue()
    assert the_line(terminal)["message"] == "y"


def test_a_message_cannot_forge_lines_or_drive_the_terminal() -> None:
    stream = io.StringIO()
    configure_logging("human", stream=stream)
    log.info("a\nERROR forged \x1b[2J", extra={"body": "b\n\x1b[2J"})
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
