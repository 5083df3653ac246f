"""Schemas: Avro and protocol-buffer definitions that messages must match."""
