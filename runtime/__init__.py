"""The runtime: native extension, guards, events and reports, kernel store, options, device facts."""

from .interpreter import require_supported

require_supported()
