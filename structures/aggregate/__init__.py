"""Aggregates of groups under inserts and deletes of rows: counts, sums that are exact and the same in any order, least, greatest and
distinct values. Start with `groups.Groups`."""
