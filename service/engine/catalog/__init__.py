"""Changes of definitions, in the writer's turn: views are registered, replaced and dropped, relations extended."""
