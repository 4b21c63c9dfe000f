"""Outbound: a view's changes to a Kafka topic, each once. Start with `publisher`."""
