"""What happened, on Spark: the lake of delivery facts, audit, replay, report and repartition."""
