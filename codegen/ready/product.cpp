// Compiled when graftjit is installed: see codegen/ready.py.
#include "../host.h"
#include "../product.h"
extern "C" const unsigned product_f32_made_from = PRODUCT_MARK;
