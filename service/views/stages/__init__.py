"""What becomes of a join's rows before they are a view's: groups."""
