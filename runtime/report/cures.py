"""Cures for individual cases: what to do about a break or a recompile.

In: a code and what was found. Out: a sentence specific to the case, else the cure of the table of
codes. `folds` calls this when a report is made. A row has a pattern of the reason, or a function of
the change, and the cure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from .. import codes

# Functions of numpy that torch names differently, or whose torch namesake does something else.
OF_NUMPY: dict[str, str] = {
    "percentile": "torch.quantile(x, q / 100) or, faster, x.flatten().kthvalue(k)",
    "nanpercentile": "torch.nanquantile(x, q / 100)",
    "median": "torch.quantile(x, 0.5), for torch.median takes the lower of two middle values",
    "std": "torch.std(x, correction=0)",
    "var": "torch.var(x, correction=0)",
    "concatenate": "torch.cat",
    "append": "torch.cat",
    "expand_dims": "x.unsqueeze",
    "repeat": "torch.repeat_interleave",
    "power": "torch.pow",
    "digitize": "torch.bucketize",
    "convolve": "torch.nn.functional.conv1d",
    "pad": "torch.nn.functional.pad",
    "copy": "x.clone()",
    "array": "torch.tensor, or the tensor itself",
    "asarray": "torch.as_tensor, or the tensor itself",
    "astype": "x.to(dtype)",
}

_NUMPY_CALL = re.compile(r"(\w+)\(\) of what is no constant or array made here")


def _torch_name(found: re.Match[str]) -> str:
    name = found[1]
    same = f"torch.{name}" if hasattr(sys.modules.get("torch"), name) else ""
    told = OF_NUMPY.get(name) or same
    return f"use {told}" if told else ""


# (code, pattern of the reason, cure); the first match applies.
_BREAKS: tuple[tuple[str, str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        "GB104",
        r"Tensor\.tolist\(\)",
        "keep it a tensor: masks, indexing and reductions take the place of lists of numbers;"
        " or make the list after the compiled part",
    ),
    (
        "GB104",
        r"Tensor\.numpy\(\)",
        "stay with torch, which has most of numpy's functions; or convert before or after the"
        " compiled part",
    ),
    (
        "GB104",
        r"Tensor\.item\(\)",
        "leave out .item(): a tensor of no dimensions works in arithmetic and torch.where; to log"
        " it, keep loss.detach() and take .item() after the compiled"
        " part",
    ),
    (
        "GB104",
        r"(float|int)\(\)",
        "leave the tensor as it is: one of no dimensions works in arithmetic; or take the number"
        " after the compiled part",
    ),
    (
        "GB104",
        r".*(f-string|text).*",
        "write the text after the compiled part, from a tensor that it returns",
    ),
    (
        "GB114",
        r"a backward through a history from outside.*",
        "mend the breaks before this line: forward and backward are one"
        " graph where none lies between them;"
        " else call it outside",
    ),
    (
        "GB120",
        r"the steps left of a loop.*",
        "mend the break in its body, and the loop is unrolled into one graph; as it is, what"
        " lies between the breaks runs compiled at each step",
    ),
    ("GB123", _NUMPY_CALL.pattern, _torch_name),
    ("GB123", r"from_numpy\(\)", "nothing is left to convert where the value stays a tensor"),
)


def of_break(code: str, reason: str) -> str:
    """The cure of a break with this reason."""
    for row, pattern, told in _BREAKS:
        found = re.match(pattern, reason) if row == code else None
        cure = "" if found is None else told if isinstance(told, str) else told(found)
        if cure:
            return cure
    return codes.lookup(code).cure


# -- Recompiles ------------------------------------------------------------------------------------

UNNAMED = (".stack", "the result of ", "a value of line ")
"""Beginnings of sources without a name in the program: see `graftjit.dispatch.unit_events`."""

_TENSOR = re.compile(r"(?P<device>\S+) (?P<dtype>\w+)\[(?P<sizes>[^\]]*)\](?P<rest>.*)")


def of_recompile(code: str, source: str, now: str, before: str, bound: str = "") -> str:
    """The cure of a recompile in which `source` is `now` and was `before`. `bound`: why sizes of
    the frame are not symbolic, "plain, for aten.kthvalue.default ..."."""
    told = _RECOMPILES.get(code)
    cure = (told(source, now, before) if told else "") or codes.lookup(code).cure
    if bound and (code == "RC411" or cure.startswith("none is needed for a few sizes")):
        why = bound.removeprefix("plain, for ")
        return (
            f"sizes are compiled for as they are, each once: {why}. Pad to a few sizes, or call"
            " that outside"
        )
    return cure


def _of_tensor(source: str, now: str, before: str) -> str:
    this, that = _TENSOR.fullmatch(now), _TENSOR.fullmatch(before)
    if this is None or that is None:
        return ""
    if this["dtype"] != that["dtype"]:
        return (
            f"call with one dtype: {source}.to(torch.{_DTYPES.get(that['dtype'], that['dtype'])})"
        )
    if this["device"] != that["device"]:
        return "call with tensors of one device, or jit one function for each"
    if this["sizes"].count(",") != that["sizes"].count(","):
        return "call with one number of dimensions, or jit one function for each"
    if this["sizes"] != that["sizes"]:
        return (
            "none is needed for a few sizes; a size that goes on varying becomes an input, unless"
            " dynamic=False"
        )
    if ("requires_grad" in this["rest"]) != ("requires_grad" in that["rest"]):
        return (
            "call with and without gradients is compiled once each; torch.no_grad() where none is"
            " needed"
        )
    return f"pass {source}.contiguous(): how it lies in memory differs"


_DTYPES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "b8": "bool",
    "bool": "bool",
}


def _of_value(source: str, now: str, before: str) -> str:
    number = re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?|nan|-?inf", now, re.IGNORECASE)
    # An intermediate value of a line has no name.
    unnamed = source.startswith(UNNAMED)
    if number and unnamed:
        return (
            "what is computed with it takes it as an input after three values; where it must be a"
            " plain number, pass it as a tensor, or draw it outside"
        )
    if unnamed or now.startswith("np."):
        return "mend the break that makes it a Python value, so that it stays a tensor"
    if number and "." in source:
        return (
            f"keep {source} in a tensor (a buffer of the module), which may change without a"
            " recompile"
        )
    if number:
        return f"pass {source} as a tensor: torch.tensor({now})"
    return (
        f"each value of {source} is compiled once: let there be few, or keep it out of the"
        " compiled part"
    )


def _of_container(source: str, now: str, before: str) -> str:
    if now.isdecimal() and before.isdecimal():
        return (
            f"each length of {source} is compiled once: let there be few, or pass the tensors that"
            " matter in its place"
        )
    if before == "[]":
        return "none, if the first call fills it and it stays so then"
    first = before.removesuffix("]")
    if now.startswith(first):
        return (
            f"{source} grows: fill it before the first call, or compute what it holds anew,"
            " which is often cheaper than a look-up"
        )
    return ""


def _of_relation(source: str, now: str, before: str) -> str:
    sizes = [re.fullmatch(r"([^=]+?) =+ -?\d+", part) for part in now.split(", ")]
    names = [size[1] for size in sizes if size is not None]
    if not names or len(names) != len(sizes):
        return ""
    told, verb, what = (
        " and ".join(names),
        "are" if len(names) > 1 else "is",
        "sizes" if len(names) > 1 else "size",
    )
    return (
        f"{told} {verb} looked up or compared as a number, and each answer is compiled once:"
        f" leave that to the caller, or compute with the {what} itself"
    )


def of_growth(source: str) -> str:
    """The cure for a container that grew by one item before each of several recompiles."""
    return (
        f"{source} grows call by call: keep a sum and a count, or a tensor of full size that"
        " is written in place; a list of results belongs outside of the compiled part"
    )


_RECOMPILES: dict[str, Callable[[str, str, str], str]] = {
    "RC402": _of_tensor,
    "RC403": _of_value,
    "RC405": _of_container,
    "RC411": _of_relation,
}
