// Ranges for torch.profiler: a program and each of its steps, by name, while functions are recorded
// on this thread.
//
// torch keeps the recorders of a thread in a thread-local vector. Its address is looked up once per
// thread; a run checks whether it is empty.
#pragma once

// That vector, as its begin and end pointers; null: not looked up on this thread yet.
extern constinit thread_local void *const *recorders;

bool ranges_look();  // the same as `ranges_wanted`, by torch's function

inline bool ranges_wanted() {
    void *const *found = recorders;
    if (found != nullptr && found[0] == found[1]) [[likely]]
        return false;
    return ranges_look();
}

// One range; without a name, none.
class Range {
  public:
    explicit Range(const char *name) {
        if (name != nullptr) begin(name);
    }
    Range(const Range &) = delete;
    ~Range() {
        if (handle_ != nullptr) end();
    }

  private:
    void *handle_ = nullptr;

    void begin(const char *name);
    void end();
};
