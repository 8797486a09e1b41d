// Records the reads of a guard program's run: see heap_guards.h.
#pragma once

#include "guards/heap_guards.h"

// False if something has changed since the run.
bool record(const GuardProgram *program, const Run &run, Armed *armed);
