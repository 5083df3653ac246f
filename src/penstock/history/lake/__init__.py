"""The facts job: attempts become a lake of delivery facts and the statistics that the web page shows."""
