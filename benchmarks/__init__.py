"""Benchmarks: `python -m benchmarks.compare {call,first,steady}`; see `benchmarks.compare`."""
