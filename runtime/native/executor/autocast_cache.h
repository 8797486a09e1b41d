// Casts of weights out of autocast's own cache; why is told in ir/trace/autocast_cache.py.
#pragma once
#include <cstdint>

#include "tensors/torch_api.h"

// The cast of `weight` that eager would use, as a new cell. False, and no cell, where torch's function is missing
// or what it keeps has another layout than the weight. Lets C++ exceptions through.
bool cached_cast(Handle weight, int32_t dtype, int32_t device_type, Handle *cell);
