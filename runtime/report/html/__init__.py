"""The report as one HTML page.

In: the records of a report. Out: a self-contained page.
Open first: `render.py`.
"""
