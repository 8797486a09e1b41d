"""The expression is written out, or made a function once by eval outside."""

import torch

from graftjit import jit


# before
@jit
def step(x, formula):
    y = torch.sin(x)
    return eval(formula, {"y": y}) + 1


print(step(torch.ones(2), "y * 2"))


# after
formula = eval("lambda y: y * 2")


@jit
def step(x):
    y = torch.sin(x)
    return formula(y) + 1


print(step(torch.ones(2)))
