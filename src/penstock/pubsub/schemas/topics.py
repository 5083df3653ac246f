"""Topics with a schema: which revisions a message may match, and the rejection of one that matches none."""

from collections.abc import Sequence

import msgspec
from google.pubsub_v1 import types

from penstock.broker import AsyncBroker, InternalMessage
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest, SchemaMismatch
from penstock.pubsub.names import DELETED_SCHEMA, schema_name
from penstock.pubsub.schemas.definition import Definition, check_message, read_definition
from penstock.pubsub.schemas.store import SchemaStore
from penstock.pubsub.wire import decode, has


class MessageValidator:
    """The revisions of a schema that a topic allows, newest first."""

    def __init__(self, name: str, encoding: int, definitions: Sequence[tuple[str, Definition]]) -> None:
        self._name = name
        self._encoding = encoding
        self._definitions = definitions

    def validated(self, messages: Sequence[InternalMessage]) -> list[InternalMessage]:
        """Return the messages, each noting the revision it matches; raise SchemaMismatch if one matches none."""
        return [self._with_revision(message) for message in messages]

    def _with_revision(self, message: InternalMessage) -> InternalMessage:
        mismatch = SchemaMismatch(f"no revision of {self._name} is allowed on this topic")
        for revision_id, definition in self._definitions:
            try:
                check_message(definition, message.data, self._encoding)
            except SchemaMismatch as error:
                mismatch = error
                continue
            notes = {
                "googclient_schemaname": self._name,
                "googclient_schemaencoding": types.Encoding(self._encoding).name,
                "googclient_schemarevisionid": revision_id,
            }
            return msgspec.structs.replace(message, notes=notes)
        raise mismatch


class TopicSchemas:
    """The validators of topics, loaded on first use."""

    def __init__(self, broker: AsyncBroker, schemas: SchemaStore) -> None:
        self._broker = broker
        self._schemas = schemas
        self._validators: dict[str, MessageValidator | None] = {}

    def check(self, topic: types.Topic) -> None:
        """Raise an error if a topic's schema settings are invalid."""
        if has(topic, "schema_settings"):
            self._read(topic.schema_settings)

    def shown(self, topic: types.Topic) -> types.Topic:
        """Return a topic as the API shows it, without the name of a deleted schema."""
        if has(topic, "schema_settings") and not self._schemas.exists(topic.schema_settings.schema):
            topic.schema_settings.schema = DELETED_SCHEMA
        return topic

    def validator_of(self, topic_name: str) -> MessageValidator | None:
        """Return the validator of a topic's messages, or None if it has no schema."""
        try:
            return self._validators[topic_name]
        except KeyError:
            return self._load(topic_name)

    def forget(self, topic_name: str) -> None:
        """Drop the cached validator of a topic that has changed."""
        self._validators.pop(topic_name, None)

    def forget_all(self) -> None:
        """Drop all cached validators after a schema has changed."""
        self._validators.clear()

    def _load(self, topic_name: str) -> MessageValidator | None:
        metadata = self._broker.rules.topic(topic_name)
        if metadata is None:
            return None
        topic = decode(wire.Topic, metadata.definition)
        validator = self._read(topic.schema_settings) if has(topic, "schema_settings") else None
        self._validators[topic_name] = validator
        return validator

    def _read(self, settings: types.SchemaSettings) -> MessageValidator:
        if settings.encoding not in (types.Encoding.JSON, types.Encoding.BINARY):
            raise InvalidRequest("schema_settings.encoding must be BINARY or JSON")
        revisions = self._schemas.revisions(schema_name(settings.schema))
        allowed = _between(revisions, settings.first_revision_id, settings.last_revision_id)
        definitions = [(revision.revision_id, read_definition(revision)) for revision in reversed(allowed)]
        return MessageValidator(settings.schema, int(settings.encoding), definitions)


def _between(revisions: list[types.Schema], first_id: str, last_id: str) -> list[types.Schema]:
    ids = [revision.revision_id for revision in revisions]
    for wanted in (first_id, last_id):
        if wanted and wanted not in ids:
            raise InvalidRequest(f"schema_settings names the revision {wanted!r}, which the schema does not have")
    first = ids.index(first_id) if first_id else 0
    last = ids.index(last_id) if last_id else len(ids) - 1
    if first > last:
        raise InvalidRequest("schema_settings.first_revision_id must not be newer than last_revision_id")
    return revisions[first : last + 1]
