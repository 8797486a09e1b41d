"""Normal instructions without a handler: the break of each, and its reason.

In: the name of an instruction that `machine.HANDLERS` lacks. Out: a code and the reason for the
report. With `HANDLERS` this covers every instruction that the decoder makes from opcodes of CPython
3.11 to 3.13; a test checks that each is in exactly one of the two tables.
"""

from __future__ import annotations

_MODULES = "GB101", "a body of a module or class, which has names in place of locals"
_ASYNC = "GB130", "await, async for or async with"
_GENERICS = "GB101", "type parameters"

UNMODELLED: dict[str, tuple[str, str]] = {
    # Only frames that `exec` makes have these, never a function.
    **dict.fromkeys(
        (
            "LOAD_NAME",
            "STORE_NAME",
            "DELETE_NAME",
            "LOAD_LOCALS",
            "LOAD_CLASSDEREF",
            "SETUP_ANNOTATIONS",
            "LOAD_FROM_DICT_OR_GLOBALS",
            "LOAD_FROM_DICT_OR_DEREF",
            "IMPORT_STAR",
            "PRINT_EXPR",
        ),
        _MODULES,
    ),
    # Frames that await or yield run in plain Python (PL201); generators inside a frame are walked.
    **dict.fromkeys(
        (
            "GET_AWAITABLE",
            "GET_AITER",
            "GET_ANEXT",
            "BEFORE_ASYNC_WITH",
            "END_ASYNC_FOR",
            "ASYNC_GEN_WRAP",
        ),
        _ASYNC,
    ),
    "CLEANUP_THROW": ("GB107", "an exception is thrown into a generator that is inside yield from"),
    "END_FOR": ("GB101", "the end of a loop that was entered in its middle"),
    "CALL_INTRINSIC_2": _GENERICS,
}

INTRINSICS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("PRINT", "IMPORT_STAR"), _MODULES),
    **dict.fromkeys(
        ("TYPEVAR", "PARAMSPEC", "TYPEVARTUPLE", "SUBSCRIPT_GENERIC", "TYPEALIAS"), _GENERICS
    ),
    "ASYNC_GEN_WRAP": _ASYNC,
}
"""The same for operations of CALL_INTRINSIC_1."""
