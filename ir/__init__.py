"""The graph: operators recorded from torch calls, and passes over them."""
