#include "executor/running_backward.h"

#include <dlfcn.h>

#include <unordered_map>

#include "tensors/torch_api.h"

namespace {

// torch::autograd::GraphTask::ExecInfo
struct Planned {
    bool needed;
    void *captures;  // places of this node's inputs that the caller asked for
};
using Plan = std::unordered_map<void *, Planned>;

// torch::autograd::get_current_graph_task_exec_info()
const Plan *current_plan() {
    static auto find = (const Plan *(*)())(
        torch_api.library == nullptr
            ? nullptr
            : dlsym(torch_api.library,
                    "_ZN5torch8autograd32get_current_graph_task_exec_infoEv"));
    return find == nullptr ? nullptr : find();
}

// engine_runs(node): `torch._C._will_engine_execute_node` for a node of C++ code, such as that of a
// leaf. None: unknown; no backward runs, or one that takes all gradients.
PyObject *engine_runs(PyObject *, PyObject *function) {
    if (torch_api_ready() < 0) return nullptr;
    const Plan *plan = current_plan();
    if (plan == nullptr || plan->empty()) Py_RETURN_NONE;
    // THPCppFunction: the pointer to the node follows the object's header
    auto found = plan->find(*(void **)((char *)function + sizeof(PyObject)));
    bool runs = found != plan->end() && (found->second.needed || found->second.captures);
    return PyBool_FromLong(runs);
}

PyMethodDef methods[] = {
    {"engine_runs", engine_runs, METH_O,
     "engine_runs(node): whether the running backward reaches a node of C++ code, or None"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int running_backward_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
