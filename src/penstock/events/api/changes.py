"""`/api/v1/changes`: the log of changes made through the API, which the database and the process's log record."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from penstock.client.types import CallerView, ChangeList, ChangeQuery, ChangeView
from penstock.edge.clock import Clock
from penstock.events.fields import moment_of
from penstock.events.store import JobRepository, KeptChange
from penstock.http.api import Call, LoggedChanges, NoBody, NoQuery, route
from penstock.http.auth import EVERYONE
from penstock.http.change import Change

PATH = "/api/v1/changes"

_V1, _ROUTER, _QUEUES = "/api/v1", "/api/router", "/api/queues"
IN_WORDS: Mapping[str, str] = {
    f"POST {_V1}/jobs/{{id}}/cancel": "skipped job {id}",
    f"POST {_V1}/jobs/cancel": "skipped {count} jobs",
    f"POST {_V1}/jobs/{{id}}/retry": "retried job {id}",
    f"POST {_V1}/jobs/retry": "retried {count} jobs",
    f"POST {_V1}/jobs/{{id}}/ignore": "ignored job {id}",
    f"POST {_V1}/jobs/ignore": "ignored {count} jobs",
    f"POST {_V1}/jobs/retry-group": "retried {count} jobs of {group}",
    f"POST {_V1}/subscriptions": "created {name}",
    f"PATCH {_V1}/subscriptions/{{id}}": "changed {name}",
    f"POST {_V1}/subscriptions/{{id}}/pause": "paused {name}",
    f"POST {_V1}/subscriptions/{{id}}/resume": "resumed {name}",
    f"DELETE {_V1}/subscriptions/{{id}}": "deleted {name}",
    f"POST {_V1}/subscriptions/{{id}}/rotate-secret": "rotated the secret of {name}",
    f"POST {_V1}/subscriptions/{{id}}/finish-rotation": "finished the rotation of {name}",
    f"POST {_V1}/subscriptions/{{id}}/test": "tested {name}",
    f"PUT {_V1}/pools/{{code}}": "set the limits of pool {code}",
    f"DELETE {_V1}/pools/{{code}}": "deleted pool {code}",
    f"PUT {_V1}/feeds/{{topic}}": "let topic {topic} feed events",
    f"DELETE {_V1}/feeds/{{topic}}": "stopped topic {topic} from feeding events",
    f"PUT {_V1}/event-types/{{type}}": "set event type {type}",
    f"DELETE {_V1}/event-types/{{type}}": "deleted event type {type}",
    f"POST {_V1}/portal-links": "created a portal link for {tenant} {name}",
    f"DELETE {_V1}/portal-links/{{tenant}}": "revoked the portal links of {tenant}",
    f"POST {_V1}/replays": "replayed {count} jobs",
    f"POST {_V1}/replays/{{id}}/stop": "stopped replay {id}",
    f"POST {_V1}/replays/{{id}}/resume": "continued replay {id}",
    f"POST {_V1}/breakers/reset": "closed a breaker",
    f"POST {_V1}/breakers/reset-all": "closed all breakers",
    f"PUT {_ROUTER}/monitoring/pools/{{code}}": "set the limits of pool {code} in the router",
    f"POST {_ROUTER}/monitoring/circuit-breakers/reset": "closed a breaker of the router",
    f"POST {_ROUTER}/monitoring/circuit-breakers/reset-all": "closed all breakers of the router",
    f"POST {_ROUTER}/config/reload": "reloaded the router's configuration",
    f"POST {_ROUTER}/warnings/acknowledge-all": "acknowledged all warnings",
    f"POST {_ROUTER}/warnings/{{id}}/acknowledge": "acknowledged warning {id}",
    f"POST {_QUEUES}/{{name}}/purge": "purged queue {name}",
    f"POST {_QUEUES}/{{name}}/redrive": "moved the dead letters of queue {name}",
}
"""Each operation that the log records, in words; names in braces are of the change's target."""


class ChangeRoutes:
    """The route of the change log."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    @route("GET", PATH, summary="List the changes made through this API, the newest first.")
    async def _list(self, call: Call[ChangeQuery, NoBody]) -> ChangeList:
        page = await self._repository.list_changes(call.query.cursor, call.query.limit)
        return ChangeList([_view(kept) for kept in page.changes], page.cursor)


class CallerRoutes:
    """The route that says who the caller is, so that the page shows only what its role may do."""

    @route("GET", "/api/v1/caller", summary="Get the name and the role of the key that asks.", roles=EVERYONE)
    def _caller(self, call: Call[NoQuery, NoBody]) -> CallerView:
        return CallerView(call.caller.name, call.caller.role)


def in_words(change: Change) -> str:
    """Return a change as words such as `paused billing`; changes of before have ids where names are unknown."""
    known = {"name": change.target.get("id", ""), **change.target}
    text = IN_WORDS.get(change.action, change.action).format_map(defaultdict(str, known))
    return " ".join(text.replace(" 1 jobs", " 1 job").split())


def _view(kept: KeptChange) -> ChangeView:
    change = kept.change
    return ChangeView(
        kept.id,
        moment_of(kept.at_ms),
        change.who,
        change.role,
        change.action,
        change.target,
        change.detail,
        in_words(change),
    )


class DatabaseChanges:
    """Stores changes in the job repository."""

    def __init__(self, repository: JobRepository, new_id: Callable[[], str], clock: Clock) -> None:
        self._repository = repository
        self._new_id = new_id
        self._clock = clock
        self._logged = LoggedChanges()

    async def record(self, change: Change) -> None:
        """Store one change."""
        await self._logged.record(change)
        await self._repository.keep_change(KeptChange(id=self._new_id(), at_ms=self._clock.now_ms(), change=change))
