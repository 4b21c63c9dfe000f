"""Values of the functions of `query.terms`, a column at a time."""
