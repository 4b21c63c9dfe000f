"""What rows leave uncovered by the intervals that they meet, and what these cover, under updates."""
