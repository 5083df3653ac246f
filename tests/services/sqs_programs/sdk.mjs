// Uses the JavaScript SDK as a program of a user would, and prints what it saw as JSON.
import {
  ChangeMessageVisibilityCommand,
  CreateQueueCommand,
  DeleteMessageBatchCommand,
  DeleteQueueCommand,
  GetQueueAttributesCommand,
  paginateListQueues,
  QueueDoesNotExist,
  ReceiveMessageCommand,
  SendMessageBatchCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

const [endpoint, prefix] = process.argv.slice(2);
const client = new SQSClient({
  endpoint,
  region: "us-east-1",
  credentials: { accessKeyId: "anyone", secretAccessKey: "nothing" },
  maxAttempts: 1,
});
const seen = {};

const attributes = { FifoQueue: "true", ContentBasedDeduplication: "true" };
const fifo = (await client.send(new CreateQueueCommand({ QueueName: `${prefix}.fifo`, Attributes: attributes }))).QueueUrl;
const plain = (await client.send(new CreateQueueCommand({ QueueName: prefix }))).QueueUrl;

// The SDK compares the digests of bodies and attributes by itself.
const MessageAttributes = {
  text: { DataType: "String", StringValue: "ä" },
  bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
};
await client.send(new SendMessageCommand({ QueueUrl: plain, MessageBody: "one", MessageAttributes }));
const one = await client.send(
  new ReceiveMessageCommand({ QueueUrl: plain, WaitTimeSeconds: 5, MessageAttributeNames: ["All"] }),
);
seen.body = one.Messages[0].Body;
seen.text = one.Messages[0].MessageAttributes.text.StringValue;
seen.bytes = Array.from(one.Messages[0].MessageAttributes.bytes.BinaryValue);
const handle = { QueueUrl: plain, ReceiptHandle: one.Messages[0].ReceiptHandle };
await client.send(new ChangeMessageVisibilityCommand({ ...handle, VisibilityTimeout: 0 }));
const again = await client.send(new ReceiveMessageCommand({ QueueUrl: plain, MessageSystemAttributeNames: ["All"] }));
seen.receives = again.Messages[0].Attributes.ApproximateReceiveCount;

const Entries = [0, 1, 2].map((n) => ({ Id: `e${n}`, MessageBody: `m${n}`, MessageGroupId: "g" }));
const sent = await client.send(new SendMessageBatchCommand({ QueueUrl: fifo, Entries }));
seen.successful = sent.Successful.length;
seen.failed = sent.Failed?.length ?? 0;
const received = await client.send(new ReceiveMessageCommand({ QueueUrl: fifo, MaxNumberOfMessages: 10 }));
seen.order = received.Messages.map((message) => message.Body);
const settled = received.Messages.map((message, n) => ({ Id: `d${n}`, ReceiptHandle: message.ReceiptHandle }));
await client.send(new DeleteMessageBatchCommand({ QueueUrl: fifo, Entries: settled }));
const empty = await client.send(new ReceiveMessageCommand({ QueueUrl: fifo }));
seen.left = empty.Messages?.length ?? 0;
const shown = await client.send(new GetQueueAttributesCommand({ QueueUrl: fifo, AttributeNames: ["QueueArn"] }));
seen.arn = shown.Attributes.QueueArn;

seen.listed = [];
for await (const page of paginateListQueues({ client, pageSize: 1 }, { QueueNamePrefix: prefix })) {
  seen.listed.push(...(page.QueueUrls ?? []));
}
await client.send(new DeleteQueueCommand({ QueueUrl: plain }));
try {
  await client.send(new SendMessageCommand({ QueueUrl: plain, MessageBody: "x" }));
} catch (error) {
  seen.isModelled = error instanceof QueueDoesNotExist;
  seen.status = error.$metadata.httpStatusCode;
}
await client.send(new DeleteQueueCommand({ QueueUrl: fifo }));
console.log(JSON.stringify(seen));
