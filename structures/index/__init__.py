"""Sets of tuples in lexicographic order, shared by all that read them, at every pinned version: B+-trees, copied on write. Start with
`indexes.OrderedIndexes`."""
