"""Arithmetic over the numbers of a row. Start with `steps.result`."""
