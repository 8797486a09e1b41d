"""Memory budgets: which values of a forward are saved for its backward, if less memory may be kept
than the minimum cut on bytes keeps (`JitConfig.memory_budget`).

Under a budget products, convolutions and attention may run again, too. Random numbers are never
drawn a second time, reductions are not repeated, because another kernel may sum in another order,
and nothing is computed again from memory that the program writes to. The choice is the saved set
that costs the least time of recomputation among those within the budget. A price per saved byte
turns the limit into a cost (the Lagrange multipliers of H. Everett, "Generalized Lagrange
multiplier method for solving problems of optimum allocation of resources", Operations Research 11,
1963). For one price the best set is a minimum cut: a value that is saved cuts its own edge, at the
price of its bytes; a value that is computed again cuts its edge from the source, at the time that
it takes (the project selection of J.-C. Picard, "Maximal closure of a graph and applications to
combinatorial problems", Management Science 22, 1976). A bisection finds the least price whose set
is within the budget. `ir.autograd.partition` uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..dataclass import dataclass
from ..graph.cost_model import ADDING, flops, moved
from ..graph.effects import is_random, reads, uses, writes
from ..graph.nodes import Node
from ..graph.schema import plan_of
from .min_cut import Network

# Nominal rates, (bytes, operations) per second. The choice must not depend on a measurement: equal
# graphs are divided equally in every process, and only the ratio of the two matters to it.
_RATES = {"cpu": (2e10, 1e11), "cuda": (1e12, 3e13)}
_FUSED = 4  # pointwise work that runs again is fused with its readers: a part of its traffic
# Kinds that fuse with their neighbours and sum in the order of the kernel: the values of a second
# run could differ in the last bit.
_SUMS = frozenset({"reduction", "normalize", "scan", "loss"})
# The range of prices, in picoseconds per byte, and the steps of the bisection.
_LEAST, _MOST, _STEPS = 1e-1, 1e8, 40
# Equal layers have equal costs, and one price would save all of them or none. So time is weighed by
# up to this much more for later operators.
_LATER = 1 / 16


@dataclass(frozen=True, slots=True)
class Choices:
    """What may be saved or computed again.

    needed      the values that the backward reads
    order       all nodes in the order of the program
    cost        the cost of saving a value, in bytes; infinite: never
    free        whether a value may be computed again without a budget
    repeatable  whether it may be under a budget
    """

    needed: set[Node]
    order: Sequence[Node]
    cost: Callable[[Node], float]
    free: Callable[[Node], bool]
    repeatable: Callable[[Node], bool]


def limit_of(budget: float, least: int) -> float:
    """Bytes that may be saved: a float is a part of `least`, those of the minimum cut, and a whole
    number is a number of bytes."""
    return budget * least if isinstance(budget, float) else budget


def is_repeatable(node: Node) -> bool:
    """Whether an operator gives equal values to the bit when it runs again: no random numbers, no
    writes, and no sums in an order of their own."""
    if node.op == "get":
        return is_repeatable(node.args[0])
    if node.op != "call" or writes(node) or is_random(node):
        return False
    row = plan_of(node.target).row
    name = node.target._schema.name.split("::")[1]
    return (
        row is not None and row.kind not in _SUMS and name not in ADDING and "index_put" not in name
    )


def within(choices: Choices, limit: float, saved: Callable[[Iterable[Node]], int]) -> set[Node]:
    """The values to save: at most `limit` bytes by `saved`, or as few as possible."""
    times = _times(choices)
    best = _cut(choices, dict.fromkeys(times, 0), 1.0)
    low, high = _LEAST, _MOST
    if saved(best) > limit:
        return best
    for _ in range(_STEPS):
        price = (low * high) ** 0.5
        found = _cut(choices, times, price)
        if saved(found) > limit:
            low = price
        else:
            high, best = price, found
        if high / low < 1 + _LATER / (4 * len(times) + 1):
            break
    return best


def seconds(node: Node) -> float:
    """The estimated time of an operator, by its bytes and operations."""
    if node.op != "call" or node.alias is not None:
        return 0.0
    meta = next(iter(node.meta), None) if isinstance(node.meta, tuple) else node.meta
    device = getattr(meta, "device", None)
    speed, rate = _RATES.get("cpu" if device is None else device.type, _RATES["cuda"])
    return max(moved(node) / speed, flops(node) / rate)


def _times(choices: Choices) -> dict[Node, int]:
    """The time of each value that may be computed again, in picoseconds."""
    found = {}
    for at, node in enumerate(choices.order):
        if choices.free(node) or choices.repeatable(node):
            part = _FUSED if choices.free(node) else 1
            later = 1 + _LATER * at / len(choices.order)
            found[node] = int(seconds(node) * 1e12 / part * later)
    return found


def _cut(choices: Choices, times: dict[Node, int], price: float) -> set[Node]:
    """The cheapest set at a price per byte."""
    network = Network()
    pending, seen = list(choices.needed), set(choices.needed)
    edges: list[tuple[Node, Node]] = []
    while pending:
        node = pending.pop()
        cost = choices.cost(node)
        # whole numbers, so that no rest of a difference counts as free capacity
        network.vertex(node, cost if cost == float("inf") else int(cost * price))
        if node not in times:
            network.source(node)
            continue
        network.source(node, times[node])
        for operand in dict.fromkeys(reads(node)):
            edges.append((operand, node))
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    for before, after in edges:
        network.edge(before, after)
    for node in choices.needed:
        network.sink(node)
    return network.cut()  # type: ignore[return-value]


def on_demand(nodes: Sequence[Node], behind: set[Node]) -> list[Node]:
    """The nodes of a backward, with those that run again shortly before their first reader: in the
    order of the program they would all come first, and fill the memory that was spared."""
    inside, placed = set(nodes), set[Node]()
    found: list[Node] = []

    def place(last: Node) -> None:
        waiting = [(last, False)]
        while waiting:
            node, ready = waiting.pop()
            if node in placed:
                continue
            if ready:
                placed.add(node)
                found.append(node)
                continue
            waiting.append((node, True))
            waiting += [(one, False) for one in uses(node) if one in inside and one not in placed]

    for node in nodes:
        if node in behind:
            place(node)
    for node in nodes:
        place(node)
    return found
