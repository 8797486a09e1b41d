"""Whose an exception is: a fault of graftjit's, or what torch or the program raises.

In: an exception out of code that graftjit runs for the program: a trace, a compiled program, replacement code. Out: `is_ours` and
`raised_in`. Classes that torch raises as well (TypeError, ValueError, IndexError, RuntimeError) are told apart by the instruction
that raised: an operation on graftjit's own lists and numbers is a fault, a call of torch's and a `raise` are not. Used by `faults`
and capture.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import opcode
import types
from itertools import islice
from typing import Any

from .. import own_files
from ..errors import InternalError

# What a line of ours raises that nobody meant to raise. torch's own functions, which our lines call for the program, raise others.
_SLIPS = (AssertionError, AttributeError, KeyError, NameError, StopIteration, UnicodeError)
_BOTH = (TypeError, ValueError, IndexError, RuntimeError)
_RAISES = ("RAISE_VARARGS", "RERAISE")
_CALLS = ("CALL", "CALL_KW", "PRECALL")
_OPERATIONS = ("BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "CONTAINS_OP")
# Methods of these, and these builtins, never lead to torch.
_PLAIN_TYPES = (list, tuple, dict, str, bytes, set, frozenset)
_PLAIN_CALLS = (zip, range, enumerate, dict, isinstance, issubclass, setattr, slice, type)


def is_ours(error: BaseException) -> bool:
    """Whether an exception out of what runs for the program is a fault of ours, not what the program itself would raise."""
    if isinstance(error, (InternalError, SystemError)):
        return True
    trace = _last(error)
    if trace is None or not trace.tb_frame.f_code.co_filename.startswith(own_files.FOLDERS):
        return False
    if isinstance(error, _SLIPS) or type(error) is LookupError:
        return True
    return type(error) in _BOTH and _slipped(error, trace)


def raised_in(error: BaseException, frame: types.FrameType) -> bool:
    """Whether an instruction of this very frame has raised it, and not because memory or the stack is full."""
    trace = _last(error)
    full = isinstance(error, (MemoryError, RecursionError))
    return trace is not None and trace.tb_frame is frame and not full


def _last(error: BaseException) -> types.TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _slipped(error: BaseException, trace: types.TracebackType) -> bool:
    """Whether the last line of ours has raised this by an operation of Python's own."""
    code = trace.tb_frame.f_code
    name = opcode.opname[code.co_code[trace.tb_lasti]]
    if name in _RAISES:
        return False  # a rule refuses as the operator does
    if name == "CALL_FUNCTION_EX":
        return False  # arguments that are handed on are the program's
    if name in _CALLS:
        return _is_plain_call(trace)
    kind = type(error)
    if kind is RuntimeError:
        return name == "FOR_ITER"  # a dict that changed; torch's operators raise the others
    if kind is IndexError:  # rules look up dimensions that the program names
        return "index out of range" in str(error) and not code.co_filename.startswith(
            own_files.ROOMS["ir"]
        )
    return kind is not ValueError or name not in _OPERATIONS


def _is_plain_call(trace: types.TracebackType) -> bool:
    """Whether what was called is graftjit's own, or of a builtin container, as its text says."""
    frame = trace.tb_frame
    place = next(islice(frame.f_code.co_positions(), trace.tb_lasti // 2, None), None)
    if place is None or None in place:
        return False
    line, end, start, stop = place
    lines = [linecache.getline(frame.f_code.co_filename, at) for at in range(line, end + 1)]  # type: ignore[arg-type,operator]
    lines[-1] = lines[-1].encode()[:stop].decode()
    lines[0] = lines[0].encode()[start:].decode()
    try:
        found = ast.parse("".join(lines), mode="eval").body
    except SyntaxError:
        return False
    return isinstance(found, ast.Call) and _is_plain(found.func, frame)


def _is_plain(function: ast.expr, frame: types.FrameType) -> bool:
    if isinstance(function, ast.Attribute):
        owner = _value(function.value, frame)
        if type(owner) in _PLAIN_TYPES:
            return True
    found = _value(function, frame)
    module = getattr(found, "__module__", None) if type(found) is types.FunctionType else None
    ours = isinstance(module, str) and module.partition(".")[0] == "graftjit"
    return ours or any(found is one for one in _PLAIN_CALLS)


def _value(expression: ast.expr, frame: types.FrameType) -> Any:
    """What a name, or an attribute of a module, stands for."""
    if isinstance(expression, ast.Name):
        for scope in (frame.f_locals, frame.f_globals, vars(builtins)):
            if expression.id in scope:
                return scope[expression.id]
    if isinstance(expression, ast.Attribute):
        module = _value(expression.value, frame)
        if type(module) is types.ModuleType:
            return vars(module).get(expression.attr)
    return None
