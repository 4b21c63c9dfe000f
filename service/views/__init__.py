"""Live views: parsed and planned definitions, the structures that maintain them, their rows and deltas. Start with `live_view`."""
