// The differences between CPython 3.11, 3.12 and 3.13: frames, dict tables, instance values.
//
// All other code in runtime/native uses the functions below. Every file includes this one first. It
// needs the internal headers, hence Py_BUILD_CORE_MODULE.
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_BUILD_CORE_MODULE
#define Py_BUILD_CORE_MODULE 1
#endif
#include <Python.h>

#include <cstdint>

// C11 atomics of the internal headers are not valid C++; their fallback has the same layout.
#undef HAVE_STD_ATOMIC

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "graftjit's native part knows CPython 3.11, 3.12 and 3.13"
#endif

#include <internal/pycore_code.h>
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_object.h>
#include <opcode.h>
#include <structmember.h>

#define PY312 (PY_VERSION_HEX >= 0x030C0000)
#define PY313 (PY_VERSION_HEX >= 0x030D0000)

#if PY312
#define graft_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define graft_get_extra PyUnstable_Code_GetExtra
#define graft_set_extra PyUnstable_Code_SetExtra
#else
#define graft_extra_index _PyEval_RequestCodeExtraIndex
#define graft_get_extra _PyCode_GetExtra
#define graft_set_extra _PyCode_SetExtra
#endif

// --- weak references -----------------------------------------------------------------------------

// The referent of a weak reference, borrowed; null if it is gone.
inline PyObject *referent(PyObject *weak) {
#if PY313
    PyObject *found;
    if (PyWeakref_GetRef(weak, &found) <= 0) return nullptr;
    Py_DECREF(found);
    return found;
#else
    PyObject *found = PyWeakref_GET_OBJECT(weak);
    return found == Py_None ? nullptr : found;
#endif
}

// --- recursion -----------------------------------------------------------------------------------

// The number of Python frames that this thread may still push.
inline int &frames_left(PyThreadState *thread) {
#if PY312
    return thread->py_recursion_remaining;
#else
    return thread->recursion_remaining;
#endif
}

// Additional frames for graftjit's own code while this lives: a call that plain Python can make
// must not exceed the recursion limit because of a compilation.
struct RecursionRoom {
    static constexpr int FRAMES = 2000;
    PyThreadState *thread = PyThreadState_Get();
    RecursionRoom() { frames_left(thread) += FRAMES; }
    ~RecursionRoom() { frames_left(thread) -= FRAMES; }
    RecursionRoom(const RecursionRoom &) = delete;
};

// --- dict tables ---------------------------------------------------------------------------------

// The values array of a split table, or of an object's inline values.
inline PyObject **values_array(PyDictValues *values) { return values->values; }

