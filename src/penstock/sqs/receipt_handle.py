"""Receipt handles: opaque to clients, and bound to one delivery of one message of one queue.

    version u8 | partition u8 | incarnation u64 | sequence u64 | lease u64 | epoch u32

The incarnation is the queue's identity (a queue deleted and made anew has another), the epoch that of the server
process, whose leases end with it.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from struct import Struct

import msgspec

from penstock.sqs.errors import receipt_handle_is_invalid

_VERSION = 1
_LAYOUT = Struct(">BBQQQI")


class ReceiptHandle(msgspec.Struct, frozen=True, gc=False):
    """What a handle carries."""

    partition: int
    incarnation: int
    seq: int
    lease_id: int
    epoch: int


def encode_handle(partition: int, incarnation: int, seq: int, lease_id: int, epoch: int) -> str:
    """The handle as clients see it."""
    packed = _LAYOUT.pack(_VERSION, partition, incarnation, seq, lease_id, epoch)
    return urlsafe_b64encode(packed).decode()


def decode_handle(text: str) -> ReceiptHandle:
    """What a handle carries; ReceiptHandleIsInvalid when it is none of ours."""
    try:
        packed = urlsafe_b64decode(text)
        if len(packed) != _LAYOUT.size or packed[0] != _VERSION:
            raise receipt_handle_is_invalid()
        return ReceiptHandle(*_LAYOUT.unpack(packed)[1:])
    except (Base64Error, ValueError, UnicodeError):
        raise receipt_handle_is_invalid() from None
