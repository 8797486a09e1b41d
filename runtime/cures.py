"""Cures that know the case: what to do about this break, about this recompile.

In: a code with what was found. Out: a sentence, or the one of the table of codes where nothing more can be said. Read
by `folds`, when a report is made. A row is a pattern of the reason, or a question about the change, and its answer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from . import codes

# What numpy calls otherwise than torch, or where torch's function of that name does something else.
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


# (code, pattern of the reason, what to do), the first that matches
_BREAKS: tuple[tuple[str, str, str | Callable[[re.Match[str]], str]], ...] = (
    ("GB104", r"Tensor\.tolist\(\)", "keep it a tensor: masks, indexing and reductions take the place of lists of numbers;"
                                     " or make the list after the compiled part"),
    ("GB104", r"Tensor\.numpy\(\)", "stay with torch, which has most of numpy's functions; or convert before or after the"
                                    " compiled part"),
    ("GB104", r"Tensor\.item\(\)", "leave out .item(): a tensor of no dimensions works in arithmetic and torch.where; to log"
                                   " it, keep loss.detach() and take .item() after the compiled part"),
    ("GB104", r"(float|int)\(\)", "leave the tensor as it is: one of no dimensions works in arithmetic; or take the number"
                                  " after the compiled part"),
    ("GB104", r".*(f-string|text).*", "write the text after the compiled part, from a tensor that it returns"),
    ("GB114", r"a backward through a history from outside.*", "mend the breaks before this line: forward and backward are one"
                                                             " graph where none lies between them; else call it outside"),
    ("GB123", _NUMPY_CALL.pattern, _torch_name),
    ("GB123", r"from_numpy\(\)", "nothing is left to convert where the value stays a tensor"),
)  # fmt: skip


def of_break(code: str, reason: str) -> str:
    """What to do about a break for this reason."""
    for row, pattern, told in _BREAKS:
        found = re.match(pattern, reason) if row == code else None
        cure = "" if found is None else told if isinstance(told, str) else told(found)
        if cure:
            return cure
    return codes.lookup(code).cure


# -- Recompiles --------------------------------------------------------------------------------------

_TENSOR = re.compile(r"(?P<device>\S+) (?P<dtype>\w+)\[(?P<sizes>[^\]]*)\](?P<rest>.*)")


def of_recompile(code: str, source: str, now: str, before: str) -> str:
    """What to do about the recompile in which `source` is `now` and was `before`."""
    told = _RECOMPILES.get(code)
    return (told(source, now, before) if told else "") or codes.lookup(code).cure


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
        return "none is needed for a few sizes; a size that goes on varying becomes an input, unless dynamic=False"
    if ("requires_grad" in this["rest"]) != ("requires_grad" in that["rest"]):
        return "call with and without gradients is compiled once each; torch.no_grad() where none is needed"
    return f"pass {source}.contiguous(): how it lies in memory differs"


_DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
           "b8": "bool", "bool": "bool"}  # fmt: skip


def _of_value(source: str, now: str, before: str) -> str:
    if source.startswith(".stack") or now.startswith("np."):
        return "mend the break that makes it a Python value, so that it stays a tensor"
    number = re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?|nan|-?inf", now, re.IGNORECASE)
    if number and "." in source:
        return f"keep {source} in a tensor (a buffer of the module), which may change without a recompile"
    if number:
        return f"pass {source} as a tensor: torch.tensor({now})"
    return f"each value of {source} is compiled once: let there be few, or keep it out of the compiled part"


def _of_container(source: str, now: str, before: str) -> str:
    if now.isdecimal() and before.isdecimal() and int(now) == int(before) + 1:
        return (f"{source} grows call by call: keep a sum and a count, or a tensor of full size that is written in"
                " place; a list of results belongs outside of the compiled part")  # fmt: skip
    if before == "[]":
        return "none, if the first call fills it and it stays so then"
    first = before.removesuffix("]")
    if now.startswith(first):
        return (f"{source} grows: fill it before the first call, or compute what it holds anew, which is often cheaper"
                " than a look-up")  # fmt: skip
    return ""


def _of_relation(source: str, now: str, before: str) -> str:
    size = re.fullmatch(r"(.+?) =+ -?\d+", now)
    if size is None:
        return ""
    return (f"{size[1]} is looked up or compared as a number, and each answer is compiled once: leave that to the caller, or"
            " compute with the size itself")  # fmt: skip


_RECOMPILES: dict[str, Callable[[str, str, str], str]] = {
    "RC402": _of_tensor,
    "RC403": _of_value,
    "RC405": _of_container,
    "RC411": _of_relation,
}
