"""CreateQueue, DeleteQueue, GetQueueUrl, ListQueues, GetQueueAttributes, SetQueueAttributes, PurgeQueue."""

import msgspec

from penstock.domain.limits import MINUTE_MS, SECOND_MS
from penstock.sqs.actions.tags import check_tags
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, missing_parameter, queue_does_not_exist
from penstock.sqs.model import (
    CreateQueueRequest,
    EmptyResponse,
    GetQueueAttributesRequest,
    GetQueueAttributesResponse,
    GetQueueUrlRequest,
    ListQueuesRequest,
    ListQueuesResponse,
    QueueUrlRequest,
    QueueUrlResponse,
    SetQueueAttributesRequest,
)
from penstock.sqs.names import Scope, is_name, page
from penstock.sqs.queue.attributes import OLDEST_AGE, LiveCounters, difference, for_create, merged, shown
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.service import SqsService


async def create_queue(service: SqsService, caller: SqsCaller, request: CreateQueueRequest) -> QueueUrlResponse:
    """Create a queue, or return the URL of an equal one that exists."""
    asked = for_create(
        request.queue_name,
        request.attributes,
        admin=caller.admin,
        default_partitions=service.settings.default_partitions,
    )
    check_tags(request.queue_name, request.tags)
    key = service.key_for(caller, request.queue_name)
    async with service.catalog_lock:
        await service.settle(key)
        existing = service.queues.get(key)
        if existing is None:
            await service.check_redrive(key, asked, request.attributes.get("RedrivePolicy", ""))
            await service.create(key, asked, request.tags)
        else:
            other = difference(existing.attributes, asked, request.attributes)
            if other is not None:
                raise SqsError(
                    ErrorKind.QUEUE_NAME_EXISTS,
                    f"A queue already exists with the same name and a different value for attribute {other}",
                )
    return QueueUrlResponse(service.url_of(caller, key))


async def delete_queue(service: SqsService, caller: SqsCaller, request: QueueUrlRequest) -> EmptyResponse:
    """Delete a queue with its messages."""
    async with service.catalog_lock:
        await service.delete(service.of_url(caller, request.queue_url))
    return EmptyResponse()


async def get_queue_url(service: SqsService, caller: SqsCaller, request: GetQueueUrlRequest) -> QueueUrlResponse:
    """Return the URL of a queue by its name."""
    scope = service.scope_of(caller, request.queue_owner_aws_account_id)
    if not request.queue_name:
        raise missing_parameter("QueueName")
    if not is_name(request.queue_name):
        raise queue_does_not_exist()
    key = scope.key_of(request.queue_name, service.home)
    return QueueUrlResponse(service.url_of(caller, service.find(key).name))


async def list_queues(service: SqsService, caller: SqsCaller, request: ListQueuesRequest) -> ListQueuesResponse:
    """List the URLs of all queues, or of those whose names begin with a prefix."""
    scope, prefix = service.scope_of(caller), request.queue_name_prefix
    keys = sorted(key for key in service.queues if _is_of(service, key, scope, prefix))
    chosen, token = page(keys, request.max_results, request.next_token)
    return ListQueuesResponse([service.url_of(caller, key) for key in chosen], token)


async def get_queue_attributes(
    service: SqsService, caller: SqsCaller, request: GetQueueAttributesRequest
) -> GetQueueAttributesResponse:
    """Return the requested attributes of a queue."""
    queue = service.of_url(caller, request.queue_url)
    await queue.read_first()
    oldest_age_s = await _oldest_age_s(service, queue) if OLDEST_AGE in request.attribute_names else None
    live = msgspec.structs.replace(live_counters(service, queue), oldest_age_s=oldest_age_s)
    return GetQueueAttributesResponse(shown(queue.attributes, request.attribute_names, live, admin=caller.admin))


async def set_queue_attributes(
    service: SqsService, caller: SqsCaller, request: SetQueueAttributesRequest
) -> EmptyResponse:
    """Change attributes; if one is refused, none changes."""
    if not request.attributes:
        raise missing_parameter("Attributes")
    async with service.catalog_lock:
        queue = service.of_url(caller, request.queue_url)
        attributes = merged(queue.attributes, request.attributes, admin=caller.admin)
        if attributes.redrive_policy != queue.attributes.redrive_policy:
            await service.check_redrive(queue.name, attributes, request.attributes.get("RedrivePolicy", ""))
        await service.change(queue, msgspec.structs.replace(queue.record, attributes=attributes))
    return EmptyResponse()


async def purge_queue(service: SqsService, caller: SqsCaller, request: QueueUrlRequest) -> EmptyResponse:
    """Delete all messages of a queue, at most once a minute."""
    await purge(service, service.of_url(caller, request.queue_url))
    return EmptyResponse()


async def purge(service: SqsService, queue: SqsQueue) -> None:
    """Delete all messages of a queue for any caller, at most once a minute."""
    now_ms = service.clock.now_ms()
    if queue.purged_ms is not None and now_ms - queue.purged_ms < MINUTE_MS:
        raise SqsError(
            ErrorKind.PURGE_QUEUE_IN_PROGRESS,
            f"Only one PurgeQueue operation on {service.place_of(queue.name)[1]} is allowed every 60 seconds.",
        )
    before, queue.purged_ms = queue.purged_ms, now_ms
    try:
        await service.purge(queue)
    except BaseException:
        queue.purged_ms = before
        raise


def _is_of(service: SqsService, key: str, scope: Scope, prefix: str) -> bool:
    place, name = service.place_of(key)
    return place == scope and name.startswith(prefix)


def live_counters(service: SqsService, queue: SqsQueue) -> LiveCounters:
    """Return the read-only attributes of a queue, over all partitions."""
    visible = in_flight = delayed = 0
    for counters in queue.counters():
        visible += counters.visible + counters.in_store
        in_flight += counters.leased + counters.settling
        delayed += counters.delayed
    return LiveCounters(
        queue_arn=service.arn_of(queue.name),
        created_timestamp=queue.record.created_s,
        last_modified_timestamp=queue.record.modified_s,
        visible=visible,
        not_visible=in_flight,
        delayed=delayed,
    )


async def _oldest_age_s(service: SqsService, queue: SqsQueue) -> int | None:
    """Return the age of the oldest message of all partitions, leased or not; None if there is none."""
    oldest = [entry for each in queue.partitions for entry in await each.shell.peek(each.queue, 0, 1)]
    if not oldest:
        return None
    return max(0, service.clock.now_ms() - min(entry.message.sent_ms for entry in oldest)) // SECOND_MS
