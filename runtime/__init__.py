"""The runtime: guards, programs, autograd, kernel store, events and reports."""

from .process.python_version import require_supported

require_supported()
