// A CUDA driver for the fake devices: the functions of libcuda.so.1 that graftjit calls, and the one of torch's
// that only its CUDA build has. A launch calls back into Python (driver.py), where Triton's interpreter runs it.
// Errors can be put into any function by its name. Contexts are numbers: 1 + the device.
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kDevices = 2;
enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500 };

struct Library {
  std::string image;
};

struct Kernel {
  Library* library;
  std::string name;
  int shared_limit = 48 << 10;
};

struct Launch {  // read by ctypes in driver.py
  const char* image;
  int64_t image_size;
  const char* name;
  void** parameters;
  void* stream;
  int32_t device, grid[3], block[3], shared, shared_limit;
};

using Launched = int (*)(const Launch*);
using Device = int (*)();
using Stream = int64_t (*)(int);

Launched launched = nullptr;
Device torch_device = nullptr;  // what cudaSetDevice of torch's has made current
Stream torch_stream = nullptr;
int version = 13000, sticky = 0;
bool bare = false;  // a thread on which nobody has made a context current
thread_local std::vector<int> contexts;
thread_local int kept = 0;  // the context that a bare thread was given, and keeps
std::mutex lock;
std::map<std::string, std::pair<int, int>> failing;  // name -> code, calls that still succeed
std::map<std::string, int> calls;

int enter(const char* name) {
  std::lock_guard<std::mutex> held(lock);
  calls[name]++;
  if (sticky) return sticky;
  auto found = failing.find(name);
  if (found == failing.end()) return SUCCESS;
  if (found->second.second > 0) return found->second.second--, SUCCESS;
  return found->second.first;
}

int current() {
  if (!contexts.empty()) return contexts.back();
  return bare ? kept : 1 + torch_device();
}

struct Known {
  int code;
  const char *name, *text;
};
constexpr Known known[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

}  // namespace

#define ENTER \
  if (int code = enter(__func__)) return code;

