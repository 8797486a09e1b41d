#include "executor/autocast_cache.h"

#include <dlfcn.h>

#include <cstring>

namespace {

// Returned like an at::Tensor, which has a destructor: in memory that the caller provides. The
// reference in it is moved to the result.
struct Returned {
    void *impl;
    Returned(const Returned &) = delete;
    ~Returned() {}
};

using CachedCast = Returned (*)(int8_t dtype, const void *tensor, int8_t device_type);

CachedCast found() {
    static const auto function = (CachedCast)dlsym(
        torch_api.library,
        "_ZN2at8autocast11cached_castEN3c1010ScalarTypeERKNS_6TensorENS1_10DeviceTypeE");
    return function;
}

bool same_layout(Handle left, Handle right) {
    int64_t dims[2] = {}, *sizes[2] = {}, *strides[2] = {};
    Handle both[2] = {left, right};
    for (int i = 0; i < 2; i++)
        if (torch_api.get_dim(both[i], &dims[i]) || torch_api.get_sizes(both[i], &sizes[i]) ||
            torch_api.get_strides(both[i], &strides[i]))
            return false;
    size_t bytes = sizeof(int64_t) * (size_t)dims[0];
    return dims[0] == dims[1] &&
           (dims[0] == 0 || (std::memcmp(sizes[0], sizes[1], bytes) == 0 &&
                             std::memcmp(strides[0], strides[1], bytes) == 0));
}

}  // namespace

bool cached_cast(Handle weight, int32_t dtype, int32_t device_type, Handle *cell) {
    if (found() == nullptr) return false;
    Returned cast = found()((int8_t)dtype, weight, (int8_t)device_type);
    *cell = new_cell(cast.impl);
    if (same_layout(weight, *cell)) return true;
    torch_api.delete_tensor(*cell);
    return false;
}
