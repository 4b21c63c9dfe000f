"""The road in: records of Kafka's topics, by one Spark query, judged and posted as batches. Begin with `pipeline`."""
