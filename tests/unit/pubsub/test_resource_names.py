"""The grammar of resource names, pages and moments."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped]

from penstock.pubsub.errors import InvalidName, InvalidRequest
from penstock.pubsub.fields import milliseconds_of, page, set_milliseconds
from penstock.pubsub.names import (
    project_name,
    project_of,
    schema_revision,
    snapshot_name,
    subscription_name,
    topic_name,
)


@pytest.mark.parametrize("name", ["abc", "a" * 255, "a-_.~+%1", "Z12"])
def test_good_ids(name: str) -> None:
    full = f"projects/my-project/topics/{name}"

    assert topic_name(full) == full
    assert project_of(full) == "projects/my-project"


@pytest.mark.parametrize("name", ["", "ab", "a" * 256, "1bc", "-bc", "a b", "a/b", "goog-x", "google", "añb", "abc\n"])
def test_bad_ids(name: str) -> None:
    for check, kind in ((topic_name, "topics"), (subscription_name, "subscriptions"), (snapshot_name, "snapshots")):
        with pytest.raises(InvalidName, match="3 to 255 letters"):
            check(f"projects/p/{kind}/{name}")


def test_a_name_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidName, match="projects/PROJECT/topics/ID"):
        topic_name("projects/p/subscriptions/abc")
    with pytest.raises(InvalidName, match="projects/PROJECT"):
        project_name("p")
    assert project_name("projects/example.com:p") == "projects/example.com:p"


def test_a_schema_may_name_its_revision() -> None:
    assert schema_revision("projects/p/schemas/abc") == ("projects/p/schemas/abc", None)
    assert schema_revision("projects/p/schemas/abc@0123abcd") == ("projects/p/schemas/abc", "0123abcd")
    with pytest.raises(InvalidName):
        schema_revision("projects/p/schemas/abc@newest")


def test_pages_cover_everything_once_and_stay_right_while_things_come_and_go() -> None:
    names = ["a", "b", "c", "d", "e"]

    first, token = page(names, str, 2, "")
    second, token = page(["b2", *names[2:]], str, 2, token)
    third, last = page(names, str, 2, token)

    assert [list(first), list(second), list(third)] == [["a", "b"], ["b2", "c"], ["d", "e"]]
    assert last == ""
    assert page(names, str, 0, "") == (names, "")
    with pytest.raises(InvalidRequest, match="not be negative"):
        page(names, str, -1, "")


def test_a_moment_is_rounded_up_to_the_next_millisecond() -> None:
    assert milliseconds_of(Timestamp(seconds=1, nanos=1)) == 1001
    moment = Timestamp()
    set_milliseconds(moment, 1234)
    assert (moment.seconds, moment.nanos, milliseconds_of(moment)) == (1, 234_000_000, 1234)
