"""The report as text.

In: the records of a report. Out: styled lines for a terminal or a file.
Open first: `render.py`.
"""
