"""The origin of an exception: an internal error of graftjit, or an error of torch or the program.

In: an exception from code that graftjit runs for the program: a trace, a compiled program,
replacement code. Out: `is_ours` and `raised_in`. Torch raises TypeError, ValueError, IndexError and
RuntimeError as well. For these, the instruction that raised decides: an operation on graftjit's own
lists and numbers is an internal error, a call of torch or a `raise` statement is not. `faults` and
capture use this module.
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

# Exceptions that a line of graftjit raises only by mistake. torch's functions, which graftjit calls
# for the program, raise others.
_SLIPS = (AssertionError, AttributeError, KeyError, NameError, StopIteration, UnicodeError)
_BOTH = (TypeError, ValueError, IndexError, RuntimeError)
_RAISES = ("RAISE_VARARGS", "RERAISE")
_CALLS = ("CALL", "CALL_KW", "PRECALL")
_OPERATIONS = ("BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "CONTAINS_OP")
# Methods of these types, and these builtins, never call torch.
_PLAIN_TYPES = (list, tuple, dict, str, bytes, set, frozenset)
_PLAIN_CALLS = (zip, range, enumerate, dict, isinstance, issubclass, setattr, slice, type)


def is_ours(error: BaseException) -> bool:
    """Whether an exception is an internal error of graftjit, which the program itself would not
    raise."""
    if isinstance(error, (InternalError, SystemError)):
        return True
    trace = _last(error)
    if trace is None or not trace.tb_frame.f_code.co_filename.startswith(own_files.FOLDERS):
        return False
    if isinstance(error, _SLIPS) or type(error) is LookupError:
        return True
    return type(error) in _BOTH and _slipped(error, trace)


def raised_in(error: BaseException, frame: types.FrameType) -> bool:
    """Whether an instruction of this frame itself raised the exception, unless memory or the stack
    is exhausted."""
    trace = _last(error)
    full = isinstance(error, (MemoryError, RecursionError))
    return trace is not None and trace.tb_frame is frame and not full


def _last(error: BaseException) -> types.TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _slipped(error: BaseException, trace: types.TracebackType) -> bool:
    """Whether the last line, which is graftjit's, raised this by an operation of Python itself."""
    code = trace.tb_frame.f_code
    name = opcode.opname[code.co_code[trace.tb_lasti]]
    if name in _RAISES:
        return False  # a rule that raises the operator's own error
    if name == "CALL_FUNCTION_EX":
        return False  # the passed arguments are the program's
    if name in _CALLS:
        return _is_plain_call(trace)
    kind = type(error)
    if kind is RuntimeError:
        # A dict changed; torch's operators raise the other RuntimeErrors.
        return name == "FOR_ITER"
    # Rules look up dimensions that the program names.
    if kind is IndexError:
        return "index out of range" in str(error) and not code.co_filename.startswith(
            own_files.PACKAGES["ir"]
        )
    return kind is not ValueError or name not in _OPERATIONS


def _is_plain_call(trace: types.TracebackType) -> bool:
    """Whether the called function, by its source text, is graftjit's own or of a builtin
    container."""
    frame = trace.tb_frame
    place = next(islice(frame.f_code.co_positions(), trace.tb_lasti // 2, None), None)
    if place is None or None in place:
        return False
    line, end, start, stop = place
    lines = [
        linecache.getline(frame.f_code.co_filename, at)
        for at in range(line, end + 1)  # type: ignore[arg-type,operator]
    ]
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
    """The value of a name, or of an attribute of a module."""
    if isinstance(expression, ast.Name):
        for scope in (frame.f_locals, frame.f_globals, vars(builtins)):
            if expression.id in scope:
                return scope[expression.id]
    if isinstance(expression, ast.Attribute):
        module = _value(expression.value, frame)
        if type(module) is types.ModuleType:
            return vars(module).get(expression.attr)
    return None
