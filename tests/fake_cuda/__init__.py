"""A CUDA device that is none: tensors that say `cuda:0` over host memory, and operators that the CPU computes."""
