"""What a receiver remembers: webhook ids that were processed, and the place of each key; in memory or in SQLite."""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock.client.receiver.gaps import KeyPlace, KeyStep, arrived
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import wall_seconds

MOST_REMEMBERED = 100_000
"""Ids and keys that `InMemory` and `penstock listen` remember."""

_DAY_S = 24 * 60 * 60
_TABLES = """
CREATE TABLE IF NOT EXISTS webhooks (id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS webhooks_by_age ON webhooks (at_ms);
CREATE TABLE IF NOT EXISTS key_places (
    subscription TEXT NOT NULL, key TEXT NOT NULL, place TEXT NOT NULL, PRIMARY KEY (subscription, key)
) WITHOUT ROWID;
"""
_decode = msgspec.json.Decoder(KeyPlace).decode

V = TypeVar("V")


class OnceStore(Protocol):
    """Remembers which webhooks were processed. Implement it on your own database to process each exactly once."""

    def once(self, webhook_id: str) -> AbstractContextManager[bool]:
        """Enter with whether the webhook is new; remember it when the block ends without an exception.

        On a database: begin a transaction, insert the id, yield whether it was inserted, commit. What the handler
        writes in that transaction is then kept exactly if the id is.
        """
        ...


class PlaceStore(Protocol):
    """Remembers the place of each key."""

    def step(self, subscription: str, key: str, number: int) -> KeyStep:
        """Move a key on by `arrived`, and return the step."""
        ...


class ReceiverMemory(OnceStore, PlaceStore, Protocol):
    """Both."""


class Remembered(Generic[V]):
    """A mapping that forgets what was put longest ago."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, V] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def get(self, name: str) -> V | None:
        """Return a value; None if there is none."""
        return self._kept.get(name)

    def put(self, name: str, value: V) -> None:
        """Keep a value, and forget the oldest beyond `MOST_REMEMBERED`."""
        self._kept[name] = value
        self._kept.move_to_end(name)
        if len(self._kept) > MOST_REMEMBERED:
            self._kept.popitem(last=False)


class InMemory:
    """The last 100,000 ids and keys, in this process: enough where a restart may process a delivery again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ids: Remembered[None] = Remembered()
        self._places: Remembered[KeyPlace] = Remembered()

    @contextmanager
    def once(self, webhook_id: str) -> Iterator[bool]:
        """Enter with whether the webhook is new."""
        with self._lock:
            is_new = webhook_id not in self._ids
        yield is_new
        with self._lock:
            self._ids.put(webhook_id, None)

    def step(self, subscription: str, key: str, number: int) -> KeyStep:
        """Move a key on."""
        name = msgspec.json.encode((subscription, key)).decode()
        with self._lock:
            step = arrived(self._places.get(name), number)
            self._places.put(name, step.place)
        return step


class SqliteMemory:
    """A file for all processes of a receiver on one machine; ids are forgotten after `keep_days`.

    Penstock keeps finished jobs for 90 days unless set otherwise; a replay of an older one is a new delivery.
    """

    def __init__(self, path: str | Path, keep_days: float = 30) -> None:
        self._path = path
        self._keep_ms = round(keep_days * _DAY_S * SECOND_MS)
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_TABLES)

    @contextmanager
    def once(self, webhook_id: str) -> Iterator[bool]:
        """Enter with whether the webhook is new."""
        with closing(self._connect()) as connection:
            known = connection.execute("SELECT 1 FROM webhooks WHERE id = ?", (webhook_id,)).fetchone()
        yield known is None
        now_ms = int(wall_seconds() * SECOND_MS)
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO webhooks VALUES (?, ?)", (webhook_id, now_ms))
            connection.execute("DELETE FROM webhooks WHERE at_ms < ?", (now_ms - self._keep_ms,))

    def step(self, subscription: str, key: str, number: int) -> KeyStep:
        """Move a key on."""
        name = (subscription, key)
        with self._writing() as connection:
            row = connection.execute("SELECT place FROM key_places WHERE subscription = ? AND key = ?", name).fetchone()
            step = arrived(None if row is None else _decode(row[0]), number)
            place = msgspec.json.encode(step.place).decode()
            connection.execute("INSERT OR REPLACE INTO key_places VALUES (?, ?, ?)", (*name, place))
        return step

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        # One for each use: frameworks call from any thread.
        return sqlite3.connect(self._path, timeout=30, isolation_level=None)
