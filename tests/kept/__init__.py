"""Data folders that older code wrote, and their contents: README.md. The script that writes one, and the modules that read them."""
