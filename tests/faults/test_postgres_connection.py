"""A PostgreSQL store whose connection is cut: what it answers is what the database holds."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.domain.errors import InvalidArgument
from penstock.engine.errors import StoreFailed, StoreLocked
from penstock.engine.store import postgres_ownership
from penstock.engine.store.port import AckRow, QueueRecord, SegmentRow, StreamRecord, WriteBatch
from penstock.engine.store.postgres import PostgresStore

UNLIMITED = 1 << 40
END_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'penstock'
"""


class Cutter:
    """A proxy before the server that cuts its connections on demand."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.cut_before_request = self.cut_before_answer = self.refusing = False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut every connection now."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._open += [client, server]
                for source, sink, to_server in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, sink, to_server), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, to_server: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                if self.cut_before_request if to_server else self.cut_before_answer:
                    self.cut_before_request = self.cut_before_answer = False
                    self.cuts += 1
                    break
                sink.sendall(chunk)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cutter(postgres_database: str) -> Iterator[Cutter]:
    host = conninfo_to_dict(postgres_database)["host"]
    proxy = Cutter(str(Path(str(host)) / ".s.PGSQL.5432"))
    yield proxy
    proxy.close()


@pytest.fixture
def store(postgres_database: str, cutter: Cutter) -> Iterator[PostgresStore]:
    opened = PostgresStore(make_conninfo(postgres_database, host="127.0.0.1", port=cutter.port, sslmode="disable"))
    opened.open()
    opened.apply(
        WriteBatch(
            put_streams=[StreamRecord(1, "one", b"")],
            put_queues=[QueueRecord(10, 1, "a", b""), QueueRecord(11, 1, "b", b"")],
        )
    )
    yield opened
    opened.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_ownership, "_RETRY_PAUSES_S", (0.01, 0.01))
    monkeypatch.setattr(postgres_ownership, "_RECLAIM_WAIT", "200ms")


def segment(first_seq: int) -> SegmentRow:
    return SegmentRow(1, first_seq, 1, 10, [b"%d" % first_seq])


def first_seqs(store: PostgresStore) -> list[int]:
    return [stored.first_seq for stored in store.read(10, 0, UNLIMITED, UNLIMITED)]


def run(url: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as session:
        return session.execute(text.encode()).fetchall()


class TestLostInACommit:
    def test_a_commit_whose_answer_was_lost_is_known_to_be_kept(self, store: PostgresStore, cutter: Cutter) -> None:
        for n in range(8):
            cutter.cut_before_answer = n % 2 == 0
            store.apply(WriteBatch(segments=[segment(n)]))
        assert cutter.cuts == 4
        assert first_seqs(store) == list(range(8))

    def test_its_shares_are_answered_all_the_same(self, store: PostgresStore, cutter: Cutter) -> None:
        cutter.cut_before_answer = True
        done = AckRow(10, 1, 0, None, 1, 10)
        shares = store.apply(WriteBatch(segments=[segment(0), segment(1)], acks=[done], collect_streams=[1]))
        assert cutter.cuts == 1
        assert shares == {1: {1: 2}}

    def test_a_commit_that_never_arrived_is_made_again(self, store: PostgresStore, cutter: Cutter) -> None:
        for n in range(8):
            cutter.cut_before_request = n % 2 == 0
            store.apply(WriteBatch(segments=[segment(n)]))
        assert cutter.cuts == 4
        assert first_seqs(store) == list(range(8))

    def test_a_bulk_commit_too(self, store: PostgresStore, cutter: Cutter) -> None:
        cutter.cut_before_answer = True
        store.apply(WriteBatch(segments=[segment(n) for n in range(200)]))
        assert cutter.cuts == 1
        assert first_seqs(store) == list(range(200))

    @pytest.mark.usefixtures("impatient")
    def test_told_as_failed_and_found_kept_ends_the_store(
        self, store: PostgresStore, cutter: Cutter, postgres_database: str
    ) -> None:
        cutter.cut_before_answer = cutter.refusing = True
        with pytest.raises(StoreFailed, match="not known whether"):
            store.apply(WriteBatch(segments=[segment(0)]))
        cutter.refusing = False
        for _ in range(2):
            with pytest.raises(StoreFailed, match="reported as failed was saved: restart"):
                store.apply(WriteBatch(segments=[segment(1)]))
        store.close()
        fresh = PostgresStore(postgres_database)
        fresh.open()
        assert first_seqs(fresh) == [0]
        fresh.close()

    @pytest.mark.usefixtures("impatient")
    def test_told_as_failed_and_found_not_kept_goes_on(self, store: PostgresStore, cutter: Cutter) -> None:
        cutter.cut_before_request = cutter.refusing = True
        with pytest.raises(StoreFailed, match="not known whether"):
            store.apply(WriteBatch(segments=[segment(0)]))
        with pytest.raises(StoreFailed, match="cannot connect"):
            store.apply(WriteBatch(segments=[segment(0)]))
        cutter.refusing = False
        store.apply(WriteBatch(segments=[segment(0)]))
        assert first_seqs(store) == [0]


class TestLostBetweenCalls:
    def test_terminated_backends_are_replaced(self, store: PostgresStore, postgres_database: str) -> None:
        for n in range(3):
            store.apply(WriteBatch(segments=[segment(n)]))
            run(postgres_database, END_OTHERS)
        assert first_seqs(store) == [0, 1, 2]
        run(postgres_database, END_OTHERS)
        store.apply(WriteBatch(segments=[segment(3)]))
        assert first_seqs(store) == [0, 1, 2, 3]

    def test_a_server_that_comes_back_is_used_again(self, store: PostgresStore, cutter: Cutter) -> None:
        store.apply(WriteBatch(segments=[segment(0)]))
        cutter.refusing = True
        cutter.cut()
        with pytest.raises(StoreFailed, match="cannot connect"):
            store.totals(10)
        cutter.refusing = False
        assert store.totals(10).messages == 1
        store.apply(WriteBatch(segments=[segment(1)]))
        assert first_seqs(store) == [0, 1]

    def test_the_lock_is_held_again_after_a_reconnect(self, store: PostgresStore, postgres_database: str) -> None:
        run(postgres_database, END_OTHERS)
        store.apply(WriteBatch(segments=[segment(0)]))
        with pytest.raises(StoreLocked, match="in use by another process"):
            PostgresStore(postgres_database).open()


class TestTakenOver:
    def test_a_store_that_lost_its_schema_stays_out(self, store: PostgresStore, postgres_database: str) -> None:
        store.apply(WriteBatch(segments=[segment(0)]))
        run(postgres_database, END_OTHERS)
        other = PostgresStore(postgres_database)
        other.open()
        for _ in range(2):
            with pytest.raises(StoreLocked, match="took over"):
                store.apply(WriteBatch(segments=[segment(1)]))
            with pytest.raises(StoreLocked, match="took over"):
                store.totals(10)
            other.apply(WriteBatch(acks=[AckRow(10, 1, 0, None, 1, 10)]))
            other.close()
            other.open()
        assert first_seqs(other) == []
        other.close()

    def test_reading_finds_out_too(self, store: PostgresStore, postgres_database: str) -> None:
        run(postgres_database, END_OTHERS)
        other = PostgresStore(postgres_database)
        other.open()
        with pytest.raises(StoreLocked, match="took over"):
            store.totals(10)
        other.close()

    @pytest.mark.usefixtures("impatient")
    def test_a_lock_held_by_someone_else_is_waited_for_and_told(
        self, store: PostgresStore, postgres_database: str
    ) -> None:
        ((key,),) = run(
            postgres_database,
            "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        with psycopg.connect(postgres_database, autocommit=True) as session:
            session.execute(END_OTHERS)
            session.execute("SELECT pg_advisory_lock(%s)", (key,))
            with pytest.raises((StoreLocked, StoreFailed)):
                store.apply(WriteBatch(segments=[segment(0)]))
            with pytest.raises(StoreLocked, match=f"server process {session.info.backend_pid}"):
                store.apply(WriteBatch(segments=[segment(0)]))
        store.apply(WriteBatch(segments=[segment(0)]))
        assert first_seqs(store) == [0]


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://u:hunter2@127.0.0.1:1/d",
            "postgresql://u:hunter2@127.0.0.1:1/d?connect_timeout=1",
            "host=127.0.0.1 port=1 user=u password=hunter2",
            "postgresql://u:hunter2@no-such-host.invalid/d",
        ],
    )
    def test_an_unreachable_server_is_told_without_the_password(self, url: str) -> None:
        with pytest.raises(StoreFailed, match="cannot connect") as failure:
            PostgresStore(url).open()
        assert_silent(failure.value)

    @pytest.mark.parametrize("url", ["postgresql://u:hunter2%zz@h/d", "postgresql://u:hunter2@[h/d", "hunter2"])
    def test_a_url_that_cannot_be_read_is_told_without_the_password(self, url: str) -> None:
        with pytest.raises(InvalidArgument, match="is malformed") as failure:
            PostgresStore(url)
        assert_silent(failure.value)

    def test_schemas_keep_apart_whatever_their_names(self, postgres_database: str) -> None:
        names = ["Mixed Case", 'quo"te; DROP SCHEMA public', "日本", "select"]
        stores = [PostgresStore(postgres_database, schema=name) for name in names]
        for n, store in enumerate(stores):
            assert store.open() == ([], [])
            store.apply(WriteBatch(put_streams=[StreamRecord(n, names[n], b"")]))
        for n, store in enumerate(stores):
            store.close()
            assert store.open()[0] == [StreamRecord(n, names[n], b"")]
            store.close()


def assert_silent(error: BaseException | None) -> None:
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
