"""Which intervals of one set meet intervals of another, and how many: partners are counted, not visited, under updates."""
