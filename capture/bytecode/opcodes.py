"""Every opcode of CPython 3.11 to 3.13: its normal form and its stack effect.

A row takes one real instruction (`Raw`, with its argument already symbolic) and gives its normal
micro-instructions, each with the real instructions that re-emit that part alone. Only this file and
`capture.bytecode.encoder` distinguish the versions; `capture.bytecode.decoder` reads the rows,
`capture.bytecode.stack_shape` the stack effects. `NEVER` has the opcodes that code objects never
show.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable
from typing import Any

from ...ir.dataclass import dataclass

VERSION: tuple[int, int] = (sys.version_info.major, sys.version_info.minor)


@dataclass(slots=True, unsafe_hash=True)
class Raw:
    """One real instruction of the running version, immutable by convention.

    `arg` is a name, a constant, or an integer; `low` are the flag bits that share the integer with
    a name's index. The holder of the Raw keeps a jump's target. It is not frozen, which would
    triple the time to make one.
    """

    op: str
    arg: Any = None
    low: int = 0


Micro = tuple[str, Any, tuple[Raw, ...]]
Row = Callable[[Raw], tuple[Micro, ...]]

BINARY_TEXT = (
    "+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^",
    "+=", "&=", "//=", "<<=", "@=", "*=", "%=", "|=", "**=", ">>=", "-=", "/=", "^=",
)  # fmt: skip
COMPARE_TEXT = ("<", "<=", "==", "!=", ">", ">=")
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4, (3, 13): 5}[VERSION]
NULL_FIRST = VERSION < (3, 13)
"""The position of a call's NULL: below the callable up to 3.12, above it from 3.13."""

