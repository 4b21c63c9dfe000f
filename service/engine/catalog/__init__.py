"""A single writer turns batches into durable versions. Start with `engine`; `writer` has the order of steps, `state` what a batch does."""
