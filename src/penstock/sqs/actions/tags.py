"""TagQueue, UntagQueue and ListQueueTags."""

import msgspec

from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import SqsError, invalid_parameter, missing_parameter
from penstock.sqs.model import (
    EmptyResponse,
    ListQueueTagsResponse,
    QueueUrlRequest,
    TagQueueRequest,
    UntagQueueRequest,
)
from penstock.sqs.service import SqsService

MAX_TAGS = 50
_MAX_KEY, _MAX_VALUE = 128, 256


def check_tags(queue_name: str, tags: dict[str, str]) -> None:
    """Check AWS's limits: 50 tags, keys of 1 to 128 characters without `aws:` in front, values of up to 256."""
    if len(tags) > MAX_TAGS:
        raise invalid_parameter(f"Too many tags added for queue {queue_name}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= _MAX_KEY:
            raise _wrong_key_length()
        if key.lower().startswith("aws:"):
            raise invalid_parameter(f"Tag key {key[:_MAX_KEY]!r} is not allowed.")
        if len(value) > _MAX_VALUE:
            raise invalid_parameter(f"The value of tag {key!r} is longer than {_MAX_VALUE} characters.")


def _wrong_key_length() -> SqsError:
    return invalid_parameter(f"Tag keys must be between 1 and {_MAX_KEY} characters in length.")


async def tag_queue(service: SqsService, caller: SqsCaller, request: TagQueueRequest) -> EmptyResponse:
    """Add tags to a queue, or change their values."""
    if not request.tags:
        raise missing_parameter("Tags")
    async with service.catalog_lock:
        queue = service.of_url(caller, request.queue_url)
        tags = {**queue.record.tags, **request.tags}
        check_tags(queue.name, tags)
        await service.change(queue, msgspec.structs.replace(queue.record, tags=tags))
    return EmptyResponse()


async def untag_queue(service: SqsService, caller: SqsCaller, request: UntagQueueRequest) -> EmptyResponse:
    """Remove tags from a queue."""
    if not request.tag_keys or not all(1 <= len(key) <= _MAX_KEY for key in request.tag_keys):
        raise _wrong_key_length()
    async with service.catalog_lock:
        queue = service.of_url(caller, request.queue_url)
        tags = {key: value for key, value in queue.record.tags.items() if key not in request.tag_keys}
        await service.change(queue, msgspec.structs.replace(queue.record, tags=tags))
    return EmptyResponse()


async def list_queue_tags(service: SqsService, caller: SqsCaller, request: QueueUrlRequest) -> ListQueueTagsResponse:
    """Return the tags of a queue."""
    return ListQueueTagsResponse(service.of_url(caller, request.queue_url).record.tags)
