"""A backup of a data directory that servers are using: no one notices, and nothing that was answered is missing."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from tests.rigs.penstock_process import output_of, wait_until
from tests.services.sqs_server import bodies, counts, drain, running

BEFORE = 50


def send_until(stop: Event, client: Any, url: str, answered: list[str]) -> None:
    """Send one message after the other, and note each that was answered."""
    while not stop.is_set():
        body = str(len(answered))
        client.send_message(QueueUrl=url, MessageBody=body)
        answered.append(body)


def test_a_backup_beside_a_busy_server_has_everything_that_was_answered(tmp_path: Path) -> None:
    answered: list[str] = []
    stop = Event()
    with running(tmp_path, "--data", str(tmp_path / "data")) as server, ThreadPoolExecutor(1) as pool:
        url = server.anyone.create_queue(QueueName="orders")["QueueUrl"]
        sending = pool.submit(send_until, stop, server.anyone, url, answered)
        try:
            wait_until(lambda: len(answered) >= BEFORE)
            before = list(answered)
            output_of("backup", "--data", tmp_path / "data", "--to", tmp_path / "backup.tar.gz")
            after = len(answered)
            wait_until(lambda: len(answered) > after)
        finally:
            stop.set()
        sending.result()
        assert counts(server.anyone, url)[0] == len(answered)

    output_of("restore", "--from", tmp_path / "backup.tar.gz", "--data", tmp_path / "fresh")
    with running(tmp_path / "again", "--data", str(tmp_path / "fresh")) as server:
        url = server.anyone.get_queue_url(QueueName="orders")["QueueUrl"]
        restored, _, _ = counts(server.anyone, url)
        assert len(before) <= restored <= after + 1
        assert set(before) <= set(bodies(drain(server.anyone, url, restored)))


def test_a_directory_that_a_crash_left_behind_is_backed_up_whole(tmp_path: Path) -> None:
    with running(tmp_path, "--data", str(tmp_path / "data")) as server:
        url = server.anyone.create_queue(QueueName="orders")["QueueUrl"]
        for number in range(5):
            server.anyone.send_message(QueueUrl=url, MessageBody=str(number))
        server.kill()
        output_of("backup", "--data", tmp_path / "data", "--to", tmp_path / "backup.tar.gz")
    output_of("restore", "--from", tmp_path / "backup.tar.gz", "--data", tmp_path / "fresh")
    with running(tmp_path / "again", "--data", str(tmp_path / "fresh")) as server:
        url = server.anyone.get_queue_url(QueueName="orders")["QueueUrl"]
        assert sorted(bodies(drain(server.anyone, url, 5))) == ["0", "1", "2", "3", "4"]
