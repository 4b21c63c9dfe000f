"""Joins whose aliases form a tree, maintained without dead ends: Yannakakis' algorithm under updates (Idris, Ugarte and
Vansummeren, *The Dynamic Yannakakis Algorithm*). Start with `tree.JoinTree`."""
