// Casts of weights from autocast's own cache; ir/trace/autocast_cache.py explains why.
#pragma once
#include <cstdint>

#include "tensors/torch_api.h"

// The cast of `weight` that eager would use, as a new cell. False, without a cell, if torch's
// function is missing or the cached tensor has another layout than the weight. C++ exceptions
// propagate.
bool cached_cast(Handle weight, int32_t dtype, int32_t device_type, Handle *cell);
