"""The web page: static files that read the API of their own origin."""
