"""The pointer that a queue carries for the router: which message is due and where it goes, without its contents."""

from enum import StrEnum

import msgspec

from penstock.domain.errors import InvalidArgument

DEFAULT_GROUP = "__DEFAULT__"
DEFAULT_POOL_CODE = "DEFAULT-POOL"
PROCESS_PATH = "/api/dispatch/process"
"""Where a pointer of a job goes: the process endpoint of its installation."""


class DispatchMode(StrEnum):
    """What a failed message means for the later ones of its group (ROUTER-BATCH-5)."""

    IMMEDIATE = "IMMEDIATE"
    NEXT_ON_ERROR = "NEXT_ON_ERROR"
    BLOCK_ON_ERROR = "BLOCK_ON_ERROR"


class MediationType(StrEnum):
    """How a message is delivered."""

    HTTP = "HTTP"


class MessagePointer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A message to deliver, as it is stored in a queue."""

    id: str
    mediation_target: str
    pool_code: str = DEFAULT_POOL_CODE
    auth_token: str | None = None
    mediation_type: MediationType = MediationType.HTTP
    message_group_id: str | None = None
    high_priority: bool = False
    dispatch_mode: DispatchMode = DispatchMode.BLOCK_ON_ERROR
    # The subscriber's secrets, newest first. The request is signed with each (Standard Webhooks).
    signing_secrets: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The group it is ordered in; messages without one share a group."""
        group = self.message_group_id
        return group if group and not group.isspace() else DEFAULT_GROUP


class _GroupOnly(msgspec.Struct, frozen=True, rename="camel", gc=False):
    message_group_id: str | None = None


_decoder = msgspec.json.Decoder(MessagePointer)
_group_decoder = msgspec.json.Decoder(_GroupOnly)
_encoder = msgspec.json.Encoder()


def decode_pointer(body: bytes | str, group: str | None = None) -> MessagePointer:
    """Decode a queue's message; the group that the broker names takes precedence over the one in the body.

    Raise InvalidArgument if the message is not a pointer.
    """
    try:
        pointer = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_a_pointer(str(error)) from error
    if not pointer.id or not pointer.mediation_target:
        raise _not_a_pointer("id or mediationTarget is empty")
    if group is not None and group != pointer.message_group_id:
        return msgspec.structs.replace(pointer, message_group_id=group)
    return pointer


def group_in_body(body: bytes) -> str | None:
    """Return the group that a queue's message names in its body; None if it names none or is not a pointer."""
    try:
        group = _group_decoder.decode(body).message_group_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return group if group and not group.isspace() else None


def _not_a_pointer(reason: str) -> InvalidArgument:
    return InvalidArgument(
        f"the message is not a pointer: {reason}; it must be JSON with at least id and mediationTarget"
    )


def encode_pointer(pointer: MessagePointer) -> bytes:
    """Encode a pointer for a queue."""
    return _encoder.encode(pointer)
