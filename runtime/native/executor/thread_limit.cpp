#include "executor/thread_limit.h"

#include "tensors/torch_api.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

namespace {

constexpr int64_t PAUSE = 10'000'000;  // nanoseconds between two looks
// Looks in a row that agree before fewer threads are used, and before more are: a process that runs
// for a moment changes nothing.
constexpr int AGREE_FEWER = 2, AGREE_MORE = 3;

struct {
    void (*set_threads)(int);       // omp_set_num_threads
    int (*set_mkl_threads)(int);    // MKL_Set_Num_Threads_Local
    bool (*is_deterministic)(const void *context);
    const void *(*context)();
    int file = -1;  // /proc/loadavg
    int cores = 0;
} machine;

std::atomic<int64_t> next_look{INT64_MAX};
std::atomic<int> limit{INT32_MAX};
std::atomic<uint64_t> limited{0};  // programs that ran on fewer threads
int fewer_looks = 0, more_looks = 0;  // in a row; changed by the thread that looks

int64_t coarse_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// The threads of the machine that run or wait for a core; 0: unknown.
int running_threads() {
    char text[64];
    ssize_t n = pread(machine.file, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    char *at = text;  // three averages, then running/all
    for (int word = 0; word < 3 && at != nullptr; word++)
        if ((at = strchr(at, ' ')) != nullptr) at++;
    return at == nullptr ? 0 : atoi(at);
}

void look(int wanted) {
    int before = limit.load(), used = std::min(before, wanted);
    int running = running_threads(), next = INT32_MAX;
    // those of this process are among them, all `used` if each waits for its turn
    if (running > machine.cores)
        next = std::max(1, std::min(used, wanted - (running - machine.cores)));
    else if (used < wanted)
        next = std::min(wanted, std::max(1, machine.cores - std::max(0, running - used)));
    if (next >= wanted) next = INT32_MAX;
    fewer_looks = next < before ? fewer_looks + 1 : 0;
    more_looks = next > before ? more_looks + 1 : 0;
    if (fewer_looks < AGREE_FEWER && more_looks < AGREE_MORE) return;
    fewer_looks = more_looks = 0;
    limit.store(next);
}

}  // namespace

ThreadLimit::ThreadLimit() {
    int64_t due = next_look.load(std::memory_order_relaxed);
    if (due == INT64_MAX) return;
    int64_t now = coarse_now();
    if (now < due && limit.load(std::memory_order_relaxed) == INT32_MAX) return;
    int wanted = torch_api.get_num_threads();
    if (wanted < 2) return;
    if (now >= due && next_look.compare_exchange_strong(due, now + PAUSE)) look(wanted);
    int most = limit.load(std::memory_order_relaxed);
    if (most >= wanted) return;
    if (machine.is_deterministic != nullptr && machine.is_deterministic(machine.context())) return;
    before_ = wanted;
    limited.fetch_add(1, std::memory_order_relaxed);
    machine.set_threads(most);
    if (machine.set_mkl_threads != nullptr) machine.set_mkl_threads(most);
}

void ThreadLimit::give_back() {
    machine.set_threads(before_);
    // 0: the number of the process again
    if (machine.set_mkl_threads != nullptr) machine.set_mkl_threads(0);
}

bool thread_limit_bind(bool on) {
    next_look.store(INT64_MAX);
    limit.store(INT32_MAX);
    if (!on || torch_api.library == nullptr || torch_api.get_num_threads == nullptr) return false;
    auto find = [](const char *name) { return dlsym(torch_api.library, name); };
    *(void **)&machine.set_threads = find("omp_set_num_threads");
    *(void **)&machine.set_mkl_threads = find("MKL_Set_Num_Threads_Local");
    *(void **)&machine.is_deterministic = find("_ZNK2at7Context23deterministicAlgorithmsEv");
    *(void **)&machine.context = find("_ZN2at13globalContextEv");
    if (machine.context == nullptr) machine.is_deterministic = nullptr;
    machine.cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (machine.file < 0) machine.file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (machine.set_threads == nullptr || machine.cores < 2 || machine.file < 0) return false;
    next_look.store(0);
    return true;
}

// limited_calls(): how many programs ran on fewer threads than torch's number.
static PyObject *limited_calls(PyObject *, PyObject *) {
    return PyLong_FromUnsignedLongLong(limited.load());
}

static PyMethodDef thread_limit_methods[] = {
    {"limited_calls", limited_calls, METH_NOARGS,
     "limited_calls() -> int: programs that ran on fewer threads, because other processes took the "
     "cores."},
    {nullptr, nullptr, 0, nullptr}};

int thread_limit_init(PyObject *module) {
    return PyModule_AddFunctions(module, thread_limit_methods);
}
