"""The cheapest cut beside all cuts of small networks."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graftjit.ir.autograd.min_cut import INFINITE, Network


def _separates(edges, sources, sinks, cut) -> bool:
    reached = {v for v in sources if v not in cut}
    pending = list(reached)
    while pending:
        at = pending.pop()
        for a, b in edges:
            if a == at and b not in cut and b not in reached:
                reached.add(b)
                pending.append(b)
    return reached.isdisjoint(sinks)


@st.composite
def networks(draw):
    n = draw(st.integers(2, 7))
    costs = draw(st.lists(st.sampled_from([0, 1, 2, 5, 8, INFINITE]), min_size=n, max_size=n))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True))
    sources = draw(st.sets(st.integers(0, n - 1), min_size=1))
    sinks = draw(st.sets(st.integers(0, n - 1), min_size=1))
    return costs, edges, sources, sinks


@given(networks())
@settings(max_examples=300, deadline=None)
def test_no_cut_is_cheaper(world) -> None:
    costs, edges, sources, sinks = world
    network = Network()
    for number, cost in enumerate(costs):
        network.vertex(number, cost)
    for a, b in edges:
        network.edge(a, b)
    for number in sources:
        network.source(number)
    for number in sinks:
        network.sink(number)
    subsets = chain.from_iterable(combinations(range(len(costs)), k) for k in range(len(costs) + 1))
    prices = [
        sum(costs[v] for v in cut) for cut in subsets if _separates(edges, sources, sinks, set(cut))
    ]
    best = min(prices)
    if best == INFINITE:
        with pytest.raises(ValueError, match="finite"):
            network.cut()
        return
    found = network.cut()
    assert _separates(edges, sources, sinks, found)
    assert sum(costs[v] for v in found) == best


def test_of_equal_cuts_the_one_nearest_to_the_sinks() -> None:
    network = Network()
    for name in "abc":
        network.vertex(name, 4)
    network.edge("a", "b")
    network.edge("b", "c")
    network.source("a")
    network.sink("c")
    assert network.cut() == {"c"}


def test_long_chains() -> None:
    network = Network()
    n = 4000
    for k in range(n):
        network.vertex(k, 1 + (k != 17))
    for k in range(n - 1):
        network.edge(k, k + 1)
    network.source(0)
    network.sink(n - 1)
    assert network.cut() == {17}
