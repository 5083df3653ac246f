"""ActiveMQ as a queue, over STOMP."""
