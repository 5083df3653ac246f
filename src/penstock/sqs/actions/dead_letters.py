"""ListDeadLetterSourceQueues and the message move tasks."""

import re

from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter
from penstock.sqs.model import (
    CancelMessageMoveTaskRequest,
    CancelMessageMoveTaskResponse,
    ListDeadLetterSourceQueuesRequest,
    ListDeadLetterSourceQueuesResponse,
    ListMessageMoveTasksRequest,
    ListMessageMoveTasksResponse,
    StartMessageMoveTaskRequest,
    TaskHandleResponse,
)
from penstock.sqs.names import page
from penstock.sqs.queue.move_tasks import source_of_handle
from penstock.sqs.queue.other_shards import QueueElsewhere, Target
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.service import SqsService

MAX_RATE = 500
MAX_LISTED = 10

_ARN = re.compile("arn:[^:]+:[^:]+:[^:]*:[^:]*:.+")


async def list_dead_letter_source_queues(
    service: SqsService, caller: SqsCaller, request: ListDeadLetterSourceQueuesRequest
) -> ListDeadLetterSourceQueuesResponse:
    """List the queues whose dead letters come to this one."""
    queue = service.of_url(caller, request.queue_url)
    names, token = page(await service.transfers.dead_letter_sources(queue), request.max_results, request.next_token)
    return ListDeadLetterSourceQueuesResponse([service.url_of(caller, name) for name in names], token)


async def start_message_move_task(
    service: SqsService, caller: SqsCaller, request: StartMessageMoveTaskRequest
) -> TaskHandleResponse:
    """Move the messages of a dead-letter queue back to where they came from, or to another queue."""
    source = _queue_of(service, caller, request.source_arn, "SourceArn")
    rate = request.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= MAX_RATE:
        raise invalid_parameter(
            "Value for parameter MaxNumberOfMessagesPerSecond is invalid. "
            f"Reason: You must enter a number that's between 1 and {MAX_RATE}."
        )
    if not await service.transfers.dead_letter_sources(source):
        raise invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    destination = None
    if request.destination_arn is not None:
        destination = await _destination(service, caller, request.destination_arn)
        if destination is source:
            raise invalid_parameter("Source queue arn and destination queue arn cannot be the same.")
        if destination.fifo != source.fifo:
            raise invalid_parameter("The source queue and destination queue must be of the same queue type.")
    return TaskHandleResponse(service.moves.start(source, destination, rate))


async def cancel_message_move_task(
    service: SqsService, caller: SqsCaller, request: CancelMessageMoveTaskRequest
) -> CancelMessageMoveTaskResponse:
    """Stop a move; messages that were moved stay moved."""
    _queue_of(service, caller, source_of_handle(request.task_handle), "SourceArn")
    moved = await service.moves.cancel(request.task_handle)
    if moved is None:
        raise SqsError(ErrorKind.RESOURCE_NOT_FOUND, "Task does not exist.")
    return CancelMessageMoveTaskResponse(moved)


async def list_message_move_tasks(
    service: SqsService, caller: SqsCaller, request: ListMessageMoveTasksRequest
) -> ListMessageMoveTasksResponse:
    """List the latest moves of a queue, newest first."""
    source = _queue_of(service, caller, request.source_arn, "SourceArn")
    limit = 1 if request.max_results is None else request.max_results
    if not 1 <= limit <= MAX_LISTED:
        raise invalid_parameter(
            "Value for parameter MaxResults is invalid. "
            f"Reason: You must enter a number that's between 1 and {MAX_LISTED}."
        )
    return ListMessageMoveTasksResponse(service.moves.listed(source, limit))


async def _destination(service: SqsService, caller: SqsCaller, queue_arn: str) -> Target:
    found = service.transfers.find(queue_arn)
    if not isinstance(found, QueueElsewhere):
        return _queue_of(service, caller, queue_arn, "DestinationArn")
    if not _may_use(service, caller, found) or not (await service.transfers.describe(queue_arn)).exists:
        raise _not_found("DestinationArn")
    return found


def _queue_of(service: SqsService, caller: SqsCaller, queue_arn: str, parameter: str) -> SqsQueue:
    if not _ARN.fullmatch(queue_arn):
        raise invalid_parameter(
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    queue = service.find_arn(queue_arn)
    if queue is None or not _may_use(service, caller, queue):
        raise _not_found(parameter)
    return queue


def _may_use(service: SqsService, caller: SqsCaller, queue: Target) -> bool:
    return caller.scope in (None, service.place_of(queue.name)[0])


def _not_found(parameter: str) -> SqsError:
    return SqsError(
        ErrorKind.RESOURCE_NOT_FOUND,
        f"The resource that you specified for the {parameter} parameter doesn't exist.",
    )
