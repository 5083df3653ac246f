"""A whole dispatch on virtual time: schedulers that crash, pause and lose their lease, a queue, and its consumer.

Everything random comes from one seed, so that a failure can be run again.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import TypeVar

from penstock.cluster.errors import LeaseUnavailable
from penstock.cluster.lease import SqlLease
from penstock.cluster.standby import Standby
from penstock.domain.job import ClaimedJob, DispatchJob
from penstock.domain.job_state import FINAL, JobStatus
from penstock.domain.order import LaneKey
from penstock.domain.pace.credit import LANE_CREDIT, CreditBook
from penstock.domain.pointer import DispatchMode
from penstock.edge.clock import Clock
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.errors import WrongJobStatus
from penstock.events.store.database import Transaction
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.chores import NOTHING
from penstock.events.store.repository.deliveries import Beginning, Done, TryLater, Verdict
from penstock.events.store.repository.lane_runs import LaneRun
from penstock.events.store.repository.lanes import LaneOwner, Lanes
from penstock.queues.errors import HeldBack
from penstock.queues.port import Publication
from tests.rigs.scheduler import (
    BLOCK,
    ENDPOINT,
    IMMEDIATE,
    NEXT,
    InlineDatabase,
    MemoryQueue,
    PlainTokens,
    SchedulerRig,
)

Result = TypeVar("Result")

SETTINGS = SchedulerSettings(stale_after_s=40, stale_poll_s=10)
TTL_S = 6.0
RENEW_S = 2.0
PROMPT_MS = 1000
_SLICE = 3


class Life:
    """Whether a process runs, stands still, or is gone. Everything it does outside itself asks here first."""

    def __init__(self) -> None:
        self._runs = asyncio.Event()
        self._runs.set()
        self.lease_is_reachable = True

    def pause(self) -> None:
        """Stop it in the middle of whatever it does; for good, if no one resumes it."""
        self._runs.clear()

    def resume(self) -> None:
        """It goes on where it was."""
        self._runs.set()

    async def goes_on(self) -> None:
        """Return while it runs."""
        await self._runs.wait()


class MortalDatabase:
    """The database, as a process sees it that may die before or after any call takes effect."""

    def __init__(self, database: InlineDatabase, life: Life) -> None:
        self._database = database
        self._life = life
        self.signal = database.signal

    async def open(self, now_ms: int) -> None:
        pass

    async def close(self) -> None:
        pass

    def trouble(self) -> str | None:
        return None

    def require_room(self) -> None:
        pass

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        await self._life.goes_on()
        result = await self._database.write(work)
        await self._life.goes_on()
        return result

    write_unflushed = write_one = read = read_few = write

    async def keep_months(self, now_ms: int) -> None:
        pass

    async def drop_before(self, before_ms: int) -> None:
        pass


class MortalLanes(Lanes):
    """Lanes that keep in mind which jobs such a process has read, and is not known to be done with."""

    def __init__(self, database: MortalDatabase, in_hand: dict[LaneKey, set[str]]) -> None:
        super().__init__(database)
        self._in_hand = in_hand

    async def read(self, now_ms: int, most: int, credit: CreditBook, lane_credit: int = LANE_CREDIT) -> list[LaneRun]:
        runs = await super().read(now_ms, most, credit, lane_credit)
        for run in runs:
            self._in_hand.setdefault(run.lane, set()).update(job.id for job in run.jobs)
        return runs

    async def mark_published(
        self,
        jobs: Sequence[ClaimedJob],
        done: Mapping[LaneKey, str | None],
        owner: LaneOwner,
        now_ms: int,
        lease_until_ms: int,
    ) -> None:
        await super().mark_published(jobs, done, owner, now_ms, lease_until_ms)
        for lane in done:
            self._in_hand.pop(lane, None)

    async def hold(self, lanes: Sequence[tuple[LaneKey, int]], owner: LaneOwner) -> None:
        await super().hold(lanes, owner)
        for lane, _ in lanes:
            self._in_hand.pop(lane, None)


class MortalJobs(JobRepository):
    """The repository of such a process."""

    def __init__(self, rig: SchedulerRig, life: Life, findings: list[str]) -> None:
        mortal = MortalDatabase(rig.database, life)
        super().__init__(mortal)
        self.in_hand: dict[LaneKey, set[str]] = {}
        self.lanes = MortalLanes(mortal, self.in_hand)
        self._queue = rig.queue
        self._findings = findings

    async def recover_stale(
        self, now_ms: int, most: int, token: int | None = None, settled: Mapping[str, int] = NOTHING
    ) -> list[str]:
        waiting = {entry.dedup_id for entry in self._queue.unsettled}
        recovered = await super().recover_stale(now_ms, most, token, settled)
        for job_id in recovered:
            job = await self.get_job(job_id)
            if f"{job_id}:{job.publish_round - 1}" in waiting:
                self._findings.append(f"{job_id} was recovered while its pointer was in the queue")
        return recovered


class MortalPublisher:
    """The queue, as such a process sees it: it may die when only a part of what it publishes is in."""

    def __init__(self, queue: MemoryQueue, life: Life) -> None:
        self._queue = queue
        self._life = life

    async def open(self) -> None:
        await self._life.goes_on()
        await self._queue.open()

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        results: list[Exception | None] = []
        refused: set[str | None] = set()
        for start in range(0, len(publications), _SLICE):
            part = publications[start : start + _SLICE]
            await self._life.goes_on()
            sent = [publication for publication in part if publication.group not in refused]
            answers = iter(await self._queue.publish(sent))
            some = [
                HeldBack(publication.group) if publication.group in refused else next(answers) for publication in part
            ]
            refused.update(publication.group for publication, failure in zip(part, some, strict=True) if failure)
            results += some
        await self._life.goes_on()
        return results

    async def settled_before_ms(self, pool: str | None = None) -> int:
        await self._life.goes_on()
        return await self._queue.settled_before_ms(pool)

    async def close(self) -> None:
        pass


class MortalLease:
    """The lease, as such a process sees it; whoever keeps it may be out of reach for a while."""

    def __init__(self, lease: SqlLease, life: Life) -> None:
        self._lease = lease
        self._life = life

    async def acquire(self, ttl_s: float) -> int | None:
        await self._reach()
        return await self._lease.acquire(ttl_s)

    async def renew(self, token: int, ttl_s: float) -> bool:
        await self._reach()
        return await self._lease.renew(token, ttl_s)

    async def release(self, token: int) -> None:
        await self._reach()
        await self._lease.release(token)

    async def _reach(self) -> None:
        await self._life.goes_on()
        if not self._life.lease_is_reachable:
            raise LeaseUnavailable("the lease is out of reach")


class Node:
    """One scheduler process of several."""

    def __init__(self, rig: SchedulerRig, name: str, findings: list[str]) -> None:
        seconds = asyncio.get_running_loop().time
        self.life = Life()
        self.jobs = MortalJobs(rig, self.life, findings)
        lease = MortalLease(SqlLease(rig.jobs, rig.clock, "scheduler", name), self.life)
        self.standby = Standby(lease, ttl_s=TTL_S, renew_s=RENEW_S, seconds=seconds)
        self.scheduler = Scheduler(
            self.jobs,
            MortalPublisher(rig.queue, self.life),
            Pointers(ENDPOINT, PlainTokens()),
            self.standby,
            SETTINGS,
            rig.clock,
            name=name,
            seconds=seconds,
        )
        self._tasks = [asyncio.create_task(self.standby.run()), asyncio.create_task(self.scheduler.run())]

    async def stop(self) -> None:
        """Stop it as a signal would: the scheduler first, then the standby."""
        for task in reversed(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def kill(self) -> None:
        """End it as `kill -9` would: nothing that it does from now on has any effect."""
        self.life.pause()

    async def bury(self) -> None:
        """Take what is left of a killed one away."""
        for task in self._tasks:
            task.cancel()
        done = asyncio.gather(*self._tasks, return_exceptions=True)
        # In its last moments it would clean up, and waits for that for ever.
        while not done.done():
            await asyncio.sleep(1)
            for task in self._tasks:
                task.cancel()


class Consumer:
    """The router and the process endpoint: one message per group at a time, in the order of the queue."""

    def __init__(self, rig: SchedulerRig, chance: Random, in_hand: "InHand") -> None:
        self._rig = rig
        self._chance = chance
        self._in_hand = in_hand
        self._lanes: dict[str, deque[tuple[int, str]]] = {}
        self._drains: set[asyncio.Task[None]] = set()
        self._seen = 0
        self._rests_until_s = 0.0
        self.loses = 0.02
        self.fails = 0.1
        self.begun: dict[str, list[str]] = defaultdict(list)
        self.final: dict[str, JobStatus] = {}
        self.errors: dict[str, set[str]] = defaultdict(set)
        self.excused: set[str] = set()
        self.findings: list[str] = []
        # Set when everything works: each job fails once, and is then published this soon after it is due.
        self.prompt_within_ms: int | None = None
        self._due_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Consume until cancelled."""
        try:
            while True:
                for entry in self._rig.queue.entries[self._seen :]:
                    self._receive(self._seen, entry.pointer.id, entry.group or "")
                    self._seen += 1
                await asyncio.sleep(0.01)
        finally:
            for drain in self._drains:
                drain.cancel()
            await asyncio.gather(*self._drains, return_exceptions=True)

    def rest(self, for_s: float) -> None:
        """Deliver nothing for a while: what was published waits in the queue."""
        self._rests_until_s = asyncio.get_running_loop().time() + for_s

    def _receive(self, number: int, job_id: str, group: str) -> None:
        if self.final.get(job_id) in (JobStatus.COMPLETED, JobStatus.EXPIRED) and job_id not in self.excused:
            self.findings.append(f"{job_id} was published after it was {self.final[job_id]}")
        due_ms = self._due_ms.pop(job_id, None)
        if due_ms is not None and self.prompt_within_ms is not None:
            late_ms = self._rig.clock.now_ms() - due_ms
            if late_ms > self.prompt_within_ms:
                self.findings.append(f"{job_id} was published {late_ms} ms after its retry was due")
        if self._chance.random() < self.loses:
            self._rig.queue.gone.add(number)
            return
        lane = self._lanes.get(group)
        if lane is not None:
            lane.append((number, job_id))
            return
        self._lanes[group] = deque([(number, job_id)])
        drain = asyncio.create_task(self._drain(group))
        self._drains.add(drain)
        drain.add_done_callback(self._drains.discard)

    async def _drain(self, group: str) -> None:
        lane = self._lanes[group]
        while lane:
            await asyncio.sleep(max(0.0, self._rests_until_s - asyncio.get_running_loop().time()))
            number, job_id = lane[0]
            if await self._deliver(job_id):
                self._rig.queue.gone.add(number)
                lane.popleft()
            else:
                await asyncio.sleep(0.5)
        del self._lanes[group]

    async def _deliver(self, job_id: str) -> bool:
        """Process one pointer; whether it is done with."""
        answer = await self._rig.begin(job_id)
        if answer.what is Beginning.BUSY:
            return False
        if answer.what is not Beginning.BEGUN:
            return True
        job = answer.job
        assert job is not None
        self._note_begin(job)
        await asyncio.sleep(self._chance.uniform(0.001, 0.3))
        verdict = self._verdict(job)
        if await self._rig.finish(job, verdict):
            self._note_end(job, verdict)
        return True

    def _verdict(self, job: DispatchJob) -> Verdict:
        if self.prompt_within_ms is not None and job.delivery_count == 1:
            self._due_ms[job.id] = self._rig.clock.now_ms() + 1000
            return TryLater(self._due_ms[job.id])
        if self._chance.random() >= self.fails:
            return Done(JobStatus.COMPLETED)
        if self._chance.random() < 0.5:
            return TryLater(self._rig.clock.now_ms() + self._chance.randrange(1, 8000))
        return Done(JobStatus.ERROR)

    def _note_begin(self, job: DispatchJob) -> None:
        if job.id in self.final:
            self.findings.append(f"{job.id} was delivered after it was {self.final[job.id]}")
        blocking = {error for error in self.errors[job.group_key] if error < job.id}
        if job.mode is BLOCK and blocking:
            self.findings.append(f"{job.id} was delivered while {blocking} blocked its group")
        if job.id not in self.begun[job.group_key]:
            self.begun[job.group_key].append(job.id)

    def _note_end(self, job: DispatchJob, verdict: Verdict) -> None:
        if isinstance(verdict, Done):
            self.final[job.id] = verdict.status
            if self._in_hand.has(job.id):
                self.excused.add(job.id)
            if verdict.status is JobStatus.ERROR:
                self.errors[job.group_key].add(job.id)

    async def resolve(self, *, ignore: float) -> None:
        """Someone looks at the jobs in ERROR, and retries or ignores each."""
        for errors in list(self.errors.values()):
            for job_id in sorted(errors):
                errors.discard(job_id)
                self.final.pop(job_id, None)
                now_ms = self._rig.clock.now_ms()
                if self._chance.random() < ignore:
                    self.final[job_id] = JobStatus.CANCELLED
                    await self._rig.jobs.ignore([job_id], now_ms)
                else:
                    await self._rig.jobs.retry([job_id], now_ms)


