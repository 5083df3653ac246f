"""The SchemaService: schemas, their revisions, and validation."""

import asyncio

from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.pubsub_v1 import types

from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest, LastRevision, ResourceExists, SchemaNotFound
from penstock.pubsub.fields import page
from penstock.pubsub.limits import MAX_SCHEMA_REVISIONS
from penstock.pubsub.names import project_name, schema_name, schema_revision
from penstock.pubsub.policies import Policies
from penstock.pubsub.schemas.definition import check_message, read_definition
from penstock.pubsub.schemas.store import SchemaStore
from penstock.pubsub.schemas.topics import TopicSchemas
from penstock.pubsub.wire import GrpcCall, copy_of


class SchemaService:
    """The calls of google.pubsub.v1.SchemaService."""

    def __init__(
        self, store: SchemaStore, topic_schemas: TopicSchemas, policies: Policies, changing: asyncio.Lock
    ) -> None:
        self._store = store
        self._topic_schemas = topic_schemas
        self._policies = policies
        self._changing = changing

    async def create_schema(self, request: types.CreateSchemaRequest, _: GrpcCall) -> types.Schema:
        """Create a schema with its first revision."""
        name = schema_name(f"{project_name(request.parent)}/schemas/{request.schema_id}")
        read_definition(request.schema)
        async with self._changing:
            if self._store.exists(name):
                raise ResourceExists(name)
            revision = self._store.new_revision(name, _without_revision(request.schema), [])
            await self._store.put(name, [revision])
        return revision

    async def commit_schema(self, request: types.CommitSchemaRequest, _: GrpcCall) -> types.Schema:
        """Add a revision."""
        name = schema_name(request.name)
        read_definition(request.schema)
        async with self._changing:
            revisions = self._store.revisions(name)
            if request.schema.type_ != revisions[-1].type_:
                raise InvalidRequest("a revision must be of the same type as its schema")
            return await self._add(name, _without_revision(request.schema), revisions)

    async def rollback_schema(self, request: types.RollbackSchemaRequest, _: GrpcCall) -> types.Schema:
        """Add a revision that is a copy of an earlier one."""
        name = schema_name(request.name)
        async with self._changing:
            earlier = self._store.revision(name, request.revision_id or None)
            return await self._add(name, _without_revision(earlier), self._store.revisions(name))

    async def get_schema(self, request: types.GetSchemaRequest, _: GrpcCall) -> types.Schema:
        """Return a schema, or one revision of it."""
        return _view_of(self._store.revision(*schema_revision(request.name)), request.view, types.SchemaView.FULL)

    async def list_schemas(self, request: types.ListSchemasRequest, _: GrpcCall) -> types.ListSchemasResponse:
        """Return the schemas of a project."""
        names, token = page(self._store.names(project_name(request.parent)), str, request.page_size, request.page_token)
        newest = [self._store.revision(name, None) for name in names]
        shown = [_view_of(schema, request.view, types.SchemaView.BASIC) for schema in newest]
        return wire.ListSchemasResponse(schemas=shown, next_page_token=token)

    async def list_schema_revisions(
        self, request: types.ListSchemaRevisionsRequest, _: GrpcCall
    ) -> types.ListSchemaRevisionsResponse:
        """Return the revisions of a schema, newest first."""
        newest_first = self._store.revisions(schema_name(request.name))[::-1]
        numbered = [(f"{place:04}", revision) for place, revision in enumerate(newest_first)]
        taken, token = page(numbered, lambda item: item[0], request.page_size, request.page_token)
        shown = [_view_of(revision, request.view, types.SchemaView.BASIC) for _, revision in taken]
        return wire.ListSchemaRevisionsResponse(schemas=shown, next_page_token=token)

    async def delete_schema_revision(self, request: types.DeleteSchemaRevisionRequest, _: GrpcCall) -> types.Schema:
        """Remove one revision."""
        name, revision_id = schema_revision(request.name)
        if revision_id is None:
            raise InvalidRequest(f"{request.name!r} has no revision: it must be SCHEMA@REVISION")
        async with self._changing:
            revisions = self._store.revisions(name)
            kept = [revision for revision in revisions if revision.revision_id != revision_id]
            if len(kept) == len(revisions):
                raise SchemaNotFound(request.name)
            if not kept:
                raise LastRevision(request.name)
            await self._store.put(name, kept)
        self._topic_schemas.forget_all()
        return kept[-1]

    async def delete_schema(self, request: types.DeleteSchemaRequest, _: GrpcCall) -> Empty:
        """Remove a schema with all its revisions; topics that use it accept no messages until they are changed."""
        name = schema_name(request.name)
        async with self._changing:
            if not self._store.exists(name):
                raise SchemaNotFound(name)
            await self._store.drop(name)
            await self._policies.forget(name)
        self._topic_schemas.forget_all()
        return Empty()

    async def validate_schema(self, request: types.ValidateSchemaRequest, _: GrpcCall) -> types.ValidateSchemaResponse:
        """Check a definition."""
        project_name(request.parent)
        read_definition(request.schema)
        return wire.ValidateSchemaResponse()

    async def validate_message(
        self, request: types.ValidateMessageRequest, _: GrpcCall
    ) -> types.ValidateMessageResponse:
        """Check a message against a stored or a given schema."""
        project_name(request.parent)
        schema = self._store.revision(*schema_revision(request.name)) if request.name else request.schema
        check_message(read_definition(schema), request.message, int(request.encoding))
        return wire.ValidateMessageResponse()

    async def _add(self, name: str, schema: types.Schema, revisions: list[types.Schema]) -> types.Schema:
        if len(revisions) >= MAX_SCHEMA_REVISIONS:
            raise InvalidRequest(f"a schema has at most {MAX_SCHEMA_REVISIONS} revisions; delete one first")
        revision = self._store.new_revision(name, schema, revisions)
        await self._store.put(name, [*revisions, revision])
        self._topic_schemas.forget_all()
        return revision


def _without_revision(schema: types.Schema) -> types.Schema:
    copy = copy_of(schema)
    copy.revision_id = ""
    return copy


def _view_of(schema: types.Schema, view: int, default: int) -> types.Schema:
    """Return the part of a schema that a view shows."""
    if (view or default) == types.SchemaView.FULL:
        return schema
    return wire.Schema(
        name=schema.name,
        type_=schema.type_,
        revision_id=schema.revision_id,
        revision_create_time=schema.revision_create_time,
    )
