"""Normal instructions without a handler: the break that each of them is, and why it is none of ours.

In: the name of an instruction that `machine.HANDLERS` lacks. Out: a code and the reason as the report tells it.
With `HANDLERS` this covers every instruction that the decoder makes of an opcode of CPython 3.11 to 3.13; a test
holds that no instruction is in neither table or in both.
"""

from __future__ import annotations

_MODULES = "GB101", "a body of a module or class, which has names in place of locals"
_ASYNC = "GB130", "await, async for or async with"
_GENERICS = "GB101", "type parameters"

UNMODELLED: dict[str, tuple[str, str]] = {
    # `exec` makes frames of these; a function never has them
    **dict.fromkeys(("LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_LOCALS", "LOAD_CLASSDEREF",
                     "SETUP_ANNOTATIONS", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF",
                     "IMPORT_STAR", "PRINT_EXPR"), _MODULES),
    # frames that await or yield are left alone as a whole (PL201); generators inside a frame are walked
    **dict.fromkeys(("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR",
                     "ASYNC_GEN_WRAP"), _ASYNC),
    "CLEANUP_THROW": ("GB107", "an exception is thrown into a generator that stands in yield from"),
    "END_FOR": ("GB101", "the end of a loop that was entered in its middle"),
    "CALL_INTRINSIC_2": _GENERICS,
}  # fmt: skip

INTRINSICS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("PRINT", "IMPORT_STAR"), _MODULES),
    **dict.fromkeys(("TYPEVAR", "PARAMSPEC", "TYPEVARTUPLE", "SUBSCRIPT_GENERIC", "TYPEALIAS"), _GENERICS),
    "ASYNC_GEN_WRAP": _ASYNC,
}  # fmt: skip
"""The same for what CALL_INTRINSIC_1 is asked for."""
