"""Functions in expressions: the types of their arguments and results."""
