"""Creates the pointer that the queue carries for a claimed job (SCHED-POINTER-1)."""

from typing import Protocol

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.domain.pointer import DispatchMode, MediationType
from penstock.domain.subscription import is_pool_code
from penstock.queues import Publication


class TokenIssuer(Protocol):
    """Issues the tokens that prove to the process endpoint that a request comes from this queue."""

    def token(self, job_id: str, now_ms: int) -> str:
        """Return a short-lived token that is valid for this job only."""
        ...


class Pointers:
    """Creates pointers to the process endpoint; `pool` is used for jobs that name none."""

    def __init__(self, endpoint: str, tokens: TokenIssuer, pool: str = DEFAULT_DISPATCH_POOL) -> None:
        self._endpoint = endpoint
        self._tokens = tokens
        self.pool = pool

    def publication(self, job: ClaimedJob, now_ms: int) -> Publication:
        """Return the message for a job."""
        pointer = _Pointer(
            id=job.id,
            pool_code=self.pool if job.pool == DEFAULT_DISPATCH_POOL else job.pool,
            auth_token=self._tokens.token(job.id, now_ms),
            mediation_target=self._endpoint,
            message_group_id=job.group_key,
            high_priority=job.high_priority,
            dispatch_mode=job.mode,
        )
        # A FIFO queue makes the messages of a group wait for each other; IMMEDIATE jobs must not.
        group = job.id if job.mode is DispatchMode.IMMEDIATE else job.group_key
        return Publication(_encode(pointer), group, job.dedup_id, queue_of(job.pool))


def queue_of(pool: str) -> str | None:
    """Return the pool whose queue is used; None for the shared one, which is also for codes that no router accepts."""
    return None if pool == DEFAULT_DISPATCH_POOL or not is_pool_code(pool) else pool


class _Pointer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Writes every field, because routers other than ours read the format too."""

    id: str
    pool_code: str
    auth_token: str
    mediation_type: MediationType = MediationType.HTTP
    mediation_target: str
    message_group_id: str
    high_priority: bool
    dispatch_mode: DispatchMode


_encode = msgspec.json.Encoder().encode
