"""What may be published, at its limits: bytes are counted, not characters, and a refusal is always code 3."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.broker.admission import checked_size
from penstock.broker.errors import InvalidMessage
from penstock.broker.message import InternalMessage

MAX_MESSAGE = 10 * 1024 * 1024
METADATA = 13 + 8  # the id and the publish time
MAX_KEY = 256
MAX_VALUE = 1024

characters = st.sampled_from("aé€🚰")  # one to four bytes
unicode_text = st.text(st.characters(exclude_categories=["Cs"]))


def text_of(character: str, size_bytes: int) -> str:
    """A text of exactly this many bytes, mostly of one character."""
    count, rest = divmod(size_bytes, len(character.encode()))
    return character * count + "a" * rest


@given(characters)
def test_attribute_keys_up_to_256_bytes(character: str) -> None:
    checked_size(InternalMessage(b"", {text_of(character, MAX_KEY): "v"}))

    with pytest.raises(InvalidMessage, match="has 257 bytes, at most 256") as caught:
        checked_size(InternalMessage(b"", {text_of(character, MAX_KEY + 1): "v"}))
    assert caught.value.code == 3


@given(characters)
def test_attribute_values_up_to_1024_bytes(character: str) -> None:
    checked_size(InternalMessage(b"", {"key": text_of(character, MAX_VALUE)}))

    with pytest.raises(InvalidMessage, match="has 1025 bytes, at most 1024") as caught:
        checked_size(InternalMessage(b"", {"key": text_of(character, MAX_VALUE + 1)}))
    assert caught.value.code == 3


@given(unicode_text, st.dictionaries(unicode_text.map(lambda text: f"k{text}"), unicode_text), st.binary())
def test_size_is_all_the_bytes_of_a_message(key: str, attributes: dict[str, str], data: bytes) -> None:
    expected = METADATA + len(data) + len(key.encode())
    expected += sum(len(name.encode()) + len(value.encode()) for name, value in attributes.items())
    fits = all(len(k.encode()) <= MAX_KEY and len(v.encode()) <= MAX_VALUE for k, v in attributes.items())

    if fits:
        assert checked_size(InternalMessage(data, attributes, key)) == expected
    else:
        with pytest.raises(InvalidMessage):
            checked_size(InternalMessage(data, attributes, key))


@pytest.mark.parametrize(
    ("attributes", "ordering_key"),
    [({}, None), ({"key": "v" * 1024}, None), ({}, "é" * 50), ({"clé": "väl"}, "k")],
)
def test_messages_up_to_10_mib_with_all_that_belongs_to_them(
    attributes: dict[str, str], ordering_key: str | None
) -> None:
    rest = sum(len(key.encode()) + len(value.encode()) for key, value in attributes.items())
    rest += METADATA + len((ordering_key or "").encode())
    data = b"x" * (MAX_MESSAGE - rest)

    assert checked_size(InternalMessage(data, attributes, ordering_key)) == MAX_MESSAGE
    with pytest.raises(InvalidMessage, match="message of 10485761 bytes is larger than 10485760") as caught:
        checked_size(InternalMessage(data + b"x", attributes, ordering_key))
    assert caught.value.code == 3


def test_many_attributes_count_together() -> None:
    attributes = {f"{number:05}": "v" * 1019 for number in range(10 * 1024)}

    with pytest.raises(InvalidMessage, match="larger than"):
        checked_size(InternalMessage(b"", attributes))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
@example("")
@example("client_deliveryattempt")
def test_reserved_prefixes_are_refused(rest: str) -> None:
    with pytest.raises(InvalidMessage, match="reserved prefix") as caught:
        checked_size(InternalMessage(b"", {f"goog{rest}": "v"}))
    assert caught.value.code == 3


@pytest.mark.parametrize("key", ["goo", "Goog", "GOOGCLIENT_", "xgoog", "go og", " goog"])
def test_other_keys_are_not_reserved(key: str) -> None:
    checked_size(InternalMessage(b"", {key: "v"}))


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="non-empty"):
        checked_size(InternalMessage(b"", {"": "v"}))


@given(st.text(max_size=20), st.characters(categories=["Cs"]), st.text(max_size=20))
def test_text_that_is_no_unicode_is_refused_wherever_it_stands(before: str, surrogate: str, after: str) -> None:
    text = f"x{before}{surrogate}{after}"

    for message in (
        InternalMessage(b"", {text: "v"}),
        InternalMessage(b"", {"key": text}),
        InternalMessage(b"", {}, text),
    ):
        with pytest.raises(InvalidMessage, match="not valid Unicode") as caught:
            checked_size(message)
        assert caught.value.code == 3
        str(caught.value).encode()


not_strings = st.one_of(
    st.none(), st.integers(), st.floats(), st.booleans(), st.binary(), st.lists(st.text()), st.tuples(st.text())
)


@given(not_strings)
def test_values_that_are_no_strings_are_refused(value: object) -> None:
    with pytest.raises(InvalidMessage, match="must be a string") as caught:
        checked_size(InternalMessage(b"", {"key": value}))  # type: ignore[dict-item]
    assert caught.value.code == 3


@given(st.one_of(st.none(), st.integers(), st.binary(), st.booleans()))
def test_keys_that_are_no_strings_are_refused(key: object) -> None:
    with pytest.raises(InvalidMessage, match="must be non-empty strings"):
        checked_size(InternalMessage(b"", {key: "v"}))  # type: ignore[dict-item]


@given(st.one_of(st.integers(), st.binary(), st.booleans()))
def test_ordering_keys_that_are_no_strings_are_refused(key: object) -> None:
    with pytest.raises(InvalidMessage, match="ordering_key must be a string"):
        checked_size(InternalMessage(b"", {}, key))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data", [bytearray(b"x"), memoryview(b"x"), "x", None, 1, [120]], ids=lambda data: type(data).__name__
)
def test_data_that_can_change_or_is_no_bytes_is_refused(data: object) -> None:
    with pytest.raises(InvalidMessage, match="data must be bytes") as caught:
        checked_size(InternalMessage(data))  # type: ignore[arg-type]
    assert caught.value.code == 3


@pytest.mark.parametrize("attributes", [None, [], [("key", "v")], "key", 5], ids=repr)
def test_attributes_that_are_no_mapping_are_refused(attributes: object) -> None:
    with pytest.raises(InvalidMessage, match="attributes must be a mapping") as caught:
        checked_size(InternalMessage(b"", attributes))  # type: ignore[arg-type]
    assert caught.value.code == 3
