"""Dead letters: what a message carries when it is moved to another queue."""

import msgspec

from penstock.domain.message import NO_ATTRIBUTES, Message

SOURCE_ARN = "DeadLetterQueueSourceArn"


def moved_copy(message: Message, source_arn: str | None, now_ms: int, *, fifo: bool) -> Message:
    """The message with its id; a FIFO queue counts its retention anew, a standard queue from the first send (AWS)."""
    notes = {key: value for key, value in message.notes.items() if key != SOURCE_ARN}
    if source_arn is not None:
        notes[SOURCE_ARN] = source_arn
    return msgspec.structs.replace(
        message, sent_ms=now_ms if fifo else message.sent_ms, deliver_at_ms=0, notes=notes or NO_ATTRIBUTES
    )
