"""Sets of tuples in lexicographic order, shared by all readers, at every pinned version: copy-on-write B+-trees. Start with
`indexes.OrderedIndexes`."""
