"""Partition: a joint graph becomes forward and backward.

In: a joint graph. Out: two graphs, and the values that the first saves for the second.
Open first: `partition.py`.
"""
