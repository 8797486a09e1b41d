// What is chosen, beside every view: its facts, what belongs to it elsewhere, a kernel's source.

const DETAILS = { line: lineDetails, kernel: kernelDetails, node: nodeDetails, break: breakDetails, recompile: recompileDetails };

// The views beside which the details stand; the others have them in their rows.
const BESIDE = new Set(['source', 'graph', 'kernels']);

// Where the room is there, the place of the details is kept, so that nothing moves at the first choice.
const HINTS = {
  source: () => R.files.length && [el('p', { class: 'empty' }, 'Choose a line: its kernels, its nodes in the graph and its guards are listed here.'), listed('Most time', hottest())],
  graph: () => R.graphs.length && [el('p', { class: 'empty' }, 'Choose a box: its lines, what it reads and its source are shown here.')],
};

function hottest() {
  const lines = [...lineSeconds].filter(([, time]) => time > 0).sort((a, b) => b[1] - a[1]).slice(0, 10);
  return lines.map(([key, time]) => {
    const at = key.split(':').map(Number);
    return el('li', null, placeLink(at, briefPlace(at)), el('span', { class: 'num' }, percent(time / totalSeconds)));
  });
}

const facts = (pairs) => el('dl', { class: 'facts' }, pairs.filter(([, value]) => value && value !== NONE).map(([name, value]) => [el('dt', null, name), el('dd', null, value)]));

function listed(title, items, more) {
  if (!items.length) return '';
  const shown = items.slice(0, more || 12);
  return [el('h3', null, `${title} (${items.length})`), el('ul', { class: 'list' }, shown, items.length > shown.length ? el('li', null, `… and ${items.length - shown.length} more`) : null)];
}

function kernelItem(number) {
  const kernel = R.kernels[number];
  return el('li', null, linkButton(cut(kernel.name, 44), 'kernel', number, `kernel ${kernel.name}`), el('span', { class: 'num' }, kernel.seconds > 0 ? seconds(kernel.seconds) : kernel.shape));
}
function nodeItem(id) {
  const node = nodeOf(id);
  return el('li', null, linkButton(cut(shortOp(node[1]), 34), 'node', id, `node ${node[0]}, ${node[1]}`), el('span', { class: 'num' }, cut(node[2], 24)));
}
const lineItem = (at) => el('li', null, placeLink(at, briefPlace(at)), el('span', { class: 'num' }, at[5]));

function lineDetails(key) {
  const [file, line] = key.split(':').map(Number);
  const time = lineSeconds.get(key) || 0;
  const kernels = [...chosen.kernels].sort((a, b) => R.kernels[b].weight - R.kernels[a].weight);
  const state = STATES.find(([name]) => name === lineState.get(key));
  return [
    el('h2', null, `${R.files[file].short}:${line}`),
    facts([['runs', state && state[1]], ['time', time && totalSeconds ? `${percent(time / totalSeconds)} of the kernels' time` : '']]),
    alikeBreaks([...chosen.breaks]).map(([id]) => facts([['break', `${R.breaks[id].code} ${R.breaks[id].title}`], ['cure', R.breaks[id].cure]])),
    listed('Kernels', kernels.map(kernelItem)), listed('Nodes', [...chosen.nodes].map(nodeItem)),
    listed('Guards', R.guards.map((guard, id) => [guard, id]).filter(([guard]) => guard.at && placeKey(guard.at[0], guard.at[1]) === key).map(([guard, id]) => el('li', null, linkButton(cut(guard.text, 60), 'guard', id, `guard ${guard.text}`))), 6),
  ];
}

