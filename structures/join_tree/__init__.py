"""Joins whose aliases hang together as a tree, kept live without dead ends: Yannakakis' algorithm under updates (Idris, Ugarte and
Vansummeren, *The Dynamic Yannakakis Algorithm*). Start with `tree.JoinTree`."""
