"""The road out: a view's changes into a Kafka topic, each once. Begin with `publisher`."""
