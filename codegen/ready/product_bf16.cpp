// Compiled when graftjit is installed: see codegen/ready.py.
#include "../host.h"
#include "../product_bf16.h"
extern "C" const unsigned product_bf16_made_from = PRODUCT_BF16_MARK;
