"""Segments as bytes: a checksummed header, then one checksummed record per message.

    magic "PSG1" | stream u64 | first sequence u64 | count u32 | count × (length u32, crc32 u32) | crc32 u32 | records

The header names its stream and position, so bytes under a wrong key are detected too. A record that fails its checksum
is lost alone; a header that fails loses its segment.
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

# A checksum of zero bytes is zero, and runs of ones can coincide; seed and length rule out both.
_SEED = 0x50454E53

_NOTHING: dict[str, str] = {}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode
_decode_all = msgspec.msgpack.Decoder(list[Message]).decode


class Damage(msgspec.Struct, frozen=True):
    """Why a record cannot be delivered, and its bytes as found."""

    reason: str
    payload: bytes


class DedupKey(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A deduplication id and the message it belongs to."""

    key: str
    message_id: str
    seq: int


_decode_keys = msgspec.msgpack.Decoder(list[DedupKey]).decode


def encode_message(message: Message) -> bytes:
    """Encode a message; empty fields at the end may be left out."""
    attributes, notes = message.attributes, message.notes
    if type(attributes) is dict and type(notes) is dict:
        return _encode(message)
    if not (attributes or notes or message.dedup_id or message.deliver_at_ms):
        return _encode((message.id, message.body, message.sent_ms, message.size_bytes, message.group))
    # The encoder takes six times as long for a read-only mapping as for a plain dictionary.
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


def decode_message(record: bytes) -> Message:
    """Decode a message; msgspec.DecodeError if it is not one."""
    return _decode(record)


def encode_segment(stream_id: int, first_seq: int, records: list[bytes]) -> list[bytes]:
    """Return the frames of a segment, to be joined or written one after another."""
    table = [0] * (2 * len(records))
    table[::2] = map(len, records)
    table[1::2] = map(crc32, records)
    header = _HEAD.pack(_MAGIC, stream_id, first_seq, len(records)) + pack(f"<{len(table)}I", *table)
    return [header, _CRC.pack(crc32(header)), *records]


def decode_segment(stream_id: int, first_seq: int, count: int, payload: bytes) -> list[Message | Damage]:
    """Return the messages of a segment in order, with a Damage in place of each one that cannot be trusted."""
    error = _header_error(stream_id, first_seq, count, payload)
    if error is not None:
        return [Damage(error, payload if index == 0 else b"") for index in range(count)]
    at = _HEAD.size + count * _RECORD.size + _CRC.size
    table = unpack_from(f"<{2 * count}I", payload, _HEAD.size)
    ends = list(accumulate(table[::2], initial=at))
    records = [payload[start:end] for start, end in pairwise(ends)]
    if ends[-1] == len(payload) and tuple(map(crc32, records)) == table[1::2]:
        with suppress(msgspec.DecodeError):
            # Concatenated records are the contents of an array without its head.
            return list[Message | Damage](_decode_all(_ARRAY.pack(0xDD, count) + payload[at:]))
    return [
        _decoded(record) if crc32(record) == crc and len(record) == length else _damage(record, length)
        for record, length, crc in zip(records, table[::2], table[1::2], strict=True)
    ]


def _header_error(stream_id: int, first_seq: int, count: int, payload: bytes) -> str | None:
    end = _HEAD.size + count * _RECORD.size
    if len(payload) < end + _CRC.size:
        return "segment is shorter than its header"
    if _CRC.unpack_from(payload, end)[0] != crc32(payload[:end]):
        return "segment header fails its checksum"
    if _HEAD.unpack_from(payload) != (_MAGIC, stream_id, first_seq, count):
        return "segment header belongs to another segment"
    return None


def _damage(record: bytes, length: int) -> Damage:
    return Damage("record is cut off" if len(record) != length else "record fails its checksum", record)


def _decoded(record: bytes) -> Message | Damage:
    try:
        return _decode(record)
    except msgspec.DecodeError as error:
        return Damage(f"record cannot be decoded: {error}", record)


def encode_bitmap(bits: int, count: int) -> bytes:
    """Encode a bitmap of `count` bits with its checksum."""
    return seal(bits.to_bytes((count + 7) // 8, "little"))


def decode_bitmap(sealed: bytes) -> int | None:
    """Return the bits, or None if the bitmap fails its checksum."""
    raw = unseal(sealed)
    return None if raw is None else int.from_bytes(raw, "little")


def encode_dedup_keys(keys: Iterable[DedupKey]) -> bytes:
    """Encode deduplication ids with their checksum."""
    return seal(_encode(list(keys)))


def decode_dedup_keys(sealed: bytes) -> list[DedupKey]:
    """Return the ids, or none if they fail their checksum: a duplicate is better than a lost message."""
    raw = unseal(sealed)
    return [] if raw is None else _decode_keys(raw)


def seal(raw: bytes) -> bytes:
    """Append a checksum."""
    return raw + _CRC.pack(crc32(raw, _SEED ^ len(raw)))


def unseal(sealed: bytes) -> bytes | None:
    """Remove the checksum, or return None if it is wrong. Nothing that is sealed is empty."""
    if len(sealed) <= _CRC.size:
        return None
    raw = sealed[: -_CRC.size]
    return raw if _CRC.unpack_from(sealed, len(raw))[0] == crc32(raw, _SEED ^ len(raw)) else None
