"""Message attributes: rules, sizes, the MD5 that clients check, and filters."""

import pytest

from penstock.domain.message import AttributeValue, TypedValue
from penstock.sqs.actions.message_attributes import checked_attributes, chosen, md5_of, shown, size_of, trace_header
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.model import MessageAttributes, MessageAttributeValue


def text(value: str, data_type: str = "String") -> MessageAttributeValue:
    return MessageAttributeValue(data_type=data_type, string_value=value)


def binary(value: bytes, data_type: str = "Binary") -> MessageAttributeValue:
    return MessageAttributeValue(data_type=data_type, binary_value=value)


def refusal(attributes: MessageAttributes) -> SqsError:
    with pytest.raises(SqsError) as caught:
        checked_attributes(attributes)
    return caught.value


def test_attributes_come_back_as_they_were_given() -> None:
    attributes = {
        "city": text("Zürich"),
        "weight": text("230.000000000000000001", "Number"),
        "count": text("-12", "Number.int"),
        "image": binary(b"\x00\xff", "Binary.gif"),
    }

    stored = checked_attributes(attributes)

    assert stored["city"] == TypedValue("String", "Zürich".encode())
    assert shown(stored) == attributes


def test_an_attribute_without_a_type_is_a_string() -> None:
    assert shown({"a": "b"}) == {"a": text("b")}
    assert md5_of({"a": "b"}) == md5_of({"a": TypedValue("String", b"b")})


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 256, "AWSome", "aws", "amazonia.x"])
def test_good_names(name: str) -> None:
    checked_attributes({name: text("v")})


@pytest.mark.parametrize(
    "name",
    ["", "x" * 257, ".a", "a.", "a..b", "a b", "a!", "aWs.x", "AMAZON.x", "AWS.", "a\n", "§"],
)
def test_bad_names(name: str) -> None:
    assert refusal({name: text("v")}).kind is ErrorKind.INVALID_PARAMETER_VALUE


def test_at_most_ten_attributes() -> None:
    checked_attributes({f"a{index}": text("v") for index in range(10)})
    error = refusal({f"a{index}": text("v") for index in range(11)})

    assert error.kind is ErrorKind.INVALID_PARAMETER_VALUE
    assert str(error) == "Number of message attributes [11] exceeds the allowed maximum [10]."


@pytest.mark.parametrize("data_type", ["String.x", "String." + "x" * 249, "Number.float", "String.a.b"])
def test_good_types(data_type: str) -> None:
    assert checked_attributes({"a": text("1", data_type)})["a"].type == data_type


@pytest.mark.parametrize(
    "data_type", ["", "string", "Stringy", "String.", "Bool", "String." + "x" * 250, "String.\x00"]
)
def test_bad_types(data_type: str) -> None:
    assert refusal({"a": text("1", data_type)}).kind is ErrorKind.INVALID_PARAMETER_VALUE


@pytest.mark.parametrize("number", ["0", "-1", "+1", "1.", ".5", "1.5", "1e10", "1E-7", "007"])
def test_good_numbers(number: str) -> None:
    checked_attributes({"a": text(number, "Number")})


@pytest.mark.parametrize("number", ["Hello", ".", "-", "1,5", "0x10", "1_000", "1e", "NaN", "inf", " 1", "1\n", "١"])  # noqa: RUF001
def test_bad_numbers(number: str) -> None:
    error = refusal({"Age": text(number, "Number")})

    assert error.kind is ErrorKind.INVALID_PARAMETER_VALUE
    assert str(error) == "Can't cast the value of message (user) attribute 'Age' to a number."


@pytest.mark.parametrize(
    "value",
    [
        text(""),
        text("", "Number"),
        binary(b""),
        MessageAttributeValue(data_type="String"),
        binary(b"x", "String"),
        text("x", "Binary"),
        MessageAttributeValue(data_type="String", string_value="x", binary_value=b"x"),
    ],
)
def test_an_attribute_has_one_value_of_its_type(value: MessageAttributeValue) -> None:
    assert refusal({"a": value}).kind is ErrorKind.INVALID_PARAMETER_VALUE


def test_an_empty_value_is_named() -> None:
    assert str(refusal({"ErrorDetails": text("")})) == (
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'."
    )


def test_text_may_hold_what_a_body_may() -> None:
    assert refusal({"a": text("x\x08")}).kind is ErrorKind.INVALID_PARAMETER_VALUE


def test_the_size_is_of_name_type_and_value() -> None:
    assert size_of({}) == 0
    assert size_of({"ab": TypedValue("Number.int", b"123"), "c": TypedValue("Binary", b"\x00")}) == 15 + 8


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        # Recorded from AWS by the snapshot tests of LocalStack.
        ({"Foo": "Bar"}, "ae7155c6026991b6d54b11589678bf9c"),
        ({"Hello": "There"}, "a311262e065454b75da111d535b8dacd"),
        ({"Hello": "There", "General": "Kenobi"}, "fca026605781cb4126a1e9044df24232"),
        ({"Hello": "There", "Help.Me": "Me"}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        ({"Help.Me": "Me", "Hello": "There", "General": "Kenobi"}, "4c360f3fdafd970e05fae2f149d997f5"),
        (
            {"attr1": TypedValue("Binary", b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")},
            "8cbe4db156db8a94db8b801b7addb984",
        ),
    ],
)
def test_the_canonical_md5(attributes: dict[str, AttributeValue], digest: str) -> None:
    assert md5_of(attributes) == digest


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["All"], ["General", "Hello", "Help.Me"]),
        ([".*"], ["General", "Hello", "Help.Me"]),
        (["*"], ["General", "Hello", "Help.Me"]),
        (["Foo", "All"], ["General", "Hello", "Help.Me"]),
        (["Hel.*"], ["Hello", "Help.Me"]),
        (["Hel*"], ["Hello", "Help.Me"]),
        (["Help.*"], ["Help.Me"]),
        (["Hello", "Foo"], ["Hello"]),
        (["hello", "AWS.", "..foo", "Hel"], []),
        (["Gen*", "Help.Me"], ["General", "Help.Me"]),
    ],
)
def test_a_receive_gets_the_attributes_it_asks_for(names: list[str], expected: list[str]) -> None:
    attributes = {name: TypedValue("String", b"x") for name in ("General", "Hello", "Help.Me")}

    assert sorted(chosen(attributes, names)) == expected


def test_the_trace_header_is_the_only_system_attribute() -> None:
    assert trace_header({}) == {}
    assert trace_header({"AWSTraceHeader": text("Root=1-5759")}) == {
        "AWSTraceHeader": TypedValue("String", b"Root=1-5759")
    }
    for attributes in (
        {"Other": text("x")},
        {"AWSTraceHeader": text("1", "Number")},
        {"AWSTraceHeader": text("x", "String.trace")},
        {"AWSTraceHeader": text("")},
        {"AWSTraceHeader": binary(b"x")},
    ):
        with pytest.raises(SqsError) as caught:
            trace_header(attributes)
        assert caught.value.kind is ErrorKind.INVALID_PARAMETER_VALUE
