"""Ask the lake with DuckDB: deliveries of each subscription, the slowest endpoints, and the order of a key.

    pip install duckdb deltalake
    LAKE=./penstock-data/lake KEY=customer-1 python examples/lake_duckdb.py

For a lake on S3, LAKE is its URL (s3://bucket/lake), and AWS's variables say who asks.
"""

import os

import duckdb
from deltalake import DeltaTable

LAKE = os.environ.get("LAKE", "./penstock-data/lake")

connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
for name in ("deliveries", "jobs", "events", "subscriptions"):
    if DeltaTable.is_deltatable(f"{LAKE}/{name}"):
        # Through the table, not its files: some of them were replaced, or never committed.
        connection.register(name, DeltaTable(f"{LAKE}/{name}").to_pyarrow_dataset())

print("deliveries by subscription")
print(
    connection.sql("""
        SELECT subscription, count(*) AS attempts, count(*) FILTER (WHERE outcome = 'DELIVERED') AS delivered,
            quantile_cont(waited_ms, 0.99) AS waited_ms_p99
        FROM deliveries GROUP BY subscription ORDER BY attempts DESC
    """)
)

print("slowest endpoints")
print(
    connection.sql("""
        SELECT endpoint, quantile_cont(response_ms, 0.99) AS response_ms_p99, count(*) AS requests
        FROM deliveries WHERE was_sent GROUP BY endpoint ORDER BY response_ms_p99 DESC LIMIT 10
    """)
)

if key := os.environ.get("KEY"):
    print(f"what {key} got, in order")
    print(
        connection.execute(
            "SELECT attempted_at, subscription, event_type, event_id, attempt, outcome FROM deliveries WHERE key = ? "
            "ORDER BY subscription, position",
            [key],
        )
        .fetch_df()
        .to_string()
    )
