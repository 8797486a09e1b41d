"""Names: globals, builtins, modules and their attributes, reloads, imports inside, the environment of the process."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import logging
import math
import os
import random
import sys
import types
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F

from .kinds import SAME, kind, unsettled
from .objects import Box

X = torch.tensor([0.5, -1.0])
N = 1
SCALES = {"a": 2}
WEIGHT = torch.tensor([2.0, 3.0])


def helper(x):
    return x + 1


def library(source, name="mutated_library"):
    made = types.ModuleType(name)
    exec(source, made.__dict__)
    return made


@kind
def global_rebound():
    global N
    N = 1

    def f(x):
        return x + N

    yield f, (X,)
    N = 2
    yield
    N = 1
    yield SAME


@kind
def global_changed_through_globals():
    globals()["N"] = 1

    def f(x):
        return x + N

    yield f, (X,)
    f.__globals__["N"] = 4
    yield
    globals().update(N=1)
    yield SAME


@kind
def global_deleted():
    global N
    N = 1

    def f(x):
        try:
            return x + N
        except NameError:
            return x - 9

    yield f, (X,)
    del globals()["N"]
    yield
    N = 1
    yield SAME


@unsettled
def global_counter_of_the_program():
    global N
    N = 0

    def f(x):
        global N
        N += 1
        return x + N

    yield f, (X,)
    N = 10
    yield
    N = 0.5
    yield


@kind
def global_function_replaced():
    global helper
    first = helper

    def f(x):
        return helper(x)

    yield f, (X,)
    helper = lambda x: x * 3  # noqa: E731
    yield
    helper = first
    yield SAME


@kind
def global_tensor_rebound():
    global WEIGHT
    WEIGHT = torch.tensor([2.0, 3.0])

    def f(x):
        return x * WEIGHT

    yield f, (X,)
    WEIGHT = torch.tensor([4.0, 5.0])
    yield SAME
    WEIGHT = torch.tensor(6.0)
    yield


@kind
def global_tensor_made_by_the_program():
    global WEIGHT
    WEIGHT = torch.tensor([2.0, 3.0])

    def f(x):
        global WEIGHT
        WEIGHT = WEIGHT * 2
        return x + WEIGHT

    yield f, (X,)
    WEIGHT = torch.tensor([1.0, 1.0])
    yield


@kind
def builtin_shadowed_by_a_global():
    def f(x):
        return x + len([1, 2])

    yield f, (X,)
    globals()["len"] = lambda items: 7
    yield
    del globals()["len"]
    yield SAME


@kind
def builtin_shown_by_a_deleted_global():
    globals()["abs"] = lambda n: 50

    def f(x):
        return x + abs(-3)

    yield f, (X,)
    del globals()["abs"]
    yield


@kind
def builtin_patched():
    before = builtins.len

    def f(x):
        return x + len([1, 2])

    try:
        yield f, (X,)
        builtins.len = lambda items: 7 if items == [1, 2] else before(items)
        yield
    finally:
        builtins.len = before
    yield SAME


@kind
def builtin_added():
    def f(x):
        try:
            return x + some_new_builtin  # noqa: F821
        except NameError:
            return x - 1

    try:
        yield f, (X,)
        builtins.some_new_builtin = 5
        yield
        builtins.some_new_builtin = 6
        yield
    finally:
        builtins.__dict__.pop("some_new_builtin", None)
    yield SAME


@kind
def builtins_of_the_globals_replaced():
    scope = {"__builtins__": {"len": len}}
    exec("def f(x):\n    return x + len([1, 2])\n", scope)
    yield scope["f"], (X,)
    scope["__builtins__"]["len"] = lambda items: 9
    yield
    scope["len"] = lambda items: 5
    yield


@kind
def builtin_class_replaced():
    def f(x):
        return x + sum(int(n) for n in range(3))

    yield f, (X,)
    globals()["range"] = lambda n: [n, n]
    yield
    globals()["int"] = float
    yield
    del globals()["range"], globals()["int"]
    yield SAME


@kind
def module_attribute_set():
    lib = library("N = 1\ndef get(x):\n    return x * N\n")

    def f(x):
        return lib.get(x) + lib.N

    yield f, (X,)
    lib.N = 4
    yield
    lib.get = lambda x: x - 1
    yield
    del lib.N
    lib.N = 1
    yield


@kind
def module_attribute_deleted():
    lib = library("N = 1\n")

    def f(x):
        return x + getattr(lib, "N", 9)

    yield f, (X,)
    del lib.N
    yield
    lib.N = 1
    yield SAME


@kind
def module_getattr_added():
    lib = library("")

    def f(x):
        return x + getattr(lib, "made_up", 1)

    yield f, (X,)
    lib.__getattr__ = lambda name: 6
    yield
    lib.made_up = 3
    yield
    del lib.__getattr__, lib.made_up
    yield SAME


@kind
def module_class_assigned():
    lib = library("N = 1\n")

    class Lazy(types.ModuleType):
        @property
        def N(self):
            return 8

    def f(x):
        return x + lib.N

    yield f, (X,)
    lib.__class__ = Lazy
    yield
    lib.__class__ = types.ModuleType
    yield


@kind
def module_reloaded():
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mutated_module.py"
        path.write_text("N = 1\ndef go(x):\n    return x + N\n")
        sys.path.insert(0, folder)
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            lib = importlib.import_module("mutated_module")

            def f(x):
                return lib.go(x)

            yield f, (X,)
            path.write_text("N = 500\ndef go(x):\n    return x - N * 2\n")
            importlib.invalidate_caches()
            importlib.reload(lib)
            yield
        finally:
            sys.dont_write_bytecode = before
            sys.path.remove(folder)
            sys.modules.pop("mutated_module", None)


@kind
def module_entry_replaced():
    name = "mutated_entry"
    sys.modules[name] = library("N = 1\n", name)

    def f(x):
        import mutated_entry

        return x + mutated_entry.N

    try:
        yield f, (X,)
        sys.modules[name] = library("N = 7\n", name)
        yield
        sys.modules[name].N = 8
        yield
    finally:
        del sys.modules[name]


@kind
def name_imported_from_a_module():
    name = "mutated_source"
    sys.modules[name] = library("def go(x):\n    return x + 1\n", name)

    def f(x):
        from mutated_source import go

        return go(x)

    try:
        yield f, (X,)
        sys.modules[name].go = lambda x: x * 5
        yield
        sys.modules[name] = library("def go(x):\n    return x - 1\n", name)
        yield
    finally:
        del sys.modules[name]


@kind
def submodule_replaced():
    lib, sub = library("", "lib"), library("def go(x):\n    return x + 1\n", "lib.sub")
    lib.sub = sub

    def f(x):
        return lib.sub.go(x)

    yield f, (X,)
    lib.sub = library("def go(x):\n    return x * 8\n", "lib.sub")
    yield
    lib.sub = sub
    yield SAME


@kind
def torch_function_patched():
    before = torch.relu, F.gelu, torch.Tensor.sigmoid

    def f(x):
        return torch.relu(x) + F.gelu(x) + x.sigmoid()

    try:
        yield f, (X,)
        torch.relu = lambda x: x + 1
        yield
        F.gelu = torch.sin
        yield
        torch.Tensor.sigmoid = lambda self: self * 0
        yield
    finally:
        torch.relu, F.gelu, torch.Tensor.sigmoid = before
    yield SAME


@kind
def tensor_operator_patched():
    before = torch.Tensor.__add__

    def f(x):
        return x + 1

    try:
        yield f, (X,)
        torch.Tensor.__add__ = lambda self, other: before(self, other * 10)
        yield
    finally:
        torch.Tensor.__add__ = before
    yield SAME


@kind
def tensor_method_added():
    def f(x):
        return x.twice() if hasattr(x, "twice") else x + 1

    try:
        yield f, (X,)
        torch.Tensor.twice = lambda self: self * 2
        yield
        torch.Tensor.twice = lambda self: self * 3
        yield
    finally:
        torch.Tensor.__dict__.get("twice") and delattr(torch.Tensor, "twice")
    yield SAME


@kind
def math_function_patched():
    before = math.sqrt

    def f(x):
        return x * math.sqrt(4)

    try:
        yield f, (X,)
        math.sqrt = lambda n: 7
        yield
    finally:
        math.sqrt = before
    yield SAME


@kind
def environment_read():
    def f(x):
        return x + len(os.environ.get("GRAFT_MUTATED", "abc"))

    try:
        yield f, (X,)
        os.environ["GRAFT_MUTATED"] = "a"
        yield
        os.environ["GRAFT_MUTATED"] = "abcdef"
        yield
    finally:
        os.environ.pop("GRAFT_MUTATED", None)
    yield


@kind
def environment_asked_for_a_name():
    def f(x):
        if "GRAFT_MUTATED" in os.environ:
            return x * float(os.environ["GRAFT_MUTATED"])
        return x + len(os.getenv("GRAFT_MUTATED") or "")

    try:
        yield f, (X,)
        os.environ["GRAFT_MUTATED"] = "2"
        yield
        os.putenv("GRAFT_MUTATED", "3")  # os.environ does not follow
        yield
    finally:
        os.environ.pop("GRAFT_MUTATED", None)
    yield


@kind
def warning_filters():
    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.warn("once", UserWarning, stacklevel=1)
        return x + len(seen)

    before = list(warnings.filters)
    try:
        warnings.simplefilter("always")
        yield f, (X,)
        warnings.simplefilter("ignore")
        yield
        warnings.simplefilter("error")
        yield
    finally:
        warnings.filters[:] = before
        warnings._filters_mutated()


@kind
def logging_levels():
    log = logging.getLogger("mutated")
    log.setLevel(logging.WARNING)

    def f(x):
        return x + 1 if log.isEnabledFor(logging.INFO) else x - 1

    yield f, (X,)
    log.setLevel(logging.DEBUG)
    yield
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
    yield


@kind
def flags_of_the_system():
    before = sys.getrecursionlimit()

    def f(x):
        return x + sys.getrecursionlimit() % 7 + len(sys.argv)

    try:
        yield f, (X,)
        sys.setrecursionlimit(before + 1)
        yield
        sys.argv.append("more")
        yield
    finally:
        sys.setrecursionlimit(before)
        sys.argv[:] = [arg for arg in sys.argv if arg != "more"]


@unsettled
def random_state_of_python():
    def f(x):
        return x + random.random()

    random.seed(1)
    yield f, (X,)
    random.seed(2)
    yield
    random.seed(1)
    yield


@kind
def random_state_of_torch():
    def f(x):
        return x + torch.rand(2)

    torch.manual_seed(1)
    yield f, (X,)
    torch.manual_seed(2)
    yield SAME
    torch.get_rng_state()
    torch.manual_seed(1)
    yield SAME


@kind
def standard_output_replaced():
    o = Box(sink=[])

    class Sink:
        def write(self, text):
            o.sink.append(text)

        def flush(self):
            pass

    def f(x):
        print("said")
        return x + 1

    yield f, (X,)
    with contextlib.redirect_stdout(Sink()):
        yield
    yield


@kind
def time_and_counters():
    clock = Box(now=1.0)

    def now():
        return clock.now

    def f(x):
        return x + now()

    yield f, (X,)
    clock.now = 2.0
    yield
    clock.now = 3.0
    yield


@kind
def star_imported_names():
    scope = {"torch": torch}
    exec("N = 1\ndef f(x):\n    return x + N + K\nK = 2\n", scope)
    yield scope["f"], (X,)
    scope["K"] = 5
    yield
    scope["N"] = 3
    yield
    scope.update(N=1, K=2)
    yield SAME


@kind
def globals_read_as_a_dict():
    global N
    N = 1

    def f(x):
        return x + globals()["N"] + globals().get("LATER", 0)

    yield f, (X,)
    N = 5
    yield
    globals()["LATER"] = 7
    yield
    del globals()["LATER"]
    N = 1
    yield SAME


@kind
def unread_globals_do_not_count():
    global N
    N = 1

    def f(x):
        return x + N

    yield f, (X,)
    globals()["SOMETHING_ELSE"] = 3
    yield SAME
    SCALES["a"] = 5
    yield SAME
    del globals()["SOMETHING_ELSE"]
    yield SAME
