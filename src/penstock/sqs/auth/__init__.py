"""Authentication of requests: access keys and AWS Signature Version 4."""
