"""The dashboard's back end: its files, the state of the service that it shows, and the windows of its timeline."""
