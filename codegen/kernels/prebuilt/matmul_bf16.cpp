// Compiled when graftjit is installed: see codegen/kernels/libraries.py.
#include "../common.h"
#include "../lanes.h"
#include "../matmul_bf16.h"
extern "C" const unsigned product_bf16_made_from = MATMUL_BF16_MARK;
