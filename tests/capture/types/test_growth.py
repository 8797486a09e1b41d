"""Lists and dicts of the caller that programs add to: what they hold is not looked at, guarded or written again."""

import gc
import weakref
from collections import OrderedDict, defaultdict, deque

import torch

import graftjit

from ..harness import agrees


class Holder:
    def __init__(self):
        self.log = []
        self.seen = {}


@agrees(calls=8, recompiles=0)
def test_a_history_that_grows():
    holder = Holder()

    def program(x):
        y = x * 2
        holder.log.append(y)
        holder.log.extend([x, y])
        holder.log += [1]
        return y.sum()

    return program, (torch.arange(3.0),)


@agrees(calls=8, recompiles=0)
def test_a_list_of_a_class_of_the_users_grows():
    class Stack(list):
        def push(self, item):
            self.append(item)

    stack = Stack([1])

    def program(x):
        stack.push(x)
        stack.extend((x, 2))
        return x + 1

    return program, (torch.ones(2),)


@agrees(calls=6, recompiles=0)
def test_places_of_a_list_are_written_alone():
    ring = [torch.zeros(2) for _ in range(4)]

    def program(x):
        ring[1] = x * 2
        ring[-1] = x
        ring[1] = x * 3
        return x + 1

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_what_was_appended_is_read():
    items = [torch.zeros(2), 1]

    def program(x):
        items.append(x)
        size = len(items)
        last = items[-1]
        first = items[0]
        items.append(size)
        return last + first, items.index(1), sum(1 for _ in items)

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_a_stack():
    stack = [torch.zeros(2), torch.ones(2)]

    def program(x):
        top = stack.pop()
        stack.append(top + x)
        stack.append(x)
        again = stack.pop()
        stack[0] = again
        other = stack.pop() if len(stack) > 1 else None
        stack.append(other)
        stack.append(7)
        stack.append(torch.ones(2))
        return top, other

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_growing_then_moving():
    items = [3, 1, 2]

    def program(x):
        items.append(0)
        items[1] = 5
        items.sort()
        items.append(9)
        items.insert(0, 4)
        del items[2]
        return x + len(items)

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_all_popped_and_filled_again():
    items = [1, 2]

    def program(x):
        while items:
            items.pop()
        items.append(x)
        items.append(4)
        return x * 2

    return program, (torch.ones(2),)


@agrees(calls=5, recompiles=1)
def test_keys_are_set_alone():
    seen = {"a": torch.ones(2), "b": [1], "n": "text"}

    def program(x, text):
        seen["last"] = x
        seen["a"] = x * 2
        return x + 1

    steps = [lambda r: seen.__setitem__("n", i) for i in range(4)]
    return program, (torch.ones(2), "t"), steps


@agrees(calls=4)
def test_keys_that_were_set_are_read():
    seen = {"a": 1, "b": 2}
    ordered = OrderedDict(x=1, y=2)
    counts = defaultdict(int, q=1)

    def program(x):
        seen["c"] = x
        seen["a"] = 5
        ordered["z"] = 3
        ordered["x"] = 4
        counts["q"] = 2
        counts["r"] = 1
        order = list(seen), list(ordered.items()), len(counts), "c" in seen
        seen["d"] = 6
        del seen["a"]
        seen["a"] = 7
        ordered.move_to_end("x")
        return order, seen.get("b"), list(seen), x + 1

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_keys_equal_to_keys():
    seen = {True: 1, 2: "two"}

    def program(x):
        seen[1] = 3
        seen[2.0] = "zwei"
        return list(seen.items()), x + 1

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_two_names_of_one_list():
    items = []
    both = {"left": items, "right": items}

    def program(x):
        both["left"].append(x)
        size = len(both["right"])
        both["right"].append(size)
        return size

    return program, (torch.ones(2),)


@agrees(calls=3)
def test_a_list_that_holds_itself():
    items = []

    def program(x):
        items.append(items)
        items.extend(items)
        return len(items), items[0] is items, x + 1

    return program, (torch.ones(2),)


@agrees(calls=3)
def test_half_done_when_it_raises():
    items, seen = [1], {}

    def program(x):
        items.append(x)
        seen["x"] = 1
        items[0] = 4
        if x.shape[0] == 2:
            items[17]
        return x

    return program, (torch.ones(2),)


@agrees(calls=3)
def test_growth_around_a_break():
    items, seen = [1], {}

    def program(x):
        items.append(x)
        seen["a"] = x
        print(len(items), list(seen))
        items.append(x + 1)
        seen["b"] = x
        return x

    return program, (torch.ones(2),)


