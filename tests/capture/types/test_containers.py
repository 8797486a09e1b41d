"""Lists, tuples, dicts and sets: methods, slices, comprehensions, aliasing, changes of what the caller holds."""

from __future__ import annotations

import collections
import itertools

import torch

import graftjit

from ..harness import agrees, t


@agrees(calls=2)
def test_list_methods():
    def f(x, items):
        items.append(x + 1)
        items.extend([2, 3])
        items.insert(0, "front")
        last = items.pop()
        first = items.pop(0)
        items.reverse()
        copy = items.copy()
        items.remove(2)
        return items, copy, first, last, items.index(x) if False else len(items), [1, 1].count(1)

    return f, (t(2), [1])


@agrees(calls=2)
def test_slices():
    def f(x, items):
        a = items[1:3]
        b = items[::-1]
        c = items[-2:]
        items[0:2] = [x, x * 2, x * 3]
        del items[-1]
        items[0] = "z"
        return a, b, c, items, (1, 2, 3)[1:], tuple(items)[::2]

    return f, (t(2), [1, 2, 3, 4])


@agrees(breaks=0)
def test_ranges_from_outside():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.picked = range(1, 3)

        def forward(self, states, more):
            total = [states[i] * i for i in self.picked]
            steps = iter(more)
            first = next(steps)
            facts = len(more), more[-1], 2 in more, more.step, more.index(first), more[::-1]
            return sum(total), first, list(steps), facts, [*reversed(more)], more is self.picked

    states = [t(2), t(2) + 1, t(2) + 2]
    changes = [lambda *_: (states, more) for more in (range(4), range(0, 4, 2), range(0, 3, 2))]
    return Layer(), (states, range(5)), changes


@agrees(calls=2)
def test_list_holds_itself():
    def f(x):
        items = [x * 2]
        items.append(items)
        return items

    return f, (t(2),)


@agrees(calls=2)
def test_argument_list_holds_itself():
    def f(x, items):
        y = x * items[0]
        items[1].append(y)
        return items, items[1] is items

    items = [2]
    items.append(items)
    return f, (t(2), items)


@agrees(calls=2)
def test_dict_holds_itself():
    def f(x):
        d = {"x": x + 1}
        d["me"] = d
        return d

    return f, (t(2),)


@agrees(calls=2)
def test_same_list_twice():
    def f(x, a, b):
        a.append(x * 2)
        b.append(1)
        return a, b, a is b, len(a)

    items = []
    return f, (t(2), items, items)


@agrees()
def test_same_list_then_different():
    def f(x, a, b):
        a.append(1)
        return x * len(b), a is b

    x, one, two = t(2), [], [5]
    return f, (x, one, one), [lambda: (x, one, two), lambda: (x, two, two), lambda: (x, two, one)]


@agrees()
def test_nested_aliases():
    def f(x, d):
        d["a"].append(x + 1)
        d["b"]["c"].append(7)
        return d["a"] is d["b"]["c"], len(d["a"])

    inner = []
    d = {"a": inner, "b": {"c": inner}}

    def part():
        d["b"]["c"] = [9]

    return f, (t(2), d), [None, part, None]


@agrees(calls=2)
def test_dict_methods():
    def f(x, d):
        d["new"] = x * 2
        d.setdefault("k", 5)
        d.setdefault("list", []).append(1)
        d.update({"u": 1}, v=2)
        gone = d.pop("u")
        none = d.pop("nothing", None)
        item = d.popitem()
        return (
            d,
            gone,
            none,
            item,
            d.get("zz"),
            d.get("k", 3),
            list(d),
            list(d.values()),
            "k" in d,
            len(d),
        )

    return f, (t(2), {"a": 1})


@agrees(calls=2)
def test_dict_order():
    def f(x, d):
        v = d.pop("a")
        d["a"] = v + 1
        d["b"] = x
        return list(d.items()), {**d, "z": 1}, d | {"a": 0}

    return f, (t(2), {"a": 1, "b": 2, "c": 3})


