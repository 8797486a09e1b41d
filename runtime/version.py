"""Our version, in one place: `graftjit.__version__`, and part of every stored kernel's key; and that of a report's JSON."""

VERSION = "0.1.0"
SCHEMA = 1  # of a report's JSON: raised when a name goes, or when one means something else
