"""Followers of a view: its feed keeps the changes of late, a subscription stands at a version of it. Begin with `feeds`."""
