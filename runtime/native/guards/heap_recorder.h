// Writes down what a run of a guard program has read: see heap.h.
#pragma once

#include "guards/heap_guards.h"

// False if something turned out to have changed since the run.
bool record(const GuardProgram *program, const Run &run, Armed *armed);
