// A CUDA driver that is none: two devices, contexts, libraries and launches as the real one has them, all written down.
//
// A "cubin" is text that ends with a null: `fake-cubin sm_90`, then one line a kernel, `NAME SIZE SIZE...`, the bytes of
// each of its parameters. A launch calls back, if somebody asked for it. Calls are lines of a log; each can be made to fail.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

using Launched = void (*)(const char *kernel, void **parameters, int count, unsigned programs, void *stream, int device);

namespace {

constexpr int DEVICES = 2;
constexpr int INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
              NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500;

struct Library;

struct Kernel {
    Library *library;
    std::string name;
    std::vector<int> sizes;
};

struct Library {
    std::string target;
    std::map<std::string, Kernel> kernels;
};

std::mutex lock;
std::string written;
bool logging = true;
int version = 12040, shared_limit = 227 << 10, architecture = 90;
std::map<std::string, std::pair<int, int>> failing; // function -> calls that still succeed, code
std::set<Library *> libraries;
std::set<void *> recorded; // streams under capture
Launched launched = nullptr;
char contexts[DEVICES];                        // their addresses are the primary contexts
thread_local std::vector<void *> current;      // the last one is current
thread_local void *streams[DEVICES] = {};      // torch's

void note(const std::string &line) {
    if (logging) written += line + "\n";
}

// The code to fail with.
int begin(const char *function, const std::string &rest = "") {
    std::lock_guard<std::mutex> held(lock);
    note(function + (rest.empty() ? "" : " " + rest));
    if (failing.empty()) return 0;
    auto found = failing.find(function);
    if (found == failing.end() || found->second.first-- > 0) return 0;
    return found->second.second;
}

std::string number(int64_t value) { return std::to_string(value); }
std::string address(void *value) { return std::to_string((uintptr_t)value); }
int device_of(void *context) { return (int)((char *)context - contexts); }
bool is_context(void *context) { return context >= contexts && context < contexts + DEVICES; }

Kernel *known(void *handle) {
    for (Library *library : libraries)
        for (auto &[name, kernel] : library->kernels)
            if (&kernel == handle) return &kernel;
    return nullptr;
}

}  // namespace

// --- what tests set and read

API void fake_cuda_reset() {
    std::lock_guard<std::mutex> held(lock);
    written.clear(), failing.clear(), recorded.clear();
    logging = true, version = 12040, shared_limit = 227 << 10, architecture = 90, launched = nullptr;
}

// What was loaded before is not counted any more.
API void fake_cuda_fresh() {
    fake_cuda_reset();
    libraries.clear();
}

API const char *fake_cuda_log() { return written.c_str(); }
API void fake_cuda_forget() { written.clear(); }
API void fake_cuda_logging(int on) { logging = on; }
API void fake_cuda_version(int of) { version = of; }
API void fake_cuda_architecture(int of) { architecture = of; }
API void fake_cuda_on_launch(Launched function) { launched = function; }
API void fake_cuda_stream(int device, void *stream) { streams[device] = stream; }
API void fake_cuda_recording(void *stream, int on) { on ? (void)recorded.insert(stream) : (void)recorded.erase(stream); }
API int fake_cuda_libraries() { return (int)libraries.size(); }
API int fake_cuda_depth() { return (int)current.size(); }
// This thread's current device; -1: it has no context, as a thread that never called CUDA.
API int fake_cuda_device() { return current.empty() ? -1 : device_of(current.back()); }
API void fake_cuda_set_device(int device) {
    current.clear();
    if (device >= 0) current.push_back(contexts + device);
}
// The call of this function after so many more fails with the code, and all that follow.
API void fake_cuda_fail(const char *function, int code, int after) { failing[function] = {after, code}; }

// --- torch's function

API int32_t aoti_torch_get_current_cuda_stream(int32_t device, void **stream) {
    if (begin("aoti_torch_get_current_cuda_stream", number(device)) || device < 0 || device >= DEVICES) return 1;
    *stream = streams[device];
    return 0;
}

// --- the driver's

API int cuInit(unsigned) { return begin("cuInit"); }

API int cuDriverGetVersion(int *out) { return *out = version, begin("cuDriverGetVersion"); }

API int cuGetErrorName(int code, const char **out) {
    static const std::map<int, const char *> names = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
        {100, "CUDA_ERROR_NO_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {710, "CUDA_ERROR_ASSERT"},
    };
    auto found = names.find(code);
    *out = found == names.end() ? nullptr : found->second;
    return found == names.end() ? INVALID_VALUE : 0;
}

API int cuGetErrorString(int code, const char **out) {
    static const std::map<int, const char *> texts = {
        {1, "invalid argument"}, {2, "out of memory"}, {3, "initialization error"},
        {100, "no CUDA-capable device is detected"}, {200, "device kernel image is invalid"},
        {201, "invalid device context"}, {209, "no kernel image is available for execution on the device"},
        {700, "an illegal memory access was encountered"}, {710, "device-side assert triggered"},
    };
    auto found = texts.find(code);
    *out = found == texts.end() ? nullptr : found->second;
    return found == texts.end() ? INVALID_VALUE : 0;
}

