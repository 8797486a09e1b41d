// Memory for intermediate results of programs, kept between calls.
//
// A thread keeps one block for all programs, so many programs use no more memory than the largest
// of them. A nested call finds no block and allocates its own. Large blocks are freed at once.
#pragma once
#include <cstdint>

// At least this many bytes, aligned to 64; null if there is no memory. Take and give back on the
// same thread.
void *workspace_take(int64_t bytes);
void workspace_give_back(void *memory);

// Free what the calling thread keeps. A new program calls it: the programs that run from now on may
// be others, such as the steps of a training after the first, which made the optimizer's state.
void workspace_drop();

// The number of bytes that the calling thread keeps.
int64_t workspace_kept();
