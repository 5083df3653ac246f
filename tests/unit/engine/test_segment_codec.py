"""A segment gives back what was put in, or says that it cannot: never another message."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.message import NO_ATTRIBUTES, Message, TypedValue
from penstock.engine.store.segment_codec import (
    Damage,
    DedupKey,
    decode_bitmap,
    decode_dedup_keys,
    decode_segment,
    encode_bitmap,
    encode_dedup_keys,
    encode_message,
    encode_segment,
    seal,
    unseal,
)
from tests.rigs.search import examples

STREAM, FIRST_SEQ = 2**40 + 7, 2**50 + 3
HEAD_BYTES, RECORD_BYTES, CRC_BYTES = 24, 8, 4

numbers = st.integers(0, 2**63 - 1)
attribute_values = st.one_of(st.text(max_size=8), st.builds(TypedValue, st.text(max_size=8), st.binary(max_size=8)))
messages = st.builds(
    Message,
    id=st.text(max_size=8),
    body=st.binary(max_size=20),
    sent_ms=numbers,
    size_bytes=numbers,
    group=st.text(max_size=8),
    attributes=st.just(NO_ATTRIBUTES) | st.dictionaries(st.text(max_size=8), attribute_values, max_size=3),
    dedup_id=st.text(max_size=8),
    deliver_at_ms=numbers,
    notes=st.just(NO_ATTRIBUTES) | st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
)
batches = st.lists(messages, min_size=1, max_size=5)

EXAMPLE = [
    Message(id="a", body=b"", sent_ms=1, size_bytes=0),
    Message(id="b", body=bytes(range(40)), sent_ms=2, size_bytes=40, group="g", attributes={"k": "v"}),
    Message(id="c", body=b"x", sent_ms=3, size_bytes=1, attributes={"t": TypedValue("Binary", b"\xff")}),
]


def encoded(batch: list[Message]) -> bytes:
    return b"".join(encode_segment(STREAM, FIRST_SEQ, [encode_message(message) for message in batch]))


def decoded(payload: bytes, count: int) -> list[Message | Damage]:
    return decode_segment(STREAM, FIRST_SEQ, count, payload)


def bit_flips(raw: bytes) -> Iterator[tuple[int, bytes]]:
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(flipped)


def assert_never_another(found: list[Message | Damage], batch: list[Message]) -> None:
    assert len(found) == len(batch)
    for got, sent in zip(found, batch, strict=True):
        assert isinstance(got, Damage) or got == sent


class TestSegments:
    @given(batches, numbers, numbers)
    def test_messages_come_back(self, batch: list[Message], stream_id: int, first_seq: int) -> None:
        frames = encode_segment(stream_id, first_seq, [encode_message(message) for message in batch])
        assert decode_segment(stream_id, first_seq, len(batch), b"".join(frames)) == batch

    def test_every_flipped_bit_is_found_and_costs_no_other_message(self) -> None:
        payload = encoded(EXAMPLE)
        records_at = HEAD_BYTES + len(EXAMPLE) * RECORD_BYTES + CRC_BYTES
        for at, flipped in bit_flips(payload):
            found = decoded(flipped, len(EXAMPLE))
            assert_never_another(found, EXAMPLE)
            damages = sum(isinstance(each, Damage) for each in found)
            assert damages == (len(EXAMPLE) if at < records_at else 1)

    @settings(max_examples=examples(500))
    @given(batches, st.data())
    def test_a_flipped_bit_in_any_segment_is_found(self, batch: list[Message], data: st.DataObject) -> None:
        payload = bytearray(encoded(batch))
        bit = data.draw(st.integers(0, len(payload) * 8 - 1))
        payload[bit // 8] ^= 1 << bit % 8
        found = decoded(bytes(payload), len(batch))
        assert_never_another(found, batch)
        assert any(isinstance(each, Damage) for each in found)

    @given(batches)
    def test_every_truncation_is_found(self, batch: list[Message]) -> None:
        payload = encoded(batch)
        for length in range(len(payload)):
            found = decoded(payload[:length], len(batch))
            assert_never_another(found, batch)
            assert isinstance(found[-1], Damage)

    @given(batches, st.binary(max_size=60))
    def test_arbitrary_bytes_are_refused(self, batch: list[Message], noise: bytes) -> None:
        assert all(isinstance(each, Damage) for each in decoded(noise, len(batch)))

    @given(batches, st.binary(min_size=1, max_size=9))
    def test_bytes_after_the_end_change_nothing(self, batch: list[Message], tail: bytes) -> None:
        assert decoded(encoded(batch) + tail, len(batch)) == batch

    @pytest.mark.parametrize(
        ("stream_id", "first_seq", "count"),
        [(STREAM + 1, FIRST_SEQ, 3), (STREAM, FIRST_SEQ - 1, 3), (STREAM, FIRST_SEQ, 2), (STREAM, FIRST_SEQ, 4)],
        ids=["stream", "sequence", "fewer", "more"],
    )
    def test_a_segment_under_another_key_is_refused(self, stream_id: int, first_seq: int, count: int) -> None:
        found = decode_segment(stream_id, first_seq, count, encoded(EXAMPLE))
        assert len(found) == count
        assert all(isinstance(each, Damage) for each in found)

    def test_damage_keeps_the_bytes_for_a_person_to_look_at_once(self) -> None:
        payload = b"not a segment"
        first, *others = decoded(payload, 3)
        assert first == Damage("segment is shorter than its header", payload)
        assert others == [Damage("segment is shorter than its header", b"")] * 2

    def test_a_record_that_is_no_message_is_refused_alone(self) -> None:
        good = encode_message(EXAMPLE[0])
        payload = b"".join(encode_segment(STREAM, FIRST_SEQ, [good, b"\xc1", good]))
        first, second, third = decoded(payload, 3)
        assert first == third == EXAMPLE[0]
        assert isinstance(second, Damage)
        assert second.payload == b"\xc1"


class TestBitmaps:
    @given(st.integers(1, 200), st.data())
    def test_bits_come_back(self, count: int, data: st.DataObject) -> None:
        bits = data.draw(st.integers(0, 2**count - 1))
        assert decode_bitmap(encode_bitmap(bits, count)) == bits

    @given(st.integers(1, 80), st.data())
    def test_every_flipped_bit_is_found(self, count: int, data: st.DataObject) -> None:
        sealed = encode_bitmap(data.draw(st.integers(0, 2**count - 1)), count)
        assert all(decode_bitmap(flipped) is None for _, flipped in bit_flips(sealed))

    @given(st.integers(1, 80), st.data())
    def test_every_truncation_of_a_bitmap_is_found(self, count: int, data: st.DataObject) -> None:
        bits = data.draw(st.integers(0, 2**count - 1))
        sealed = encode_bitmap(bits, count)
        assert all(decode_bitmap(sealed[:length]) is None for length in range(len(sealed)))


class TestDedupKeys:
    keys = st.lists(st.builds(DedupKey, st.text(max_size=6), st.text(max_size=6), numbers), max_size=4)

    @given(keys)
    def test_keys_come_back(self, keys: list[DedupKey]) -> None:
        assert decode_dedup_keys(encode_dedup_keys(iter(keys))) == keys

    @given(keys)
    def test_what_was_flipped_or_cut_off_is_forgotten(self, keys: list[DedupKey]) -> None:
        sealed = encode_dedup_keys(keys)
        assert all(decode_dedup_keys(flipped) == [] for _, flipped in bit_flips(sealed))
        assert all(decode_dedup_keys(sealed[:length]) == [] for length in range(len(sealed)))


@given(st.binary(min_size=1, max_size=50))
def test_a_seal_holds_what_it_was_put_on(raw: bytes) -> None:
    assert unseal(seal(raw)) == raw
    assert all(unseal(flipped) is None for _, flipped in bit_flips(seal(raw)))


def test_bytes_that_fool_a_plain_crc_are_found_out() -> None:
    assert unseal(b"\x00" * 4) is None
    assert decode_dedup_keys(b"\x00" * 4) == []
    assert decode_bitmap(b"\xff" * 8) is None
    assert decode_bitmap(encode_bitmap(2**64 - 1, 64)[:-4]) is None
