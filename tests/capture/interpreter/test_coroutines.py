"""Frames that live on between calls: jitted generators, coroutines, asynchronous generators, context managers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import types

import torch

from graftjit import jit

from ..harness import agrees, t


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


@agrees()
def test_generator_edge_cases_inside():
    def g1(x):
        try:
            yield x
        finally:
            x.add_(1)

    def g2():
        r = yield from inner()
        yield r

    def inner():
        a = yield 1
        b = yield a
        return (a, b)

    def infinite(x):
        while True:
            x = x * 2
            yield x

    def f(x):
        y = x.clone()
        for v in g1(y):
            break
        out = [y.clone()]
        g = g2()
        out += [next(g), g.send(5), g.send(6)]
        out.append(next(g, "end"))
        it = infinite(x)
        out += [next(it), next(it)]
        a, b = (next(it) for _ in range(2))
        out += [a, b]
        out.append([*zip(infinite(x), range(2))])
        out.append(list(map(lambda v: v + 1, (i for i in range(3)))))
        out.append(dict((k, v) for k, v in enumerate([x, x + 1])))
        out.append({i: x * i for i in (j for j in range(3) if j)})
        out.append(sum((v for v in (x, x)), start=x))
        out.append(any(v > 2 for v in range(5)))
        e = enumerate(infinite(x), 5)
        out.append(next(e))
        return out

    return f, (t(3),)


@agrees()
def test_generators_with_state_of_the_frame():
    def f(x, n):
        total = 0

        def count():
            nonlocal total
            for i in range(n):
                total += i
                yield x * total

        seq = list(count())
        g = count()
        next(g)
        total = 100
        later = next(g)

        def swap():
            nonlocal x
            x = yield x + 1
            yield x

        s = swap()
        first = next(s)
        second = s.send(first * 2)
        return seq, later, total, first, second, x

    return f, (t(3), 3), [lambda: (t(3), 2)]


@agrees()
def test_generator_exceptions_inside():
    def bad(x):
        yield x
        raise ValueError("bad")

    def stops(x):
        yield x
        raise StopIteration("inner")

    def wraps(x):
        try:
            yield from bad(x)
        except ValueError as e:
            yield x * 2
            raise KeyError("k") from e

    def ignores(x):
        try:
            yield x
        except GeneratorExit:
            yield x + 1

    def f(x):
        log = []
        try:
            for v in bad(x):
                log.append(v.sum())
        except ValueError as e:
            log.append(str(e))
        try:
            list(stops(x))
        except RuntimeError as e:
            log.append((str(e), type(e.__cause__).__name__))
        try:
            for v in wraps(x):
                log.append(v)
        except KeyError as e:
            log.append(repr(e))
        g = ignores(x)
        next(g)
        try:
            g.close()
        except RuntimeError as e:
            log.append(str(e))
        g = bad(x)
        try:
            g.send(1)
        except TypeError as e:
            log.append(str(e))
        g2 = bad(x)
        try:
            g2.throw(IndexError("first"))
        except IndexError as e:
            log.append(str(e))
        log.append(list(g2))
        return log, x + 1

    return f, (t(3),)


@agrees()
def test_context_managers_of_generators_with_breaks():
    @contextlib.contextmanager
    def managed(x, log):
        log.append("enter")
        print("enter")
        try:
            yield x * 2
        except KeyError as e:
            log.append("key")
        else:
            log.append("else")
        finally:
            log.append("finally")
            print("finally")

    def f(x, n):
        log = []
        with managed(x, log) as y:
            print("in", n)
            z = y + 1
            if n == 1:
                raise KeyError("x")
            if n == 2:
                return z, log
        for i in range(2):
            with managed(x, log) as y:
                if i == 0:
                    continue
                z = y + i
                break
        with contextlib.ExitStack() as stack:
            a = stack.enter_context(managed(x, log))
            b = stack.enter_context(managed(a, log))
            z = a + b
        return z, log

    return f, (t(3), 0), [lambda *, n=n: (t(3), n) for n in (1, 2, 0)]


@agrees()
def test_generator_objects_asked():
    def gen(x):
        yield x
        yield x + 1

    def f(x):
        g = gen(x)
        a = [
            inspect.isgenerator(g),
            isinstance(g, types.GeneratorType),
            g.gi_running,
            type(g).__name__,
            iter(g) is g,
            hasattr(g, "send"),
        ]
        b = next(g)
        c = [inspect.getgeneratorstate(g), g.gi_frame is None, g.__name__]
        return a, b, c, list(g), inspect.getgeneratorstate(g)

    return f, (t(3),)


def test_jitted_methods_and_classes_of_coroutines():
    def program(wrap):
        class Service:
            def __init__(self):
                self.total = torch.zeros(3)

            @wrap
            async def add(self, x):
                await asyncio.sleep(0)
                self.total = self.total + x
                return self.total

            @wrap
            async def __call__(self, x):
                async with self.lock():
                    return await self.add(x * 2)

            @contextlib.asynccontextmanager
            async def lock(self):
                await asyncio.sleep(0)
                yield self

            @wrap
            def stream(self, x):
                for i in range(3):
                    yield self.total + x * i

            @staticmethod
            @wrap
            def pairs(x):
                yield from zip(x, x * 2)

            @classmethod
            @wrap
            async def make(cls):
                return cls()

        async def main():
            s = await Service.make()
            out = [await s.add(t(3)), await s(t(3))]
            out += list(s.stream(t(3)))
            out += [a + b for a, b in Service.pairs(t(3))]
            q = asyncio.Queue()

            async def producer():
                for v in s.stream(t(3)):
                    await q.put(v)
                await q.put(None)

            task = asyncio.create_task(producer())
            while (v := await q.get()) is not None:
                out.append(v)
            await task
            return out

        return asyncio.run(main())

    assert str(program(lambda f: f)) == str(program(jit))


@agrees()
def test_partial_and_cached_generators():
    def gen(n, x):
        for i in range(n):
            yield x * i

    three = functools.partial(gen, 3)

    def f(x):
        make = lambda v: (w + 1 for w in three(v))
        return (
            [v for v in make(x)],
            sum(len(list(three(x))) for _ in range(2)),
            functools.reduce(lambda a, b: a + b, three(x)),
        )

    return f, (t(3),)


@agrees()
def test_tree_walks():
    class Node:
        def __init__(self, v, *kids):
            self.v, self.kids = v, kids

        def __iter__(self):
            yield self.v
            for k in self.kids:
                yield from k

        def depth_first(self, level=0):
            yield level, self
            for k in self.kids:
                yield from k.depth_first(level + 1)

    tree = Node(t(3), Node(t(3) * 2, Node(t(3) * 3)), Node(t(3) * 4))

    def f(x):
        return (
            sum(v for v in tree),
            [l for l, _ in tree.depth_first()],
            [n.v * x for _, n in tree.depth_first()],
            max(l for l, n in tree.depth_first()),
        )

    return f, (t(3),), [lambda: setattr(tree.kids[1], "kids", (Node(t(3) * 9),))]
