"""Followers of a view: its feed keeps the recent changes, a subscription is a position in it. Start with `feeds`."""
