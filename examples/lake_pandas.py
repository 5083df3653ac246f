"""Read the lake with pandas: one day of deliveries, without reading the other days.

pip install pandas deltalake
LAKE=./penstock-data/lake DAY=2030-01-31 python examples/lake_pandas.py
"""

import os

from deltalake import DeltaTable

LAKE = os.environ.get("LAKE", "./penstock-data/lake")
DAY = os.environ["DAY"]

deliveries = DeltaTable(f"{LAKE}/deliveries").to_pandas(
    partitions=[("date", "=", DAY)], columns=["attempted_at", "subscription", "outcome", "response_ms", "waited_ms"]
)
print(f"{len(deliveries)} attempts on {DAY}")

hours = deliveries.assign(hour=deliveries.attempted_at.dt.floor("h")).groupby(["subscription", "hour"], dropna=False)
print(
    hours.agg(
        attempts=("outcome", "size"),
        delivered=("outcome", lambda outcomes: (outcomes == "DELIVERED").sum()),
        response_ms_p50=("response_ms", "median"),
        waited_ms_max=("waited_ms", "max"),
    )
)
