"""Code generation: from a graph to kernels and a program."""
