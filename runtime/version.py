"""The version of graftjit (`graftjit.__version__`), which is part of every stored kernel's key, and
that of a report's JSON."""

VERSION = "0.1.0"
# Version of a report's JSON: increased when a name is removed or changes its meaning.
SCHEMA = 1
