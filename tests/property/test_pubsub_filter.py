"""The filter language against a naive evaluator, and against text that is not of it."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.broker.attribute_filter import compile_filter
from penstock.broker.errors import InvalidFilter

KEYS = ("a", "b", "with-hyphen", "with space", 'q"uote')
VALUES = ("", "x", "xy", 'say "hi"', "back\\slash", "みんな", "\n")


class Condition(NamedTuple):
    """One condition, as it is written and as it is meant."""

    kind: str
    key: str
    value: str

    def text(self, quoted: bool) -> str:
        key = _literal(self.key) if quoted or not self.key.replace("-", "").isalnum() else self.key
        if self.kind == "has":
            return f"attributes:{key}"
        if self.kind == "prefix":
            return f"hasPrefix(attributes.{key}, {_literal(self.value)})"
        return f"attributes.{key} {self.kind} {_literal(self.value)}"

    def holds(self, attributes: Mapping[str, str]) -> bool:
        value = attributes.get(self.key)
        if self.kind == "has":
            return value is not None
        if self.kind == "prefix":
            return value is not None and value.startswith(self.value)
        return (value == self.value) is (self.kind == "=")


class Node(NamedTuple):
    """NOT of one, or AND or OR of several."""

    operator: str
    parts: tuple["Node | Condition", ...]


Tree = Node | Condition

conditions = st.builds(
    Condition, st.sampled_from(["has", "=", "!=", "prefix"]), st.sampled_from(KEYS), st.sampled_from(VALUES)
)
trees: st.SearchStrategy[Tree] = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(Node, st.sampled_from(["NOT", "-"]), st.tuples(inner)),
        st.builds(Node, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def written(tree: Tree, quoted: bool) -> str:
    """A tree as text, every part of it in parentheses."""
    if isinstance(tree, Condition):
        return tree.text(quoted)
    parts = [f"({written(part, quoted)})" for part in tree.parts]
    if len(parts) == 1:
        return f"{tree.operator} {parts[0]}"
    return f" {tree.operator} ".join(parts)


def meant(tree: Tree, attributes: Mapping[str, str]) -> bool:
    """What a tree says of attributes, done the plain way."""
    if isinstance(tree, Condition):
        return tree.holds(attributes)
    results = [meant(part, attributes) for part in tree.parts]
    if tree.operator in ("NOT", "-"):
        return not results[0]
    return all(results) if tree.operator == "AND" else any(results)


@given(trees, st.booleans(), st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)))
def test_a_filter_means_what_it_says(tree: Tree, quoted: bool, attributes: dict[str, str]) -> None:
    text = written(tree, quoted)
    if len(text.encode()) > 256:
        return

    assert compile_filter(text)(attributes) is meant(tree, attributes)


@given(st.text(alphabet='attributes:.="()AND OR NOThasPrefix,-\\x1é', max_size=60))
@example("attributes:a AND attributes:b OR attributes:c")
@example("(" * 250)
@example("-" * 250 + "attributes:a")
@example('attributes.a = "\\uD800"')
@example('attributes.a = "\\U00110000"')
def test_any_text_is_a_filter_or_refused_with_a_position(text: str) -> None:
    refused = None
    try:
        compile_filter(text)({})
    except InvalidFilter as error:
        refused = error

    if refused is not None:
        assert 0 <= refused.position <= max(len(text), 256)
        assert f"position {refused.position}" in refused.message


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("attributes", 10),
        ('attributes.a == "x"', 14),
        ("attributes.a = 'x'", 15),
        ('attributes.a = "x" attributes:b', 19),
        ("attributes:a AND attributes:b OR attributes:c", 30),
        ("(attributes:a", 13),
        ('attributes.a = "\\q"', 16),
        ("attributes:a and attributes:b", 13),
        ("  nonsense", 2),
    ],
)
def test_the_position_is_where_it_went_wrong(text: str, position: int) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(text)

    assert caught.value.position == position


@pytest.mark.parametrize(
    ("escaped", "character"), [("\\x41", "A"), ("\\u0041", "A"), ("\\U00000041", "A"), ("\\101", "A"), ("\\t", "\t")]
)
def test_strings_have_escapes(escaped: str, character: str) -> None:
    assert compile_filter(f'attributes.a = "{escaped}"')({"a": character})
