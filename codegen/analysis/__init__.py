"""Data flow of a graph, as planning needs it: readers, writers, order.

In: a graph. Out: data flow: readers, writers, order.
Open first: `dataflow.py`.
"""
