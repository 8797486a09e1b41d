// Memory for what lies between the kernels of a program, kept from one call to the next.
//
// A thread keeps one block, for all programs together: many programs hold no more memory than the largest of them. A call
// inside of another one finds none and gets a block of its own. Large blocks are given back at once.
#pragma once
#include <cstdint>

// At least so many bytes, aligned to 64; null if there is no memory. Called and given back on one thread.
void *workspace_take(int64_t bytes);
void workspace_give_back(void *memory);

// Bytes that the calling thread keeps.
int64_t workspace_kept();
