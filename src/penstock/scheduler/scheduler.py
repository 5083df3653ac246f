"""The scheduler: while this node leads, jobs go from PENDING to the queue."""

from collections.abc import Callable

from penstock.edge.clock import Clock, pause, stopwatch
from penstock.queues.port import Publisher
from penstock.scheduler.claims import Claims
from penstock.scheduler.counts import Counts
from penstock.scheduler.patient_publisher import PatientPublisher, Pause
from penstock.scheduler.pointers import Pointers
from penstock.scheduler.retention import Retention
from penstock.scheduler.scheduled_jobs import ScheduledJobs
from penstock.scheduler.settings import SchedulerSettings
from penstock.scheduler.standby import Leadership
from penstock.scheduler.term import Term
from penstock.scheduler.terms import Terms


class Scheduler:
    """Runs a term whenever this node leads. `name` tells nodes apart in the claims."""

    def __init__(
        self,
        jobs: ScheduledJobs,
        publisher: Publisher,
        pointers: Pointers,
        leadership: Leadership,
        settings: SchedulerSettings,
        clock: Clock,
        *,
        name: str,
        seconds: Callable[[], float] = stopwatch,
        pause: Pause = pause,
    ) -> None:
        self.counts = Counts()
        self._jobs = jobs
        self._publisher = PatientPublisher(publisher, self.counts, pause)
        self._pointers = pointers
        self._leadership = leadership
        self._settings = settings
        self._clock = clock
        self._name = name
        self._seconds = seconds
        self._pause = pause
        self._term: Term | None = None

    @property
    def jobs_held(self) -> int:
        """Jobs that are claimed here and not published yet."""
        return 0 if self._term is None else self._term.dispatcher.jobs_held

    @property
    def groups_held(self) -> int:
        """Groups that those jobs are of."""
        return 0 if self._term is None else self._term.dispatcher.groups

    async def run(self) -> None:
        """Lead whenever it is this node's turn, until cancelled; nothing that goes wrong ends it."""
        try:
            await Terms(self._leadership, self._new_term, self.counts, self._pause).run()
        finally:
            await self._publisher.close()

    def _new_term(self) -> Term:
        owner = f"{self._name}#{self.counts.terms}"
        claims = Claims(self._jobs, self._clock, self._settings, owner=owner, token=self._leadership.token)
        self._term = Term(
            claims,
            Retention(self._jobs, self._settings, self.counts, self._clock, self._pause),
            self._publisher,
            self._pointers,
            self._settings,
            self.counts,
            self._clock,
            may_publish=self._leadership.is_primary,
            seconds=self._seconds,
            pause=self._pause,
        )
        return self._term
