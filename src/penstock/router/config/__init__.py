"""The router's configuration: reading, checking and applying it."""
