"""Schemas, their revisions, and topics that refuse what does not fit, with Google's client."""

from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from google.pubsub_v1.types import Encoding, Schema

from tests.protocol.pubsub_rig import Rig, bodies
from tests.services.pubsub_server import PROJECT

pytest_plugins = ["tests.protocol.pubsub_fixtures"]

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'
AVRO_WITH_COUNT = (
    '{"type": "record", "name": "Order", "fields":'
    ' [{"name": "id", "type": "string"}, {"name": "count", "type": "int"}]}'
)
PROTO = 'syntax = "proto3"; message Order { string id = 1; int32 count = 2; }'


def definition(text: str) -> dict[str, Any]:
    kind = Schema.Type.PROTOCOL_BUFFER if text.startswith("syntax") else Schema.Type.AVRO
    return {"type_": kind, "definition": text}


def schema_of(rig: Rig, text: str) -> Any:
    schema_id = rig.name("schemas").rpartition("/")[2]
    return rig.schemas.create_schema(parent=PROJECT, schema=definition(text), schema_id=schema_id)


def test_a_schema_is_made_shown_listed_and_removed(rig: Rig) -> None:
    made = schema_of(rig, AVRO)

    assert rig.schemas.get_schema(name=made.name) == made
    assert (made.definition, len(made.revision_id)) == (AVRO, 8)
    basic = rig.schemas.get_schema(request={"name": made.name, "view": "BASIC"})
    assert (basic.name, basic.definition) == (made.name, "")
    listed = {schema.name: schema for schema in rig.schemas.list_schemas(parent=PROJECT)}
    assert listed[made.name].definition == ""
    with pytest.raises(AlreadyExists):
        rig.schemas.create_schema(parent=PROJECT, schema=definition(AVRO), schema_id=made.name.rpartition("/")[2])
    rig.schemas.delete_schema(name=made.name)
    with pytest.raises(NotFound, match="Schema not found"):
        rig.schemas.get_schema(name=made.name)


def test_revisions_are_committed_rolled_back_and_deleted(rig: Rig) -> None:
    first = schema_of(rig, AVRO)
    name = first.name

    second = rig.schemas.commit_schema(name=name, schema={"name": name, **definition(AVRO_WITH_COUNT)})
    third = rig.schemas.rollback_schema(name=name, revision_id=first.revision_id)

    assert len({first.revision_id, second.revision_id, third.revision_id}) == 3
    assert third.definition == AVRO
    assert rig.schemas.get_schema(name=name) == third
    assert rig.schemas.get_schema(name=f"{name}@{second.revision_id}") == second
    listed = list(rig.schemas.list_schema_revisions(request={"name": name, "view": "FULL", "page_size": 2}))
    assert listed == [third, second, first]
    rig.schemas.delete_schema_revision(request={"name": f"{name}@{third.revision_id}"})
    rig.schemas.delete_schema_revision(request={"name": f"{name}@{first.revision_id}"})
    assert rig.schemas.get_schema(name=name) == second
    with pytest.raises(FailedPrecondition, match="only revision"):
        rig.schemas.delete_schema_revision(request={"name": f"{name}@{second.revision_id}"})
    with pytest.raises(NotFound):
        rig.schemas.rollback_schema(name=name, revision_id=first.revision_id)
    with pytest.raises(InvalidArgument, match="same type"):
        rig.schemas.commit_schema(name=name, schema=definition(PROTO))


