"""Code generation: a graph becomes kernels and a list of steps."""
