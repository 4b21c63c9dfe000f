"""Which intervals of one set meet some of another, and how many, under updates: partners are counted, not visited."""
