"""Rules that all batch actions share."""

from penstock.sqs.contents import check_entry_ids
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.model import BatchResultErrorEntry

MAX_ENTRIES = 10


def check_batch(ids: tuple[str, ...]) -> None:
    """One to ten entries with distinct, well-formed ids."""
    if not ids:
        raise SqsError(ErrorKind.EMPTY_BATCH_REQUEST, "There should be at least one entry in the request.")
    if len(ids) > MAX_ENTRIES:
        raise SqsError(
            ErrorKind.TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {MAX_ENTRIES}. You have sent {len(ids)}.",
        )
    check_entry_ids(ids)


def failed_entry(id: str, error: SqsError) -> BatchResultErrorEntry:
    """What is told of an entry that failed; the others go their way."""
    return BatchResultErrorEntry(id, error.kind.query_code, error.message, error.kind.sender_fault)
