"""A driver that loads nothing and notes what it is asked to load."""

from __future__ import annotations

from types import SimpleNamespace


class Driver:
    def __init__(self):
        self.loaded = []

    def load(self, cubin, name, shared=0, device=None):
        self.loaded.append((cubin, name, shared))
        return 1000 + len(self.loaded), SimpleNamespace()
