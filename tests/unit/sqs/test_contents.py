"""Characters, ids, sizes and ranges, each with AWS's error."""

import json
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.limits import MIB
from penstock.sqs.actions.contents import (
    check_attempt_id,
    check_batch_size,
    check_body,
    check_dedup_id,
    check_delay,
    check_entry_ids,
    check_group_id,
    check_max_messages,
    check_visibility,
    check_wait,
    encoded,
    is_harmless,
)
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.wire import json_protocol

ALLOWED = "\t\n\r ~\x7f\x80é\ud7ff\ue000\ufffd\U00010000\U0001fffe\U0010ffff"
FORBIDDEN = ["\x00", "\x08", "\x0b", "\x0c", "\x0e", "\x1f", "\ud800", "\udfff", "\ufffe", "\uffff"]


def refusal(check: Callable[[], object]) -> SqsError:
    with pytest.raises(SqsError) as caught:
        check()
    return caught.value


def test_a_body_may_hold_the_allowed_characters() -> None:
    assert check_body(ALLOWED) == ALLOWED.encode()


@pytest.mark.parametrize("character", FORBIDDEN)
@pytest.mark.parametrize("rest", ["plain", "ünïcode"])
def test_a_body_may_not_hold_others(character: str, rest: str) -> None:
    error = refusal(lambda: check_body(rest + character + rest))

    assert error.kind is ErrorKind.INVALID_MESSAGE_CONTENTS
    assert f"'#x{ord(character):X}'" in str(error)


def test_a_body_must_not_be_empty() -> None:
    assert refusal(lambda: check_body("")).kind is ErrorKind.MISSING_PARAMETER


@given(st.text(st.characters(codec=None), max_size=40))
def test_the_quick_check_agrees_with_the_ranges(text: str) -> None:
    def allowed(code: int) -> bool:
        return code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000

    assert (encoded(text) is not None) == all(allowed(ord(character)) for character in text)


@given(st.text(st.characters(codec=None), max_size=40), st.booleans())
def test_what_is_harmless_as_json_holds_nothing_forbidden(text: str, ascii_only: bool) -> None:
    document = json.dumps({"MessageBody": text}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if is_harmless(document):
        assert check_body(text or "x", harmless=True) == encoded(text or "x")


@pytest.mark.parametrize("written", [b"\\u0000", b"\\u000B", b"\\b", b"\\f", b"\\ud800", "\ufffe".encode()])
def test_a_document_with_something_forbidden_is_not_harmless(written: bytes) -> None:
    assert not is_harmless(b'{"MessageBody":"a' + written + b'"}')


def test_ordinary_json_in_a_body_is_harmless() -> None:
    assert is_harmless(json.dumps({"MessageBody": json.dumps({"order": 1, "text": "a\nb\tc\\d/e"})}).encode())


@pytest.mark.parametrize("control", [bytes([code]) for code in range(0x20)])
def test_json_never_has_a_control_as_it_is(control: bytes) -> None:
    with pytest.raises(SqsError):
        json_protocol.decode("SendMessage", b'{"QueueUrl":"q","MessageBody":"a' + control + b'"}')


@pytest.mark.parametrize("check", [check_group_id, check_dedup_id, check_attempt_id])
def test_identifiers_are_letters_digits_and_punctuation(check: Callable[[str], None]) -> None:
    check("a")
    check("x" * 128)
    check(string.ascii_letters + string.digits)
    check(string.punctuation)
    for text in ("", "x" * 129, "a b", "a\n", "é", "\x7f"):
        assert refusal(lambda text=text: check(text)).kind is ErrorKind.INVALID_PARAMETER_VALUE  # type: ignore[misc]


def test_the_error_names_the_parameter() -> None:
    assert str(refusal(lambda: check_group_id("a b"))) == (
        "Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and "
        "punctuation characters. 1 to 128 in length."
    )


def test_entry_ids_are_well_formed_and_distinct() -> None:
    check_entry_ids(("a", "A", "0_-", "x" * 80))
    for text in ("", "x" * 81, "invalid:id", "a b", "a\n", "é"):
        assert refusal(lambda text=text: check_entry_ids((text,))).kind is ErrorKind.INVALID_BATCH_ENTRY_ID  # type: ignore[misc]
    repeated = refusal(lambda: check_entry_ids(("a", "b", "a")))
    assert (repeated.kind, str(repeated)) == (ErrorKind.BATCH_ENTRY_IDS_NOT_DISTINCT, "Id a repeated.")


def test_sizes() -> None:
    check_batch_size(MIB)
    too_long = refusal(lambda: check_batch_size(MIB + 1))
    assert too_long.kind is ErrorKind.BATCH_REQUEST_TOO_LONG
    assert "1048576 bytes. You have sent 1048577 bytes." in str(too_long)


@pytest.mark.parametrize(
    ("check", "lowest", "highest", "parameter"),
    [
        (check_delay, 0, 900, "DelaySeconds"),
        (check_visibility, 0, 43_200, "VisibilityTimeout"),
        (check_wait, 0, 20, "WaitTimeSeconds"),
        (check_max_messages, 1, 10, "MaxNumberOfMessages"),
    ],
)
def test_ranges(check: Callable[[int], int], lowest: int, highest: int, parameter: str) -> None:
    assert [check(lowest), check(highest)] == [lowest, highest]
    for value in (lowest - 1, highest + 1):
        error = refusal(lambda value=value: check(value))  # type: ignore[misc]
        assert error.kind is ErrorKind.INVALID_PARAMETER_VALUE
        assert f"Value {value} for parameter {parameter} is invalid." in str(error)
