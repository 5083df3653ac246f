// Consumes a queue with sqs-consumer until a number of messages is handled; each one fails the first time.
import { SQSClient } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const [endpoint, queueUrl, count] = process.argv.slice(2);
const sqs = new SQSClient({
  endpoint,
  region: "us-east-1",
  credentials: { accessKeyId: "anyone", secretAccessKey: "nothing" },
});
const tried = new Set();
const handled = [];
const errors = [];
const consumer = Consumer.create({
  queueUrl,
  sqs,
  batchSize: 10,
  waitTimeSeconds: 5,
  terminateVisibilityTimeout: true,
  handleMessage: async (message) => {
    if (!tried.has(message.Body)) {
      tried.add(message.Body);
      throw new Error("not the first time");
    }
    handled.push(message.Body);
    return message;
  },
});
consumer.on("error", (error) => errors.push(error.message));
consumer.on("message_processed", () => handled.length >= Number(count) && consumer.stop());
consumer.on("stopped", () => console.log(JSON.stringify({ handled, errors })));
consumer.start();
