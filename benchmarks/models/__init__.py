"""Small models in plain torch.nn, one file a family: the shapes of what people run, at a size that a benchmark can afford.

Each class takes its sizes as arguments with defaults; `benchmarks.workloads` has the rows that run them. They follow the published
architectures (norms, positions, masks, activations in their places) with random weights.
"""
