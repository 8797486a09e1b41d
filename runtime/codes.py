"""The table of codes: graph breaks, plain frames, fallbacks, recompiles, errors, warnings.

A code is stable: it never gets a second meaning. A code that nothing raises any more is removed
from the table, and its number is kept in `RETIRED`. A test checks that a program raises each break
code. Capture names codes in its events; reports, errors and `docs/codes.md` (made by
`graftjit.cli.code_docs`) take title, reason, cure and cost from here. `python -m graftjit codes`
prints the table.
"""

from __future__ import annotations

from ..ir.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One row. `why`: the cause in graftjit or Python; `cure`: what a user can do."""

    id: str
    title: str
    why: str
    cure: str


@dataclass(frozen=True, slots=True)
class Family:
    """Codes with a common prefix, and what each of them costs a user."""

    prefix: str
    title: str
    cost: str


FAMILIES: tuple[Family, ...] = (
    Family(
        "GB",
        "Graph breaks: the graph ends here, Python runs the instruction, a resume function goes on",
        "two graphs in place of one: no fusion across the line, values pass through memory",
    ),
    Family("PL", "Frames that run in plain Python", "nothing in this frame is compiled"),
    Family(
        "FB",
        "Fallbacks: compiled, but in a slower form",
        "the results are right, but slower than they could be",
    ),
    Family(
        "RC", "Recompiles: a guard failed, another entry was made", "one more capture and compile"
    ),
    Family(
        "NF",
        "Not fused: a step and the step that reads its result are two kernels",
        "the values between them pass through memory",
    ),
    Family("ER", "Errors that graftjit raises", "-"),
    Family("WN", "Warnings", "-"),
)

_TABLE: tuple[Code, ...] = (
    # Graph breaks
    Code("GB101", "instruction not modelled",
         "the symbolic machine has no handler for this bytecode instruction",
         "the report names the instruction: write that line in plainer statements (an if in place"
         " of a pattern), or do it outside of the compiled function"),
    Code("GB102", "call of a C function that is not known",
         "graftjit cannot see into a function written in C, and its tables do not list this one",
         "call it outside and pass in its result, or use a torch operator in its place"),
    Code("GB103", "print, logging or other input and output",
         "output that code of the program handles, or that is more than text, has to happen at its"
         " place between the computations, so Python does it",
         "return the value and print it outside, or move the line out of the hot path"),
    Code("GB104", "tensor turned into a Python value",
         ".numpy(), a text or a loop needs data that exists only when the graph has run; a number"
         " from .item(), int() or float() is one of the graph until something like that needs it",
         "keep the value a tensor (0-dim tensors work in arithmetic), or take it after the"
         " compiled part"),
    Code("GB105", "branch on tensor data",
         "the branch to take is known only when the graph up to here has run",
         "torch.where(condition, a, b) in place of the if; or compute the condition outside and"
         " choose between two compiled functions"),
    Code("GB106", "shape depends on tensor data",
         "packed sequences and the like have sizes that only the data decides; those of nonzero,"
         " masks, unique, repeats and counts are numbers of the graph where the operators after"
         " them allow it",
         "use a form of fixed size (torch.where with three arguments, a mask), or do it outside"),
    Code("GB107", "generator",
         "a generator keeps a frame alive between two steps, which graftjit does not model here",
         "collect the values in a list; a generator that one for loop or sum() uses up needs no"
         " change"),
    Code("GB108", "exception raised",
         "the captured path raises; Python raises it, with its own message and traceback",
         "nothing, if the exception is intended; else check the arguments before the call"),
    Code("GB110", "context manager not modelled",
         "its __enter__ and __exit__ run code whose effects are not known",
         "put the with statement around the call of the compiled function"),
    Code("GB111", "import inside the function",
         "an import runs arbitrary code the first time", "import at the top of the module"),
    Code("GB112", "protocol of a user's object not modelled",
         "a special method (__getattr__, __setattr__, descriptor, operator, metaclass) of this"
         " object runs code that graftjit does not follow",
         "read the value once outside and pass it in, or use plain attributes and methods here"),
    Code("GB113", "tensor subclass",
         "a subclass of Tensor may override any operator",
         "pass tensor.as_subclass(torch.Tensor), which copies nothing, and wrap the result again"
         " outside"),
    Code("GB114", "autograd is used inside the graph",
         "these act on autograd's own state: hooks on tensors, requires_grad_ of a tensor from"
         " outside or of one that outlives the graph, a backward to tensors with hooks, a backward"
         " through a history from outside the graph, and checkpoints with effects, another"
         " context_fn than for selective ones, or, with use_reentrant=True, what only eager mode's"
         " backward inside can do",
         "call it before the compiled function, or end the function there"),
    Code("GB115", "change of an object that is not modelled",
         "the write has effects beyond the value stored",
         "return the new value and store it outside"),
    Code("GB116", "loop too long to unroll",
         "loops over Python values are unrolled; this one passes the limit",
         "make the loop one tensor operation (a sum, a power, a cumulative operator); else"
         " nothing: the body is compiled as a frame of its own"),
    Code("GB117", "calls nested too deeply",
         "graftjit follows calls 64 deep; the depth of a recursion depends on its data",
         "write the recursion as a loop"),
    Code("GB118", "global interpreter or torch state is changed",
         "set_grad_enabled, manual_seed, set_default_dtype and the like act on everything after"
         " them",
         "set it before the call of the compiled function"),
    Code("GB119", "random numbers outside of torch",
         "a random number decides which way the function goes, or random and numpy.random give"
         " something else than numbers",
         "draw the numbers outside and pass them in, or use torch's generator"),
    Code("GB120", "iterator not modelled",
         "the object iterated over runs code of its own at each step",
         "make it a list or tuple before the compiled part"),
    Code("GB121", "builtin not modelled for these arguments",
         "the builtin is known, but not for arguments of these types",
         "write out the steps for these types, or call it outside and pass in its result"),
    Code("GB122", "method not modelled for this value",
         "graftjit models the type, but not this method of it",
         "use a simpler method, or call it outside and pass in its result"),
    Code("GB123", "numpy inside the function",
         "this numpy function or method is not among those that are computed with torch",
         "make the array a tensor before the call (torch.from_numpy shares its memory) and use the"
         " torch operator of the same name"),
    Code("GB124", "tensor operator that cannot be traced",
         "the operator failed on tensors without data, or its result cannot be described without"
         " data",
         "call it outside of the compiled part; the report has the operator's own message"),
    Code("GB125", "value cannot be rebuilt",
         "a value that is still needed at this point was made inside the graph, and graftjit"
         " cannot make it again for Python",
         "return a list or tuple in its place, or make it outside"),
    Code("GB126", "object made inside the function",
         "constructing this class runs code that is not modelled (a module, a metaclass, __new__)",
         "define and construct it once, at the top of the module"),
    Code("GB128", "delete not modelled",
         "Python raises for an item of this value, or runs code for it that is not modelled",
         "take a slice or a copy without the item, or delete it outside of the compiled part"),
    Code("GB130", "asynchronous code", "await and async for/with hand control to an event loop",
         "put the computation into a plain function, jit that, and call it in the coroutine"),
    Code("GB131", "code made from text",
         "exec, eval and compile run code that does not exist yet when the frame is captured",
         "write the code out, or make a function of the text once, at the top of the module"),
    Code("GB132", "frame or stack is inspected",
         "inspect, sys._getframe, locals() and the like see the real frame",
         "name the values that you want (a dict of them in place of locals()), or inspect the"
         " frame outside of the compiled part"),
    Code("GB134", "custom autograd function",
         "autograd calls its backward later, and it does more than compute gradients from what"
         " forward saved",
         "save what backward reads with ctx.save_for_backward or in attributes of ctx, and move"
         " other effects to a hook; else nothing: it runs as in eager mode"),
    Code("GB135", "graftjit itself is called",
         "jit, compile, report and the like act on compiled code, not on values",
         "call jit or compile at the top of the module; calling the result here is fine"),
    Code("GB137", "comparison or hash of objects runs user code",
         "__eq__, __hash__ or __bool__ of a user's class decides the result here",
         "compare plain values (a number or a string as key, `is` for identity)"),
    Code("GB138", "operator that may raise, and a write to a tensor of the caller",
         "if the operator raises, Python runs the frame again, so that all effects before it"
         " happen (attributes, handlers, modes); until then nothing may be written. The write"
         " cannot be moved to the end for a tensor with holes, with varying sizes or with a"
         " history, or for casts that autocast keeps",
         "do what may raise first and write to tensors of the caller last, or write in a"
         " function of its own"),
    Code("GB139", "an object may be finalized here",
         "dropping the object may run its __del__, or the finally block of a suspended generator,"
         " and that code must run in order with the other effects of the function",
         "create and close the object outside, around the call"),
    Code("GB140", "a break that the program asks for", "graft_break() is called here",
         "nothing, if the break is intended; else remove the call"),
    Code("GB141", "container too large to guard",
         "graftjit guards each item of a list or tuple that the function reads; this one is read"
         " as a whole and has more items than the limit",
         "keep many numbers in a tensor, or work on the list outside of the compiled part"),
    Code("GB142", "a callable under torch.compile or torch.compiler.disable",
         "a function that torch.compile compiled runs as torch.compile compiled it; a disabled"
         " one runs in plain Python, with everything that it calls",
         "nothing, if this is intended; else call the original function"),
    Code("GB143", "operator of another library that is no step of a graph",
         "its fake rule, which says what its results look like, is missing or untrue; or it returns"
         " a view, or its kernel, a Python function, would run under autocast",
         "give it a true one with torch.library.register_fake (or the operator's own"
         " register_fake)"),
    # Frames in plain Python
    Code("PL201", "generator, coroutine or asynchronous generator",
         "its frame stays alive between calls", "jit the functions it calls"),
    Code("PL202", "frame too large", "more instructions or nodes than the limit",
         "jit the parts on their own"),
    Code("PL203", "break where no resume is possible",
         "the break is inside a handler, a with block or a comprehension that cannot be left and"
         " entered again",
         "move the line named in the report out of that block"),
    Code("PL204", "nothing to compile", "no tensor operation was met in this frame",
         "nothing: plain Python is as fast"),
    Code("PL205", "fault inside graftjit",
         "an internal error was caught; the frame runs as it would without graftjit",
         "please report it, with the output of GRAFTJIT_TRACE=DIR and `python -m graftjit doctor`"),
    Code("PL206", "disabled", "GRAFTJIT_DISABLE is set", "unset GRAFTJIT_DISABLE, or set it to 0"),
    Code("PL207", "recompile limit reached",
         "every call had a new combination of guarded values, and the entries compiled for them"
         " never served a second call, or had no kernel: graftjit now compiles a combination only"
         " when it has occurred several times",
         "pass what varies as a tensor; the recompiles in the report name it"),
    Code("PL208", "being traced or debugged",
         "sys.settrace, sys.monitoring or a profiler observes each line", "remove the tracer"),
    Code("PL209", "a mode is active that graftjit does not model",
         "a torch function or dispatch mode, forward AD level or anomaly mode is active, or a"
         " transform of torch.func around a function that is not one graph without effects, or"
         " hooks for saved tensors around a frame with effects",
         "call the compiled function outside of the mode, or jit the function that calls the"
         " transform"),
    Code("PL212", "waited too long for another thread",
         "only one thread compiles at a time, and another thread has been compiling for minutes",
         "nothing, if it happens once"),
    Code("PL213", "changed by another thread",
         "another thread changed something that the frame depends on while the frame was being"
         " compiled; that call runs as it would without graftjit",
         "nothing; the next calls try again"),
    Code("PL214", "slower than plain Python",
         "calls that ran as written, between those that ran compiled, were faster beyond doubt, or"
         " no slower while compiled code takes next to none of a call's time; calls that this entry"
         " answers run as written now, and few of them are compared again",
         "remove the breaks that the report names, or jit only the parts that compute much;"
         " JitConfig(never_slower=False) keeps it compiled"),
    Code("PL215", "recompiles that do not pay",
         "compiling anew took more time than its entries can save, since few of them answer a"
         " second call; calls that no entry answers run as written until that has changed",
         "pass what varies as a tensor; the recompiles in the report name it"),
    Code("PL216", "a frame around one that is compiled",
         "the frame itself computes nothing: it runs in plain Python what must, and calls a"
         " function that is compiled as a frame of its own",
         "nothing: the report has that frame"),
    # Fallbacks
    Code("FB301", "gradient by autograd: operators by ATen, one by one",
         "a gradient is needed that only autograd itself can compute: a result is a leaf that the"
         " compiled part makes, a tensor that requires a gradient is a constant of the graph, a"
         " result depends on another one with which it shares values that autograd saves, or"
         " autograd would refuse the backward",
         "make tensors that require gradients outside and pass them in; use torch.no_grad() where"
         " no gradient is needed"),
    Code("FB302", "no C++ compiler", "none of c++, g++, clang++ was found; no kernel can be built",
         "install g++ or clang++, or set CXX; see python -m graftjit doctor"),
    Code("FB303", "the graph runs by ATen, operator by operator", "the code generator failed; the operators run one by one",
         "please report it, with the output of GRAFTJIT_TRACE=DIR and `python -m graftjit doctor`"),
    Code("FB304", "tensor of an unsupported kind",
         "sparse, quantized, nested, complex or named tensors are not lowered",
         "convert to a dense tensor before the compiled part"),
    Code("FB306", "kernel failed to build", "the compiler rejected or could not write the kernel",
         "the report has the compiler's message; please report it"),
    Code("FB307", "kernel file was corrupt", "checksum or load failed; it was rebuilt",
         "nothing; if it repeats, check the disk of the cache folder"),
    Code("FB308", "cache folder cannot be written",
         "kernels stay in the memory of this process and are lost when it ends",
         "set GRAFTJIT_CACHE_DIR to a folder that can be written"),
    Code("FB310", "mutation of an input: operators by ATen",
         "the graph writes to a tensor that it was given", "return a new tensor for full speed"),
    Code("FB313", "stored kernel of another machine",
         "the store holds this kernel for another processor or from another compiler; it was built"
         " again",
         "nothing; with a bundle (python -m graftjit cache save) a second machine of the same"
         " kind needs no compiler"),
    Code("FB314", "cache folder can be written by others",
         "other users could put code there, so graftjit neither reads nor writes it; kernels stay"
         " in the memory of this process",
         "set GRAFTJIT_CACHE_DIR to a folder of your own, or remove the write permission of"
         " others (chmod go-w)"),
    Code("FB315", "kernels are built in the background",
         "background=True: the operators run one by one by ATen until the kernels are built",
         "nothing; graftjit.wait() waits for the kernels, and without background=True the first"
         " call does"),
    Code("FB316", "schedules are not measured",
         "level O2 could not build or run the variants of a kernel; it uses the default schedule",
         "nothing; tune=False or GRAFTJIT_TUNE=0 turns the measurement off"),
    Code("FB317", "the backward runs the forward's calls again",
         "the backward is itself differentiated (create_graph=True) where no program can compute"
         " it: under a mode, autocast or hooks on saved tensors, or for more kinds of shapes and"
         " numbers than graftjit compiles; or it is that of a custom function, and autocast is on"
         " around it, a gradient is missing, or what it reads has changed; or its gradients are"
         " batched, sparse or part of a transform; or a result that another result depends on has a"
         " hook or retains its gradient; or a fault inside graftjit ended it (WN607). The forward's calls run again"
         " under autograd, and autograd differentiates these",
         "nothing; it costs one more forward"),
    Code("FB318", "operators on the GPU run by ATen",
         "graftjit cannot generate the kernel that would compute them, or the compiler rejects it",
         "nothing; the report names kernel and reason"),
    Code("FB319", "no kernels for the GPU",
         "triton is missing, too old or has failed, there is no driver, or the GPU is too old:"
         " work on the GPU runs as ATen steps", "see python -m graftjit doctor; pip install 'graftjit[gpu]' installs triton"),
    Code("FB311", "level O0", "jit_level='O0' runs the operators one by one, bit-equal to eager",
         "use O1 for fusion"),
    Code("FB330", "no CUDA graph: work on the processor",
         "exec_mode='sink' (and level O2) launches a program for a GPU as one CUDA graph; a CUDA"
         " graph holds no work of the processor, and this program has a value or a kernel there",
         "make all tensors on the GPU, numbers included; exec_mode='no_sink' turns CUDA graphs"
         " off"),
    Code("FB331", "no CUDA graph: several devices", "graftjit records a CUDA graph for one device",
         "keep a compiled part on one device"),
    Code("FB332", "no CUDA graph: a step that cannot be recorded",
         "an operator waits for the device (the size of its result depends on data), is not one"
         " of torch's, or draws from a random generator of the program; or another program will"
         " replace this one (background=True)",
         "move the operator out of the compiled part, or build in the foreground"),
    Code("FB333", "no CUDA graph: results or inputs share memory",
         "a result is a view of an input or of a constant, results overlap, or an input has"
         " several elements in one place: copies would differ from what eager returns",
         "return a clone() of the result, or pass a contiguous() input"),
    Code("FB334", "no CUDA graph: the recording failed",
         "CUDA refused an operation while it was recorded, or memory ran out; the program runs"
         " step by step",
         "see CUDA's message in the reason; exec_mode='no_sink' turns CUDA graphs off"),
    Code("FB335", "no CUDA graph: it would not pay",
         "copying inputs and results would take longer than the launches that are saved",
         "nothing: step by step is faster here; exec_mode='no_sink' turns CUDA graphs off"),
    Code("FB336", "no CUDA graph: too many sizes or addresses",
         "each combination of sizes and numbers, and each set of addresses of the tensors that"
         " are read in place, needs a CUDA graph of its own; there were too many",
         "pad to a few sizes; keep caches and weights in the same tensors"),
    Code("FB337", "a CUDA graph was not replayed",
         "the tensors that an earlier forward saved for its backward are still alive, and a"
         " replay would overwrite them: that call ran step by step",
         "call backward before the next forward, or delete losses that you no longer need"),
    # Recompiles
    Code("RC401", "type changed", "a value at a guarded place has another type",
         "pass a number that varies as a tensor of one dtype, or convert it before the call"),
    Code("RC402", "tensor changed", "dtype, device, shape, stride or requires_grad differ",
         "pad to one size, and keep dtype, layout and requires_grad the same; a size that keeps"
         " changing is compiled once more, for all sizes (dynamic=True does so at once)"),
    Code("RC403", "Python value changed",
         "a number, string or flag that was baked in has another value",
         "pass a number that varies as a tensor (torch.tensor(n)); for a flag or string, jit one"
         " function for each value and choose outside"),
    Code("RC404", "object replaced",
         "another function, class, module or object is at a guarded place",
         "jit each of the functions or models on its own, and choose outside between them"),
    Code("RC405", "container changed", "length, keys or elements of a container differ",
         "use a tensor in place of a list that grows, and keep the keys the same; nothing, where"
         " it happens once (an optimizer makes its state at the first step)"),
    Code("RC406", "attribute appeared",
         "a name that was absent is there now (on the object, a class or in the"
         " globals)", "set it before the first call"),
    Code("RC407", "interpreter state changed",
         "grad mode, autocast, default dtype, hooks or modes differ",
         "make all calls in one state, under one torch.no_grad() or autocast; nothing, where both"
         " states are needed"),
    Code("RC408", "aliasing changed",
         "two values that were different objects are one object now or share memory, or the"
         " reverse",
         "pass distinct objects (clone() one of two that share memory); nothing, where both"
         " cases are needed"),
    Code("RC409", "value is gone", "an attribute or item on the guarded path was removed",
         "keep it, and change its value"),
    Code("RC410", "entry evicted for a new one",
         "the function has as many entries as recompile_limit allows; the least recently useful"
         " one was evicted",
         "pass what varies as a tensor, or raise JitConfig(recompile_limit=...)"),
    Code("RC411", "a relation of numbers changed",
         "a comparison of sizes or numbers that vary from call to call has another result, or"
         " they are no longer equal",
         "nothing, where both results occur: each is compiled once; else pad to sizes that give"
         " one result"),
    Code("RC412", "a condition on tensor data changed",
         "a condition or a number that is computed from the frame's tensors before the graph has"
         " another value",
         "nothing, where both results occur: each is compiled once; torch.where(condition, a, b)"
         " in place of the if needs one entry"),
    # Not fused
    Code("NF701", "one of the two is a library call",
         "a library computes matrix products, convolutions, attention, random operators and"
         " operators that graftjit has no lowering for, and fuses nothing into them",
         "jit_level='O2' fuses what follows a large product into its tiles; elsewhere nothing"),
    Code("NF702", "the kernel would be too large",
         "a kernel has at most 96 operators and 32 operands, so that it compiles quickly and fits"
         " the registers",
         "nothing: so large a kernel gains little by being larger"),
    Code("NF703", "they iterate over different elements",
         "they iterate over different shapes, reduce different dimensions, or one of them reads"
         " other elements of the other than the current one",
         "reduce along the same dimensions, the last ones where that is possible"),
    Code("NF704", "another step comes between them",
         "a step between them reads the one and is read by the other, and cannot be fused with"
         " both",
         "look at the step between them: it is mostly a library call"),
    Code("NF705", "memory would be needed longer",
         "to compute both at once, a large value would have to stay in memory longer, and the"
         " program would need more memory than eager does",
         "nothing; smaller batches need less memory and may be fused further"),
    Code("NF706", "one writes to an input, the other may raise",
         "when an exception is raised, exactly the writes before it must have happened, so no"
         " kernel does both",
         "return the new value in place of writing it, or compute the index separately"),
    # Errors
    Code("ER500", "error", "the text of the error says what was expected and what was found",
         "see the text of the error"),
    Code("ER501", "not something to compile", "jit takes callables, compile takes modules",
         "pass a function, a method, a module or a class with __call__"),
    Code("ER502", "bad option", "an option has a value that is not allowed",
         "use one of the values named in the error"),
    Code("ER503", "graph break under fullgraph", "fullgraph=True or STRICT allows no break",
         "fix the break named in the error, or use LAX"),
    Code("ER504", "build failed", "a kernel could not be built or loaded",
         "see the compiler's message in the error; `python -m graftjit doctor` tries the compiler"),
    Code("ER505", "internal error", "a fault of graftjit",
         "please report it, with the text of the error and the output of `python -m graftjit"
         " doctor`"),
    Code("ER506", "check failed", "under GRAFTJIT_CHECK two executions gave different results",
         "please report it, with the text of the error and the output of `python -m graftjit"
         " doctor`"),
    Code("ER507", "unsupported Python",
         "graftjit decodes the bytecode of CPython 3.11, 3.12 and 3.13",
         "use one of those"),
    Code("ER508", "report is not clean", "assert_clean found more than allowed",
         "fix what the report in the error names, or allow it"),
    Code("ER509", "native part missing", "the extension module is missing, or was built for another Python",
         "pip install graftjit again; in a checkout: make"),
    # Warnings
    Code("WN601", "many recompiles",
         "a function has as many entries as recompile_limit allows and goes on making new"
         " ones", "pass what varies as a tensor; see the recompiles in its report"),
    Code("WN602", "cache folder cannot be used", "kernels are kept for this process only",
         "set GRAFTJIT_CACHE_DIR to a folder of your own that can be written"),
    Code("WN603", "trace folder cannot be written", "GRAFTJIT_TRACE is ignored from here on",
         "set it to a folder that can be written"),
    Code("WN604", "no C++ compiler", "programs run as ATen steps", "install g++ or clang++"),
    Code("WN605", "option without effect", "accepted for compatibility, does nothing here",
         "leave it out; docs/migrating.md names its replacement"),
    Code("WN606", "kernels could not be made", "the graph runs operator by operator by ATen",
         "see the fallback in the report; python -m graftjit doctor tries the compiler"),
    Code("WN607", "fault inside graftjit", "the frame runs as it would without graftjit",
         "please report it, with the output of GRAFTJIT_TRACE=DIR and `python -m graftjit doctor`"),
    Code("WN608", "no kernels for the GPU", "work on the GPU runs as ATen steps",
         "see the fallback in the report; python -m graftjit doctor has the details"),
    Code("WN609", "untrue fake rule",
         "the operator runs between two graphs until its rule is registered anew",
         "correct the rule: the warning says what it promises and what the kernel has returned"),
)  # fmt: skip

RETIRED = frozenset(
    f"{prefix}{number}"
    for prefix, numbers in (("GB", (109, 127, 129, 133, 136)), ("PL", (210, 211)),
         ("FB", (305, 309, 312)))
    for number in numbers
)  # fmt: skip
"""Codes of earlier versions, which are never used again."""

CODES: dict[str, Code] = {row.id: row for row in _TABLE}


def lookup(code: str) -> Code:
    """The row of a code. An unknown code gets a row that says so, so that reports never fail."""
    return CODES.get(code) or Code(code, "unknown code", "not in the table", "please report it")


# Reasons why a step is not fused with a neighbour, as in reports.
NOT_FUSED = {code.id: f"{code.title}: {code.why}" for code in _TABLE if code.id.startswith("NF")}


def family(code: str) -> Family:
    """The family of a code, by its two letters."""
    return next((f for f in FAMILIES if code.startswith(f.prefix)), Family(code[:2], "?", "-"))
