"""Memory pages: have the system allocate them before they are needed."""
