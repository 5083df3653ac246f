"""The verdict on everything, alerts about it, and breakers."""
