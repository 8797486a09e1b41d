// Compiled when graftjit is installed: see codegen/kernels/libraries.py.
#include "../common.h"
#include "../lanes.h"
#include "../depthwise.h"
extern "C" const unsigned depthwise_f32_made_from = DEPTHWISE_MARK;
