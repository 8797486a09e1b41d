// Compiled when graftjit is installed: see codegen/kernels/libraries.py.
#include "../common.h"
#include "../lanes.h"
#include "../matmul_f32.h"
extern "C" const unsigned product_f32_made_from = MATMUL_F32_MARK;
