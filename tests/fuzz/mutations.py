"""Steps between calls: what a program may find changed when it is called again."""

from __future__ import annotations

import re

from .prelude import ALL

MUTATIONS = [
    "OBJ.scale = OBJ.scale + 1", "OBJ.flag = not OBJ.flag", "OBJ.kind = 'a'", "OBJ.extra = 4", "OBJ.items.append(9)",
    "OBJ.w = torch.tensor([1.0, 2.0, 3.0])", "OBJ.w.add_(1)", "OBJ.count = 0", "GI = 5", "GI = 0", "GF = 1.25",
    "GT = torch.tensor([[1.0], [2.0]])", "GT.mul_(2)", "GL.append(4)", "GL[0] = 7", "GL = [9]", "GD['a'] = 6",
    "Thing.bias = 2.5", "Child.bias = 0.5", "Thing.method = lambda self, t, k=3: t - k",
    "Thing.fixed = staticmethod(lambda t: t + 10)", "helper.__defaults__ = (4,)", "helper = lambda t, k=2: t * k",
    "OBJ.__class__ = Child", "OBJ.method = lambda t, k=0: t + 100 + k", "OBJ.__dict__['scale'] = 0.5",
    "COUNTER = make_counter()", "Thing.double = property(lambda self: 1.0)", "gen = lambda n: iter([n, n])",
    "torch.set_grad_enabled(not torch.is_grad_enabled())", "OBJ.items = GL", "GT = OBJ.w", "OBJ.w = GT",
    "abs = lambda v: v + 1", "len = lambda v: 2", "Thing.__call__ = lambda self, t: t * 3",
    "Thing.__init__ = lambda self, scale: self.__dict__.update(OBJ.__dict__, scale=scale)",
    "Thing.__bool__ = lambda self: False", "Thing.__eq__ = lambda self, other: True", "Child.__bases__ = (Child.__mro__[1],)",
    "OBJ = Child(0.25)", "Child.method = Thing.method", "del Child.method", "Thing.__getattr__ = lambda self, name: 3",
    "Thing.extra = property(lambda self: 8)", "GD = OBJ.__dict__", "GD = {'a': 3, 'n': 1}",
    "LOG.clear()", "LOG = LOG[-3:]", "Quiet.__exit__ = lambda self, *info: True", "Guard.__enter__ = lambda self: 5",
    "managed = contextlib.nullcontext", "Point.norm = lambda self: self.x - self.n", "Point.__eq__ = lambda s, o: True",
    "Color.RED._value_ = 9", "Pair.swapped = lambda self: self.left + 1", "Vec.__add__ = lambda s, o: Vec(s.data, 5)",
    "Vec.__len__ = lambda self: 1", "del Vec.__neg__", "del Vec.__bool__", "Vec.__radd__ = lambda s, o: s.data - o",
    "Slim.scaled = lambda self, t: t - self.n", "MAGIC.size = 5", "MAGIC.cached = 1", "MAGIC.__dict__.pop('cached', None)",
    "MAGIC.extra = 3", "MAGIC.odd = 2", "Magic.size = 6", "Plain.__set__ = lambda self, i, v: None",
    "Plain.__get__ = lambda self, i, o=None: 8", "del Magic.__getattr__", "Magic = Thing.made",
    "Watched.__getattribute__ = object.__getattribute__", "Stack.limit = 1", "Stack.top = lambda self: 0",
    "del Stack.__getitem__", "del Table.__missing__", "Table.total = len", "Reader.__next__ = lambda self: next(iter(()))",
    "Left.go = lambda self, t: t * 5", "Both.__bases__ = (Right, Left)", "Right.options = {'mark': 1}", "del Right.go",
    "Meta.__call__ = type.__call__", "logged = lambda fn: fn", "doubled = doubled.__wrapped__", "remembered.cache_clear()",
    "shown.register(float, lambda value: 'float')", "positional.__kwdefaults__ = {'d': 1}",
    "keyword.__kwdefaults__['scale'] = 4", "fact = lambda n: n", "deep = lambda t, n: t * n", "noisy.__defaults__ = (7,)",
    "noisy.__code__ = helper.__code__", "branchy = inplace", "fussy = lambda t, n: t", "Oops.__init__ = lambda self, *a: None",
    "NET.calls = 5", "NET.train(not NET.training)", "NET.steps = torch.ones(1)", "NET.act = torch.nn.Tanh()", "NET.register_forward_hook(lambda m, a, r: r + 1)",
    "NET.weight.data.mul_(2)", "NET.forward = lambda t, k=1: t", "Net.forward = lambda self, t, k=5: t * k", "WIDE.requires_grad_(False)", "del NET._forward_hooks",
    "by_size = lambda one, other: other - one", "Grade.__lt__ = lambda self, other: True", "Slots2.twice = 4", "Bag.__getitem__ = lambda self, key: key",
    "spread.__kwdefaults__ = {'scale': 3}", "early = final", "final.__code__ = early.__code__", "nested = lambda t, n: n", "Quiet.__enter__ = lambda self: 3",
    "echo = lambda start: iter([start, 1])", "tensors = lambda t, n: [t] * n", "random.seed(3)",
    "torch.default_generator.manual_seed(5)", "GI = True", "GI = 2.0", "OBJ.scale = 2", "OBJ.count = True",
]  # fmt: skip


def fit(mutation: str, names: set[str]) -> bool:
    """Whether all names of the prelude that a mutation uses are in a program."""
    used = set(re.findall(r"\b[A-Za-z_]\w*", mutation)) & ALL
    return used <= names
