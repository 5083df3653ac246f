"""The promises of a cluster under random faults; `python -m tests.cluster.faults --seconds 3600` runs for an hour."""

import socket
from pathlib import Path

import pytest

from tests.cluster.faults import run
from tests.cluster.history import ClusterHistory, Deletion, Receipt, Sent
from tests.rigs.connection_cutter import ConnectionProxy
from tests.rigs.penstock_process import wait_until


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_clients_of_a_cluster_under_faults_see_no_broken_promise(
    tmp_path: Path, postgres_databases: list[str], seed: int
) -> None:
    own, *others = postgres_databases
    clients, trouble = run(tmp_path, own, others, seed, faults=4)
    assert len(clients.history.sends) > 20, trouble.counts
    assert clients.history.breaches() == [], trouble.counts


def receipt(number: int, call: int, at_s: float) -> Receipt:
    return Receipt("g", number, call, at_s, at_s + 0.1, 10)


@pytest.mark.parametrize(
    ("receipts", "deletions", "breach"),
    [
        ([receipt(0, 1, 0)], [], "g/1 was acknowledged and is lost"),
        ([receipt(1, 1, 0), receipt(0, 2, 20)], [], "g/0 came first after g/1"),
        (
            [receipt(0, 1, 0), receipt(0, 2, 5), receipt(1, 3, 30)],
            [],
            "g/0 was handed out twice while its lease ran (4.900 s early)",
        ),
        ([receipt(0, 1, 0), receipt(1, 2, 5)], [], "g/1 was handed out while g/0 was in flight"),
        (
            [receipt(0, 1, 0), receipt(1, 2, 12), receipt(0, 3, 30)],
            [Deletion("g", 0, 11, 11.1)],
            "g/0 was deleted and came again",
        ),
    ],
)
def test_every_kind_of_breach_is_found(receipts: list[Receipt], deletions: list[Deletion], breach: str) -> None:
    history = ClusterHistory([Sent("g", 0), Sent("g", 1)], receipts, deletions)
    assert history.breaches() == [breach]


def test_what_is_allowed_is_no_breach() -> None:
    # Two of one call, a redelivery after the lease, and a later one as soon as a delete is asked for.
    receipts = [receipt(0, 1, 0), receipt(1, 1, 0), receipt(1, 2, 10), receipt(2, 3, 11)]
    history = ClusterHistory([Sent("g", number) for number in range(3)], receipts, [Deletion("g", 0, 0.2, 0.3)])
    history.attempt_delete("g", 1, 10.5)
    assert history.breaches() == []


def test_a_proxy_of_the_rig_keeps_nothing_of_a_connection_that_has_ended() -> None:
    # Else a long run has no descriptors left, and its proxies are cut for ever.
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = ConnectionProxy(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", proxy.port)) as client, server.accept()[0] as accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"
        wait_until(lambda: not proxy._open)
        proxy.close()
