"""What the changes of a version leave of the rows that they tell."""
