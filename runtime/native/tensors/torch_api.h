// The C interface of torch that the native part uses, bound once by `tensor_bind` (called from
// runtime/guards/tensor_access.py).
//
// A `Handle` is an `at::Tensor *`, as in torch's own C shim. For a Python tensor it points into the
// object; for a tensor made here it is a heap cell that `delete_tensor` frees. A null member means
// that the route is missing. `native_program` tells whether all routes that the executor needs
// exist.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <exception>
#include <new>

typedef void *Handle;

struct TorchApi {
    // libtorch_cpu: the C shim
    int32_t (*get_dtype)(Handle, int32_t *);
    int32_t (*get_dim)(Handle, int64_t *);
    int32_t (*get_numel)(Handle, int64_t *);
    int32_t (*get_sizes)(Handle, int64_t **);
    int32_t (*get_strides)(Handle, int64_t **);
    int32_t (*get_storage_offset)(Handle, int64_t *);
    int32_t (*get_data_ptr)(Handle, void **);
    int32_t (*get_device_type)(Handle, int32_t *);
    int32_t (*get_device_index)(Handle, int32_t *);
    int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t,
                             Handle *);
    int32_t (*reinterpret)(Handle, int64_t, const int64_t *, const int64_t *, int64_t, Handle *);
    int32_t (*new_handle)(Handle, Handle *);
    int32_t (*delete_tensor)(Handle);
    size_t (*element_size)(int32_t dtype);
    int (*get_num_threads)();
    // C++ symbols by their mangled names
    // torch::autograd::impl::bump_version(Tensor const&)
    void (*bump_version)(Handle);
    // c10::TensorImpl::requires_grad() const
    bool (*requires_grad)(const void *impl);
    // THPVariable_Wrap(at::TensorBase const&)
    PyObject *(*wrap)(const void *handle);
    // Sets the Python exception for a C++ one.
    void (*translate_exception)(const std::exception_ptr &);
    // Found by matching values:
    Py_ssize_t handle_offset;  // of the at::Tensor in a Python tensor; -1: not found
    Py_ssize_t keys_offset;  // of the key set in a TensorImpl; -1: not found
    bool native_guard;
    bool native_program;
    void *library, *c10, *python; // libtorch_cpu, libc10, libtorch_python
};

extern TorchApi torch_api;

// Binds at first use (imports graftjit.runtime.guards.tensor_access). 0, or -1 with a Python error
// set.
int torch_api_ready();

inline Handle handle_of(PyObject *tensor) { return (char *)tensor + torch_api.handle_offset; }
inline void *impl_of(Handle handle) { return *(void **)handle; }

// A cell for a reference, which it takes over; `delete_tensor` frees both.
inline Handle new_cell(void *impl) {
    void **cell = (void **)::operator new(sizeof(void *));
    *cell = impl;
    return cell;
}

// The shim's numbers for a torch.dtype and a torch.device; -1 with a Python error set.
int32_t dtype_code(PyObject *dtype);
void torch_route(const char *task, const char *route);  // sets a route in tensor_routes()

int device_code(PyObject *device, int32_t *type, int32_t *index);
