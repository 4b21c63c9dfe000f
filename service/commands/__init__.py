"""One command of `livejoin` a module: `main(arguments) -> int` reads its arguments and does it."""
