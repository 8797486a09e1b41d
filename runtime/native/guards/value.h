// "value" rows: a small program over loaded tensors, and its expected outcome.
//
// They run after all other rows of a program hold. Entries with equal programs share the program
// object, so a call runs it once: its outcome is stored with the call's View.
#pragma once

#include "guards/heap_guards.h"
#include "guards/guard_instructions.h"

struct ValueRecord;

// Made from (program, registers, truth, outcome); null with a Python error set. `expected` keeps
// `outcome` and the program alive.
ValueRecord *value_record_new(PyObject *expected, int n_registers);
void value_record_free(ValueRecord *record);
const std::vector<int> &value_registers(const ValueRecord *record);

// Whether the program gives the expected outcome. If it raises, the exception is cleared and the
// row fails.
bool value_record_holds(const ValueRecord *record, const Run &run);

// The first "value" row that fails, or -1. `armed`: source of registers that this run has not
// filled, or null.
int values_run(const GuardProgram *program, const Armed *armed, Run &run);
