"""The runtime: native extension, guards, events and reports, kernel store, options, hardware."""

from .process.python_version import require_supported

require_supported()
