// Relations between numbers: the "relation" and "number" rows of a guard program (see
// runtime/guards/relations.py).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <vector>

struct RelationRecord;

// Made from (reads, code, op, holds), with reads as (register, what, dimension); nullptr with a
// Python error set for an invalid one.
RelationRecord *relation_record_new(PyObject *expected, int n_registers);
void relation_record_free(RelationRecord *record);
std::vector<int> relation_registers(const RelationRecord *record);
bool relation_record_holds(const RelationRecord *record, PyObject **registers);

// Whether the value has the exact type in (type, low, high), and an int has 64 bits and is in
// low..high (None: no limit).
bool number_in_range(PyObject *value, PyObject *expected);
