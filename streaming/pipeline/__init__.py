"""Inbound: records of Kafka topics, read by one Spark query, validated and posted as batches. Start with `pipeline`."""
