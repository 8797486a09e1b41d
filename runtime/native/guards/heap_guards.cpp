#include "guards/heap_guards.h"

#include "guards/guard_instructions.h"
#include "guards/heap_recorder.h"

#include <algorithm>

namespace {

constexpr size_t MOST_ARMED = 8;
// After so many runs in a row with a new object, an argument counts as another object at each call.
constexpr int STRANGERS = 16;

// --- the parts of a program ----------------------------------------------------------------------

bool is_argument_step(int op) { return op == ITEM || op == KEY || op == TYPE || op == ITERATED; }

bool reads_attributes(int op) {
    return op == ATTR || op == DICT || op == SLOT || op == MEMBER || op == CONTENTS ||
           op == REFERENT || op == NO_ATTR || op == OWN_DICT;
}

bool is_argument_check(int op) {
    return op == IS_TYPE || op == IS || op == EQUALS || op == LEN || op == KEYS || op == SET ||
           op == NO_ITEM || op == TENSOR || op == SAME || op == DISTINCT || op == HISTORY ||
           op == NUMBER || op == RELATION || op == POSITION;
}

bool is_about_the_thread(int op) {
    return op == STATE || op == ABC || op == UNHANDLED || op == NESTED || op == DEVICE;
}

bool reads_class(int op) { return op == CLASS_ATTR || op == NO_CLASS_ATTR; }

class Parter {
  public:
    Parter(const GuardProgram *program, Heap *heap) : code(*program->code), heap(heap) {
        heap->each_call.assign(program->n_registers, 0);
        origin.assign(program->n_registers, -1);
    }

    void part() {
        for (size_t i = 0; i < code.size(); i++) {
            const Instruction &at = code[i];
            if (at.op == VALUE) {
                heap->values.push_back((int)i);
                continue;
            }
            bool always = runs_at_each_call(at);
            if (always && at.into >= 0) {
                heap->each_call[at.into] = 1;
                origin[at.into] = at.op == LOCAL  ? (int)at.number
                                  : at.source < 0 ? -1
                                                  : origin[at.source];
            }
            (always ? heap->always : heap->rest).push_back((int)i);
            if (!always) add_roots(at);
        }
        // Most entries differ in their arguments, so those are checked first.
        auto thread =
            std::stable_partition(heap->always.begin(), heap->always.end(),
                                  [this](int i) { return !is_about_the_thread(code[i].op); });
        heap->n_arguments = (size_t)(thread - heap->always.begin());
    }

  private:
    bool is_fresh(int reg) const {
        int local = origin[reg];
        return local >= 0 && local < (int)heap->fresh.size() && heap->fresh[local];
    }

    bool from_arguments(const Instruction &at) const {
        auto filled = [this](int reg) { return reg < 0 || heap->each_call[reg]; };
        return filled(at.source) && filled(at.other) &&
               (at.registers == nullptr ||
                std::all_of(at.registers->begin(), at.registers->end(), filled));
    }

    bool runs_at_each_call(const Instruction &at) const {
        if (at.op == LOCAL || at.op == CONTEXT || is_about_the_thread(at.op)) return true;
        if (at.source < 0 && at.registers == nullptr) return false;
        if (!from_arguments(at)) return false;
        if (is_argument_step(at.op) || is_argument_check(at.op)) return true;
        return reads_attributes(at.op) && is_fresh(at.source);
    }

    void add_roots(const Instruction &at) {
        if (at.op == GLOBAL || at.op == GLOBALS || at.op == NO_GLOBAL) add_root({Root::globals});
        if (at.op == BUILTIN) add_root({Root::builtins});
        if (at.op == CELL) add_root({Root::cell, (int)at.number});
        if (at.source < 0 || !heap->each_call[at.source]) return;
        if (at.op == SAME || at.op == OWN_DICT) return;
        add_root({reads_class(at.op) ? Root::type : Root::value, at.source, origin[at.source]});
    }

    void add_root(const Root &root) {
        auto &roots = heap->roots;
        if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
    }

