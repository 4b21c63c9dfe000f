"""The wire format: bytes → changes, rows → bytes, and what a relation is. Imports nothing else of livejoin."""
