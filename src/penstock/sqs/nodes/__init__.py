"""SQS on several nodes: any node takes any request, and passes on what another one owns."""

from penstock.sqs.nodes.server import SqsNodeSettings, require_one_shard, serve_node

__all__ = ["SqsNodeSettings", "require_one_shard", "serve_node"]
