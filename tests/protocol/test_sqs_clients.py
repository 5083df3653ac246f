"""Other clients than the plain boto3 client: the boto3 resource, the AWS CLI."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.services.sqs_server import ADMIN, REGION, SqsServer

AWS = Path(sys.executable).with_name("aws")


def test_the_boto3_resource(sqs: SqsServer) -> None:
    resource = sqs.resource()
    queue = resource.create_queue(QueueName=f"resource-{uuid4().hex}", Attributes={"DelaySeconds": "0"})
    queue.send_message(MessageBody="one", MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}})
    queue.send_messages(Entries=[{"Id": "a", "MessageBody": "two"}, {"Id": "b", "MessageBody": "three"}])
    messages = queue.receive_messages(MaxNumberOfMessages=10, MessageAttributeNames=["All"])
    assert sorted(message.body for message in messages) == ["one", "three", "two"]
    (numbered,) = [message for message in messages if message.message_attributes]
    assert numbered.message_attributes == {"n": {"DataType": "Number", "StringValue": "1"}}
    numbered.change_visibility(VisibilityTimeout=0)
    for message in messages:
        message.delete()
    queue.reload()
    assert queue.attributes["ApproximateNumberOfMessages"] == "0"
    assert resource.get_queue_by_name(QueueName=queue.url.rpartition("/")[2]).url == queue.url
    assert queue.url in [each.url for each in resource.queues.filter(QueueNamePrefix="resource-")]
    queue.delete()


def test_the_aws_cli(secured_sqs: SqsServer) -> None:
    key, secret = ADMIN
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_PAGER": "",
    }

    def aws(*words: str) -> Any:
        command = [str(AWS), "--endpoint-url", secured_sqs.url, "--output", "json", "sqs", *words]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout) if ran.stdout.strip() else None

    name = f"cli-{uuid4().hex}.fifo"
    url = aws("create-queue", "--queue-name", name, "--attributes", "FifoQueue=true,PartitionCount=2")["QueueUrl"]
    sent = aws(
        "send-message",
        *("--queue-url", url, "--message-body", "from the CLI"),
        *("--message-group-id", "g", "--message-deduplication-id", "d"),
    )
    (message,) = aws("receive-message", "--queue-url", url, "--wait-time-seconds", "5")["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "from the CLI")
    aws("delete-message", "--queue-url", url, "--receipt-handle", message["ReceiptHandle"])
    shown = aws("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")["Attributes"]
    assert (shown["PartitionCount"], shown["ApproximateNumberOfMessages"]) == ("2", "0")
    aws("delete-queue", "--queue-url", url)
