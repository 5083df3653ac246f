"""A PostgreSQL store whose connection is cut: what it answers is what the database holds."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.domain.errors import InvalidArgument
from penstock.engine.errors import LeaseUncertain, StoreFailed, StoreLocked
from penstock.engine.store import postgres_lease, postgres_ownership
from penstock.engine.store.port import AckRow, QueueRecord, SegmentRow, StreamRecord, WriteBatch
from penstock.engine.store.postgres import PostgresStore
from penstock.engine.store.postgres_address import PostgresAddress
from tests.rigs.connection_cutter import Cutter
from tests.rigs.penstock_process import wait_until

UNLIMITED = 1 << 40
END_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'penstock'
"""


@pytest.fixture
def cutter(postgres_database: str) -> Iterator[Cutter]:
    proxy = Cutter(postgres_database)
    yield proxy
    proxy.close()


@pytest.fixture
def store(postgres_database: str, cutter: Cutter) -> Iterator[PostgresStore]:
    opened = PostgresStore(cutter.url)
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


def is_uncertain(store: PostgresStore) -> bool:
    try:
        store.require_owned()
    except LeaseUncertain:
        return True
    return False


def take_over(cutter: Cutter, url: str) -> PostgresStore:
    """Open the schema from elsewhere while its owner cannot reach it."""
    cutter.refusing = True
    cutter.cut()
    other = PostgresStore(url)
    other.open()
    cutter.refusing = False
    return other


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


@pytest.fixture
def brief_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_lease, "LEASE_S", 3.0)


@pytest.mark.usefixtures("brief_lease")
class TestTakenOver:
    def test_a_store_that_lost_its_schema_stays_out(
        self, store: PostgresStore, cutter: Cutter, postgres_database: str
    ) -> None:
        store.apply(WriteBatch(segments=[segment(0)]))
        other = take_over(cutter, postgres_database)
        for _ in range(2):
            with pytest.raises(StoreLocked, match="took over"):
                store.apply(WriteBatch(segments=[segment(1)]))
            with pytest.raises((StoreLocked, LeaseUncertain)):
                store.totals(10)
            other.apply(WriteBatch(acks=[AckRow(10, 1, 0, None, 1, 10)]))
            other.close()
            other.open()
        assert first_seqs(other) == []
        other.close()

    def test_the_lease_finds_out_by_itself(self, store: PostgresStore, cutter: Cutter, postgres_database: str) -> None:
        other = take_over(cutter, postgres_database)
        wait_until(lambda: store.lost is not None, within_s=30)
        assert "took over schema" in str(store.lost)
        with pytest.raises(StoreLocked, match="took over"):
            store.require_owned()
        with pytest.raises(StoreLocked, match="took over"):
            store.totals(10)
        other.close()

    def test_nothing_is_served_once_the_lease_may_have_expired_and_again_after_its_renewal(
        self, store: PostgresStore, cutter: Cutter
    ) -> None:
        store.require_owned()
        cutter.refusing = True
        cutter.cut()
        wait_until(lambda: is_uncertain(store), within_s=30)
        with pytest.raises(LeaseUncertain, match="could not be renewed"):
            store.totals(10)
        cutter.refusing = False
        wait_until(lambda: not is_uncertain(store), within_s=30)
        assert store.totals(10).messages == 0
        assert store.lost is None

    def test_an_owner_that_renews_is_not_followed_though_its_other_sessions_end(
        self, store: PostgresStore, postgres_database: str
    ) -> None:
        run(postgres_database, END_OTHERS)
        with pytest.raises(StoreLocked, match="in use by another process"):
            PostgresStore(postgres_database).open()
        store.apply(WriteBatch(segments=[segment(0)]))
        assert first_seqs(store) == [0]

    def test_a_follower_of_an_owner_that_is_gone_waits_for_its_lease_and_ends_its_session(
        self, store: PostgresStore, cutter: Cutter, postgres_database: str
    ) -> None:
        """The machine is gone without a word: its session, and so its lock, are still there."""
        cutter.stalled = True
        wait_until(lambda: is_uncertain(store), within_s=30)
        other = PostgresStore(postgres_database)
        other.open()
        other.apply(WriteBatch(segments=[segment(0)]))
        other.close()

    def test_a_store_that_was_closed_is_followed_at_once(
        self, store: PostgresStore, postgres_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.close()
        monkeypatch.setattr(postgres_lease, "LEASE_S", 1000.0)
        for _ in range(3):
            other = PostgresStore(postgres_database)
            other.open()
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
    def test_the_server_is_asked_to_notice_a_lost_machine(self, postgres_database: str) -> None:
        """Otherwise its session, and the lock of its schema, last for two hours."""
        with PostgresAddress(postgres_database).connect("public") as session:
            rows = session.execute("SELECT name FROM pg_settings WHERE source = 'session' AND name LIKE 'tcp%'")
            names = {name for (name,) in rows}
        keepalives = {f"tcp_keepalives_{name}" for name in ("idle", "interval", "count")}
        assert names == {*keepalives, "tcp_user_timeout"}

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
