// What belongs to what: lines to kernels and nodes, and back. Made once; `related` answers for a selection.

const lineKernels = new Map(); // "file:line" -> Set of kernel numbers
const lineNodes = new Map(); // "file:line" -> Set of "graph.node"
const lineBreaks = new Map();
const lineNotes = new Map(); // "file:line" -> [{kind, id, record}] of recompiles and plain frames
const kernelNodes = new Map();
const lineSeconds = new Map(); // the kernels' time, shared among their lines
const lineState = new Map(); // "compiled", "resumed", "broken", "plain"

const put = (map, key, value) => { if (!map.has(key)) map.set(key, new Set()); map.get(key).add(value); };
const has = (map, key) => map.get(key) || new Set();

function* spanOf(at) {
  for (let line = at[1]; line <= Math.min(at[2], at[1] + 40); line += 1) yield placeKey(at[0], line);
}

// A function's frame may run plain lines and hold others' lines within; what is stronger wins.
const STRENGTH = { plain: 1, compiled: 2, resumed: 3, broken: 4 };
function mark(key, state) {
  if ((STRENGTH[lineState.get(key)] || 0) < STRENGTH[state]) lineState.set(key, state);
}

function indexKernels() {
  R.kernels.forEach((kernel, number) => {
    const lines = kernel.lines.length ? kernel.lines : kernel.at ? [kernel.at] : [];
    for (const at of lines) {
      for (const key of spanOf(at)) { put(lineKernels, key, number); mark(key, 'compiled'); }
      const first = placeKey(at[0], at[1]);
      lineSeconds.set(first, (lineSeconds.get(first) || 0) + kernel.weight / lines.length);
    }
  });
}

function indexGraphs() {
  R.graphs.forEach((graph, g) => graph.nodes.forEach((node, n) => {
    const id = `${g}.${n}`;
    if (node[4] >= 0) put(kernelNodes, node[4], id);
    if (!node[5] || node[1] === 'output') return;
    for (const key of spanOf(node[5])) { put(lineNodes, key, id); if (node[1] !== 'input' && node[1] !== 'constant') mark(key, 'compiled'); }
  }));
}

function indexFrames() {
  R.frames.forEach((frame) => {
    if (frame.file === undefined) return;
    frame.lines.forEach((line) => mark(placeKey(frame.file, line), 'compiled'));
    for (const [first, last] of frame.resumed_lines) {
      for (let line = first; line <= last; line += 1) {
        const key = placeKey(frame.file, line);
        if (lineState.get(key) === 'compiled') mark(key, 'resumed');
      }
    }
    if (frame.plain && frame.at) mark(placeKey(frame.at[0], frame.at[1]), 'plain');
  });
}

function indexStories() {
  R.breaks.forEach((record, number) => {
    if (!record.at) return;
    put(lineBreaks, placeKey(record.at[0], record.at[1]), number);
    for (const key of spanOf(record.at)) mark(key, 'broken');
  });
  const kinds = [['recompile', R.recompiles], ['note', R.notes]];
  for (const [kind, records] of kinds) {
    records.forEach((record, id) => {
      if (!record.at) return;
      const key = placeKey(record.at[0], record.at[1]);
      if (!lineNotes.has(key)) lineNotes.set(key, []);
      lineNotes.get(key).push({ kind, id, record });
    });
  }
}
indexKernels(); indexGraphs(); indexFrames(); indexStories();

const totalSeconds = R.kernels.reduce((sum, kernel) => sum + kernel.weight, 0);
const mostSeconds = Math.max(0, ...lineSeconds.values());
const nodeOf = (id) => { const [g, n] = id.split('.').map(Number); return R.graphs[g].nodes[n]; };
const kernelLines = (number) => {
  const kernel = R.kernels[number];
  const keys = new Set();
  for (const at of kernel.lines.length ? kernel.lines : kernel.at ? [kernel.at] : []) for (const key of spanOf(at)) keys.add(key);
  return keys;
};

// What the choice of one thing lights up elsewhere.
const RELATED = {
  line: (id) => ({ lines: [id], kernels: has(lineKernels, id), nodes: has(lineNodes, id), breaks: has(lineBreaks, id) }),
  kernel: (id) => ({ lines: kernelLines(Number(id)), kernels: [Number(id)], nodes: has(kernelNodes, Number(id)), breaks: [] }),
  node: (id) => {
    const node = nodeOf(id);
    return { lines: node[5] ? [...spanOf(node[5])] : [], kernels: node[4] >= 0 ? [node[4]] : [], nodes: [id], breaks: [] };
  },
  break: (id) => {
    const { at } = R.breaks[id];
    return { lines: at ? [...spanOf(at)] : [], kernels: [], nodes: [], breaks: [Number(id)] };
  },
  recompile: (id) => ({ lines: R.recompiles[id].at ? [...spanOf(R.recompiles[id].at)] : [], kernels: [], nodes: [], breaks: [] }),
  note: (id) => ({ lines: R.notes[id].at ? [...spanOf(R.notes[id].at)] : [], kernels: [], nodes: [], breaks: [] }),
  guard: (id) => ({ lines: R.guards[id].at ? [...spanOf(R.guards[id].at)] : [], kernels: [], nodes: [], breaks: [] }),
};

// Where a chosen thing is looked at first, when a link asks to go there.
const HOME = { line: 'source', break: 'source', kernel: 'kernels', node: 'graph', recompile: 'recompiles', note: 'source', guard: 'guards' };
const OF_KIND = { kernel: () => R.kernels, break: () => R.breaks, recompile: () => R.recompiles, note: () => R.notes, guard: () => R.guards };

function known(kind, id) {
  if (kind === 'line') return /^\d+:\d+$/.test(id) && Number(id.split(':')[0]) < R.files.length;
  if (kind === 'node') return /^\d+\.\d+$/.test(id) && Boolean(R.graphs[id.split('.')[0]]) && Boolean(nodeOf(id));
  return kind in OF_KIND && Number(id) in OF_KIND[kind]();
}

function choose(kind, id, go) {
  id = String(id);
  if (kind && !known(kind, id)) return;
  const found = kind ? RELATED[kind](id) : { lines: [], kernels: [], nodes: [], breaks: [] };
  Object.assign(chosen, { kind, id });
  for (const name of ['lines', 'kernels', 'nodes', 'breaks']) chosen[name] = new Set(found[name]);
  let home = HOME[kind];
  if (home === 'source' && !found.lines.length) home = '';
  if (kind && go && home) show(home);
  for (const listener of listeners) listener(Boolean(go));
  remember();
}
