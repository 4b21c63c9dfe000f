"""One command of `livejoin` per module: `main(arguments) -> int` parses its arguments and runs it."""
