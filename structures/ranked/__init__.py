"""Rows of each key in an order, under change: the first few of each key, and which row is the latest from where to where."""
