"""Hand-tuned kernels: matrix products and convolutions.

In: nodes that such a kernel can compute. Out: kernels from header templates, compiled with the
package or on demand.
Open first: `registry.py`.
"""
