#!/usr/bin/env bash
# Run the pipeline on a Spark cluster: here a standalone master and two workers, all on this machine.
# Needs Java 17 or newer, penstock-events[spark] (with penstock and python on the PATH) and an empty PostgreSQL database:
#
#   DATABASE_URL=postgresql://penstock@127.0.0.1/penstock examples/pipeline_on_cluster.sh
#
# Ports: SPARK_PORT (7077) and API_PORT (8080).
set -euo pipefail

database=${DATABASE_URL:?is the PostgreSQL database that API and executors share}
spark=spark://127.0.0.1:${SPARK_PORT:=7077}
logs=$(mktemp -d)

python=$(command -v python)
spark_class=$(python -c 'import pyspark; print(pyspark.__path__[0])')/bin/spark-class
export SPARK_LOCAL_IP=127.0.0.1 SPARK_DAEMON_MEMORY=256m
export PENSTOCK_JOBS__FAN_OUT=pipeline # the API leaves it to Spark to make jobs of events
export PENSTOCK_JOBS__AUTH_SECRET=${PENSTOCK_JOBS__AUTH_SECRET:-a secret for this example}
export PENSTOCK_API__ENDPOINT=http://127.0.0.1:${API_PORT:=8080}
export PENSTOCK_PIPELINE__CHECKPOINT=$logs/checkpoint # on many machines: a place that each of them reaches

stop() {
  # shellcheck disable=SC2046  # one word for each process
  kill $(jobs -p) 2>/dev/null || true
  wait
}
trap stop EXIT

start() { # NAME COMMAND…: in the background, with a log of its own
  "${@:2}" >"$logs/$1.log" 2>&1 &
  started=$!
}

await() { # NAME TEXT: until the log has the text
  until grep -qs "$2" "$logs/$1.log"; do
    kill -0 "$started" 2>/dev/null || { cat "$logs/$1.log" >&2 && exit 1; }
    sleep 0.2
  done
}

master=(org.apache.spark.deploy.master.Master --host 127.0.0.1 --port "$SPARK_PORT" --webui-port 0)
start master "$spark_class" "${master[@]}"
await master "Starting Spark master at"
for name in worker-1 worker-2; do
  size=(--cores 1 --memory 1g --work-dir "$logs/$name")
  start "$name" "$spark_class" org.apache.spark.deploy.worker.Worker "${size[@]}" --webui-port 0 "$spark"
  await "$name" "Successfully registered with master"
done
echo "a cluster of two workers runs at $spark"

start api penstock serve api --database "$database" --port "$API_PORT"
await api "listening on"
penstock subscriptions create "cluster-$$" --pattern 'orders:**' --target https://billing.example/hook >"$logs/made.txt"
for step in placed paid packed; do
  penstock publish "orders:$step" --key order-1 --data '{"order": 1}' >>"$logs/made.txt"
done
echo "three events are published"

penstock pipeline fan-out --once --master "$spark" --database "$database" \
  --conf spark.pyspark.python="$python" \
  --conf spark.driver.host=127.0.0.1 --conf spark.driver.memory=512m --conf spark.executor.memory=512m

penstock jobs list