// The inline values of an object whose attributes are still stored there, without a dict; else
// null.
inline PyDictValues *inline_values(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
#if PY313
    if (!(type->tp_flags & Py_TPFLAGS_INLINE_VALUES)) return nullptr;
    if (_PyObject_GetManagedDict(object) != nullptr) return nullptr;
    PyDictValues *values = _PyObject_InlineValues(object);
    return values->valid ? values : nullptr;
#elif PY312
    if (!(type->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return nullptr;
    PyDictOrValues both = *_PyObject_DictOrValuesPointer(object);
    return _PyDictOrValues_IsValues(both) ? _PyDictOrValues_GetValues(both) : nullptr;
#else
    if (!(type->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return nullptr;
    return *_PyObject_ValuesPointer(object);
#endif
}

// The instance dict of an object without inline values in use; null if there is none (yet).
inline PyObject *plain_dict(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
#if PY313
        return (PyObject *)_PyObject_GetManagedDict(object);
#elif PY312
        return _PyDictOrValues_GetDict(*_PyObject_DictOrValuesPointer(object));
#else
        return *_PyObject_ManagedDictPointer(object);
#endif
    }
    if (type->tp_dictoffset == 0) return nullptr;
    PyObject **place = type->tp_dictoffset > 0
                           ? (PyObject **)((char *)object + type->tp_dictoffset)
                           : _PyObject_GetDictPtr(object);
    return place == nullptr ? nullptr : *place;
}

// The words of an object that tell where its attributes are stored; while they do not change, the
// location is the same. Fills `words` and returns their number, or -1 if that is unknown.
inline int attribute_words(PyObject *object, const void *words[2]) {
    PyTypeObject *type = Py_TYPE(object);
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
#if PY313
        words[0] = _PyObject_ManagedDictPointer(object);
        PyDictValues *values = inline_values(object);
        if (values == nullptr) return 1;
        words[1] = values;  // capacity, size, validity
        return 2;
#elif PY312
        words[0] = _PyObject_DictOrValuesPointer(object);
        return 1;
#else
        words[0] = _PyObject_ManagedDictPointer(object);
        words[1] = _PyObject_ValuesPointer(object);
        return *(PyObject **)words[0] == nullptr ? 2 : 1;
#endif
    }
    words[0] = (char *)object + type->tp_dictoffset;
    return type->tp_dictoffset == 0 ? 0 : type->tp_dictoffset > 0 ? 1 : -1;
}

// The version of a class, which changes (or becomes 0) with each change of the class or of a base.
// 0: it has none at present.
inline unsigned class_version(PyTypeObject *type) {
#if !PY313
    if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
    return type->tp_version_tag;
}

// A class's own dict, as a new reference (since 3.12, builtin classes keep theirs in the
// interpreter).
inline PyObject *class_dict(PyTypeObject *type) {
#if PY312
    return PyType_GetDict(type);
#else
    return Py_XNewRef(type->tp_dict);
#endif
}

// --- frames --------------------------------------------------------------------------------------

using Frame = _PyInterpreterFrame;

inline PyCodeObject *frame_code(Frame *frame) {
#if PY313
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

inline PyFunctionObject *frame_function(Frame *frame) {
#if PY312
    return (PyFunctionObject *)frame->f_funcobj;
#else
    return frame->f_func;
#endif
}

// Whether it is a frame on a thread's own stack that has not run an instruction yet.
inline bool frame_is_fresh(Frame *frame) {
    if (frame->owner != FRAME_OWNED_BY_THREAD) return false;
#if PY313
    return frame->instr_ptr == _PyCode_CODE(frame_code(frame));
#else
    return frame->prev_instr == _PyCode_CODE(frame_code(frame)) - 1;
#endif
}

// The tools of sys.monitoring. sys.settrace and sys.setprofile are two more, set for all threads: a
// thread that ended under a tracer leaves them enabled (3.12). Each thread knows itself whether it
// is traced.
constexpr uint8_t MONITORING_TOOLS = 0x3f;

template <typename Monitors>
inline bool any_tool(const Monitors &monitors) {
    for (uint8_t tools : monitors.tools)
        if (tools & MONITORING_TOOLS) return true;
    return false;
}

// Whether a tracer, profiler or monitoring tool observes this thread. A tool of sys.monitoring may
// observe single code objects, and code that a compiled program has inlined is not checked, so any
// registered tool counts.
inline bool frame_is_watched(PyThreadState *thread, PyCodeObject *code) {
#if PY312
    if (thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr || thread->tracing)
        return true;
    for (PyObject *tool : thread->interp->monitoring_tool_names)
        if (tool != nullptr) return true;
    if (any_tool(thread->interp->monitors)) return true;
    return code->_co_monitoring != nullptr && any_tool(code->_co_monitoring->local_monitors);
#else
    (void)code;
    return thread->cframe->use_tracing != 0 || thread->tracing;
#endif
}

// Ends a fresh frame that was answered without running it. Steals `result`; null means that an
// exception is set.
//
// In 3.11 the caller of the evaluator clears the frame. Since 3.12 the evaluator must, and its
// function for that is not exported. So the default evaluator does it: it runs a RETURN_VALUE of
// `exit_code` with the result on the stack, or it unwinds an exception from a frame that has not
// started (which adds no traceback line).
inline PyObject *finish_frame(PyThreadState *thread, Frame *frame, PyObject *result,
                              PyCodeObject *exit_code, int exit_index) {
#if PY312
    if (result == nullptr) {
#if PY313
        // 3.13 treats a frame at its first instruction as started; 3.12 is one instruction earlier.
        frame->instr_ptr--;
#endif
        return _PyEval_EvalFrameDefault(thread, frame, 1);
    }
    PyCodeObject *code = frame_code(frame);
    frame->localsplus[frame->stacktop++] = result;
#if PY313
    frame->f_executable = Py_NewRef((PyObject *)exit_code);
    frame->instr_ptr = _PyCode_CODE(exit_code) + exit_index;
#else
    frame->f_code = (PyCodeObject *)Py_NewRef((PyObject *)exit_code);
    frame->prev_instr = _PyCode_CODE(exit_code) + exit_index - 1;
#endif
    // The frame must not own the last reference to its code object, so that one is dropped after
    // the frame is gone.
    result = _PyEval_EvalFrameDefault(thread, frame, 0);
    Py_DECREF(code);
    return result;
#else
    (void)thread, (void)frame, (void)exit_code, (void)exit_index;
    return result;
#endif
}
