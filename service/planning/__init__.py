"""From a query to the plan by which it is kept: class, algorithm, promise. Begin with `planner`."""
