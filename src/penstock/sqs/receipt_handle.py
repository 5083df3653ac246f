"""Receipt handles: opaque to clients, and bound to one delivery of one message of one queue.

    version u8 | partition u8 | incarnation u64 | sequence u64 | lease u64 | epoch u32

The incarnation is the queue's identity (a queue deleted and made anew has another), the epoch that of the server
process, whose leases end with it.
"""

import struct

import msgspec

from penstock.sqs.errors import receipt_handle_is_invalid

_VERSION = 1
_LAYOUT = struct.Struct(">BBQQQI")
_TEXT_LENGTH = 2 * _LAYOUT.size
_pack, _unpack = _LAYOUT.pack, _LAYOUT.unpack
_from_hex = bytes.fromhex


class ReceiptHandle(msgspec.Struct, frozen=True, gc=False):
    """What a handle carries."""

    version: int
    partition: int
    incarnation: int
    seq: int
    lease_id: int
    epoch: int


def encode_handle(partition: int, incarnation: int, seq: int, lease_id: int, epoch: int) -> str:
    """The handle as clients see it."""
    return _pack(_VERSION, partition, incarnation, seq, lease_id, epoch).hex()


def decode_handle(text: str) -> ReceiptHandle:
    """What a handle carries; ReceiptHandleIsInvalid when it is none of ours."""
    try:
        handle = ReceiptHandle(*_unpack(_from_hex(text)))
    except (ValueError, struct.error):
        raise receipt_handle_is_invalid() from None
    if handle.version != _VERSION or len(text) != _TEXT_LENGTH:
        raise receipt_handle_is_invalid()
    return handle
