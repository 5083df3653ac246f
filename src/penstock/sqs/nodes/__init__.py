"""SQS on several nodes: any node takes any request, and passes on what another one owns."""

from penstock.sqs.nodes.server import SqsNodeSettings, serve_node

__all__ = ["SqsNodeSettings", "serve_node"]
