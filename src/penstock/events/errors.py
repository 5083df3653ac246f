"""Errors of events, jobs and their databases.

NotFound
├── JobNotFound
├── EventNotFound
├── UnknownSubscription        no subscription has this id
├── PoolNotFound
├── FeedNotFound
├── EventTypeNotFound          the catalogue does not have this type
└── ReplayNotFound
AlreadyExists
└── SubscriptionNameTaken      another subscription of the tenant has this name
FailedPrecondition
├── WrongJobStatus             the job's status does not allow this change
├── NotLeading                 this node lost the lease before it could publish
├── ReplayTakenOver            another task or a later run does this work now
├── SchemaTooNew               the database needs a newer Penstock
└── MigrationChanged           an applied migration differs from the one of this Penstock
Unavailable
├── DatabaseFailed             the database refused or did not answer; nothing was changed
│   └── ValuesRefused          it cannot keep one of the values; others it would keep
└── DispatchFailed             Spark could not publish the jobs that are ready
"""

from penstock.domain.errors import AlreadyExists, FailedPrecondition, NotFound, Unavailable


class JobNotFound(NotFound):
    """No job has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"Job not found: {job_id}")


class EventNotFound(NotFound):
    """No event has this id."""

    def __init__(self, event_id: str) -> None:
        super().__init__(f"Event not found: {event_id}")


class UnknownSubscription(NotFound):
    """No subscription has this id."""

    def __init__(self, subscription_id: str) -> None:
        super().__init__(f"Subscription not found: {subscription_id}")


class PoolNotFound(NotFound):
    """No pool has this code."""

    def __init__(self, code: str) -> None:
        super().__init__(f"Pool not found: {code}")


class FeedNotFound(NotFound):
    """No feed has this topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"the topic {topic} feeds no events; `penstock topics list` shows those that do")


class EventTypeNotFound(NotFound):
    """The catalogue does not have this event type."""

    def __init__(self, type: str) -> None:
        super().__init__(f"there is no event type {type[:100]!r}; `penstock event-types list` shows all")


class ReplayNotFound(NotFound):
    """No replay has this id."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"Replay not found: {replay_id}")


class SubscriptionNameTaken(AlreadyExists):
    """Another subscription of the tenant has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a subscription named {name!r} exists: choose another name, or update that one")


class WrongJobStatus(FailedPrecondition):
    """The job's status does not allow this change."""

    def __init__(self, job_id: str, status: str, wanted: str) -> None:
        super().__init__(f"job {job_id} is {status}: it cannot be {wanted}")


class ReplayTakenOver(FailedPrecondition):
    """Another task or a later run does this work now."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"this part of replay {replay_id} was taken over: it is left to the task that has it now")


class SchemaTooNew(FailedPrecondition):
    """The database needs a newer Penstock."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"the jobs database has version {version} and needs a newer Penstock; this one knows versions up to {known}"
        )


class MigrationChanged(FailedPrecondition):
    """An applied migration differs from the one of this Penstock."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"migration {name} was applied with different contents: "
            "use the build that created the database, or restore a backup"
        )


class DatabaseFailed(Unavailable):
    """The database refused or did not answer; nothing was changed."""


class ValuesRefused(DatabaseFailed):
    """The database cannot keep one of the values: a number or a text outside what it can hold."""


class NotLeading(FailedPrecondition):
    """This node lost the lease before it could publish."""

    def __init__(self) -> None:
        super().__init__("this node lost the leader's lease and publishes nothing")


class DispatchFailed(Unavailable):
    """Spark could not publish the jobs that are ready."""
