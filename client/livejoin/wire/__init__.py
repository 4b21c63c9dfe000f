"""The wire format: bytes → changes, rows → bytes, and definitions of relations. Imports nothing else of livejoin."""
