// Compiled when graftjit is installed: see codegen/ready.py.
#include "../host.h"
#include "../convolution.h"
extern "C" const unsigned convolution_f32_made_from = CONVOLUTION_MARK;
