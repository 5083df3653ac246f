"""The two wire protocols: bytes to the structs of `penstock.sqs.model` and back."""
