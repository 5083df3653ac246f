"""Replays by the API: of more jobs than a caller waits for, how far they are, stopping and continuing them."""

import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.console.front import WebFront
from penstock.domain.job import NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.replay import ReplayRequest, ReplaySelection, original_id
from penstock.edge.pause import pause
from penstock.events.api.jobs.replays import FEW_JOBS
from penstock.events.store.sqlite import sqlite_repository
from penstock.events.store.statements import codes_of
from tests.rigs.dispatch import DispatchRig, dispatch_rig
from tests.rigs.job_database import with_tables

REPLAYS = "/api/v1/replays"
NOWHERE = "http://127.0.0.1:9"
GROUPS = 7


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DispatchRig]:
    repository = sqlite_repository(with_tables(tmp_path / "jobs.db"), durability="survives-process-crash-only")
    web = WebFront.at(router=NOWHERE, queues=NOWHERE, pipeline=NOWHERE)
    async with dispatch_rig(repository, web) as found:
        yield found


async def completed_jobs(rig: DispatchRig, count: int, directory: Path) -> list[str]:
    """Jobs of a few groups by turns that were delivered; their ids."""
    jobs = [
        NewJob(
            id=rig.ids.next_id(rig.now_ms), target="https://a.example", created_at_ms=rig.now_ms, group=f"g{n % GROUPS}"
        )
        for n in range(count)
    ]
    for first in range(0, count, 1000):
        await rig.repository.create_jobs(jobs[first : first + 1000], rig.now_ms)
    with closing(sqlite3.connect(directory / "jobs.db")) as connection, connection:
        (completed,) = codes_of(JobStatus.COMPLETED)
        connection.execute("UPDATE jobs SET state = ?, finished_at_ms = ?", (completed, rig.now_ms))
        connection.execute("DELETE FROM lanes")
    return [job.id for job in jobs]


async def finished(rig: DispatchRig, replay_id: str) -> Any:
    while (replay := (await rig.ask("GET", f"{REPLAYS}/{replay_id}")).body)["finishedAtMs"] is None:
        await pause(0.05)
    return replay


def copies_of(directory: Path, replay_id: str) -> dict[str, list[str]]:
    """The originals of a replay's copies by group, in the order in which the copies were created."""
    found: dict[str, list[str]] = defaultdict(list)
    with closing(sqlite3.connect(directory / "jobs.db")) as connection:
        rows = connection.execute("SELECT id, group_key FROM jobs WHERE id LIKE ? ORDER BY rowid", (f"%~{replay_id}",))
        for job_id, group_key in rows:
            found[group_key].append(original_id(job_id))
    return found


async def test_a_replay_of_any_size_begins_at_once_and_says_how_far_it_is(rig: DispatchRig, tmp_path: Path) -> None:
    job_ids = await completed_jobs(rig, FEW_JOBS + 500, tmp_path)
    assert (await rig.ask("GET", f"{REPLAYS}/count")).body["truncated"] is True

    begun = await rig.ask("POST", REPLAYS, {})
    assert (begun.status, begun.body["running"]) == (200, True)
    replay = await finished(rig, begun.body["replayId"])

    assert (replay["total"], replay["done"], replay["failed"], replay["stopped"]) == (
        len(job_ids),
        len(job_ids),
        0,
        False,
    )
    copies = copies_of(tmp_path, replay["id"])
    assert len(copies) == GROUPS
    for of_group in copies.values():
        # Copies that come in order are delivered in order, whatever is dispatched meanwhile.
        assert of_group == sorted(of_group)
    assert sorted(job_id for of_group in copies.values() for job_id in of_group) == job_ids
    assert (await rig.ask("GET", REPLAYS)).body["replays"] == [replay]


async def test_a_replay_is_stopped_and_continued_without_copying_twice(rig: DispatchRig, tmp_path: Path) -> None:
    job_ids = await completed_jobs(rig, FEW_JOBS + 500, tmp_path)
    replay_id = (await rig.ask("POST", REPLAYS, {})).body["replayId"]
    stopped = await rig.ask("POST", f"{REPLAYS}/{replay_id}/stop")
    assert stopped.body["stopped"] is True

    assert (await rig.ask("POST", f"{REPLAYS}/{replay_id}/resume")).body["stopped"] is False
    replay = await finished(rig, replay_id)

    assert replay["done"] == len(job_ids)
    assert sum(map(len, copies_of(tmp_path, replay_id).values())) == len(job_ids)
    again = await rig.ask("POST", f"{REPLAYS}/{replay_id}/resume")
    assert (again.status, again.body["detail"]) == (409, "the replay is finished")


async def test_a_replay_whose_process_ended_is_continued(rig: DispatchRig, tmp_path: Path) -> None:
    job_ids = await completed_jobs(rig, 30, tmp_path)
    replay_id = rig.ids.next_id(rig.now_ms)
    replays = rig.repository.replays(rig.clock)
    replay = await replays.add(replay_id, ReplayRequest(selection=ReplaySelection()), 0, rig.now_ms)
    left = [job_ids[:10]]
    with pytest.raises(IndexError):
        await replays.copy_in_order(replay, lambda _: left.pop())
    assert (await rig.ask("GET", f"{REPLAYS}/{replay_id}")).body["total"] is None

    await rig.ask("POST", f"{REPLAYS}/{replay_id}/resume")
    assert (await finished(rig, replay_id))["done"] == 30
    assert sum(map(len, copies_of(tmp_path, replay_id).values())) == 30


@pytest.mark.parametrize(
    "request_",
    [
        ReplayRequest(selection=ReplaySelection(), direct=True),
        ReplayRequest(selection=ReplaySelection(), per_s=5),
        ReplayRequest(selection=ReplaySelection(key="a")),
        ReplayRequest(selection=ReplaySelection(failed_since_ms=5)),
    ],
)
async def test_what_only_spark_can_continue_is_left_to_it(rig: DispatchRig, request_: ReplayRequest) -> None:
    replay_id = rig.ids.next_id(rig.now_ms)
    await rig.repository.replays(rig.clock).add(replay_id, request_, 3, rig.now_ms)
    refused = await rig.ask("POST", f"{REPLAYS}/{replay_id}/resume")
    assert (refused.status, refused.body["detail"]) == (
        409,
        f"Spark began it: continue it with `penstock pipeline replay --resume {replay_id}`",
    )


async def test_a_replay_that_does_not_exist_is_not_found(rig: DispatchRig) -> None:
    for method, path in (("GET", ""), ("POST", "/stop"), ("POST", "/resume")):
        for replay_id in ("0S898QRG1D800", "nothing"):
            assert (await rig.ask(method, f"{REPLAYS}/{replay_id}{path}")).status == 404
