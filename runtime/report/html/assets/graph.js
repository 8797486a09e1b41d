// The graph, drawn: one box a kernel or library call, opened to its operators, or one box an operator. Only what is in
// sight is drawn, so that graphs of thousands of nodes can be walked through.

const graph = { number: 0, zoom: 1, grouped: true, open: new Set(), boxes: [], made: null, drawn: new Map(), edges: new Map(), focus: 0 };
const ROW = 19;
const HEAD = 46;

const isData = (op) => op === 'input' || op === 'constant';
const hueOf = (kernel) => Math.round((kernel * 137.508 + 150) % 360);

// Nodes without a kernel (views) belong to the box of what they look at.
function groupsOf(nodes) {
  const owner = new Array(nodes.length).fill(-1);
  const boxes = [];
  const byKernel = new Map();
  const fresh = (n, kernel) => { boxes.push({ kernel, nodes: [], ins: new Set(), data: new Set() }); owner[n] = boxes.length - 1; return boxes.length - 1; };
  nodes.forEach((node, n) => {
    const kernel = node[4];
    if (isData(node[1])) return;
    if (kernel >= 0) {
      if (!byKernel.has(kernel)) byKernel.set(kernel, fresh(n, kernel));
      owner[n] = byKernel.get(kernel);
    } else if (node[1] === 'output') owner[n] = fresh(n, -1);
    else {
      const from = node[3].find((i) => owner[i] >= 0);
      owner[n] = from === undefined ? -1 : owner[from];
      if (owner[n] < 0 && node[3].every((i) => !isData(nodes[i][1]) && owner[i] < 0) && node[3].length === 0) owner[n] = fresh(n, -1);
    }
    if (owner[n] >= 0) boxes[owner[n]].nodes.push(n);
  });
  nodes.forEach((node, n) => {
    if (owner[n] < 0) return;
    for (const i of node[3]) {
      if (owner[i] >= 0 && owner[i] !== owner[n]) boxes[owner[n]].ins.add(owner[i]);
      else if (owner[i] < 0) boxes[owner[n]].data.add(i);
    }
  });
  return boxes;
}

function everyNode(nodes) {
  return nodes.map((node, n) => ({ kernel: node[4], nodes: [n], ins: new Set(node[3]), data: new Set() }));
}

function titleOf(box, nodes) {
  const kernel = R.kernels[box.kernel];
  const node = nodes[box.nodes[0]];
  if (!graph.grouped || !kernel) {
    const last = nodes[box.nodes[box.nodes.length - 1]];
    return [isData(node[1]) || node[1] === 'output' ? node[1] : shortOp(node[1]), node[1] === 'output' ? '' : `${node[0]}  ${last[2]}`];
  }
  const time = kernel.seconds > 0 ? seconds(kernel.seconds) : '';
  const operators = kernel.operators.length ? kernel.operators : box.nodes.map((n) => nodes[n][1]);
  const names = [...new Set(operators.map(shortOp))];
  if (kernel.kind === 'call') return [names[0] || kernel.name, [time, kernel.shape, 'library'].filter(Boolean).join(' · ')];
  return [names.join(', '), [time, kernel.shape, counted(operators.length, 'operator')].filter(Boolean).join(' · ')];
}

// The graph in whose kernels most time is spent is shown first.
function heaviest() {
  const weight = R.graphs.map((one) => [...new Set(one.nodes.map((node) => node[4]))].reduce((sum, k) => sum + (k >= 0 ? R.kernels[k].weight : 0), 0) + one.nodes.length * 1e-12);
  return weight.indexOf(Math.max(...weight));
}