@agrees(calls=2)
def test_dict_views_follow():
    def f(x, d):
        keys, values, items = d.keys(), d.values(), d.items()
        d["n"] = 5
        return x + len(keys), list(keys), sum(values), [k for k, v in items], "n" in keys

    return f, (t(2), {"a": 1})


@agrees(calls=2)
def test_dict_view_returned():
    def f(x, d):
        y = x + 1
        return y, d.keys(), d.items()

    return f, (t(2), {"a": 1})


@agrees(calls=2)
def test_dict_keys_of_all_kinds():
    def f(x, d):
        d[1] = "int"
        d[True] = "bool"
        d[1.0] = "float"
        d[(1, "a")] = x + 1
        d[None] = 0
        return d[1], len(d), d[(1, "a")], list(d)

    return f, (t(2), {})


@agrees(calls=2)
def test_int_key_of_argument():
    def f(x, d):
        return x * d[0] + d[1], d.get(2), 2 in d, 0 in d, True in d

    return f, (t(2), {0: 2.0, 1: 3})


@agrees()
def test_dict_argument_changes():
    def f(x, d):
        y = x * d["a"]
        if "b" in d:
            y = y + d["b"]
        return y, len(d)

    d = {"a": 1}
    return f, (t(2), d), [
        lambda: d.update(a=2), lambda: d.update(b=3), lambda: d.pop("b") and None,
        lambda: d.update(c=1), lambda: d.clear(),
    ]  # fmt: skip


@agrees()
def test_container_types_change():
    def f(x, items):
        return [x * v for v in items], type(items), len(items)

    x = t(2)
    return f, (x, [1, 2]), [
        lambda: (x, (1, 2)), lambda: (x, [1, 2, 3]), lambda: (x, {1: 0, 2: 0}), lambda: (x, {1, 2}),
        lambda: (x, range(2)), lambda: (x, x),
    ]  # fmt: skip


@agrees(calls=2)
def test_set_methods():
    def f(x, s):
        s.add(4)
        s.discard(1)
        s.update([7, 8])
        a = s | {1}
        b = s & {4, 7}
        c = s - {4}
        d = s ^ {4, 100}
        return x + len(s), a, b, c, d, 4 in s, s <= a, s.isdisjoint({55}), frozenset([1, 2]), {1, 2}

    return f, (t(2), {1, 2})


@agrees(calls=2)
def test_set_in_place_operators():
    def f(x, s):
        s |= {5}
        s -= {1}
        s &= {5, 2}
        s ^= {9}
        return x + 1, s

    return f, (t(2), {1, 2})


@agrees(calls=2)
def test_tuple_and_unpacking():
    def f(x, p):
        a, (b, c), *rest = p
        first, *middle, last = [1, 2, 3, 4]
        d, e = x
        return x * a, b, c, rest, middle, (*rest, 1), [*p, *middle], d + e, {**{"k": 1}}

    return f, (t(2), (1, (2, 3), 4, 5))


@agrees(calls=2)
def test_wrong_unpacking():
    def f(x, p):
        y = x + 1
        try:
            a, b = p
        except ValueError as error:
            return y, str(error)
        return y, a, b

    return f, (t(2), (1, 2, 3))


@agrees(calls=2)
def test_unpacking_a_tensor_of_another_length():
    def f(x):
        a, b = x
        return a + b

    return f, (t(3),)


