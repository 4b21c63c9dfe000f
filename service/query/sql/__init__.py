"""From SQL to the drafts that `assembly` makes queries of."""
