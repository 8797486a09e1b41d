// Relations between numbers: the "relation" and "number" rows of a guard program (see runtime/guards/relations.py).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <vector>

struct RelationRecord;

// From (reads, code, op, holds), reads as (register, what, dimension); nullptr with a Python error set on a bad one.
RelationRecord *relation_record_new(PyObject *expected, int n_registers);
void relation_record_free(RelationRecord *record);
std::vector<int> relation_registers(const RelationRecord *record);
bool relation_record_holds(const RelationRecord *record, PyObject **registers);

// Whether value is of the exact type in (type, low, high), and an int of 64 bits within low..high (None: no end).
bool number_in_range(PyObject *value, PyObject *expected);
