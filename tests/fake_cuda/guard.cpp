// What torch asks of a backend beside its operators: which device is current, and streams that do nothing.
// Built against the headers of the installed torch; the CPU build has no such guard for CUDA, and hooks that say so.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <new>

namespace {

constexpr int kDevices = 2;
thread_local c10::DeviceIndex current = 0;
thread_local c10::StreamId streams[kDevices] = {0, 0};
std::atomic<c10::StreamId> made{1};

c10::Stream stream_of(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, index), id);
}

struct FakeGuard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::DeviceType::CUDA, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kDevices, "CUDA error: invalid device ordinal");
    if (device.index() >= 0) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kDevices) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    c10::DeviceIndex index = device.index() < 0 ? current : device.index();
    return stream_of(index, streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    c10::DeviceIndex index = device.index() < 0 ? current : device.index();
    return stream_of(index, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    c10::DeviceIndex index = device.index() < 0 ? current : device.index();
    return stream_of(index, made++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream before = getStream(stream.device());
    streams[stream.device_index()] = stream.id();
    return before;
  }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
};

bool present = false;  // whether torch is told of devices: false between tests

struct FakeHooks final : public at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return present; }
  bool isAvailable() const override { return present; }
  bool hasCUDA() const override { return present; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return present; }
  c10::DeviceIndex deviceCount() const override { return present ? kDevices : 0; }
  int getNumGPUs() const override { return present ? kDevices : 0; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex current_device() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    c10::DeviceIndex before = current;
    if (device >= 0) current = device;
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  void deviceSynchronize(c10::DeviceIndex) const override {}
};

}  // namespace

extern "C" {
// Whether it is ours that torch asks from now on; a build with CUDA keeps its own.
int fake_cuda_register() {
  auto& place = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)];
  const c10::impl::DeviceGuardImplInterface* none = nullptr;
  if (!place.compare_exchange_strong(none, new FakeGuard())) return 0;
  // The hooks have no data, and torch keeps the first that it has asked for: ours take their place where they lie.
  auto& hooks = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  static_assert(sizeof(FakeHooks) == sizeof(at::CUDAHooksInterface));
  new (&hooks) FakeHooks();
  return 1;
}
void fake_cuda_present(int now) { present = now; }
int fake_cuda_device() { return current; }
int fake_cuda_exchange_device(int index) {
  int before = current;
  if (index >= 0 && index < kDevices) current = static_cast<c10::DeviceIndex>(index);
  return before;
}
int64_t fake_cuda_stream(int index) { return streams[index < 0 ? current : index]; }
void fake_cuda_set_stream(int index, int64_t id) { streams[index] = id; }
}
