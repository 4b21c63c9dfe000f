"""What only admins ask for: access tokens, backups."""
