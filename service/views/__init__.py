"""Live views: a definition parsed and planned, the structures that keep it, its rows and its deltas. Begin with `live_view`."""
