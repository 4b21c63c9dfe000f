"""Data folders that older code wrote, and what they hold: README.md. The script that writes one, and what reads them."""
