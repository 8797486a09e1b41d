"""Reports: events become what a user reads.

In: events of one callable. Out: `Report`, as text, HTML, JSON and a Perfetto trace.
Open first: `report.py`.
"""
