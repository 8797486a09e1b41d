// Which entry to ask first, where a code object has many: the one that answered for arguments like these before.
//
// Only a guess: the guards of the entry decide. Used by state.cpp.
#pragma once

#include "guards/guard_program.h"

// Remembers the place of the entry that answered last, by a number made of the arguments.
class EntryMemo {
  public:
    // Tensors by their metadata, numbers and texts by value, containers by what is in them (not too deep), other
    // objects by their addresses.
    static uint64_t key_of(const View &view);

    // The place of an entry, or -1.
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
