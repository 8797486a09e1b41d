// Ranges of torch.profiler: a program and each of its steps, by name, while somebody records functions on this thread.
//
// torch keeps who does in a vector of the thread's. Its place is looked up once a thread; a run looks whether it is empty.
#pragma once

// That vector, as the ends of its elements; null: not looked up on this thread.
extern constinit thread_local void *const *recorders;

bool ranges_look();  // the same as `ranges_wanted`, by torch's own word

inline bool ranges_wanted() {
    void *const *found = recorders;
    if (found != nullptr && found[0] == found[1]) [[likely]]
        return false;
    return ranges_look();
}

// One range; null is none.
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
