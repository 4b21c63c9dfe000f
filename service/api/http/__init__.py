"""HTTP for the handlers: bodies, media types, query parameters, responses, and access control (`origin`)."""
