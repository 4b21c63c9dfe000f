"""What the handlers need of HTTP itself: bodies, media types, query parameters, answers, and who may call (`origin`)."""
