#include "executor/profiler_ranges.h"

#include <dlfcn.h>

#include "tensors/torch_api.h"

constinit thread_local void *const *recorders = nullptr;

namespace {

void *const NO_RECORDERS[2] = {nullptr, nullptr};

template <typename Function>
void find(const char *name, Function *place) {
    *(void **)place = torch_api.library == nullptr ? nullptr : dlsym(torch_api.library, name);
}

struct Recording {
    // at::get_record_function_tls_(): its first member is a std::vector
    void *const *(*callbacks)() = nullptr;
    // at::hasThreadLocalCallbacks(): whether a callback is enabled
    bool (*any)() = nullptr;
    int32_t (*start)(const char *name, void *keywords, void *const *inputs, uint64_t n_inputs,
                     void **range) = nullptr;
    int32_t (*stop)(void *range) = nullptr;

    Recording() {
        find("_ZN2at23hasThreadLocalCallbacksEv", &any);
        find("aoti_record_function_start", &start);
        find("aoti_record_function_end", &stop);
        if (any && start && stop) find("_ZN2at24get_record_function_tls_Ev", &callbacks);
    }
};

const Recording &recording() {
    static const Recording found;
    return found;
}

}  // namespace

bool ranges_look() {
    const Recording &torch = recording();
    if (recorders == nullptr) recorders = torch.callbacks == nullptr ? NO_RECORDERS : torch.callbacks();
    return recorders[0] != recorders[1] && torch.any();
}

void Range::begin(const char *name) {
    // If this fails, only the range is missing.
    if (recording().start(name, nullptr, nullptr, 0, &handle_) != 0) handle_ = nullptr;
}

void Range::end() { recording().stop(handle_); }
