"""Use a FIFO queue with boto3: messages of a group come in order, the next one when the last is deleted.

Address: SQS_URL (http://127.0.0.1:9324). Without a credentials file the server takes any keys.
"""

import os

import boto3

QUEUE = "example-orders.fifo"
STEPS = ("placed", "paid", "packed")


def main() -> None:
    sqs = boto3.client(
        "sqs",
        endpoint_url=os.environ.get("SQS_URL", "http://127.0.0.1:9324"),
        region_name="us-east-1",
        aws_access_key_id="anyone",
        aws_secret_access_key="anything",
    )
    url = sqs.create_queue(QueueName=QUEUE, Attributes={"FifoQueue": "true"})["QueueUrl"]
    for step in STEPS:
        # The same deduplication id within five minutes is kept once, so a second run soon after finds nothing new.
        sqs.send_message(
            QueueUrl=url, MessageBody=step, MessageGroupId="order-1", MessageDeduplicationId=f"order-1-{step}"
        )
    while messages := sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages"):
        for message in messages:
            print("order-1", message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


if __name__ == "__main__":
    main()
