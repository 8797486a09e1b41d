"""The ir package: graphs of ATen operators, recorded from torch calls and transformed by passes."""
