"""Our version, in one place: `graftjit.__version__`, and part of every stored kernel's key."""

VERSION = "0.1.0"
