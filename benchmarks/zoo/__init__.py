"""`python -m benchmarks.zoo LIBRARY`: the models of a library, small and with random weights, under graftjit beside eager.

`libraries` lists where models come from; each gives a `case.Case` a name. `looks` has what is done with a case (inference, training,
generation), `systems` by what; `processes` does it in a process a model, `records` keeps what was found, `table` tells it.
"""
