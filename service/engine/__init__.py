"""One writer: batches in, versions out, durable. Begin with `engine`; `writer` has the order of things, `state` what a batch does."""
