"""The router's HTTP API, one module per family of routes; `app.py` combines them."""
