// Fewer threads while other processes take the processor.
//
// A parallel region waits for its last thread. If another process runs on that thread's core, this
// takes a turn of the scheduler, some milliseconds, for a region of microseconds. So when more
// threads want to run than the machine has cores, programs use as many as are left, at least one:
// their own kernels and the library's calls. Linux tells the number (/proc/loadavg); it is read at
// most every ten milliseconds. Results of graftjit's kernels do not depend on the number of
// threads; some of a library's do, in the last bits, so nothing is changed under deterministic
// algorithms.
#pragma once

#include <Python.h>

// For the calling thread, while it lives.
class ThreadLimit {
  public:
    ThreadLimit();
    ~ThreadLimit() {
        if (before_ != 0) give_back();
    }
    ThreadLimit(const ThreadLimit &) = delete;

  private:
    int before_ = 0;  // the number to give back; 0: it was not changed
    void give_back();
};

// After torch's library is found: whether the thread count can be changed. `on`: whether it may be.
bool thread_limit_bind(bool on);

int thread_limit_init(PyObject *module);
