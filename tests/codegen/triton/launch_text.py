"""The part of a golden file that says how a Triton kernel is launched."""

from __future__ import annotations


def launch_text(kernel):
    arguments = ", ".join(f"{name}: {kind}" for name, kind in kernel.arguments)
    constants = ", ".join(f"{name}={value}" for name, value in kernel.constants.items())
    return f"\n# arguments: {arguments}\n# launch: {kernel.programs} programs, {constants}, {kernel.warps} warps\n"
