"""Segments as bytes: a checksummed header, then one checksummed record per message.

    magic "PSG1" | stream u64 | first sequence u64 | count u32 | count × (length u32, crc32 u32) | crc32 u32 | records

The header names its stream and place, so bytes that ended up under another key are found out too. A record that
fails its checksum is lost alone; a header that fails takes its segment with it.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from zlib import crc32

import msgspec

from penstock.domain.message import Message

_MAGIC = b"PSG1"
_HEAD = Struct("<4sQQI")
_RECORD = Struct("<II")
_CRC = Struct("<I")
_ARRAY = Struct(">BI")

_NOTHING: dict[str, str] = {}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode
_decode_all = msgspec.msgpack.Decoder(list[Message]).decode


class Damage(msgspec.Struct, frozen=True):
    """Why a record cannot be served, and its bytes as found."""

    reason: str
    payload: bytes


def encode_message(message: Message) -> bytes:
    """The record of a message; fields at the end that have nothing to say may be left out."""
    attributes, notes = message.attributes, message.notes
    if type(attributes) is dict and type(notes) is dict:
        return _encode(message)
    if not (attributes or notes or message.dedup_id or message.deliver_at_ms):
        return _encode((message.id, message.body, message.sent_ms, message.size_bytes, message.group))
    # The encoder takes six times as long over a read-only mapping as over a plain dictionary.
    return _encode(
        (
            message.id,
            message.body,
            message.sent_ms,
            message.size_bytes,
            message.group,
            dict(attributes) if attributes else _NOTHING,
            message.dedup_id,
            message.deliver_at_ms,
            dict(notes) if notes else _NOTHING,
        )
    )


def encode_segment(stream_id: int, first_seq: int, records: list[bytes]) -> list[bytes]:
    """The frames of a segment, to be joined or written one after another."""
    table = [0] * (2 * len(records))
    table[::2] = map(len, records)
    table[1::2] = map(crc32, records)
    header = _HEAD.pack(_MAGIC, stream_id, first_seq, len(records)) + pack(f"<{len(table)}I", *table)
    return [header, _CRC.pack(crc32(header)), *records]


def decode_segment(stream_id: int, first_seq: int, count: int, payload: bytes) -> list[Message | Damage]:
    """The messages of a segment in order, with damage in the place of each one that cannot be trusted."""
    fault = _header_fault(stream_id, first_seq, count, payload)
    if fault is not None:
        return [Damage(fault, payload if index == 0 else b"") for index in range(count)]
    at = _HEAD.size + count * _RECORD.size + _CRC.size
    table = unpack_from(f"<{2 * count}I", payload, _HEAD.size)
    ends = list(accumulate(table[::2], initial=at))
    records = [payload[start:end] for start, end in pairwise(ends)]
    if ends[-1] == len(payload) and tuple(map(crc32, records)) == table[1::2]:
        with suppress(msgspec.DecodeError):
            # One after another they are what an array of them holds after its head.
            return list[Message | Damage](_decode_all(_ARRAY.pack(0xDD, count) + payload[at:]))
    return [
        _decoded(record) if crc32(record) == crc and len(record) == length else _damage(record, length)
        for record, length, crc in zip(records, table[::2], table[1::2], strict=True)
    ]


def _header_fault(stream_id: int, first_seq: int, count: int, payload: bytes) -> str | None:
    end = _HEAD.size + count * _RECORD.size
    if len(payload) < end + _CRC.size:
        return "segment is shorter than its header"
    if _CRC.unpack_from(payload, end)[0] != crc32(payload[:end]):
        return "segment header fails its checksum"
    if _HEAD.unpack_from(payload) != (_MAGIC, stream_id, first_seq, count):
        return "segment header belongs to another place"
    return None


def _damage(record: bytes, length: int) -> Damage:
    return Damage("record is cut off" if len(record) != length else "record fails its checksum", record)


def _decoded(record: bytes) -> Message | Damage:
    try:
        return _decode(record)
    except msgspec.DecodeError as error:
        return Damage(f"record cannot be decoded: {error}", record)


# Bitmaps of acknowledged messages, and deduplication ids: small values behind one checksum each.


def encode_bitmap(bits: int, count: int) -> bytes:
    """A bitmap of `count` bits with its checksum."""
    return seal(bits.to_bytes((count + 7) // 8, "little"))


def decode_bitmap(sealed: bytes) -> int | None:
    """The bits; None when the bitmap fails its checksum."""
    raw = unseal(sealed)
    return None if raw is None else int.from_bytes(raw, "little")


class DedupKey(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A deduplication id and the message it stands for."""

    key: str
    message_id: str
    seq: int


_decode_keys = msgspec.msgpack.Decoder(list[DedupKey]).decode


def encode_dedup_keys(keys: Iterable[DedupKey]) -> bytes:
    """Deduplication ids with their checksum."""
    return seal(_encode(list(keys)))


def decode_dedup_keys(sealed: bytes) -> list[DedupKey]:
    """The ids; none when they fail their checksum: forgetting costs a duplicate, believing could cost a message."""
    raw = unseal(sealed)
    return [] if raw is None else _decode_keys(raw)


# A checksum of zero bytes is zero, and runs of ones have coincidences of their own; seed and length rule both out.
_SEED = 0x50454E53


def seal(raw: bytes) -> bytes:
    """Append a checksum."""
    return raw + _CRC.pack(crc32(raw, _SEED ^ len(raw)))


def unseal(sealed: bytes) -> bytes | None:
    """Take the checksum off; None when it does not hold. Nothing that is sealed is empty."""
    if len(sealed) <= _CRC.size:
        return None
    raw = sealed[: -_CRC.size]
    return raw if _CRC.unpack_from(sealed, len(raw))[0] == crc32(raw, _SEED ^ len(raw)) else None
