"""graftjit beside eager mode, torch.compile, ONNX Runtime and OpenVINO: `python -m
benchmarks.engines`."""
