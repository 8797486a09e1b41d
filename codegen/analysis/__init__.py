"""Facts about a graph that planning needs.

In: a graph. Out: data flow: readers, writers, order.
Open first: `dataflow.py`.
"""
