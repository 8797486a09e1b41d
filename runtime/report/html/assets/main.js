// The page as a whole: tabs, keys, colours, the address, and the summary's tables.

const PANELS = {
  summary: summaryPanel, source: sourcePanel, graph: graphPanel, kernels: kernelsPanel,
  guards: guardsPanel, recompiles: recompilesPanel, timeline: timelinePanel,
};
const tabs = [...document.querySelectorAll('[role="tab"]')];
const built = new Set();
let current = 'summary';

const shownTab = () => current;
const keyOf = (tab) => tab.id.replace('tab-', '');

function show(key, focus) {
  const before = current;
  current = key;
  byId('main').dataset.tab = key;
  for (const tab of tabs) {
    const on = keyOf(tab) === key;
    tab.setAttribute('aria-selected', String(on));
    tab.tabIndex = on ? 0 : -1;
    byId(tab.getAttribute('aria-controls')).hidden = !on;
    if (on && focus) tab.focus();
    if (on) tab.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }
  drawDetails(); // they take room from what is drawn now
  if (!built.has(key)) { built.add(key); PANELS[key](byId(`panel-${key}`)); }
  if (before !== key) {
    scrollTo({ top: 0 });
    if (key === 'graph') { if (graph.made) drawGraph(); if (chosen.nodes.size) revealBox(); }
    remember();
  }
}

function tabKeys(event) {
  const at = tabs.findIndex((tab) => keyOf(tab) === current);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  show(keyOf(tabs[next % tabs.length]), true);
}

// The address names the view and the choice, so that a link leads back to them.
function remember() {
  try { history.replaceState(null, '', `#${current}${chosen.kind ? `/${chosen.kind}/${chosen.id}` : ''}`); } catch { /* within a notebook's frame there is none */ }
}
function recall() {
  const [key, kind, id] = decodeURIComponent(location.hash.slice(1)).split('/');
  if (!(key in PANELS)) return;
  show(key);
  if (kind && kind in RELATED) { choose(kind, id); if (current === key) for (const listener of listeners) listener(true); }
}

function dark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}
function colours(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  byId('theme').setAttribute('aria-pressed', String(dark()));
}
function turn() {
  colours(dark() ? 'light' : 'dark');
  try { localStorage.setItem('graftjit-theme', document.documentElement.dataset.theme); } catch { /* no storage for files */ }
}

// Breaks in the order of the lines, as one meets them reading.
const breakOrder = R.breaks.map((_record, id) => id).filter((id) => R.breaks[id].at)
  .sort((a, b) => R.breaks[a].at[0] - R.breaks[b].at[0] || R.breaks[a].at[1] - R.breaks[b].at[1]);
function step(by) {
  if (!breakOrder.length) return tell('There is no graph break.');
  const at = chosen.kind === 'break' ? breakOrder.indexOf(Number(chosen.id)) : by > 0 ? -1 : 0;
  const id = breakOrder[(at + by + breakOrder.length) % breakOrder.length];
  choose('break', id, true);
  return tell(`${R.breaks[id].code} ${R.breaks[id].title}, ${placeText(R.breaks[id].at)}`);
}

const KEYS = {
  '/': () => byId('search').focus(),
  j: () => step(1),
  k: () => step(-1),
  t: turn,
  '?': () => byId('help').showModal(),
  Escape: () => choose('', ''),
};

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest('input, select, textarea, dialog')) return;
  const tab = /^[1-9]$/.test(event.key) && tabs[Number(event.key) - 1];
  if (tab) show(keyOf(tab), true);
  else if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
}

function summaryPanel(panel) {
  for (const card of panel.querySelectorAll('.card')) {
    const place = card.querySelector('.place');
    const [kind, id] = card.dataset.target.split(':');
    const at = (OF_KIND[kind]()[id] || {}).at;
    if (at) card.append(snippet(at));
    if (place && at) place.replaceWith(el('button', { type: 'button', class: 'place', data: { go: `${kind} ${id}` }, onclick: () => { choose(kind, id); show('source'); for (const listener of listeners) listener(true); } }, place.textContent));
  }
  if (R.frames.length) panel.append(el('h2', null, 'Frames'), framesTable());
  if (R.entries.length) panel.append(el('h2', null, 'What was compiled'), entriesTable());
}

