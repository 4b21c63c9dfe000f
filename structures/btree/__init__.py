"""What B+-trees do alike, whatever their nodes hold: factories of helpers, closures over those of a tree (`nodes.Helpers`)."""