function graphPanel(panel) {
  if (!R.graphs.length) return panel.append(el('p', { class: 'empty' }, 'No graph was captured, or the report was made without their drawings.'));
  const pick = el('select', { 'aria-label': 'Graph', onchange: (event) => openGraph(Number(event.target.value)) },
    R.graphs.map((g, number) => el('option', { value: number },
      [g.name, g.part, g.frame && `in ${g.frame}`, g.entry ? `entry ${g.entry}` : '', `${g.nodes.length} nodes`].filter(Boolean).join(' · '))));
  const grouped = el('button', {
    type: 'button', class: 'plain-button', 'aria-pressed': 'true', id: 'grouped',
    onclick: () => { graph.grouped = !graph.grouped; grouped.setAttribute('aria-pressed', String(graph.grouped)); openGraph(graph.number); },
  }, 'One box per kernel');
  panel.append(
    el('div', { class: 'tools' }, pick, grouped, el('span', { class: 'zoom', role: 'group', 'aria-label': 'Size of the drawing' },
      el('button', { type: 'button', class: 'plain-button', 'aria-label': 'Smaller', onclick: () => zoom(1 / 1.25) }, '−'),
      el('button', { type: 'button', class: 'plain-button', 'aria-label': 'Larger', onclick: () => zoom(1.25) }, '+'))),
    el('div', { class: 'canvas', id: 'canvas', role: 'group', 'aria-label': 'Drawing of the graph; arrows move between boxes', tabindex: '0', onscroll: () => requestAnimationFrame(drawGraph), onkeydown: graphKeys }),
    el('p', { class: 'hint' }, 'A double click or Enter opens a box to its operators. Dashed boxes are calls of libraries.'),
    el('div', { id: 'printed' }));
  openGraph(heaviest());
  addEventListener('resize', () => requestAnimationFrame(drawGraph));
}

function openGraph(number) {
  graph.number = number;
  graph.open.clear();
  graph.focus = 0;
  const { nodes, text } = R.graphs[number];
  graph.boxes = (graph.grouped ? groupsOf(nodes) : everyNode(nodes)).map((box) => ({ ...box, ins: [...box.ins] }));
  graph.boxOf = new Map();
  graph.boxes.forEach((box, at) => box.nodes.forEach((n) => graph.boxOf.set(n, at)));
  document.querySelector('#panel-graph select').value = String(number);
  byId('printed').replaceChildren(text
    ? el('details', { class: 'printed' }, el('summary', null, 'The graph as text'), el('pre', { tabindex: '0' }, text)) : '');
  arrangeGraph(true);
  byId('canvas').scrollTop = 0;
}

// Keeps the middle of what is in sight where it is.
function zoom(by) {
  const canvas = byId('canvas');
  const middle = (canvas.scrollTop + canvas.clientHeight / 2) / graph.zoom;
  const across = (canvas.scrollLeft + canvas.clientWidth / 2) / graph.zoom;
  graph.zoom = Math.min(1.6, Math.max(.3, graph.zoom * by));
  arrangeGraph();
  canvas.scrollTop = middle * graph.zoom - canvas.clientHeight / 2;
  canvas.scrollLeft = across * graph.zoom - canvas.clientWidth / 2;
  drawGraph();
}

function arrangeGraph(fresh) {
  graph.boxes.forEach((box, at) => { box.height = HEAD + (graph.open.has(at) ? box.nodes.length * ROW + 8 : 0); });
  graph.made = layout(graph.boxes);
  const canvas = byId('canvas');
  if (fresh) graph.zoom = Math.max(.62, Math.min(1, (canvas.clientWidth - 2) / graph.made.width || 1));
  const room = canvas.clientWidth / graph.zoom;
  const shift = room > graph.made.width ? (room - graph.made.width) / 2 : 0;
  const [width, height] = [Math.max(graph.made.width, room - 2), graph.made.height + 10];
  graph.edges.clear();
  graph.drawn.clear();
  graph.layers = [svg('g'), svg('g')];
  graph.root = svg('svg', { width: width * graph.zoom, height: height * graph.zoom, viewBox: `0 0 ${width} ${height}` },
    svg('g', { transform: `translate(${shift} 0)` }, graph.layers));
  graph.shift = shift;
  canvas.replaceChildren(graph.root);
  if (!graph.boxes.length) canvas.replaceChildren(el('p', { class: 'empty' }, 'This graph computes nothing.'));
  drawGraph();
  if (fresh && graph.boxes.length) canvas.scrollLeft = Math.max(0, (graph.made.boxes[0].x + BOX.width / 2) * graph.zoom - canvas.clientWidth / 2);
}