API int cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
    return *device = ordinal, begin("cuDeviceGet", number(ordinal));
}

API int cuDevicePrimaryCtxRetain(void **context, int device) {
    return *context = contexts + device, begin("cuDevicePrimaryCtxRetain", number(device));
}

API int cuCtxGetCurrent(void **context) {
    return *context = current.empty() ? nullptr : current.back(), begin("cuCtxGetCurrent");
}

API int cuCtxGetDevice(int *device) {
    if (current.empty()) return INVALID_CONTEXT;
    return *device = device_of(current.back()), begin("cuCtxGetDevice");
}

API int cuCtxPushCurrent_v2(void *context) {
    if (!is_context(context)) return INVALID_CONTEXT;
    int code = begin("cuCtxPushCurrent", number(device_of(context)));
    if (code == 0) current.push_back(context);
    return code;
}

API int cuCtxPopCurrent_v2(void **context) {
    if (current.empty()) return INVALID_CONTEXT;
    *context = current.back();
    current.pop_back();
    return begin("cuCtxPopCurrent", number(device_of(*context)));
}

API int cuCtxSetCurrent(void *context) {
    if (!is_context(context)) return INVALID_CONTEXT;
    int code = begin("cuCtxSetCurrent", number(device_of(context)));
    if (code) return code;
    if (!current.empty()) current.pop_back();
    return current.push_back(context), code;
}

API int cuStreamIsCapturing(void *stream, int *status) {
    return *status = (int)recorded.count(stream), begin("cuStreamIsCapturing", address(stream));
}

API int cuThreadExchangeStreamCaptureMode(int *mode) {
    thread_local int now = 0;
    std::swap(now, *mode);
    return begin("cuThreadExchangeStreamCaptureMode", number(now));
}

API int cuLibraryLoadData(void **library, const void *code, void *, void *, unsigned, void *, void *, unsigned) {
    if (int failed = begin("cuLibraryLoadData")) return failed;
    std::istringstream text((const char *)code);
    std::string line, word;
    auto *made = new Library();
    for (bool first = true; std::getline(text, line); first = false) {
        std::istringstream words(line);
        words >> word;
        if (first) {
            bool good = word == "fake-cubin";
            words >> made->target;
            if (!good || made->target != "sm_" + number(architecture)) {
                delete made;
                return good ? NO_BINARY : INVALID_IMAGE;
            }
            continue;
        }
        Kernel &kernel = made->kernels[word];
        kernel.library = made, kernel.name = word;
        for (int size; words >> size;) kernel.sizes.push_back(size);
    }
    std::lock_guard<std::mutex> held(lock);
    libraries.insert(made);
    *library = made;
    return 0;
}

API int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    if (int failed = begin("cuLibraryGetKernel", name)) return failed;
    auto &kernels = ((Library *)library)->kernels;
    auto found = kernels.find(name);
    if (found == kernels.end()) return NOT_FOUND;
    return *kernel = &found->second, 0;
}

API int cuCtxSynchronize() { return begin("cuCtxSynchronize"); }

API int cuLibraryUnload(void *library) {
    if (int failed = begin("cuLibraryUnload")) return failed;
    std::lock_guard<std::mutex> held(lock);
    if (!libraries.erase((Library *)library)) return INVALID_HANDLE;
    delete (Library *)library;
    return 0;
}

API int cuKernelGetFunction(void **function, void *kernel) {
    if (current.empty()) return INVALID_CONTEXT;
    return *function = kernel, begin("cuKernelGetFunction", number(device_of(current.back())));
}

API int cuFuncLoad(void *) { return begin("cuFuncLoad"); }

API int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
    if (int failed = begin("cuKernelSetAttribute", number(attribute) + " " + number(value) + " " +
                                                      ((Kernel *)kernel)->name + " " + number(device)))
        return failed;
    return value > shared_limit ? INVALID_VALUE : 0;
}

// cuLaunchKernel NAME device=0 grid=2,1,1 block=128,1,1 shared=0 stream=0 parameters=0011...,... (bytes in hexadecimal)
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *stream, void **parameters, void **) {
    if (!logging && launched == nullptr && failing.empty()) return 0;
    if (current.empty() && stream == nullptr) return INVALID_CONTEXT;
    Kernel *kernel;
    {
        std::lock_guard<std::mutex> held(lock);
        kernel = known(function);
    }
    if (kernel == nullptr) return INVALID_HANDLE;
    char text[160];
    int device = current.empty() ? -1 : device_of(current.back());
    std::snprintf(text, sizeof text, " device=%d grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%lu parameters=", device, gx,
                  gy, gz, bx, by, bz, shared, (unsigned long)stream);
    std::string line = kernel->name + text;
    for (size_t i = 0; i < kernel->sizes.size(); i++) {
        if (i) line += ",";
        for (int byte = 0; byte < kernel->sizes[i]; byte++) {
            std::snprintf(text, sizeof text, "%02x", ((unsigned char *)parameters[i])[byte]);
            line += text;
        }
    }
    if (int failed = begin("cuLaunchKernel", line)) return failed;
    if (launched != nullptr)
        launched(kernel->name.c_str(), parameters, (int)kernel->sizes.size(), gx, stream, device);
    return 0;
}
