"""Failures that a person is told in one sentence, with what to do."""


class StreamError(Exception):
    """Ends the job with status 1; its text is the sentence."""
