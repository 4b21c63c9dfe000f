"""Ad hoc SQL: one SELECT over relations and views at one version, run by DuckDB in a child process. Start with `session`."""