@agrees(calls=3)
def test_what_a_place_drops_ends():
    class Item:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            ended.append(self.name)

    ended = deque()
    items = [Item("a"), Item("b")]
    named = {"k": Item("c")}

    def program(x, make):
        items[0] = 1
        named["k"] = 2
        return x + 1

    return program, (torch.ones(2), Item)


def test_a_history_is_not_kept_or_walked():
    class Item:
        pass

    first = Item()
    gone = weakref.ref(first)
    items = [first] + [Item() for _ in range(50)]
    del first

    @graftjit.jit
    def program(x):
        items.append(x)
        return x * 2

    for _ in range(5):
        program(torch.ones(2))
    assert not graftjit.report(program).recompiles
    items.clear()
    gc.collect()
    assert gone() is None


def test_a_loop_that_is_a_frame_of_its_own_fills_a_list():
    outs = []

    @graftjit.jit
    def program(x):
        for step in range(300):
            x = x * 0.5 + step
            outs.append(x)
            if step == 7:
                print("seven")
        return x

    program(torch.ones(2))
    assert len(outs) == 300
    assert len(graftjit.report(program).recompiles) < 8


@agrees(calls=3)
def test_a_counter_of_many_steps():
    state = [0]

    def bump():
        state[0] = (state[0] + 1) % 5
        return state[0]

    def program(x, scale):
        for _ in range(130):
            bump()
            scale = scale * 0.5 + 1.0
        return x * state[0] + scale

    return program, (torch.ones(2), 0.3)


def test_a_counter_in_the_body_of_a_long_loop():
    holder = Holder()
    holder.count = 0

    @graftjit.jit
    def program(x):
        for _ in range(130):
            holder.count += 1
            y = x + 1
        holder.log.append(y)
        return y

    for _ in range(3):
        program(torch.ones(2))
    assert holder.count == 390
    assert not graftjit.report(program).recompiles


@agrees()
def test_what_an_appended_list_holds_is_missed_at_a_break():
    class Item:
        pass

    def look(refs, item):
        refs.append(weakref.ref(item))
        return len(refs)

    refs, outer = [], []

    def program(x):
        item = Item()
        inner = [item]
        outer.append(inner)
        print(look(refs, item))
        outer.clear()
        return x + 1, [one() is None for one in refs]

    return program, (torch.ones(2),)


@agrees(calls=6, recompiles=0)
def test_sets_and_deques_grow():
    seen, queue = {1, "a"}, deque([1])

    def program(x):
        seen.add(x.shape[0])
        seen.add("a")
        queue.append(x)
        queue.appendleft(2)
        queue.extend([3, x])
        queue.extendleft((4, 5))
        return x * 2

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_what_was_added_to_a_set_is_looked_for():
    class Key:
        def __repr__(self):
            return "a key"

    seen, keys = {1, 2}, set()
    key = Key()

    def program(x):
        seen.add(3)
        before = 3 in seen, 1 in seen, len(seen)
        seen.add(1)
        seen.discard(2)
        seen.add(4)
        keys.add(key)
        return before, len(seen), 2 in seen, sorted(seen), x + 1

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_deques_are_looked_at_after_they_grew():
    queue, short = deque([1]), deque([0], maxlen=2)

    def program(x):
        queue.append(x)
        short.append(x)
        size = len(queue)
        queue.appendleft(size)
        return [type(one) for one in queue], len(short), bool(queue), queue[0], x + 1

    return program, (torch.ones(2),)


@agrees(calls=4)
def test_a_set_of_objects():
    class Key:
        def __repr__(self):
            return "a key"

    first = Key()
    keys = {first, 1}

    def program(x):
        found = first in keys, len(keys)
        keys.add(2)
        return found, len(keys), x + 1

    return program, (torch.ones(2),)


@agrees()
def test_many_numbers_are_summed_up():
    """An expression of hundreds of numbers was more than Python's parser takes."""

    def program(x, numbers):
        total = 0
        for one in numbers:
            total = total + one
        return x * 2, sum(numbers), ~total

    return program, (torch.ones(2), list(range(2, 500)))


@agrees(calls=5, graphs=1, breaks=0, recompiles=0)
def test_a_deque_with_a_limit_grows():
    """It drops its oldest item then, which nobody else may hold."""
    latest = deque(maxlen=2)

    def program(x):
        latest.append(x * 2)
        return x + 1

    return program, (torch.ones(2),), [lambda: (sum(latest) + len(latest),)] * 4


@agrees(calls=4, codes=("GB139",))
def test_a_deque_drops_an_item_whose_end_can_be_seen():
    log = []

    class Ends:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            log.append(self.name)

    latest = deque([Ends(0), Ends(1)], maxlen=2)

    def program(x):
        latest.append(x + 1)
        log.append("appended")
        return len(log), [*log], x.sin()

    return program, (torch.ones(2),)
