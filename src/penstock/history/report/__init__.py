"""The report of a day or a week: aggregates of delivery facts, and one HTML file with charts."""
