"""Few changes of a relation's rows, followed into its groups by one call. Start with `following.GroupedRows`."""