class InHand:
    """Which jobs some scheduler has read and not settled: those may still come to the queue, whatever happens."""

    def __init__(self, *nodes: list[Node]) -> None:
        self._nodes = nodes

    def has(self, job_id: str) -> bool:
        """Whether a job is in some scheduler's hand."""
        held = (node.jobs.in_hand.values() for nodes in self._nodes for node in nodes)
        return any(job_id in ids for lanes in held for ids in lanes)


class World:
    """Two schedulers, a queue, a consumer, and what happens to them."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.rig = SchedulerRig(clock)
        self.chance = Random(seed)
        self.nodes: list[Node] = []
        self.dead: list[Node] = []
        self.consumer = Consumer(self.rig, self.chance, InHand(self.nodes, self.dead))
        self.rig.queue.latency_s = self.rig.database.latency_s = 0.02
        self.rig.router_behind_ms = self.chance.choice([0, 0, 200, 2000])
        self._modes: dict[str, DispatchMode] = {}
        self.made: list[str] = []
        self._named = 0

    async def run(self, steps: int) -> list[str]:
        """Let things happen, then let everything come to its end; what was wrong."""
        consuming = asyncio.create_task(self.consumer.run())
        self._start_node()
        self._start_node()
        try:
            for _ in range(steps):
                await self._step()
                await asyncio.sleep(self.chance.uniform(0.0, 3.0))
            await self._heal()
            await self._settle()
            await self._retry_in_time()
            return [*self.consumer.findings, *await self._unfinished(), *self._out_of_order()]
        finally:
            for node in (*self.nodes, *self.dead):
                await node.bury()
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
            await self.rig.close()

    async def _step(self) -> None:
        weights = {
            self._make: 10,
            self._crash: 3,
            self._restart: 4,
            self._pause: 2,
            self._resume: 3,
            self._lease_flaps: 2,
            self._queue_fails: 2,
            self._look_at_errors: 2,
            self._cancel: 1,
            self._rest: 1,
        }
        (happening,) = self.chance.choices(list(weights), list(weights.values()))
        await happening()

    async def _make(self) -> None:
        jobs = []
        for _ in range(self.chance.randrange(1, 25)):
            group = f"g{self.chance.randrange(6)}"
            mode = self._modes.setdefault(group, self.chance.choice([BLOCK, BLOCK, NEXT, IMMEDIATE]))
            jobs.append(self.rig.new_job(group, mode=mode))
        self.made += await self.rig.make_all(jobs)

    async def _busy(self) -> None:
        """In the middle of things."""
        await self._make()
        await asyncio.sleep(self.chance.uniform(0.0, 0.2))

    async def _crash(self) -> None:
        await self._busy()
        for node in self.nodes:
            if node.standby.is_primary():
                node.kill()

    async def _restart(self) -> None:
        await self._busy()
        if self.chance.random() < 0.5:
            self.dead.append(self.nodes.pop(0))
            self.dead[-1].kill()
        else:
            await self._stop_first()
        self._start_node()

    async def _stop_first(self) -> None:
        node = self.nodes.pop(0)
        node.life.resume()
        await node.stop()

    async def _pause(self) -> None:
        await self._busy()
        self.chance.choice(self.nodes).life.pause()

    async def _resume(self) -> None:
        for node in self.nodes:
            node.life.resume()

    async def _lease_flaps(self) -> None:
        node = self.chance.choice(self.nodes)
        node.life.lease_is_reachable = not node.life.lease_is_reachable

    async def _queue_fails(self) -> None:
        queue = self.rig.queue
        queue.is_down = not queue.is_down
        queue.refused_groups = {f"DISPATCH_JOB:g{self.chance.randrange(6)}"}

    async def _rest(self) -> None:
        await self._busy()
        self.consumer.rest(self.chance.uniform(1.0, 4.0 * SETTINGS.stale_after_s))

    async def _look_at_errors(self) -> None:
        await self.consumer.resolve(ignore=0.5)

    async def _cancel(self) -> None:
        if self.made:
            job_id = self.chance.choice(self.made)
            with suppress(WrongJobStatus):
                await self.rig.jobs.cancel([job_id], self.rig.clock.now_ms())
                self.consumer.final[job_id] = JobStatus.CANCELLED

    def _start_node(self) -> None:
        self._named += 1
        self.nodes.append(Node(self.rig, f"node{self._named}", self.consumer.findings))

    async def _heal(self) -> None:
        """From here on everything works."""
        self.rig.queue.is_down = False
        self.rig.queue.refused_groups = set()
        self.consumer.loses = self.consumer.fails = 0.0
        self.consumer.rest(0)
        for node in self.nodes:
            node.life.lease_is_reachable = True
            node.life.resume()

    async def _settle(self) -> None:
        """Long enough for leases, claims and lost jobs, once more after the errors are gone."""
        for _ in range(3):
            await self.consumer.resolve(ignore=0.5)
            await asyncio.sleep(SETTINGS.stale_after_s + 120)

    async def _retry_in_time(self) -> None:
        """While everything works a retry does not wait for the next poll."""
        self.consumer.prompt_within_ms = PROMPT_MS
        for _ in range(3):
            await self._make()
            await asyncio.sleep(SETTINGS.poll_interval_s * 1.3)
        await asyncio.sleep(60)

    async def _unfinished(self) -> list[str]:
        found = [(job_id, await self.rig.status(job_id)) for job_id in self.made]
        return [f"{job_id} is {status} in the end" for job_id, status in found if status not in FINAL]

    def _out_of_order(self) -> list[str]:
        """Of groups in order: jobs that came to the queue, or to their first delivery, before an earlier one."""
        first: dict[str, list[str]] = defaultdict(list)
        for entry in self.rig.queue.entries:
            group, job_id = entry.pointer.message_group_id or "", entry.pointer.id
            if entry.pointer.dispatch_mode is not IMMEDIATE and job_id not in first[group]:
                first[group].append(job_id)
        delivered = {group: ids for group, ids in self.consumer.begun.items() if self._mode_of(group) is BLOCK}
        return [
            f"{group} is out of order in the {where}: {ids}"
            for where, groups in (("queue", first), ("deliveries", delivered))
            for group, ids in groups.items()
            if ids != sorted(ids)
        ]

    def _mode_of(self, group_key: str) -> DispatchMode:
        return self._modes[group_key.partition(":")[2]]
