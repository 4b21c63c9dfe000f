"""From a definition in JSON or SQL to a `Query` (`model`), names resolved and values typed."""
