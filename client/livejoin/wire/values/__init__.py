"""Values that need more than a reader: local times, and the words for open ends."""
