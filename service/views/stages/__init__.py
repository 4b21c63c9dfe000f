"""Stages between a join's rows and the view's rows, such as groups."""