function snippet(at) {
  const segment = R.files[at[0]].segments.find((s) => at[1] >= s.start && at[1] < s.start + s.runs.length);
  if (!segment) return '';
  const text = segment.text.split('\n')[at[1] - segment.start];
  const indent = text.length - text.trimStart().length;
  const shown = coloured(el('code', { class: 'code-line' }), text, segment.runs[at[1] - segment.start]);
  const first = at[3] === null ? indent : columnOf(text, at[3]);
  const last = at[2] === at[1] && at[4] ? columnOf(text, at[4]) : text.length;
  return el('pre', { class: 'snippet code' }, shown, '\n', el('span', { class: 'carets', 'aria-hidden': 'true' }, ' '.repeat(first) + '^'.repeat(Math.max(1, last - first))));
}

function framesTable() {
  const measured = R.frames.some((f) => f.seconds_a_call > 0);
  return table({
    label: 'Frames', rows: R.frames, columns: [
      { title: 'Frame', mono: true, text: (f) => f.frame, key: (f) => f.frame },
      { title: 'Line', mono: true, text: (f) => placeText(f.at), key: (f) => placeText(f.at), cell: (f) => placeLink(f.at) },
      measured && { title: 'A call', num: true, text: (f) => seconds(f.seconds_a_call), key: (f) => f.seconds_a_call },
      measured && { title: 'Compiled', num: true, text: () => '', key: (f) => f.compiled_share, cell: (f) => shareBar(f.compiled_share) },
      { title: 'Graphs', num: true, text: (f) => String(f.graphs), key: (f) => f.graphs },
      { title: 'Operators', num: true, text: (f) => String(f.operators), key: (f) => f.operators },
      { title: 'Kernels', num: true, text: (f) => String(f.kernels), key: (f) => f.kernels },
      { title: 'Library calls', num: true, text: (f) => String(f.library), key: (f) => f.library },
      { title: 'Breaks', num: true, text: (f) => String(f.breaks), key: (f) => f.breaks },
      { title: 'Recompiles', num: true, text: (f) => String(f.recompiles), key: (f) => f.recompiles },
      { title: 'Guards', num: true, text: (f) => String(f.guards), key: (f) => f.guards },
      { title: 'Hits', num: true, text: (f) => String(f.hits), key: (f) => f.hits },
      R.frames.some((f) => f.plain) && { title: 'Plain', mono: true, text: (f) => f.plain, key: (f) => f.plain },
    ].filter(Boolean),
  });
}

function entriesTable() {
  const stages = (e) => e.stages.map(([name, time]) => `${name} ${seconds(time)}`).join(', ');
  return table({
    label: 'Entries: what was compiled for which frame', rows: R.entries, columns: [
      { title: 'Frame', mono: true, text: (e) => e.frame, key: (e) => e.frame },
      { title: 'Entry', num: true, text: (e) => String(e.number), key: (e) => e.number },
      { title: 'Kind', text: (e) => [e.kind, e.resumed && 'resumed', e.adopted && 'reused', e.claimed && 'is_compiling() said True', !e.alive && 'dropped'].filter(Boolean).join(', '), key: (e) => e.kind },
      { title: 'Operators → kernels', text: (e) => `${e.operators} → ${counted(e.kernels, 'kernel')}${e.library ? ` + ${counted(e.library, 'library call')}` : ''}`, key: (e) => e.operators, num: false },
      { title: 'Guards', num: true, text: (e) => `${e.guards}${e.guard_seconds > 0 ? ` (${seconds(e.guard_seconds)}${e.value_seconds > 0 ? `, ${seconds(e.value_seconds)} for values` : ''})` : ''}`, key: (e) => e.guards },
      { title: 'Hits', num: true, text: (e) => String(e.hits), key: (e) => e.hits },
      { title: 'Made in', num: true, text: (e) => seconds(e.stages.reduce((sum, [, time]) => sum + time, 0)), key: (e) => e.stages.reduce((sum, [, time]) => sum + time, 0) },
      { title: 'Stages', wide: true, text: stages },
    ],
  });
}

tabs.forEach((tab) => { tab.addEventListener('click', () => show(keyOf(tab))); tab.addEventListener('keydown', tabKeys); });
document.addEventListener('keydown', keys);
byId('theme').addEventListener('click', turn);
byId('keys').addEventListener('click', () => byId('help').showModal());
let kept = null;
try { kept = localStorage.getItem('graftjit-theme'); } catch { /* no storage for files */ }
colours(kept === 'light' || kept === 'dark' ? kept : '');
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => colours(''));
search();
built.add('summary');
summaryPanel(byId('panel-summary'));
recall();
addEventListener('hashchange', recall);
// Printed is what was looked at, with the source, which the others refer to.
addEventListener('beforeprint', () => { if (R.files.length && !built.has('source')) { built.add('source'); sourcePanel(byId('panel-source')); } });
document.documentElement.dataset.ready = 'true';
