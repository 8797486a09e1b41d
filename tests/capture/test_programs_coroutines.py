"""Frames that live on between calls: jitted generators, coroutines, asynchronous generators, context managers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import types

import torch

from graftjit import jit

from .harness import agrees


def t(*shape):
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) / 4 - 1


# -- consumed inside ------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0)
def test_generators_consumed_inside():
    def parts(x, n):
        total = x
        for i in range(n):
            got = yield total
            total = total + i if got is None else total * got
        return total.sum()

    def outer(x, n):
        result = yield from parts(x, n)
        yield result
        return "done"

    def f(x):
        made = list(outer(x, 3))
        g = parts(x, 2)
        first = next(g)
        second = g.send(3.0)
        try:
            g.send(None)
        except StopIteration as stop:
            last = stop.value
        h = parts(x, 2)
        next(h)
        h.close()
        a, *b = outer(x * 2, 2)
        return (
            made,
            first,
            second,
            last,
            a,
            b,
            sum(v.sum() for v in parts(x, 2)),
            max(i for i in range(3)),
        )

    return f, (t(3),)


@agrees()
def test_generators_thrown_into_inside():
    def careful(x):
        try:
            yield x + 1
        except ValueError as error:
            yield x * 2
            print("caught", error)
        finally:
            print("closed")

    def f(x):
        g = careful(x)
        a = next(g)
        b = g.throw(ValueError("no"))
        rest = list(g)
        h = careful(x)
        next(h)
        h.close()
        k = careful(x)
        next(k)
        try:
            k.throw(KeyError("k"))
        except KeyError as error:
            return a, b, rest, str(error)

    return f, (t(3),)


@agrees()
def test_generators_that_leave_the_frame():
    def squares(x):
        for i in range(3):
            yield x * i

    def f(x):
        g = squares(x)
        first = next(g)
        return first, g, (v + 1 for v in [x, x * 2])

    return f, (t(3),), [lambda last: list(last[1]) and list(last[2]) and None, lambda: None]


@agrees()
def test_generators_as_arguments():
    def source(x):
        for i in range(4):
            print("made", i)
            yield x + i

    def f(g, x):
        total = x
        for v in g:
            total = total + v
            if total.shape[0] > 2:
                break
        return total, next(g), sum(v.sum() for v in g)

    return (
        f,
        (source(t(3)), t(3)),
        [lambda: (source(t(2)), t(2)), lambda: (iter([t(3), t(3), t(3)]), t(3))],
    )


# -- jitted themselves ----------------------------------------------------------------------------------
@agrees(codes=("PL201",), calls=2)
def test_a_jitted_generator_function():
    def steps(x):
        for i in range(3):
            x = x * 2 + i
            got = yield x
            if got is not None:
                x = x + got
        return x.sum()

    return steps, (t(3),), [lambda last: list(last) and None]


def test_a_jitted_generator_is_driven_from_outside():
    def steps(x):
        total = x
        try:
            for i in range(3):
                got = yield total
                total = total + (got if got is not None else i)
        except KeyError:
            yield total * 100
        return total.sum()

    def drive(make):
        out = list(make(t(3)))
        g = make(t(3))
        out += [next(g), g.send(t(3)), g.throw(KeyError), next(g, None)]
        h = make(t(3))
        out += [next(h), h.send(None), h.send(t(3))]
        try:
            next(h)
        except StopIteration as stop:
            out.append(stop.value)
        k = make(t(3))
        next(k)
        k.close()
        return out, isinstance(g, types.GeneratorType), g.gi_frame, g.gi_code.co_name

    fast = jit(steps)
    assert str(drive(fast)) == str(drive(steps))
    assert {row.code for row in fast.report().notes} == {"PL201"}


@agrees()
def test_a_jitted_generator_called_from_jitted_code():
    @jit
    def steps(x):
        for i in range(3):
            x = x * 2 + i
            yield x
        return x.sum()

    def through(x):
        last = yield from steps(x)
        yield last

    def f(x):
        return list(steps(x)), sum(steps(x)), list(through(x)), next(steps(x))

    return f, (t(3),)


@agrees()
def test_jitted_code_called_from_a_generator():
    @jit
    def step(x, i):
        return torch.relu(x) * i + 1

    def steps(x):
        for i in range(3):
            x = step(x, i)
            yield x

    def f(x):
        return [v.sum() for v in steps(x)], x

    return f, (t(3),)


@agrees()
def test_jitted_context_managers_made_of_generators():
    state = {"depth": 0}

    @contextlib.contextmanager
    def scaled(x, by):
        state["depth"] += 1
        try:
            yield x * by
        except ValueError as error:
            print("swallowed", error)
        finally:
            state["depth"] -= 1

    @contextlib.contextmanager
    @jit
    def noted(name):
        print("enter", name)
        yield name
        print("leave", name)

    def f(x, n):
        with scaled(x, 3) as y, noted("one") as name:
            depth = state["depth"]
            y = y + len(name)
            if n == 1:
                raise ValueError("one")
            with scaled(y, 2) as z:
                y = z + state["depth"]
                if n == 2:
                    raise ValueError("two")
        return y, depth, state["depth"]

    return f, (t(3), 0), [lambda: (t(3), 1), lambda: (t(3), 2), lambda: (t(3), 0)]


@agrees()
def test_context_managers_as_decorators():
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append(name)
        try:
            yield
        finally:
            log.append(-name)

    @noted(1)
    def g(x):
        return x * 2

    class Both(contextlib.ContextDecorator):
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, *error):
            log.append("out")
            return error[0] is KeyError

    @Both()
    def h(x):
        if x.dim() == 2:
            raise KeyError("swallowed")
        return x + 1

    def f(x):
        return g(x), h(x), list(log)

    return f, (t(3),), [lambda: (t(1, 3),), lambda: (t(3),)]


# -- coroutines -----------------------------------------------------------------------------------------
def test_jitted_coroutines():
    def program(wrap):
        @wrap
        async def double(x):
            await asyncio.sleep(0)
            return x * 2

        @wrap
        async def chain(x, n):
            out = []
            for i in range(n):
                x = await double(x) + i
                out.append(x.sum())
            a, b = await asyncio.gather(double(x), double(x + 1))
            try:
                await fail(x)
            except ValueError as error:
                out.append(str(error))
            return x, a + b, out

        @wrap
        async def fail(x):
            y = x + 1
            await asyncio.sleep(0)
            raise ValueError(f"failed {tuple(y.shape)}")

        first = asyncio.run(chain(t(3), 3))
        second = asyncio.run(chain(t(4), 2))
        return first, second, chain

    plain = program(lambda fn: fn)
    fast = program(jit)
    assert str(plain[:2]) == str(fast[:2])
    assert {row.code for row in fast[2].report().notes} == {"PL201"}


def test_jitted_asynchronous_generators():
    def program(wrap):
        seen = []

        class Lock:
            async def __aenter__(self):
                await asyncio.sleep(0)
                seen.append("in")
                return 3

            async def __aexit__(self, *error):
                seen.append(error[0])
                return error[0] is KeyError

        @wrap
        async def ticks(x, n):
            try:
                for i in range(n):
                    await asyncio.sleep(0)
                    got = yield x * i
                    if got is not None:
                        x = x + got
            finally:
                seen.append("closed")

        @wrap
        async def main(x):
            total = x
            async for v in ticks(x, 3):
                total = total + v
            values = [v.sum() async for v in ticks(x, 3) if v.dim() == 1]
            async with Lock() as n:
                total = total * n
            async with Lock():
                raise KeyError
            g = ticks(x, 3)
            first = await g.__anext__()
            second = await g.asend(x)
            await g.aclose()
            return total, values, first, second, list(seen)

        return asyncio.run(main(t(3))), asyncio.run(main(t(3))), main

    plain = program(lambda fn: fn)
    fast = program(jit)
    assert str(plain[:2]) == str(fast[:2])
    assert {row.code for row in fast[2].report().notes} == {"PL201"}


def test_jitted_code_inside_coroutines():
    def program(wrap):
        @wrap
        def step(x, i):
            if i == 2:
                print("two")
            return torch.sin(x) + i

        async def worker(x, n):
            for i in range(n):
                x = step(x, i)
                await asyncio.sleep(0)
            return x

        async def main():
            return await asyncio.gather(worker(t(3), 3), worker(t(2, 2), 4), worker(t(3), 2))

        return asyncio.run(main())

    plain, fast = program(lambda fn: fn), program(jit)
    assert all(torch.allclose(a, b) for a, b in zip(plain, fast, strict=True))


@agrees()
def test_coroutines_made_and_run_inside():
    async def double(x):
        return x * 2

    def run(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value

    def f(x):
        y = run(double(x + 1))
        return y, asyncio.run(double(y))

    return f, (t(3),)


@agrees()
def test_event_loops_inside():
    async def fetch(x, order, name):
        order.append(name)
        await asyncio.sleep(0)
        order.append(name.upper())
        return x + len(name)

    async def everything(x, order):
        return await asyncio.gather(fetch(x, order, "a"), fetch(x, order, "bb"))

    def f(x):
        order = []
        parts = asyncio.run(everything(x * 2, order))
        return torch.stack(parts), order

    return f, (t(3),), [lambda: (t(4),)]


@agrees()
def test_generator_based_coroutines():
    @types.coroutine
    def once(x):
        got = yield x * 2
        return got

    async def user(x):
        return await once(x) + 1

    def f(x):
        c = user(x)
        first = c.send(None)
        try:
            c.send(first)
        except StopIteration as stop:
            return first, stop.value

    return f, (t(3),)


@agrees()
def test_methods_that_are_generators():
    class Tree:
        def __init__(self, value, *children):
            self.value, self.children = value, children

        def __iter__(self):
            yield self.value
            for child in self.children:
                yield from child

        def leaves(self):
            return (v for v in self if v.dim() == 1)

    def f(x):
        tree = Tree(x, Tree(x + 1, Tree(x[0])), Tree(x * 2))
        return [v.sum() for v in tree], sum(v.sum() for v in tree.leaves()), len(list(tree))

    return f, (t(3),)


@agrees()
def test_breaks_inside_generators():
    def noisy(x):
        for i in range(3):
            print("step", i)
            x = x * 2
            yield x
        print("end")

    def f(x):
        total = x
        for v in noisy(x):
            total = total + v
            print("got", tuple(v.shape))
        return total, [v.sum() for v in noisy(total)], dict(enumerate(noisy(x)))

    return f, (t(3),)


@agrees()
def test_generators_shared_between_calls():
    state = {}

    def counting(x):
        n = 0
        while True:
            n += 1
            yield x * n

    def f(x):
        if "g" not in state:
            state["g"] = counting(x)
        return next(state["g"]) + 1, next(state["g"])

    return f, (t(3),), [lambda: None, lambda: state.clear()]


def test_what_a_jitted_coroutine_or_generator_is():
    @jit
    async def co(x):
        return x

    @jit
    def gen(x):
        yield x

    @jit
    async def agen(x):
        yield x

    @jit
    def fn(x):
        return x

    assert inspect.iscoroutinefunction(co) and asyncio.iscoroutinefunction(co)
    assert inspect.isgeneratorfunction(gen) and inspect.isasyncgenfunction(agen)
    assert not inspect.iscoroutinefunction(fn)

    class A:
        @jit
        async def m(self, x):
            return x * 2

        @jit
        def g(self, x):
            yield x * 2

    assert inspect.iscoroutinefunction(A().m)
    assert asyncio.run(A().m(3)) == 6 and list(A().g(2)) == [4]


@agrees()
def test_task_groups_and_cancellation():
    async def worker(x, order, n):
        try:
            await asyncio.sleep(0 if n else 5)
            order.append(n)
            return x * n
        except asyncio.CancelledError:
            order.append("cancelled")
            raise

    async def main(x, order):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker(x, order, i)) for i in (1, 2)]
        late = asyncio.create_task(worker(x, order, 0))
        await asyncio.sleep(0)
        late.cancel()
        try:
            await late
        except asyncio.CancelledError:
            order.append("seen")
        async with asyncio.timeout(1):
            await asyncio.sleep(0)
        return [task.result() for task in tasks]

    def f(x):
        order = []
        y = asyncio.run(main(x + 1, order))
        return y, order

    return f, (t(3),)