@agrees(calls=2)
def test_comprehensions():
    def f(x, n):
        a = [x * i for i in range(n) if i % 2]
        b = {i: x + i for i in range(n)}
        c = {i // 2 for i in range(n)}
        d = [(i, j) for i in range(2) for j in range(i, 3)]
        e = [[x * i * j for i in range(2)] for j in range(2)]
        return a, b, c, d, e, sum(i for i in range(n))

    return f, (t(2), 4)


@agrees(calls=2)
def test_zip_enumerate_map_filter():
    def f(x, items):
        a = [y * i for i, y in enumerate(items, 1)]
        b = [p + q for p, q in zip(items, items[1:])]
        c = list(map(lambda v: v * 2, items))
        d = list(filter(lambda v: v.shape[0] > 1, items))
        return (
            a,
            b,
            c,
            d,
            sorted([3, 1, 2]),
            list(reversed([1, 2])),
            sorted(["b", "A"], key=str.lower),
        )

    return f, (t(2), [t(2), t(2) * 2])


@agrees(calls=2)
def test_iterator_held_over_a_break():
    def f(x, items):
        it = iter(items)
        a = next(it)
        print("break")
        b = next(it)
        pairs = zip(items, range(9))
        next(pairs)
        print("again")
        return x * a * b, list(it), list(pairs), next(it, "end")

    return f, (t(2), [2, 3, 4])


@agrees(calls=2)
def test_list_changed_while_iterated():
    def f(x, items):
        out = []
        for v in items:
            if v < 3:
                items.append(v + 2)
            out.append(x * v)
        return out, items

    return f, (t(2), [1, 2])


@agrees(calls=2)
def test_dict_changed_while_iterated():
    def f(x, d):
        y = x + 1
        for k in d:
            d[k + "x"] = 1
        return y

    return f, (t(2), {"a": 1})


@agrees(calls=2)
def test_list_shrinks_while_iterated():
    def f(x, items):
        out = []
        for v in items:
            items.pop()
            out.append(v)
        return x + len(out), out, items

    return f, (t(2), [1, 2, 3, 4, 5])


@agrees(calls=2)
def test_key_errors():
    def f(x, d, items):
        y = x + 1
        out = []
        for attempt in (
            lambda: d["no"],
            lambda: items[9],
            lambda: {}.popitem(),
            lambda: items.index(99),
        ):
            try:
                attempt()
            except (KeyError, IndexError, ValueError) as error:
                out.append((type(error).__name__, str(error)))
        return y, out

    return f, (t(2), {"a": 1}, [1])


@agrees(calls=2)
def test_missing_key_raises():
    def f(x, d):
        y = x + 1
        d["seen"] = y
        return d["missing"]

    return f, (t(2), {})


@agrees(calls=2)
def test_deque_and_others():
    def f(x, q, c, dd, od):
        q.append(x + 1)
        q.appendleft(2)
        c["a"] += 1
        dd["new"].append(1)
        od["b"] = 5
        od.move_to_end("a")
        return x * 2, list(od), q[0], dict(c)

    return f, (
        t(2), collections.deque([1], maxlen=2), collections.Counter("aab"),
        collections.defaultdict(list), collections.OrderedDict(a=1),
    )  # fmt: skip


@agrees(calls=2)
def test_user_list_and_dict():
    class Mine(list):
        def append(self, v):
            super().append(v * 2)

    class Other(dict):
        def __missing__(self, k):
            return k * 2

    def f(x, a, b):
        a.append(3)
        a[0] = 9
        b["q"] = 1
        return x * len(a), a, b["zz"], b, sum(a), [v for v in a]

    return f, (t(2), Mine([1]), Other())


@agrees(calls=2)
def test_equality_of_containers():
    def f(x, a, b):
        return (
            x + 1,
            a == b,
            a != b,
            [1, 2] == [1, 2],
            (1, x)[1] is x,
            {"a": [1]} == {"a": [1]},
            a < b,
        )

    return f, (t(2), [1, 2], [1, 2, 3])


@agrees(calls=2)
def test_tensors_in_containers():
    def f(x, y):
        items = [x, y, x]
        return items.index(x), x in items, items[0] is items[2], {x: 1}[x], len({x, y, x}), x + y

    return f, (t(1), t(1) + 1)


@agrees(calls=2)
def test_multiplied_lists_share():
    def f(x):
        rows = [[0] * 2] * 2
        rows[0][0] = x + 1
        return rows, rows[0] is rows[1], [None] * 3, (1,) * 2

    return f, (t(2),)


@agrees(calls=2)
def test_list_in_place_operators():
    def f(x, items, d):
        alias = items
        items += (x, 2)
        items *= 2
        other = items + [1]
        d |= {"k": 1}
        return alias is items, other, items, d

    return f, (t(2), [0], {})


@agrees()
def test_sorting():
    def f(x, items):
        items.sort(reverse=True)
        words = ["bb", "a", "ccc"]
        words.sort(key=len)
        return x * items[0], items, words, sorted({"b": 1, "a": 2})

    items = [2, 3, 1]
    return f, (t(2), items), [lambda: items.append(7), lambda: items.insert(0, -3)]


@agrees(calls=2)
def test_set_of_strings_order():
    def f(x, s):
        return x + 1, [v for v in s], [v for v in {"q", "r", "s"}]

    return f, (t(2), {"a", "b", "c"})


@agrees()
def test_set_changes():
    def f(x, s):
        return x * len(s), 3 in s, sorted(s)

    s = {1, 2}
    return (
        f,
        (t(2), s),
        [lambda: s.add(3), lambda: s.discard(1), lambda: s.add(True), lambda: s.clear()],
    )


@agrees(calls=2)
def test_change_of_a_list_in_a_tuple():
    def f(x, p):
        p[1].append(x * 2)
        p[2]["a"]["b"].append(3)
        return p, p[1]

    return f, (t(2), (1, [], {"a": {"b": []}}))


@agrees(calls=2)
def test_container_returned_is_the_argument():
    def f(x, items, d):
        items.append(1)
        y = x + 1
        return items, d, y, items[0], d["k"]

    return f, (t(2), [t(1)], {"k": [1]})


@agrees(calls=2)
def test_delete_items():
    def f(x, items, d):
        del items[0], d["a"]
        del items[-1:]
        return x * len(items), items, d

    return f, (t(2), [1, 2, 3, 4, 5], {"a": 1, "b": 2}), [lambda: None]


@agrees(calls=1)
def test_named_star_arguments():
    def g(*a, **k):
        a2, k2 = a, k
        k2["extra"] = 1
        return a2, k2

    def f(x, d, items):
        r = g(*items, x, **d, z=3)
        return r, d, items

    return f, (t(2), {"q": 1}, [1, 2])


@agrees(calls=2)
def test_changes_before_and_after_a_break():
    def f(x, items, d):
        items.append(1)
        d["a"] = items
        print(len(items), d)
        d["a"].append(x + 1)
        items = [items]
        print("two")
        return items, d

    return f, (t(1), [], {})


@agrees()
def test_unhashable_and_bad_index():
    def f(x, k):
        y = x + 1
        d = {}
        d[k] = y
        return d

    x = t(2)
    return f, (x, 1), [lambda: (x, [1]), lambda: (x, (1, 2)), lambda: (x, {})]


@agrees(calls=2)
def test_iterating_what_cannot_be():
    def f(x, n):
        y = x * 2
        for _ in n:
            y = y + 1
        return y

    return f, (t(2), 3)


class Rows(list):
    pass


class Line(collections.deque):
    pass


@agrees(calls=2)
def test_containers_of_derived_classes_that_are_extended_by_themselves():
    def f(x):
        rows, line = Rows([x, 1]), Line([1, 3])
        rows.extend(rows)
        rows += rows
        rows[1:2] = rows
        line.extend(line)
        line += line
        line.extendleft(line)
        return rows, line, x + 1

    return f, (t(2),)


@agrees(calls=2)
def test_tuples_as_keys_of_a_dict_of_the_caller():
    def f(x, table, pair, other):
        found = pair in table, table[pair], table.get(pair), other in table, table.get(other, 5)
        return x + table[pair], found

    return f, (t(2), {(1, 2): 3, (4, 5): 6}, (1, 2), (9, 9))


def test_a_look_up_of_a_tuple_binds_the_frame_to_no_key():
    table = {(a, b): a + b for a in range(8) for b in range(8)}

    @graftjit.jit
    def f(pair):
        return table[pair]

    for pair in itertools.product(range(4), range(4)):
        assert f(pair) == sum(pair)
    (entry,) = f.state.entries
    assert f.report().recompile_count == 0 and len(entry.rows) < 16