    const std::vector<Instruction> &code;
    Heap *heap;
    std::vector<int> origin;  // by register: the argument that its value comes from
};

void part(const GuardProgram *program, Heap *heap) {
    heap->always.clear();
    heap->rest.clear();
    heap->values.clear();
    heap->roots.clear();
    heap->armed.clear();
    Parter(program, heap).part();
}

// Marks arguments that are or contain tensors: they are other objects at each call.
void guess_fresh(const GuardProgram *program, Heap *heap) {
    std::vector<int> origin(program->n_registers, -1);
    for (const Instruction &at : *program->code) {
        if (at.op == LOCAL && at.number >= 0) {
            origin[at.into] = (int)at.number;
            heap->fresh.resize(std::max(heap->fresh.size(), (size_t)at.number + 1));
        }
        if (is_argument_step(at.op)) origin[at.into] = origin[at.source];
        if (at.op == TENSOR && origin[at.source] >= 0) heap->fresh[origin[at.source]] = 1;
    }
}

// --- roots ---------------------------------------------------------------------------------------

uintptr_t root_now(const Root &root, const Run &run) {
    const View &view = run.view;
    switch (root.kind) {
        case Root::globals: return (uintptr_t)view.globals;
        case Root::builtins: return (uintptr_t)builtins_of(view);
        case Root::cell:
            return view.closure == nullptr || root.number < 0 ||
                           root.number >= PyTuple_GET_SIZE(view.closure)
                       ? 0
                       : (uintptr_t)PyTuple_GET_ITEM(view.closure, root.number);
        case Root::value: return (uintptr_t)run.registers[root.number];
        case Root::type: return (uintptr_t)Py_TYPE(run.registers[root.number]);
    }
    return 0;
}

bool roots_hold(const Heap *heap, const Armed &armed, const Run &run) {
    for (size_t i = 0; i < heap->roots.size(); i++)
        if (root_now(heap->roots[i], run) != armed.roots[i]) return false;
    return true;
}

// Whether this object was a root before, so that it is worth remembering.
bool is_known(Root &root, uintptr_t object) {
    constexpr int N = sizeof root.recent / sizeof *root.recent;
    for (uintptr_t past : root.recent) {
        if (past != object) continue;
        root.strangers = 0;
        return true;
    }
    for (int i = N - 1; i > 0; i--) root.recent[i] = root.recent[i - 1];
    root.recent[0] = object;
    root.strangers++;
    return false;
}

// --- what has changed ----------------------------------------------------------------------------

bool hold(const std::vector<Word> &words) {
    for (const Word &word : words)
        if (*word.at != word.was) return false;
    return true;
}

bool is_unchanged(Armed &armed) {
    if (armed.flag.raised) return false;
    Reassigned reassigned = reassigned_so_far();
    bool settled = reassigned == armed.reassigned && !may_be_reassigning();
    const std::vector<Word> *words = &armed.words;
#if !PY312
    uint64_t clock = dict_clock == nullptr ? 0 : *dict_clock - own_dicts;
    if (clock != armed.clock || dict_clock == nullptr) words = &armed.versions;
#endif
    if (!hold(settled ? *words : armed.all) || !armed.tensors.unchanged(settled)) return false;
    armed.reassigned = reassigned;
#if !PY312
    armed.clock = clock;
#endif
    return true;
}

// Drops a state. If it was useless, the next one is made later.
void drop(Heap *heap, size_t index) {
    heap->penalty = heap->armed[index]->hits > 2 ? 0 : std::min(heap->penalty * 2 + 1, 1023u);
    heap->wait = heap->penalty;
    heap->armed.erase(heap->armed.begin() + (Py_ssize_t)index);
}

}  // namespace

Armed::~Armed() {
    watch_release(&flag);
    for (PyObject *pin : pins) Py_DECREF(pin);
}

Heap *heap_new(const GuardProgram *program) {
    auto *heap = new Heap();
    guess_fresh(program, heap);
    part(program, heap);
    return heap;
}

Armed *heap_unchanged(Heap *heap, const Run &run) {
    for (size_t i = 0; i < heap->armed.size(); i++) {
        Armed &armed = *heap->armed[i];
        if (!roots_hold(heap, armed, run)) continue;
        if (is_unchanged(armed)) {
            armed.hits++;
            if (i > 0 && heap->busy == 1)
                std::rotate(heap->armed.begin(), heap->armed.begin() + (Py_ssize_t)i,
                            heap->armed.begin() + (Py_ssize_t)i + 1);
            return &armed;
        }
        if (heap->busy == 1) drop(heap, i);
        return nullptr;
    }
    return nullptr;
}

void heap_remember(const GuardProgram *program, Run &run) {
    Heap *heap = program->heap;
    if (heap->busy != 1 || heap->rest.empty()) return;
    bool known = true, strange = false;
    for (Root &root : heap->roots) {
        known = is_known(root, root_now(root, run)) && known;
        if (root.local < 0 || root.strangers < STRANGERS || heap->fresh[root.local]) continue;
        heap->fresh[root.local] = 1;
        strange = true;
    }
    if (strange) return part(program, heap);
    if (!known) return;
    if (heap->wait > 0) {
        heap->wait--;
        return;
    }
    auto armed = std::make_unique<Armed>();
    for (const Root &root : heap->roots) armed->roots.push_back(root_now(root, run));
    if (!record(program, run, armed.get())) return;
    heap->armed.insert(heap->armed.begin(), std::move(armed));
    if (heap->armed.size() > MOST_ARMED) heap->armed.pop_back();
}
