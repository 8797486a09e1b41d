"""The capture package: a frame's code becomes guards, a graph, effects and replacement code."""