NAME_SHIFT: dict[str, int] = {
    (3, 11): {"LOAD_GLOBAL": 1},
    (3, 12): {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
    (3, 13): {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
}[VERSION]
"""Number of low bits of a name's index that are flags."""

CONST_OPS = frozenset(opcode.opname[n] for n in opcode.hasconst) | {"KW_NAMES"}
SLOT_OPS = frozenset(opcode.opname[n] for n in (*opcode.haslocal, *opcode.hasfree)) - {
    "COPY_FREE_VARS"
} | {"LOAD_CLOSURE"}
NAME_OPS = frozenset(opcode.opname[n] for n in opcode.hasname)
"""What an instruction's argument selects: a constant, a fast slot, a name."""

CONVERSIONS = (None, "s", "r", "a")
FUNCTION_PARTS = {1: "defaults", 2: "kwdefaults", 4: "annotations", 8: "closure"}
INTRINSICS_1 = (
    "INVALID", "PRINT", "IMPORT_STAR", "STOPITERATION_ERROR", "ASYNC_GEN_WRAP", "UNARY_POSITIVE",
    "LIST_TO_TUPLE", "TYPEVAR", "PARAMSPEC", "TYPEVARTUPLE", "SUBSCRIPT_GENERIC", "TYPEALIAS",
)  # fmt: skip
INTRINSICS_2 = (
    "INVALID", "PREP_RERAISE_STAR", "TYPEVAR_WITH_BOUND", "TYPEVAR_WITH_CONSTRAINTS",
    "SET_FUNCTION_TYPE_PARAMS", "SET_TYPEPARAM_DEFAULT",
)  # fmt: skip
RENAMED_INTRINSICS: dict[str, tuple[str, Any]] = {
    "LIST_TO_TUPLE": ("LIST_TO_TUPLE", None),
    "UNARY_POSITIVE": ("UNARY", "+"),
    "PREP_RERAISE_STAR": ("PREP_RERAISE_STAR", None),
}


def plain(op: str | None = None, arg: Any = None) -> Row:
    """One micro-instruction with a fixed name and argument."""
    return lambda raw: ((op or raw.op, arg, (raw,)),)


def with_arg(op: str | None = None, read: Callable[[Any], Any] | None = None) -> Row:
    """One micro-instruction with the real argument, through `read` if given."""
    return lambda raw: ((op or raw.op, read(raw.arg) if read else raw.arg, (raw,)),)


def each(rows: dict[str, Row], *ops: str, row: Row) -> None:
    for op in ops:
        rows[op] = row


def split(first: str, second: str) -> Row:
    """A superinstruction over two locals."""

    def row(raw: Raw) -> tuple[Micro, ...]:
        one, two = raw.arg
        return (first, one, (Raw(first, one),)), (second, two, (Raw(second, two),))

    return row


def load_global(raw: Raw) -> tuple[Micro, ...]:
    load: Micro = ("LOAD_GLOBAL", raw.arg, (Raw("LOAD_GLOBAL", raw.arg),))
    null: Micro = ("PUSH_NULL", None, (Raw("PUSH_NULL"),))
    if not raw.low & 1:
        return (load,)
    return (null, load) if NULL_FIRST else (load, null)


def load_attr(raw: Raw) -> tuple[Micro, ...]:
    if raw.low & 1:
        return (("LOAD_METHOD", (raw.arg, NULL_FIRST), (raw,)),)
    return (("LOAD_ATTR", raw.arg, (raw,)),)


def load_super(raw: Raw) -> tuple[Micro, ...]:
    arg = (raw.arg, bool(raw.low & 1), bool(raw.low & 2), NULL_FIRST)
    return (("LOAD_SUPER_ATTR", arg, (raw,)),)


def compare(raw: Raw) -> tuple[Micro, ...]:
    text = COMPARE_TEXT[raw.arg >> COMPARE_SHIFT]
    # From 3.13 on, bit 4 requests an exact bool as the result.
    if VERSION >= (3, 13) and raw.arg & 16:
        only = Raw("COMPARE_OP", raw.arg & ~16)
        return ("COMPARE", text, (only,)), ("TO_BOOL", None, (Raw("TO_BOOL"),))
    return (("COMPARE", text, (raw,)),)


def intrinsic(names: tuple[str, ...]) -> Row:
    def row(raw: Raw) -> tuple[Micro, ...]:
        name = names[raw.arg]
        op, arg = RENAMED_INTRINSICS.get(name, (raw.op, name))
        return ((op, arg, (raw,)),)

    return row


def resume(raw: Raw) -> tuple[Micro, ...]:
    # RESUME 0 starts a function, and the encoder writes it anew; the others follow a yield or an
    # await.
    return (("NOP", None, () if raw.arg == 0 else (raw,)),)


def call(raw: Raw) -> tuple[Micro, ...]:
    """A call without keyword names, which `capture.bytecode.decoder` adds."""
    return (("CALL", (raw.arg, ()), (raw,)),)


def function_parts(flags: int) -> tuple[str, ...]:
    return tuple(name for bit, name in FUNCTION_PARTS.items() if flags & bit)


def return_const(raw: Raw) -> tuple[Micro, ...]:
    return (
        ("LOAD_CONST", raw.arg, (Raw("LOAD_CONST", raw.arg),)),
        ("RETURN_VALUE", None, (Raw("RETURN_VALUE"),)),
    )


def _as_they_are(rows: dict[str, Row]) -> None:
    """Opcodes that keep name and argument in the normal form."""
    each(rows, "NOP", "POP_TOP", "PUSH_NULL", "BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR",
         "BINARY_SLICE", "STORE_SLICE", "GET_ITER", "RETURN_VALUE", "PUSH_EXC_INFO", "POP_EXCEPT",
         "CHECK_EXC_MATCH", "CHECK_EG_MATCH", "PREP_RERAISE_STAR", "BEFORE_WITH",
         "WITH_EXCEPT_START", "LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS",
         "GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS", "TO_BOOL", "LOAD_LOCALS",
         "LIST_TO_TUPLE", "RETURN_GENERATOR", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH",
         "END_ASYNC_FOR", "GET_YIELD_FROM_ITER", "END_SEND", "CLEANUP_THROW", "IMPORT_STAR",
         "PRINT_EXPR", "ASYNC_GEN_WRAP", "END_FOR", row=plain())  # fmt: skip
    each(rows, "COPY", "SWAP", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "DELETE_FAST",
         "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_DEREF",
         "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "STORE_ATTR",
         "DELETE_ATTR", "BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP",
         "BUILD_CONST_KEY_MAP", "BUILD_STRING", "BUILD_SLICE", "LIST_APPEND", "SET_ADD", "MAP_ADD",
         "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "UNPACK_SEQUENCE", "RERAISE",
         "IMPORT_NAME", "IMPORT_FROM", "MATCH_CLASS", "LOAD_FROM_DICT_OR_GLOBALS",
         "LOAD_FROM_DICT_OR_DEREF", "GET_AWAITABLE", "YIELD_VALUE", "MAKE_CELL",
         row=with_arg())  # fmt: skip


def common_rows() -> dict[str, Row]:
    """Opcodes with the same meaning in every version that has them."""
    rows: dict[str, Row] = {}
    _as_they_are(rows)
    rows |= {
        "UNARY_POSITIVE": plain("UNARY", "+"),
        "UNARY_NEGATIVE": plain("UNARY", "-"),
        "UNARY_NOT": plain("UNARY", "not"),
        "UNARY_INVERT": plain("UNARY", "~"),
        "BINARY_OP": with_arg("BINARY", BINARY_TEXT.__getitem__),
        "COMPARE_OP": compare,
        "IS_OP": with_arg("IS", bool),
        "CONTAINS_OP": with_arg("CONTAINS", bool),
        "LOAD_FAST_CHECK": with_arg("LOAD_FAST"),
        "LOAD_FAST_AND_CLEAR": with_arg("LOAD_FAST_CLEAR"),
        "LOAD_GLOBAL": load_global,
        "LOAD_ATTR": load_attr,
        "LOAD_METHOD": lambda raw: (("LOAD_METHOD", (raw.arg, True), (raw,)),),
        "LOAD_SUPER_ATTR": load_super,
        "COPY_FREE_VARS": lambda raw: (("NOP", None, ()),),
        "RESUME": resume,
        "UNPACK_EX": with_arg(read=lambda arg: (arg & 0xFF, arg >> 8)),
        "FORMAT_VALUE": with_arg(read=lambda arg: (CONVERSIONS[arg & 3], bool(arg & 4))),
        "CONVERT_VALUE": with_arg(read=CONVERSIONS.__getitem__),
        "FORMAT_SIMPLE": plain("FORMAT_VALUE", (None, False)),
        "FORMAT_WITH_SPEC": plain("FORMAT_VALUE", (None, True)),
        "CALL": call,
        "CALL_KW": with_arg(),
        "CALL_FUNCTION_EX": with_arg(read=lambda arg: bool(arg & 1)),
        "CALL_INTRINSIC_1": intrinsic(INTRINSICS_1),
        "CALL_INTRINSIC_2": intrinsic(INTRINSICS_2),
        "MAKE_FUNCTION": with_arg(read=lambda arg: function_parts(arg or 0)),
        "SET_FUNCTION_ATTRIBUTE": with_arg(read=FUNCTION_PARTS.__getitem__),
        "RETURN_CONST": return_const,
        "RAISE_VARARGS": with_arg("RAISE"),
        "LOAD_FAST_LOAD_FAST": split("LOAD_FAST", "LOAD_FAST"),
        "STORE_FAST_STORE_FAST": split("STORE_FAST", "STORE_FAST"),
        "STORE_FAST_LOAD_FAST": split("STORE_FAST", "LOAD_FAST"),
        "KW_NAMES": lambda raw: (),  # prefixes of a call, which the decoder folds into it
        "PRECALL": lambda raw: (),
        "FOR_ITER": plain(),
        "SEND": plain(),
        "JUMP_IF_FALSE_OR_POP": plain("JUMP_IF_OR_POP", "false"),
        "JUMP_IF_TRUE_OR_POP": plain("JUMP_IF_OR_POP", "true"),
    }
    for op in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"):
        rows[op] = lambda raw: (("JUMP", None, (Raw("JUMP"),)),)
    for way in ("", "FORWARD_", "BACKWARD_"):
        for test in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
            rows[f"POP_JUMP_{way}IF_{test}"] = pop_jump(test)
    return rows


def pop_jump(test: str) -> Row:
    micro: Micro = ("POP_JUMP_IF", test.lower(), (Raw(f"POP_JUMP_IF_{test}"),))
    return lambda raw: (micro,)


ROWS: dict[str, Row] = common_rows()
"""Real opcode name -> row. Names that the running version lacks are never looked up."""

NEVER: frozenset[str] = frozenset({
    "CACHE", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK",
    # Pseudo-instructions of the compiler, which assembly removes.
    "SETUP_FINALLY", "SETUP_CLEANUP", "SETUP_WITH", "POP_BLOCK", "JUMP", "JUMP_NO_INTERRUPT",
    "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_METHOD", "LOAD_ZERO_SUPER_ATTR", "STORE_FAST_MAYBE_NULL",
})  # fmt: skip
"""Opcodes that `co_code` never shows; it shows INSTRUMENTED_* as the original opcodes."""

JUMPS = frozenset({"JUMP", "POP_JUMP_IF", "JUMP_IF_OR_POP", "FOR_ITER", "SEND"})
FINAL = frozenset({"JUMP", "RETURN_VALUE", "RAISE", "RERAISE"})
"""Normal instructions after which control does not fall through."""

LOOP_EXIT = {(3, 11): (), (3, 12): ("END_FOR",), (3, 13): ("END_FOR", "POP_TOP")}[VERSION]
"""Instructions at FOR_ITER's encoded target that an exhausted iterator skips."""

Effect = tuple[int, int]

EFFECTS: dict[str, Effect | Callable[[Any], Effect]] = {
    "NOP": (0, 0),
    "POP_TOP": (1, 0),
    "PUSH_NULL": (0, 1),
    "LOAD_CONST": (0, 1),
    "LOAD_FAST": (0, 1),
    "LOAD_FAST_CLEAR": (0, 1),
    "STORE_FAST": (1, 0),
    "DELETE_FAST": (0, 0),
    "LOAD_GLOBAL": (0, 1),
    "STORE_GLOBAL": (1, 0),
    "DELETE_GLOBAL": (0, 0),
    "LOAD_NAME": (0, 1),
    "STORE_NAME": (1, 0),
    "DELETE_NAME": (0, 0),
    "LOAD_DEREF": (0, 1),
    "STORE_DEREF": (1, 0),
    "DELETE_DEREF": (0, 0),
    "LOAD_CLOSURE": (0, 1),
    "LOAD_CLASSDEREF": (0, 1),
    "MAKE_CELL": (0, 0),
    "LOAD_ATTR": (1, 1),
    "LOAD_METHOD": (1, 2),
    "STORE_ATTR": (2, 0),
    "DELETE_ATTR": (1, 0),
    "LOAD_SUPER_ATTR": lambda arg: (3, 2 if arg[1] else 1),
    "UNARY": (1, 1),
    "BINARY": (2, 1),
    "COMPARE": (2, 1),
    "IS": (2, 1),
    "CONTAINS": (2, 1),
    "BINARY_SUBSCR": (2, 1),
    "STORE_SUBSCR": (3, 0),
    "DELETE_SUBSCR": (2, 0),
    "BINARY_SLICE": (3, 1),
    "STORE_SLICE": (4, 0),
    "BUILD_TUPLE": lambda n: (n, 1),
    "BUILD_LIST": lambda n: (n, 1),
    "BUILD_SET": lambda n: (n, 1),
    "BUILD_MAP": lambda n: (2 * n, 1),
    "BUILD_CONST_KEY_MAP": lambda n: (n + 1, 1),
    "BUILD_STRING": lambda n: (n, 1),
    "BUILD_SLICE": lambda n: (n, 1),
    "LIST_APPEND": (1, 0),
    "SET_ADD": (1, 0),
    "MAP_ADD": (2, 0),
    "LIST_EXTEND": (1, 0),
    "SET_UPDATE": (1, 0),
    "DICT_UPDATE": (1, 0),
    "DICT_MERGE": (1, 0),
    "LIST_TO_TUPLE": (1, 1),
    "UNPACK_SEQUENCE": lambda n: (1, n),
    "UNPACK_EX": lambda arg: (1, arg[0] + 1 + arg[1]),
    "FORMAT_VALUE": lambda arg: (1 + arg[1], 1),
    "CONVERT_VALUE": (1, 1),
    "JUMP": (0, 0),
    "POP_JUMP_IF": (1, 0),
    "JUMP_IF_OR_POP": (1, 0),
    "GET_ITER": (1, 1),
    "FOR_ITER": (1, 2),
    "END_FOR": (1, 0),
    "CALL": lambda arg: (arg[0] + 2, 1),
    "CALL_KW": lambda n: (n + 3, 1),
    "CALL_FUNCTION_EX": lambda kwargs: (3 + kwargs, 1),
    "CALL_INTRINSIC_1": (1, 1),
    "CALL_INTRINSIC_2": (2, 1),
    "MAKE_FUNCTION": lambda parts: (len(parts) + 1, 1),
    "SET_FUNCTION_ATTRIBUTE": (2, 1),
    "RETURN_VALUE": (1, 0),
    "RAISE": lambda n: (n, 0),
    "RERAISE": (1, 0),
    "PUSH_EXC_INFO": (1, 2),
    "POP_EXCEPT": (1, 0),
    "CHECK_EXC_MATCH": (1, 1),
    "CHECK_EG_MATCH": (2, 2),
    "PREP_RERAISE_STAR": (2, 1),
    "BEFORE_WITH": (1, 2),
    "WITH_EXCEPT_START": (0, 1),
    "LOAD_ASSERTION_ERROR": (0, 1),
    "LOAD_BUILD_CLASS": (0, 1),
    "SETUP_ANNOTATIONS": (0, 0),
    "IMPORT_NAME": (2, 1),
    "IMPORT_FROM": (0, 1),
    "IMPORT_STAR": (1, 0),
    "PRINT_EXPR": (1, 0),
    "GET_LEN": (0, 1),
    "MATCH_CLASS": (3, 1),
    "MATCH_MAPPING": (0, 1),
    "MATCH_SEQUENCE": (0, 1),
    "MATCH_KEYS": (0, 1),
    "TO_BOOL": (1, 1),
    "LOAD_LOCALS": (0, 1),
    "LOAD_FROM_DICT_OR_GLOBALS": (1, 1),
    "LOAD_FROM_DICT_OR_DEREF": (1, 1),
    "RETURN_GENERATOR": (0, 1),
    "YIELD_VALUE": (1, 1),
    "SEND": (2, 2),
    "END_SEND": (2, 1),
    "CLEANUP_THROW": (3, 2),
    "GET_AWAITABLE": (1, 1),
    "GET_AITER": (1, 1),
    "GET_ANEXT": (0, 1),
    "BEFORE_ASYNC_WITH": (1, 2),
    "END_ASYNC_FOR": (2, 0),
    "GET_YIELD_FROM_ITER": (1, 1),
    "ASYNC_GEN_WRAP": (1, 1),
    "COPY": lambda i: (i, i + 1),
    "SWAP": lambda i: (i, i),
}
"""Normal instruction -> (popped, pushed) on fall-through; items that are only read do not count."""

JUMP_EFFECTS: dict[str, Effect] = {
    "JUMP": (0, 0),
    "POP_JUMP_IF": (1, 0),
    "JUMP_IF_OR_POP": (0, 0),
    "FOR_ITER": (1, 0),
    "SEND": (2, 1) if VERSION < (3, 12) else (2, 2),
}
"""Normal instruction -> (popped, pushed) when the jump is taken."""
