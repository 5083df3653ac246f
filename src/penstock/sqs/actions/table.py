"""The 23 actions by name."""

from collections.abc import Callable
from typing import Any

from penstock.sqs.actions import dead_letters, permissions, queues, receive, send, settle, tags
from penstock.sqs.actions.answer import Answer
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.service import SqsService

# Each action takes its own request type; the wire protocols decode by the same names, so that the two agree.
Handler = Callable[[SqsService, SqsCaller, Any], Answer]

ACTIONS: dict[str, Handler] = {
    "AddPermission": permissions.add_permission,
    "CancelMessageMoveTask": dead_letters.cancel_message_move_task,
    "ChangeMessageVisibility": settle.change_message_visibility,
    "ChangeMessageVisibilityBatch": settle.change_message_visibility_batch,
    "CreateQueue": queues.create_queue,
    "DeleteMessage": settle.delete_message,
    "DeleteMessageBatch": settle.delete_message_batch,
    "DeleteQueue": queues.delete_queue,
    "GetQueueAttributes": queues.get_queue_attributes,
    "GetQueueUrl": queues.get_queue_url,
    "ListDeadLetterSourceQueues": dead_letters.list_dead_letter_source_queues,
    "ListMessageMoveTasks": dead_letters.list_message_move_tasks,
    "ListQueueTags": tags.list_queue_tags,
    "ListQueues": queues.list_queues,
    "PurgeQueue": queues.purge_queue,
    "ReceiveMessage": receive.receive_message,
    "RemovePermission": permissions.remove_permission,
    "SendMessage": send.send_message,
    "SendMessageBatch": send.send_message_batch,
    "SetQueueAttributes": queues.set_queue_attributes,
    "StartMessageMoveTask": dead_letters.start_message_move_task,
    "TagQueue": tags.tag_queue,
    "UntagQueue": tags.untag_queue,
}
