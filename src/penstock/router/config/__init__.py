"""The router's configuration: read, checked, and kept up to date."""
