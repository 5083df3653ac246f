"""Filter expressions against a model: what is written is what is evaluated."""

import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidArgument
from penstock.domain.event import Filterable
from penstock.domain.matching.expression import compiled

NOWHERE = object()
NAMES = ("a", "b", "in", "total", "odd name", "ü")
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from((0.0, 1.0, 2.5))
    | st.sampled_from(("", "a", "ab", "b'\"\\\n"))
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
Model = Callable[[Any], bool]
Written = tuple[str, Model]


def value_at(document: Any, steps: list[str | int]) -> Any:
    for step in steps:
        try:
            if isinstance(step, str) != isinstance(document, dict) or isinstance(document, str):
                return NOWHERE
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return NOWHERE
    return document


def kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def same(value: Any, literal: Any) -> bool:
    return value is not NOWHERE and kind(value) == kind(literal) and bool(value == literal)


def written_path(steps: list[str | int]) -> str:
    parts = [
        f"[{step}]" if isinstance(step, int) else f".{step}" if re.fullmatch(r"\w+", step) else f"[{json.dumps(step)}]"
        for step in steps
    ]
    return "data" + "".join(parts)


@st.composite
def conditions(draw: st.DrawFn) -> Written:
    steps = draw(st.lists(st.sampled_from(NAMES) | st.integers(0, 2), max_size=3))
    path = written_path(steps)
    literal = draw(scalars)
    text = json.dumps(literal)
    match draw(st.sampled_from(("==", "!=", "<", ">=", "in", "not in", "prefix", "contains", "exists", "not exists"))):
        case "==":
            return f"{path} == {text}", lambda data: same(value_at(data, steps), literal)
        case "!=":
            return f"{path}!={text}", lambda data: not same(value_at(data, steps), literal)
        case "<" | ">=" as sign if kind(literal) in ("number", "str"):

            def ordered(data: Any) -> bool:
                value = value_at(data, steps)
                return kind(value) == kind(literal) and bool(value < literal if sign == "<" else value >= literal)

            return f"{path} {sign} {text}", ordered
        case "in" | "not in" as word:
            others = draw(st.lists(scalars, max_size=2))
            listed = ", ".join(json.dumps(each) for each in (literal, *others))
            return (
                f"{path} {word} ({listed})",
                lambda data: any(same(value_at(data, steps), each) for each in (literal, *others)) is (word == "in"),
            )
        case "prefix" if isinstance(literal, str):
            return (
                f"{path} prefix {text}",
                lambda data: isinstance(value := value_at(data, steps), str) and value[: len(literal)] == literal,
            )
        case "contains":

            def contains(data: Any) -> bool:
                value = value_at(data, steps)
                if isinstance(value, str):
                    return isinstance(literal, str) and literal in value
                return isinstance(value, list) and any(same(each, literal) for each in value)

            return f"{path} contains {text}", contains
        case "not exists":
            return f"{path} not exists", lambda data: value_at(data, steps) is NOWHERE
    return f"{path} exists", lambda data: value_at(data, steps) is not NOWHERE


def joined(left: Written, right: Written, word: str) -> Written:
    if word == "and":
        return f"({left[0]}) and ({right[0]})", lambda data: left[1](data) and right[1](data)
    return f"({left[0]}) or ({right[0]})", lambda data: left[1](data) or right[1](data)


def loosely(first: Written, second: Written, third: Written) -> Written:
    """`and` binds closer than `or`, and `not` closer than both."""
    text = f"not {first[0]} or {second[0]} and {third[0]}"
    return text, lambda data: not first[1](data) or (second[1](data) and third[1](data))


expressions = st.recursive(
    conditions() | st.builds(loosely, conditions(), conditions(), conditions()),
    lambda inner: (
        st.builds(joined, inner, inner, st.sampled_from(("and", "or")))
        | inner.map(lambda written: (f"not ({written[0]})", lambda data: not written[1](data)))
    ),
    max_leaves=6,
)


@given(expressions, st.lists(documents, min_size=1, max_size=4))
def test_an_expression_means_what_the_model_says(written: Written, tried: list[Any]) -> None:
    text, model = written
    expression = compiled(text)

    for document in tried:
        event = Filterable({}, json.dumps(document).encode(), "application/json")
        assert expression.matches(event) == model(document), (text, document)


@given(expressions, st.data())
def test_an_expression_cut_anywhere_is_read_or_refused_with_a_place(written: Written, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(written[0])))
    more = data.draw(st.text(max_size=5))
    text = written[0][:cut] + more

    place = place_of_error(text)

    assert place is None or 1 <= place <= len(text) + 1


def place_of_error(text: str) -> int | None:
    try:
        compiled(text)
    except InvalidArgument as error:
        return int(error.message.partition("at character ")[2].partition(":")[0])
    return None
