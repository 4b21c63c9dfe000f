"""What the partners of a row leave uncovered of it, or cover, under updates."""