function curve({ x1, y1, x2, y2 }) {
  const bend = Math.min(40, (y2 - y1) / 2);
  return x1 === x2 ? `M${x1} ${y1}V${y2}` : `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
}

function drawGraph() {
  const canvas = byId('canvas');
  if (!graph.made || !canvas.clientHeight) return;
  const [top, bottom] = [canvas.scrollTop / graph.zoom - 400, (canvas.scrollTop + canvas.clientHeight) / graph.zoom + 400];
  keep(graph.drawn, graph.made.boxes, (b) => b.y < bottom && b.y + b.height > top, (b, at) => boxShape(b, at), graph.layers[1]);
  keep(graph.edges, graph.made.parts, (p) => p.y1 < bottom && p.y2 > top, (p) => svg('path', { class: 'edge', d: curve(p) }), graph.layers[0]);
  lightGraph();
}

// Draws what came into sight, and drops what left it.
function keep(drawn, list, inSight, make, parent) {
  list.forEach((item, at) => {
    const shape = drawn.get(at);
    if (inSight(item)) {
      if (!shape) { const made = make(item, at); drawn.set(at, made); parent.append(made); }
    } else if (shape) { shape.remove(); drawn.delete(at); }
  });
}

function boxShape(b, at) {
  const box = graph.boxes[at];
  const { nodes } = R.graphs[graph.number];
  const [title, sub] = titleOf(box, nodes);
  const kernel = R.kernels[box.kernel];
  const ends = box.nodes.length === 1 && (isData(nodes[box.nodes[0]][1]) || nodes[box.nodes[0]][1] === 'output');
  const kind = ends ? 'end' : kernel ? kernel.kind : 'call';
  const back = svg('rect', { class: 'back', width: b.width, height: b.height, rx: 7 });
  if (kind === 'kernel') back.style.setProperty('--hue', hueOf(box.kernel));
  const label = [title, sub, box.data.size ? `reads ${counted(box.data.size, 'input')}` : ''].filter(Boolean).join(', ');
  return svg('g', {
    class: `box ${kind}`, transform: `translate(${b.x} ${b.y})`, role: 'button', tabindex: at === graph.focus ? '0' : '-1',
    'aria-label': label, 'aria-expanded': graph.grouped && box.nodes.length > 1 ? String(graph.open.has(at)) : null, data: { box: at },
    onclick: () => { graph.focus = at; pickBox(at); }, ondblclick: () => unfold(at),
  },
  svg('title', null, label), back,
  svg('text', { x: 12, y: 20 }, cut(title, 28)),
  svg('text', { class: 'sub', x: 12, y: 36 }, cut(sub, 36)),
  graph.open.has(at) && box.nodes.map((n, row) => innerShape(n, row)));
}

function innerShape(n, row) {
  const node = R.graphs[graph.number].nodes[n];
  const id = `${graph.number}.${n}`;
  return svg('g', { class: 'inner', data: { node: id }, onclick: (event) => { event.stopPropagation(); choose('node', id); } },
    svg('title', null, `${node[0]} = ${node[1]} -> ${node[2]}`),
    svg('rect', { x: 6, y: HEAD + row * ROW, width: BOX.width - 12, height: ROW, fill: 'transparent', stroke: 'none' }),
    svg('text', { x: 12, y: HEAD + row * ROW + 13 }, cut(`${shortOp(node[1])} ${node[2]}`, 29)));
}

function pickBox(at) {
  const box = graph.boxes[at];
  if (graph.grouped && box.kernel >= 0) choose('kernel', box.kernel);
  else choose('node', `${graph.number}.${box.nodes[0]}`);
}

function unfold(at) {
  if (!graph.grouped || graph.boxes[at].nodes.length < 2) return;
  if (!graph.open.delete(at)) graph.open.add(at);
  const canvas = byId('canvas');
  const before = graph.made.boxes[at].y * graph.zoom - canvas.scrollTop;
  const left = canvas.scrollLeft;
  arrangeGraph();
  canvas.scrollTop = graph.made.boxes[at].y * graph.zoom - before;
  canvas.scrollLeft = left;
  drawGraph();
  graph.drawn.get(at)?.focus();
}

function lightGraph() {
  const marked = new Set();
  for (const id of chosen.nodes) {
    const [g, n] = id.split('.').map(Number);
    if (g === graph.number && graph.boxOf.has(n)) marked.add(graph.boxOf.get(n));
  }
  graph.boxes.forEach((box, at) => { if (graph.grouped && box.kernel >= 0 && chosen.kernels.has(box.kernel)) marked.add(at); });
  for (const [at, shape] of graph.drawn) {
    const only = marked.has(at) && (chosen.kind === 'node' || chosen.kind === 'kernel');
    shape.classList.toggle('is-linked', marked.has(at) && !only);
    shape.classList.toggle('is-chosen', only);
    for (const inner of shape.querySelectorAll('.inner')) inner.classList.toggle('is-chosen', chosen.nodes.has(inner.dataset.node) && chosen.kind !== 'kernel');
  }
  for (const [at, path] of graph.edges) {
    const part = graph.made.parts[at];
    path.classList.toggle('is-linked', marked.has(part.from) && chosen.kind !== 'line' || marked.has(part.to) && chosen.kind !== 'line');
  }
}

// Brings the box of what is chosen into sight; of another graph, if it is not in this one.
function revealBox() {
  const [first] = chosen.nodes;
  if (first === undefined || !byId('canvas')) return;
  const here = [...chosen.nodes].find((id) => id.startsWith(`${graph.number}.`));
  if (!here) openGraph(Number(first.split('.')[0]));
  const at = graph.boxOf.get(Number((here || first).split('.')[1]));
  if (at !== undefined) { graph.focus = at; sight(at); }
}

function sight(at) {
  const canvas = byId('canvas');
  const b = graph.made.boxes[at];
  canvas.scrollTop = (b.y + b.height / 2) * graph.zoom - canvas.clientHeight / 2;
  canvas.scrollLeft = (b.x + graph.shift + b.width / 2) * graph.zoom - canvas.clientWidth / 2;
  drawGraph();
}

function graphKeys(event) {
  const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
  const inBox = event.target.closest('.box');
  if (!inBox) return;
  if (event.key in steps) {
    const order = graph.made.boxes.map((_b, at) => at).sort((a, b) => graph.made.boxes[a].y - graph.made.boxes[b].y || graph.made.boxes[a].x - graph.made.boxes[b].x);
    const next = order[order.indexOf(graph.focus) + steps[event.key]];
    if (next === undefined) return;
    event.preventDefault();
    graph.drawn.get(graph.focus)?.setAttribute('tabindex', '-1');
    graph.focus = next;
    sight(next);
    const shape = graph.drawn.get(next);
    shape.setAttribute('tabindex', '0');
    shape.focus({ preventScroll: true });
    pickBox(next);
  } else if (event.key === 'Enter' || event.key === ' ') {
    event.preventDefault();
    pickBox(graph.focus);
    if (event.key === 'Enter') unfold(graph.focus);
  }
}

onChoice((go) => {
  if (!graph.made) return;
  if (go || shownTab() === 'graph') { const [g] = chosen.nodes; if (g !== undefined && go) revealBox(); }
  lightGraph();
});
