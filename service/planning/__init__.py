"""From a query to its plan: class, algorithm, guarantee. Start with `planner`."""
