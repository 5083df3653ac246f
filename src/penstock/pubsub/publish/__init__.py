"""The Publisher service: topics, and publishing to them."""
