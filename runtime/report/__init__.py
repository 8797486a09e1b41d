"""Reports: events become text, HTML and JSON for users.

In: the events of one callable. Out: a `Report`, as text, HTML, JSON and a Perfetto trace.
Open first: `report.py`.
"""
