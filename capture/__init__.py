"""Capture: a frame becomes a graph, guards and replacement code."""