extern "C" {

void fake_driver_bind(Launched a, Device b, Stream c) { launched = a, torch_device = b, torch_stream = c; }
void fake_driver_fail(const char* name, int code, int after) {
  std::lock_guard<std::mutex> held(lock);
  if (code) failing[name] = {code, after};
  else failing.erase(name);
}
int fake_driver_calls(const char* name) {
  std::lock_guard<std::mutex> held(lock);
  return calls[name];
}
void fake_driver_reset() {
  std::lock_guard<std::mutex> held(lock);
  failing.clear(), calls.clear();
  sticky = 0, version = 13000, bare = false;
}
void fake_driver_version(int now) { version = now; }
void fake_driver_bare(int now) { bare = now, kept = 0; }
int fake_driver_current() { return current(); }
int fake_driver_contexts() { return static_cast<int>(contexts.size()); }

int cuInit(unsigned) { ENTER return SUCCESS; }
int cuDriverGetVersion(int* found) { ENTER return *found = version, SUCCESS; }
int cuDeviceGetCount(int* count) { ENTER return *count = kDevices, SUCCESS; }
int cuDeviceGet(int* device, int index) {
  ENTER if (index < 0 || index >= kDevices) return INVALID_DEVICE;
  return *device = index, SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER switch (attribute) {
    case 16: *value = 132; break;        // multiprocessors
    case 75: *value = 9; break;          // compute capability, major
    case 76: *value = 0; break;          // and minor
    case 97: *value = 227 << 10; break;  // shared memory a block may ask for
    default: return INVALID_VALUE;
  }
  return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER if (device < 0 || device >= kDevices) return INVALID_DEVICE;
  return *context = reinterpret_cast<void*>(static_cast<intptr_t>(1 + device)), SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) { ENTER return SUCCESS; }
int cuCtxGetCurrent(void** context) {
  ENTER return *context = reinterpret_cast<void*>(static_cast<intptr_t>(current())), SUCCESS;
}
int cuCtxGetDevice(int* device) {
  ENTER if (!current()) return INVALID_CONTEXT;
  return *device = current() - 1, SUCCESS;
}
int cuCtxPushCurrent_v2(void* context) {
  ENTER return contexts.push_back(static_cast<int>(reinterpret_cast<intptr_t>(context))), SUCCESS;
}
int cuCtxPopCurrent_v2(void** context) {
  ENTER if (contexts.empty()) return INVALID_CONTEXT;
  if (context) *context = reinterpret_cast<void*>(static_cast<intptr_t>(contexts.back()));
  return contexts.pop_back(), SUCCESS;
}
int cuCtxSetCurrent(void* context) {
  ENTER int number = static_cast<int>(reinterpret_cast<intptr_t>(context));
  if (contexts.empty()) return kept = number, SUCCESS;
  return contexts.back() = number, SUCCESS;
}
int cuStreamIsCapturing(void*, int* status) { ENTER return *status = 0, SUCCESS; }
int cuThreadExchangeStreamCaptureMode(int* mode) {
  ENTER thread_local int now = 0;
  int before = now;
  now = *mode, *mode = before;
  return SUCCESS;
}
int cuStreamSynchronize(void*) { ENTER return SUCCESS; }

// The magic of ELF, "FAKE", eight bytes of length, and so many bytes that driver.py understands.
int cuLibraryLoadData(void** library, const void* code, void*, void*, unsigned, void*, void*, unsigned) {
  ENTER const char* text = static_cast<const char*>(code);
  if (std::memcmp(text, "\x7f" "ELFFAKE", 8) != 0) return INVALID_IMAGE;
  int64_t size;
  std::memcpy(&size, text + 8, 8);
  return *library = new Library{std::string(text + 16, static_cast<size_t>(size))}, SUCCESS;
}
int cuLibraryUnload(void* library) {
  ENTER delete static_cast<Library*>(library);
  return SUCCESS;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  ENTER Library* from = static_cast<Library*>(library);
  if (from->image.find(name) == std::string::npos) return NOT_FOUND;
  return *kernel = new Kernel{from, name}, SUCCESS;
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  ENTER if (device < 0 || device >= kDevices) return INVALID_DEVICE;
  if (attribute == 8) static_cast<Kernel*>(kernel)->shared_limit = value;  // dynamic shared memory
  return SUCCESS;
}
int cuKernelGetFunction(void** function, void* kernel) { ENTER return *function = kernel, SUCCESS; }
int cuFuncLoad(void*) { ENTER return SUCCESS; }
int cuFuncSetAttribute(void* function, int attribute, int value) {
  ENTER if (attribute == 8) static_cast<Kernel*>(function)->shared_limit = value;
  return SUCCESS;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void**) {
  ENTER if (!current()) return INVALID_CONTEXT;
  if (!gx || !gy || !gz || !bx) return INVALID_VALUE;
  int device = current() - 1;
  if (stream && static_cast<int>(reinterpret_cast<intptr_t>(stream) & 0xff) != device) return INVALID_HANDLE;
  Kernel* kernel = static_cast<Kernel*>(function);
  Launch launch{kernel->library->image.data(), static_cast<int64_t>(kernel->library->image.size()),
                kernel->name.c_str(), parameters, stream, device,
                {static_cast<int>(gx), static_cast<int>(gy), static_cast<int>(gz)},
                {static_cast<int>(bx), static_cast<int>(by), static_cast<int>(bz)},
                static_cast<int>(shared), kernel->shared_limit};
  int code = launched(&launch);
  std::lock_guard<std::mutex> held(lock);
  if (code >= 700) sticky = code;  // the context is lost, as a real one is
  return code;
}

int cuGetErrorName(int code, const char** text) {
  for (const Known& one : known)
    if (one.code == code) return *text = one.name, SUCCESS;
  return *text = nullptr, INVALID_VALUE;
}
int cuGetErrorString(int code, const char** text) {
  for (const Known& one : known)
    if (one.code == code) return *text = one.text, SUCCESS;
  return *text = nullptr, INVALID_VALUE;
}

int32_t aoti_torch_get_current_cuda_stream(int32_t device, void** stream) {
  if (enter(__func__)) return 1;
  int index = device < 0 ? torch_device() : device;
  int64_t id = torch_stream(index);
  *stream = reinterpret_cast<void*>(static_cast<intptr_t>(id ? id << 8 | index : 0));
  return 0;
}
}
