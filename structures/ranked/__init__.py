"""The rows of each key in an order, under updates: the first few of each key, and from where to where each row is the latest."""
