"""Followers of a view: its feed keeps the recent changes, a subscription is at a version of it. Start with `feeds`."""
