"""AddPermission and RemovePermission: statements of a queue's policy, which are stored and shown but not enforced."""

import re
from typing import Any

import msgspec

from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, missing_parameter
from penstock.sqs.model import REQUESTS, AddPermissionRequest, EmptyResponse, RemovePermissionRequest
from penstock.sqs.queue.policy_document import MAX_STATEMENTS, statements_of
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.service import SqsService

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"\d{12}")
_MAX_ACTIONS = 7
_ACTIONS = frozenset(
    {
        "*",
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
    }
)
# A policy cannot name the actions on batches: those of single messages stand for them.
_OF_THE_OWNER = frozenset(action for action in REQUESTS if not action.endswith("Batch")) - _ACTIONS
_OWNERS_ONLY = "Only the queue owner is allowed to invoke this action."
_NO_ACTION = "Please refer to the appropriate WSDL for a list of valid actions."


async def add_permission(service: SqsService, caller: SqsCaller, request: AddPermissionRequest) -> EmptyResponse:
    """Add a statement to the queue's policy."""
    _check(request)
    async with service.catalog_lock:
        queue = service.of_url(caller, request.queue_url)
        policy = _policy_of(service, queue)
        statement = {
            "Sid": request.label,
            "Effect": "Allow",
            "Principal": {"AWS": _one_or_all([f"arn:aws:iam::{each}:root" for each in request.aws_account_ids])},
            "Action": _one_or_all([f"SQS:{action}" for action in request.actions]),
            "Resource": service.arn_of(queue.name),
        }
        statements = policy["Statement"]
        same_label = [each for each in statements if each.get("Sid") == request.label]
        if same_label == [statement]:
            return EmptyResponse()
        if same_label:
            raise _invalid_label(request.label, "Already exists.")
        statements.append(statement)
        if len(statements) > MAX_STATEMENTS:
            raise _over_limit(len(statements), "Statements", MAX_STATEMENTS)
        await _put_policy(service, queue, policy)
    return EmptyResponse()


async def remove_permission(service: SqsService, caller: SqsCaller, request: RemovePermissionRequest) -> EmptyResponse:
    """Remove a statement from the queue's policy."""
    if not request.label:
        raise missing_parameter("Label")
    async with service.catalog_lock:
        queue = service.of_url(caller, request.queue_url)
        policy = _policy_of(service, queue)
        kept = [statement for statement in policy["Statement"] if statement.get("Sid") != request.label]
        if len(kept) == len(policy["Statement"]):
            found_none = "can't find label on existing policy." if kept else "can't find label."
            raise _invalid_label(request.label, found_none)
        policy["Statement"] = kept
        await _put_policy(service, queue, policy if kept else None)
    return EmptyResponse()


def _check(request: AddPermissionRequest) -> None:
    if not request.label:
        raise missing_parameter("Label")
    if not _LABEL.fullmatch(request.label):
        raise _invalid_label(request.label, "Must be 1 to 80 of A-Z, a-z, 0-9, hyphen and underscore.")
    if not any(request.actions):
        raise missing_parameter("Actions")
    if not request.aws_account_ids:
        raise _unknown_principal("")
    if len(request.actions) > _MAX_ACTIONS:
        raise _over_limit(len(request.actions), "Actions", _MAX_ACTIONS)
    for account in request.aws_account_ids:
        if not _ACCOUNT.fullmatch(account):
            raise _unknown_principal(account)
    for action in request.actions:
        if action not in _ACTIONS:
            reason = _OWNERS_ONLY if action in _OF_THE_OWNER else _NO_ACTION
            raise invalid_parameter(f"Value SQS:{action} for parameter ActionName is invalid. Reason: {reason}")


def _over_limit(found: int, what: str, maximum: int) -> SqsError:
    return SqsError(ErrorKind.OVER_LIMIT, f"{found} {what} were found, maximum allowed is {maximum}.")


def _one_or_all(texts: list[str]) -> str | list[str]:
    """Return a value of a policy document as AWS writes it: a single one is not a list."""
    return texts[0] if len(texts) == 1 else texts


def _unknown_principal(account: str) -> SqsError:
    return invalid_parameter(f"Value [{account[:100]}] for parameter PrincipalId is invalid. Reason: Unable to verify.")


def _policy_of(service: SqsService, queue: SqsQueue) -> dict[str, Any]:
    if queue.attributes.policy:
        policy: dict[str, Any] = msgspec.json.decode(queue.attributes.policy)
        return {**policy, "Statement": statements_of(policy)}
    return {"Version": "2008-10-17", "Id": f"{service.arn_of(queue.name)}/SQSDefaultPolicy", "Statement": []}


async def _put_policy(service: SqsService, queue: SqsQueue, policy: dict[str, Any] | None) -> None:
    text = msgspec.json.encode(policy).decode() if policy is not None else ""
    attributes = msgspec.structs.replace(queue.attributes, policy=text)
    await service.change(queue, msgspec.structs.replace(queue.record, attributes=attributes))


def _invalid_label(label: str, reason: str) -> SqsError:
    return invalid_parameter(f"Value {label} for parameter Label is invalid. Reason: {reason}")