function kernelDetails(number) {
  const kernel = R.kernels[number];
  const text = R.sources[kernel.source];
  return [
    el('h2', null, kernel.name),
    facts([
      ['what', kernel.kind === 'call' ? 'a library call' : 'a kernel that graftjit made'], ['shape', kernel.shape], ['device', kernel.device],
      ['time', kernel.seconds > 0 ? `${seconds(kernel.seconds)}, median of ${counted(kernel.samples, 'run')}` : ''],
      ['moves', moved(kernel) ? `${bytes(kernel.reads) === NONE ? '0 B' : bytes(kernel.reads)} in, ${bytes(kernel.writes)} out${kernel.seconds > 0 ? `, ${rate(gigabytes(kernel), 'B/s')}` : ''}` : ''],
      ['computes', kernel.flops ? `${scaled(kernel.flops, [[1e12, 'TFLOP'], [1e9, 'GFLOP'], [1e6, 'MFLOP'], [1e3, 'kFLOP'], [1, 'FLOP']])}` : ''],
      ['roofline', kernel.share > 0 ? `${percent(kernel.share)}${kernel.bound ? `, bound by ${kernel.bound}` : ''}` : kernel.bound], ['graph', kernel.graph], ['frame', kernel.frame]]),
    goes([['source', 'Lines', chosen.lines.size], ['graph', 'Graph', chosen.nodes.size], ['kernels', 'Table', 1]]),
    listed('Not fused', kernel.unfused.map((reason) => el('li', null, el('span', null, el('span', { class: 'tag' }, reason.code), ` ${reason.why}`, reason.neighbour ? ` (${reason.neighbour})` : ''))), 6),
    listed('Lines', kernel.lines.map(lineItem)), listed('Nodes', [...chosen.nodes].map(nodeItem)),
    text ? [el('h3', null, 'Source'), el('div', { class: 'code', tabindex: '0', role: 'region', 'aria-label': `Source of ${kernel.name}` }, coloured(el('span'), text.text, text.runs))]
      : kernel.source === -2 ? el('p', { class: 'empty' }, 'Its source is too large for this page; the report as JSON has it.') : '',
  ];
}

function nodeDetails(id) {
  const [g] = id.split('.').map(Number);
  const node = nodeOf(id);
  return [
    el('h2', null, node[0]),
    facts([['operator', node[1]], ['type', node[2]], ['graph', R.graphs[g].name]]),
    goes([['source', 'Line', chosen.lines.size], ['graph', 'Graph', 1], ['kernels', 'Kernel', chosen.kernels.size]]),
    listed('Computed by', [...chosen.kernels].map(kernelItem)), node[5] ? listed('Line', [lineItem(node[5])]) : '',
    listed('Reads', node[3].map((n) => nodeItem(`${g}.${n}`))),
  ];
}

function breakDetails(id) {
  const record = R.breaks[id];
  return [
    el('h2', null, `${record.code} ${record.title}`), record.at ? listed('Line', [lineItem(record.at)]) : '',
    facts([['why', record.reason || record.why], ['cost', record.seconds > 0 ? `${seconds(record.seconds)} per call` : record.cost], ['cure', record.cure], ['met', record.count > 1 ? `${record.count} times` : '']]),
  ];
}

function recompileDetails(id) {
  const record = R.recompiles[id];
  return [
    el('h2', null, `${record.code} ${record.title}`), record.at ? listed('Line', [lineItem(record.at)]) : '',
    facts([['varies', record.source], ['now', record.now], ['before', record.before], ['cure', record.cure], ['frame', record.frame]]),
  ];
}

// Buttons that show what is chosen in another view.
function goes(views) {
  return el('div', { class: 'goes' }, views.filter(([tab, , there]) => there && tab !== shownTab()).map(([tab, text]) => el('button', {
    type: 'button', class: 'plain-button', data: { see: tab }, onclick: () => { show(tab); for (const listener of listeners) listener(true); },
  }, `Show in ${tab}`)));
}

function drawDetails() {
  const aside = byId('details');
  const make = DETAILS[chosen.kind];
  const hint = !make && HINTS[shownTab()]?.();
  aside.hidden = !hint && (!make || !BESIDE.has(shownTab()));
  aside.classList.toggle('is-hint', Boolean(hint));
  aside.parentElement.classList.toggle('has-details', !aside.hidden);
  if (aside.hidden) return;
  if (hint) { aside.replaceChildren(...hint.flat(Infinity).filter(Boolean)); return; }
  aside.replaceChildren(...[el('button', { type: 'button', class: 'icon close', 'aria-label': 'Close the details', onclick: () => choose('', '') }, '×'), make(chosen.id)].flat(Infinity).filter(Boolean));
  aside.scrollTop = 0;
}
onChoice(drawDetails);
