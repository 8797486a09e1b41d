"""Partition of a joint graph into forward and backward.

In: a joint graph. Out: two graphs, and the values that the first saves for the second.
Open first: `partition.py`.
"""
