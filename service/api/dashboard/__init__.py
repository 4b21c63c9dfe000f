"""What the dashboard is made of: its files, the state of the service as it shows it, and the windows of its timeline."""
