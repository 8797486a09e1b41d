// Small helpers that all views share: elements, numbers as text, the one selection.
// Texts are always set as text; no markup is ever made of data.

const R = JSON.parse(document.getElementById('data').textContent);
R.guards = R.guards.rows.map(([kind, text, path, at, frame, entry, source]) => (
  { kind, text, path, at, entry, frame: R.guards.frames[frame], source: source || path.join('') }));
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'data') Object.assign(node.dataset, value);
    else if (name === 'css') Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === '') continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

// Three figures and the unit that fits, as the text report writes them.
function scaled(value, units) {
  const [from, unit, factor] = units.find(([least]) => value >= least) || units[units.length - 1];
  const v = value / (factor || from);
  return `${v >= 99.95 || unit === 'ns' ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2)} ${unit}`;
}
const NONE = '–';
const seconds = (v) => (v > 0 ? scaled(v, [[.9995, 's', 1], [.9995e-3, 'ms', 1e-3], [.9995e-6, 'us', 1e-6], [0, 'ns', 1e-9]]) : NONE);
const bytes = (v) => (v > 0 ? scaled(v, [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B']]) : NONE);
const rate = (v, unit) => (v > 0 ? scaled(v, [[1e12, `T${unit}`], [1e9, `G${unit}`], [1e6, `M${unit}`], [1, unit]]) : NONE);
const percent = (v) => (v > 0 && v < .001 ? '<0.1 %' : v >= 0 ? `${v * 100 >= 10 || v === 0 ? (v * 100).toFixed(0) : (v * 100).toFixed(1)} %` : NONE);
const counted = (n, word) => `${n} ${word}${n === 1 ? '' : word.slice(-1) === 's' ? 'es' : 's'}`;
// aten.add.Tensor is told as add; the whole name is in the details.
const shortOp = (name) => name.replace(/^(aten|graftjit|prims|prim|torch)[.:]+/, '').replace(/(.)\.[A-Za-z0-9_]+$/, '$1');
const cut = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

// A place is [file, line, end line, column, end column, function].
const placeText = (at) => (at ? `${R.files[at[0]].short}:${at[1]}` : '');
const placeKey = (file, line) => `${file}:${line}`;

// The selection: what was chosen, and what belongs to it in the other views. Views listen.
const chosen = { kind: '', id: '', lines: new Set(), kernels: new Set(), nodes: new Set(), breaks: new Set() };
const listeners = [];
const onChoice = (listener) => listeners.push(listener);
const tell = (text) => { byId('told').textContent = text; };

function linkButton(text, kind, id, label) {
  return el('button', {
    type: 'button', class: 'link', data: { go: `${kind} ${id}` }, 'aria-label': label,
    onclick: (event) => { event.stopPropagation(); choose(kind, id, true); },
  }, text);
}
const placeLink = (at, text) => (at ? linkButton(text || placeText(at), 'line', placeKey(at[0], at[1]), `line ${placeText(at)}`) : '');
// Where there is little room: the name of the file alone.
const briefPlace = (at) => placeText(at).split('/').pop();

// Highlighted text: runs are lengths with the letter of a class.
function coloured(target, text, runs) {
  let from = 0;
  for (const [, length, letter] of (runs || '').matchAll(/(\d+)([a-z.])/g)) {
    const part = text.slice(from, from += Number(length));
    target.append(letter === '.' ? part : el('span', { class: letter }, part));
  }
  if (from < text.length) target.append(text.slice(from));
  return target;
}
