// The entry to try first if a code object has many: the one that answered such arguments before.
//
// This is only a guess; the guards of the entry decide. Used by code_state.cpp.
#pragma once

#include "guards/guard_program.h"

// Maps a hash of the arguments to the index of the entry that answered last.
class EntryMemo {
  public:
    // Hashes tensors by metadata, numbers and strings by value, containers by their content (to a
    // limited depth), other objects by address.
    static uint64_t key_of(const View &view);

    // The index of an entry, or -1.
    Py_ssize_t find(uint64_t key) const {
        const Slot &slot = slots[key % SIZE];
        return slot.key == key ? slot.place : -1;
    }
    void put(uint64_t key, Py_ssize_t place) { slots[key % SIZE] = {key, place}; }

  private:
    static constexpr int SIZE = 256;
    struct Slot {
        uint64_t key = 0;
        Py_ssize_t place = -1;
    };
    Slot slots[SIZE];
};
