"""Failures that are reported to the user in one sentence, with what to do."""


class StreamError(Exception):
    """Ends the job with status 1; its text is the sentence."""
