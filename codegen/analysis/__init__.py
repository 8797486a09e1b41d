"""Facts about a graph that planning asks for.

In: a graph. Out: data flow: readers, writers, order.
Open first: `dataflow.py`.
"""
