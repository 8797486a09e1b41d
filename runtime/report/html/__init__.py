"""The report as one HTML page.

In: the records of a report. Out: a page without network access.
Open first: `render.py`.
"""
