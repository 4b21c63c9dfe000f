"""Aggregates of groups under inserts and deletes of rows: counts, sums that are exact and independent of the order of changes, least,
greatest and distinct values. Start with `groups.Groups`."""
