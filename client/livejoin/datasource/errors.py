"""The error of the data source."""


class DataSourceError(Exception):
    """Ends the read, write or query; its text is one sentence that says what to do."""
