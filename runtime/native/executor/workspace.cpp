#include "executor/workspace.h"

#include <atomic>
#include <cstdlib>
#include <utility>

namespace {

constexpr int64_t ALIGNMENT = 64;
constexpr int64_t KEPT_BY_THREAD = 64 << 20, KEPT_BY_ALL = 256 << 20;

// The header before the memory.
struct alignas(ALIGNMENT) Block {
    int64_t capacity;
};
static_assert(sizeof(Block) == ALIGNMENT);

std::atomic<int64_t> kept_by_all{0};

struct Kept {
    Block *block = nullptr;

    Block *take() {
        if (block != nullptr) kept_by_all -= block->capacity;
        return std::exchange(block, nullptr);
    }

    void keep(Block *back) {
        if (block != nullptr && block->capacity < back->capacity) std::free(take());
        int64_t size = back->capacity;
        if (block != nullptr || size > KEPT_BY_THREAD) return std::free(back);
        if ((kept_by_all += size) > KEPT_BY_ALL) {
            kept_by_all -= size;
            return std::free(back);
        }
        block = back;
    }

    ~Kept() { std::free(take()); }
};

thread_local Kept kept;

}  // namespace

void *workspace_take(int64_t bytes) {
    Block *block = kept.take();
    if (block == nullptr || block->capacity < bytes) {
        std::free(block);
        int64_t whole = bytes < 0 ? -1 : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        block = whole < 0 ? nullptr : (Block *)std::aligned_alloc(ALIGNMENT, whole + sizeof(Block));
        if (block == nullptr) return nullptr;
        block->capacity = whole;
    }
    return block + 1;
}

void workspace_give_back(void *memory) { kept.keep((Block *)memory - 1); }

void workspace_drop() { std::free(kept.take()); }

int64_t workspace_kept() { return kept.block == nullptr ? 0 : kept.block->capacity; }
