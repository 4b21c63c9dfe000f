"""Values that take more than a reader: local times, and the words for open ends."""
