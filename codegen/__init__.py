"""graftjit room."""
