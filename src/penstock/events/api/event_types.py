"""`/api/v1/event-types`: the catalogue of event types, and its AsyncAPI document."""

from msgspec import UNSET

from penstock.client.types import (
    DataCheck,
    DataToCheck,
    EventTypeBody,
    EventTypeList,
    EventTypeView,
    PageQuery,
)
from penstock.domain.errors import InvalidArgument
from penstock.domain.limits import MIB
from penstock.events.accept import is_event_type
from penstock.events.catalogue import EventSchemas, asyncapi_document, check_data, check_event_type, decoded
from penstock.events.store import JobRepository
from penstock.http.api import Call, Json, NoBody, NoQuery, page_of, route
from penstock.http.auth import EVERYONE

PATH = "/api/v1/event-types"
_ONE = f"{PATH}/{{type}}"
_MOST_TYPE_CHARACTERS = 256


class EventTypeRoutes:
    """The routes of event types."""

    def __init__(self, repository: JobRepository, schemas: EventSchemas) -> None:
        self._repository = repository
        self._schemas = schemas

    @route("GET", PATH, summary="List the catalogue of event types, by type.", roles=EVERYONE)
    async def _list(self, call: Call[PageQuery, NoBody]) -> EventTypeList:
        found = await self._repository.list_event_types()
        page, cursor = page_of(found, lambda each: (each.type,), tuple[str], call.query.limit, call.query.cursor)
        return EventTypeList(page, self._schemas.unknown_types, cursor)

    @route("GET", _ONE, summary="Get an event type with its schemas and examples.", roles=EVERYONE)
    async def _get(self, call: Call[NoQuery, NoBody]) -> EventTypeView:
        return await self._repository.get_event_type(_type(call.path["type"]))

    @route(
        "PUT",
        _ONE,
        summary="Set an event type, whole: description, schemas by version, examples, and what they are for.",
        max_body_bytes=MIB,
    )
    async def _put(self, call: Call[NoQuery, EventTypeBody]) -> EventTypeView:
        name = call.path["type"]
        if len(name) > _MOST_TYPE_CHARACTERS or not is_event_type(name):
            raise InvalidArgument(f"{name[:100]!r} cannot be the type of an event: up to 256 characters, without *")
        body = call.body
        view = EventTypeView(
            type=name, description=body.description, validation=body.validation, versions=body.versions
        )
        check_event_type(view)
        await self._repository.put_event_type(view)
        self._schemas.forget()
        return view

    @route("DELETE", _ONE, summary="Delete an event type; its events are of an unknown type from now on.")
    async def _delete(self, call: Call[NoQuery, NoBody]) -> EventTypeView:
        deleted = await self._repository.delete_event_type(_type(call.path["type"]))
        self._schemas.forget()
        return deleted

    @route(
        "POST",
        f"{_ONE}/validate",
        summary="Compare data with the schema of an event type, without publishing anything.",
        roles=EVERYONE,
    )
    async def _validate(self, call: Call[NoQuery, DataToCheck]) -> DataCheck:
        view = await self._repository.get_event_type(_type(call.path["type"]))
        wanted = None if call.body.version is UNSET else call.body.version
        return check_data(view, decoded(bytes(call.body.data)), wanted)

    @route("GET", "/asyncapi.json", summary="The catalogue of event types as an AsyncAPI 3.0 document.", roles=EVERYONE)
    async def _asyncapi(self, _: Call[NoQuery, NoBody]) -> Json:
        return asyncapi_document(await self._repository.list_event_types())


def _type(given: str) -> str:
    # No database finds a NUL, and one refuses it.
    return given.replace("\0", "\N{REPLACEMENT CHARACTER}")
