// Compiled when graftjit is installed: see codegen/kernels/libraries.py.
#include "../common.h"
#include "../lanes.h"
#include "../convolution.h"
extern "C" const unsigned convolution_f32_made_from = CONVOLUTION_MARK;