@pytest.mark.parametrize(
    ("text", "encoding", "fits", "does_not_fit"),
    [
        (AVRO, Encoding.JSON, b'{"id": "a"}', b'{"id": 1}'),
        (AVRO, Encoding.BINARY, b"\x02a", b"\x02ab"),
        (PROTO, Encoding.JSON, b'{"id": "a", "count": 2}', b'{"nothing": 1}'),
        (PROTO, Encoding.BINARY, b"\x0a\x01a", b"\x0a\x09a"),
    ],
)
def test_a_topic_with_a_schema_refuses_what_does_not_fit(
    rig: Rig, text: str, encoding: Encoding, fits: bytes, does_not_fit: bytes
) -> None:
    schema = schema_of(rig, text)
    topic = rig.topic(schema_settings={"schema": schema.name, "encoding": encoding})
    subscription = rig.subscription(topic)

    rig.publisher.publish(topic, fits).result(timeout=60)
    with pytest.raises(InvalidArgument, match=r"the message"):
        rig.publisher.publish(topic, does_not_fit).result(timeout=60)

    (received,) = rig.pull(subscription, 1)
    assert received.message.data == fits
    assert received.message.attributes["googclient_schemaname"] == schema.name
    assert received.message.attributes["googclient_schemaencoding"] == encoding.name
    assert received.message.attributes["googclient_schemarevisionid"] == schema.revision_id
    assert rig.is_empty(subscription)
    rig.schemas.validate_message(
        request={"parent": PROJECT, "name": schema.name, "message": fits, "encoding": encoding}
    )
    with pytest.raises(InvalidArgument):
        rig.schemas.validate_message(
            request={"parent": PROJECT, "schema": definition(text), "message": does_not_fit, "encoding": encoding}
        )


def test_a_topic_takes_the_revisions_it_allows(rig: Rig) -> None:
    schema = schema_of(rig, AVRO)
    both = rig.topic(schema_settings={"schema": schema.name, "encoding": "BINARY"})
    settings = {"schema": schema.name, "encoding": "BINARY", "last_revision_id": schema.revision_id}
    only_first = rig.topic(schema_settings=settings)
    subscription = rig.subscription(both)
    with pytest.raises(InvalidArgument):
        rig.publisher.publish(both, b"\x02a\x02").result(timeout=60)

    second = rig.schemas.commit_schema(name=schema.name, schema=definition(AVRO_WITH_COUNT))

    rig.publisher.publish(both, b"\x02a\x02").result(timeout=60)
    rig.publisher.publish(both, b"\x02a").result(timeout=60)
    with pytest.raises(InvalidArgument):
        rig.publisher.publish(only_first, b"\x02a\x02").result(timeout=60)
    noted = [message.message.attributes["googclient_schemarevisionid"] for message in rig.pull(subscription, 2)]
    assert noted == [second.revision_id, schema.revision_id]


def test_a_topic_without_its_schema_takes_nothing_until_it_is_changed(rig: Rig) -> None:
    schema = schema_of(rig, AVRO)
    topic = rig.topic(schema_settings={"schema": schema.name, "encoding": "JSON"})
    subscription = rig.subscription(topic)
    rig.schemas.delete_schema(name=schema.name)

    with pytest.raises(NotFound, match="Schema not found"):
        rig.publisher.publish(topic, b'{"id": "a"}').result(timeout=60)
    assert rig.publisher.get_topic(topic=topic).schema_settings.schema == "_deleted-schema_"
    labelled = {"topic": {"name": topic, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}}
    assert rig.publisher.update_topic(request=labelled).labels == {"a": "b"}
    rig.publisher.update_topic(request={"topic": {"name": topic}, "update_mask": {"paths": ["schema_settings"]}})
    rig.publish(topic, "anything")

    assert bodies(rig.pull(subscription, 1)) == ["anything"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"type": "record"}', "not an Avro schema"),
        ("{", "not JSON"),
        ('syntax = "proto3"; message A { Missing a = 1; }', "couldn't resolve name 'Missing'"),
        ('syntax = "proto3";\nmessage A { string a 1; }', "line 2 of the definition: expected '=', found '1'"),
        ('syntax = "proto3"; message A {} message B {}', "exactly one top-level message"),
        ('syntax = "proto3"; import "other.proto";', "imports, services and extensions are not allowed"),
    ],
)
def test_a_wrong_definition_is_refused(memory_rig: Rig, text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        memory_rig.schemas.validate_schema(parent=PROJECT, schema=definition(text))


def test_wrong_schema_settings_are_refused(memory_rig: Rig) -> None:
    schema = schema_of(memory_rig, AVRO)

    with pytest.raises(NotFound):
        memory_rig.topic(schema_settings={"schema": memory_rig.name("schemas"), "encoding": "JSON"})
    with pytest.raises(InvalidArgument, match="encoding must be"):
        memory_rig.topic(schema_settings={"schema": schema.name})
    settings = {"schema": schema.name, "encoding": "JSON", "first_revision_id": "00000000"}
    with pytest.raises(InvalidArgument, match="names the revision '00000000'"):
        memory_rig.topic(schema_settings=settings)
