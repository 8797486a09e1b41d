// "value" rows: a small program over tensors that the guards have loaded, and what is expected to come out.
//
// They run when all other rows of a program hold. Entries that ask the same share the program's object, so one call asks
// it once: its outcome is kept beside the call's View.
#pragma once

#include "guards/heap_guards.h"
#include "guards/guard_instructions.h"

struct ValueRecord;

// From (program, registers, truth, outcome); null with a Python error set. `outcome` and the program live as long as `expected`.
ValueRecord *value_record_new(PyObject *expected, int n_registers);
void value_record_free(ValueRecord *record);
const std::vector<int> &value_registers(const ValueRecord *record);

// Whether the program gives what is expected; what it raises is forgotten, and the row does not hold.
bool value_record_holds(const ValueRecord *record, const Run &run);

// The first "value" row that fails, or -1. `armed`: where registers come from that this run has not filled, or null.
int values_run(const GuardProgram *program, const Armed *armed, Run &run);
