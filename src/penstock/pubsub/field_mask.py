"""Updates by field mask: only the fields the mask names are taken over."""

from collections.abc import Collection
from typing import TypeVar

from google.protobuf.field_mask_pb2 import FieldMask  # type: ignore[import-untyped]

from penstock.pubsub.errors import InvalidRequest
from penstock.pubsub.wire import copy_of

T = TypeVar("T")


def updated(before: T, change: T, mask: FieldMask, mutable: Collection[str]) -> T:
    """`before` with the fields of `change` that the mask names; InvalidRequest for one that may not change."""
    paths = list(mask.paths)
    if not paths:
        raise InvalidRequest("update_mask must name at least one field")
    for path in paths:
        if path.partition(".")[0] not in mutable:
            raise InvalidRequest(f"update_mask names {path!r}; only these can be updated: {', '.join(sorted(mutable))}")
    after = copy_of(before)
    try:
        mask.MergeMessage(change, after, replace_message_field=True, replace_repeated_field=True)
    except ValueError as error:
        raise InvalidRequest(f"update_mask names a field that does not exist: {error}") from error
    return after
