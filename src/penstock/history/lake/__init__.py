"""The lake of delivery facts, and the streaming job that writes attempts to it and to the statistics."""
