"""`python -m benchmarks.gpu --out DIR`: graftjit on a GPU beside eager and torch.compile, in one command of a few minutes."""
