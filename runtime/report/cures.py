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
    "median": "torch.quantile(x, 0.5), because torch.median takes the lower of two middle values",
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

_NUMPY_CALL = re.compile(r"(\w+)\(\) of a value that is not a constant or an array made here")


def _torch_name(found: re.Match[str]) -> str:
    name = found[1]
    same = f"torch.{name}" if hasattr(sys.modules.get("torch"), name) else ""
    advice = OF_NUMPY.get(name) or same
    return f"use {advice}" if advice else ""


# (code, pattern of the reason, cure); the first match applies.
_BREAKS: tuple[tuple[str, str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        "GB104",
        r"Tensor\.tolist\(\)",
        "keep it a tensor and use masks, indexing and reductions in place of lists of"
        " numbers; or make the list after the compiled part",
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
        "remove .item(): a 0-dim tensor works in arithmetic and torch.where; to log"
        " it, keep loss.detach() and take .item() after the compiled part",
    ),
    (
        "GB104",
        r"(float|int)\(\)",
        "keep the tensor: a 0-dim tensor works in arithmetic; or read the number"
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
        "fix the breaks before this line: without a break between"
        " them, forward and backward are one graph; else call it outside",
    ),
    (
        "GB120",
        r"the remaining steps of a loop.*",
        "fix the break in its body, and the loop is unrolled into one graph; until then,"
        " the code between the breaks runs compiled at each step",
    ),
    ("GB123", _NUMPY_CALL.pattern, _torch_name),
    ("GB123", r"from_numpy\(\)", "keep the value a tensor, and there is nothing to convert"),
)


def of_break(code: str, reason: str) -> str:
    """The cure of a break with this reason."""
    for row, pattern, advice in _BREAKS:
        found = re.match(pattern, reason) if row == code else None
        cure = "" if found is None else advice if isinstance(advice, str) else advice(found)
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
    advice = _RECOMPILES.get(code)
    cure = (advice(source, now, before) if advice else "") or codes.lookup(code).cure
    if bound and (code == "RC411" or cure.startswith("none is needed for a few sizes")):
        why = bound.removeprefix("constant, because ")
        return f"each size is compiled once: {why}. Pad to a few sizes, or call that outside"
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
            "none is needed for a few sizes; a size that keeps changing becomes an input, unless"
            " dynamic=False"
        )
    if ("requires_grad" in this["rest"]) != ("requires_grad" in that["rest"]):
        return (
            "calls with and without gradients are compiled once each; use torch.no_grad() where none"
            " is needed"
        )
    return f"pass {source}.contiguous(): its layout in memory differs"


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
    if source.startswith("not_cached_"):
        return "none: the first call fills the cache of that function, and later ones find it"
    number = re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?|nan|-?inf", now, re.IGNORECASE)
    # An intermediate value of a line has no name.
    unnamed = source.startswith(UNNAMED)
    if number and unnamed:
        return (
            "after three values, graphs take it as an input; where it must be a plain number, pass it"
            " as a tensor, or compute it outside"
        )
    if unnamed or now.startswith("np."):
        return "fix the break that makes it a Python value, so that it stays a tensor"
    if number and "." in source:
        return (
            f"keep {source} in a tensor (a buffer of the module), which may change without a"
            " recompile"
        )
    if number:
        return f"pass {source} as a tensor: torch.tensor({now})"
    return f"each value of {source} is compiled once: use few values, or keep it out of the compiled part"


def _of_container(source: str, now: str, before: str) -> str:
    if now.isdecimal() and before.isdecimal():
        return f"each length of {source} is compiled once: use few lengths, or pass the tensors that matter in its place"
    if before == "[]":
        return "none, if the first call fills it and it then stays the same"
    first = before.removesuffix("]")
    if now.startswith(first):
        return (
            f"{source} grows: fill it before the first call, or compute its values again, which is often"
            " cheaper than a look-up"
        )
    return ""


def _of_relation(source: str, now: str, before: str) -> str:
    sizes = [re.fullmatch(r"([^=]+?) =+ -?\d+", part) for part in now.split(", ")]
    names = [size[1] for size in sizes if size is not None]
    if not names or len(names) != len(sizes):
        return ""
    advice, verb, what = (
        " and ".join(names),
        "are" if len(names) > 1 else "is",
        "sizes" if len(names) > 1 else "size",
    )
    return (
        f"{advice} {verb} looked up or compared as a number, and each result is compiled once: do that in"
        f" the caller, or compute with the {what} itself"
    )


def of_growth(source: str) -> str:
    """The cure for a container that grew by one item before each of several recompiles."""
    return (
        f"{source} grows with each call: keep a sum and a count, or a tensor of full size that is written in"
        " place; a list of results belongs outside of the compiled part"
    )


_RECOMPILES: dict[str, Callable[[str, str, str], str]] = {
    "RC402": _of_tensor,
    "RC403": _of_value,
    "RC405": _of_container,
    "RC411": _of_relation,
}
