"""The router's HTTP API: one file per part of it, put together in `app.py`."""
