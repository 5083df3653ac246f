"""Changes that people made: what the API's audit trail keeps."""

import msgspec

from penstock.domain.ids import decode_tsid
from penstock.events.store.database import RepositoryPart, Transaction, reads, writes
from penstock.http.change import Change
from penstock.http.errors import BadCursor

_encode = msgspec.json.Encoder(order="deterministic").encode
_target = msgspec.json.Decoder(dict[str, str]).decode
_AFTER_ALL = "~"


class KeptChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and when it was made."""

    id: str
    at_ms: int
    change: Change


class ChangePage(msgspec.Struct, frozen=True):
    """Changes, the newest first; the cursor asks for the next page, None after the last."""

    changes: list[KeptChange]
    cursor: str | None


class ChangeRecords(RepositoryPart):
    """Changes that people made."""

    @writes
    def keep_change(self, tx: Transaction, kept: KeptChange) -> None:
        """Keep one change."""
        change = kept.change
        tx.all(
            "keep_change",
            id=kept.id,
            at_ms=kept.at_ms,
            who=change.who,
            role=change.role,
            action=change.action,
            target=_encode(change.target).decode(),
            detail=change.detail,
        )

    @reads
    def list_changes(self, tx: Transaction, cursor: str | None, most: int) -> ChangePage:
        """Return a page of changes, the newest first."""
        rows = tx.all("changes", cursor=_AFTER_ALL if cursor is None else _checked(cursor), most=most + 1)
        changes = [
            KeptChange(
                id=change_id,
                at_ms=at_ms,
                change=Change(who=who, role=role, action=action, target=_target(target), detail=detail),
            )
            for change_id, at_ms, who, role, action, target, detail in rows[:most]
        ]
        return ChangePage(changes, changes[-1].id if len(rows) > most else None)


def _checked(cursor: str) -> str:
    try:
        decode_tsid(cursor)
    except ValueError:
        raise BadCursor(cursor) from None
    return cursor
