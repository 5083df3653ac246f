"""Times on the command line: every form is understood by every option that takes a time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from penstock.cli.app import app
from penstock.cli.moments import DAY, FORMS, TIME, day_of, duration_ms, epoch_ms, moment_of

EXAMPLES = (
    "2030-01-31",
    "2030-01-31T09:00:00Z",
    "2030-01-31T09:00:00+02:00",
    "2030-01-31 09:00",
    "90s",
    "24h",
    "7d",
    "+2h",
    "now",
    "today",
    "yesterday",
)
TIME_WORDS = frozenset({"since", "until", "before", "after", "at", "for", "day", "time", "date", "when"})
# An address in both, and a queue; each is named by its metavar.
NOT_TIMES = frozenset({"FILE", "NAME", "DIR", "URL"})


def walk(command: Any, path: str = "penstock") -> Iterator[tuple[str, Any]]:
    """Every option of every command, with the words that call it."""
    for parameter in command.params:
        yield f"{path} {parameter.opts[0]}", parameter
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, f"{path} {name}")


COMMAND = typer.main.get_command(app)
CONTEXT = typer.Context(COMMAND)
OPTIONS = dict(walk(COMMAND))
TIMES = {name: option for name, option in OPTIONS.items() if option.metavar in (TIME, DAY)}


def is_like_a_time(name: str, option: Any) -> bool:
    """Whether an option is named as those are that take a time."""
    words = set(name.rpartition("--")[2].split("-"))
    ranged = words & {"from", "to"} and option.metavar not in NOT_TIMES
    return bool(ranged or words & TIME_WORDS) and not option.is_flag


def test_the_commands_with_times_are_known() -> None:
    expected = {
        "penstock jobs list --since",
        "penstock jobs list --until",
        "penstock jobs retry --since",
        "penstock jobs retry --until",
        "penstock jobs create --scheduled-for",
        "penstock jobs create --expires-at",
        "penstock pipeline audit --since",
        "penstock pipeline audit --until",
        "penstock pipeline facts --day",
        "penstock pipeline replay --from",
        "penstock pipeline replay --to",
        "penstock pipeline replay --failed-since",
        "penstock pipeline report --day",
    }
    assert set(TIMES) == expected


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if is_like_a_time(name, option)])
def test_an_option_that_is_named_like_a_time_takes_one(name: str) -> None:
    assert name in TIMES


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("text", EXAMPLES)
def test_every_option_takes_every_form(name: str, text: str) -> None:
    option = TIMES[name]
    read = option.process_value(CONTEXT, text)
    assert read == day_of(text) if option.metavar == DAY else isinstance(read, datetime)


@pytest.mark.parametrize("name", TIMES)
def test_every_option_shows_the_forms(name: str) -> None:
    assert TIMES[name].help.endswith(f"{TIMES[name].metavar} is {FORMS}.")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2030-01-31", datetime(2030, 1, 31, tzinfo=UTC)),
        ("2030-01-31T09:00:00Z", datetime(2030, 1, 31, 9, tzinfo=UTC)),
        ("2030-01-31T09:00:00+02:00", datetime(2030, 1, 31, 7, tzinfo=UTC)),
        ("2030-01-31 09:00", datetime(2030, 1, 31, 9, tzinfo=UTC)),
    ],
)
def test_a_date_is_in_utc_unless_it_names_a_zone(text: str, moment: datetime) -> None:
    assert moment_of(text) == moment
    assert epoch_ms(moment_of(text)) == moment.timestamp() * 1000


@pytest.mark.parametrize(
    ("text", "from_now"),
    [
        ("now", timedelta()),
        ("90s", -timedelta(seconds=90)),
        ("5m", -timedelta(minutes=5)),
        ("24h", -timedelta(days=1)),
        ("7d", -timedelta(days=7)),
        ("+2h", timedelta(hours=2)),
    ],
)
def test_a_length_is_from_now(text: str, from_now: timedelta) -> None:
    before = datetime.now(UTC)
    read = moment_of(text)
    assert before <= read - from_now <= datetime.now(UTC)


def test_a_day_by_its_name_is_in_utc() -> None:
    today, yesterday = moment_of("today"), moment_of("yesterday")
    assert (today.hour, today.minute, today.tzinfo) == (0, 0, UTC)
    assert today - yesterday == timedelta(days=1)
    assert day_of("2030-01-31T23:30:00-02:00") == "2030-02-01"


@pytest.mark.parametrize("text", ["", "lately", "24", "24x", "-2h", "++2h", "2030-13-01", "999999999d", "+999999999d"])
def test_what_is_not_a_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time: write 2030-01-31"):
        moment_of(text)


@pytest.mark.parametrize(("text", "milliseconds"), [("500ms", 500), ("2s", 2000), ("1m", 60_000), ("0ms", 0)])
def test_a_duration_has_a_unit(text: str, milliseconds: int) -> None:
    assert duration_ms(text, "--tolerance") == milliseconds


@pytest.mark.parametrize("text", ["", "5", "ms", "-1s", "1.5s"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        duration_ms(text, "--tolerance")
