"""Endpoints for admins only: access tokens, backups."""
