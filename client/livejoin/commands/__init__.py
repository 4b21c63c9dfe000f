"""The commands that only talk to a service, one module each with a function `main`."""
