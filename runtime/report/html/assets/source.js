// The user's files as a heat map: how each line runs, how long its kernels take, and the breaks where they are.

const source = { file: -1, rows: new Map() };

const STATES = [['compiled', 'compiled'], ['resumed', 'compiled, after a break'], ['broken', 'graph break'], ['plain', 'plain Python']];

function fileSeconds(file) {
  let sum = 0;
  for (const [key, value] of lineSeconds) if (key.startsWith(`${file}:`)) sum += value;
  return sum;
}

// The user's own files first, then by the time of their kernels.
const fileOrder = R.files.map((_file, number) => number)
  .filter((number) => R.files[number].segments.length || [...lineState.keys(), ...lineNotes.keys()].some((key) => key.startsWith(`${number}:`)))
  .map((number) => ({ number, mine: R.files[number].mine, time: fileSeconds(number), broken: R.breaks.some((b) => b.at && b.at[0] === number) }))
  .sort((a, b) => Number(b.mine) - Number(a.mine) || b.time - a.time || Number(b.broken) - Number(a.broken));

function sourcePanel(panel) {
  if (!fileOrder.length) return panel.append(el('p', { class: 'empty' }, 'No line of a file was met yet.'));
  const button = ({ number, time }) => el('button', {
    type: 'button', 'aria-pressed': 'false', data: { file: number }, title: R.files[number].path,
    class: R.files[number].mine ? null : 'foreign', onclick: () => openFile(number),
  }, R.files[number].short, time > 0 && totalSeconds > 0 ? el('span', { class: 'share' }, percent(time / totalSeconds)) : null);
  const first = fileOrder.filter((one, at) => at === 0 || one.mine || one.time > 0 || one.broken);
  const rest = fileOrder.filter((one) => !first.includes(one));
  panel.append(
    el('div', { class: 'files', role: 'group', 'aria-label': 'Files' }, first.map(button)),
    rest.length ? el('details', { class: 'more-files' }, el('summary', null, `${counted(rest.length, 'file')} more, of guards and calls`),
      el('div', { class: 'files', role: 'group', 'aria-label': 'More files' }, rest.map(button))) : '',
    el('p', { class: 'legend' }, STATES.map(([state, text]) => el('span', null, el('i', { class: state }), text)),
      mostSeconds > 0 && el('span', null, el('i', { class: 'heat-key' }), 'time of its kernels')),
    el('div', { id: 'code' }));
  openFile(fileOrder[0].number);
}

function openFile(number) {
  if (source.file === number) return;
  source.file = number;
  source.rows.clear();
  const file = R.files[number];
  for (const button of document.querySelectorAll('.files button')) {
    button.setAttribute('aria-pressed', String(Number(button.dataset.file) === number));
  }
  const inside = el('div', { class: 'code-in' });
  let last = 0;
  for (const segment of file.segments) {
    gap(inside, last + 1, segment.start - 1);
    const lines = segment.text.split('\n');
    lines.forEach((text, offset) => codeLine(inside, number, segment.start + offset, text, segment.runs[offset]));
    last = segment.start + lines.length - 1;
  }
  gap(inside, last + 1, file.total);
  byId('code').replaceChildren(
    file.changed ? el('p', { class: 'note' }, 'This file was changed after the program ran: lines may be off.') : '',
    file.segments.length ? '' : el('p', { class: 'note' }, 'The text of this file could not be read; its lines are listed by number.'),
    el('div', { class: 'code', tabindex: '0', role: 'region', 'aria-label': `Source of ${file.short}` }, inside));
  if (!file.segments.length) {
    const lines = new Set([...lineState.keys(), ...lineNotes.keys()].filter((key) => key.startsWith(`${number}:`)).map((key) => Number(key.split(':')[1])));
    [...lines].sort((a, b) => a - b).forEach((line) => codeLine(inside, number, line, '', ''));
  }
  light();
}

function gap(inside, first, last) {
  if (last >= first) inside.append(el('div', { class: 'gap' }, first === last ? `line ${first}` : `lines ${first} to ${last}`));
}

function heatOf(key) {
  const time = lineSeconds.get(key) || 0;
  if (!time || !mostSeconds) return null;
  const width = Math.max(.04, time / mostSeconds);
  return el('i', { css: { width: `calc(${(width * 100).toFixed(1)}% - ${(width * .9).toFixed(2)}rem)`, opacity: (.45 + .55 * width).toFixed(2) } });
}

// The line's own colour, the warmer the more time its kernels take.
function warmth(key) {
  const part = mostSeconds > 0 ? (lineSeconds.get(key) || 0) / mostSeconds : 0;
  return part > .01 ? { background: `linear-gradient(90deg, color-mix(in srgb, var(--heat) ${(4 + 16 * part).toFixed(1)}%, transparent), transparent 85%)` } : {};
}

function lineLabel(number, key) {
  const parts = [`line ${number}`];
  const state = STATES.find(([name]) => name === lineState.get(key));
  if (state) parts.push(state[1]);
  const kernels = has(lineKernels, key).size;
  if (kernels) parts.push(counted(kernels, 'kernel'));
  if (lineSeconds.get(key)) parts.push(`${percent(lineSeconds.get(key) / totalSeconds)} of the kernels' time`);
  return parts.join(', ');
}

function codeLine(inside, file, number, text, runs) {
  const key = placeKey(file, number);
  const linked = lineKernels.has(key) || lineNodes.has(key) || lineBreaks.has(key) || lineNotes.has(key);
  const pick = () => { if (!String(getSelection())) choose('line', key); };
  const label = lineLabel(number, key);
  const row = el('div', {
    class: ['row', lineState.get(key), linked && 'is-linkable'].filter(Boolean).join(' '), data: { line: key }, onclick: linked && pick,
    title: linked ? label : null,
  },
  linked
    ? el('button', { type: 'button', class: 'number', 'aria-label': label }, number)
    : el('span', { class: 'number' }, number),
  el('span', { class: 'heat' }, heatOf(key)),
  coloured(el('span', { class: 'text', css: warmth(key) }), text, runs));
  source.rows.set(key, row);
  inside.append(row);
  for (const ids of alikeBreaks([...has(lineBreaks, key)])) breakStory(inside, text, ids);
  for (const group of alike(lineNotes.get(key) || [])) noteStory(inside, group);
}

// Under a break: carets under what ended the graph, then the reason and the cure, to be opened.
function alikeBreaks(ids) {
  const groups = new Map();
  for (const id of ids) {
    const { code, at } = R.breaks[id];
    const key = `${code} ${at[3]} ${at[4]}`;
    groups.set(key, [...(groups.get(key) || []), id]);
  }
  return [...groups.values()].map((group) => group.sort((a, b) => R.breaks[b].seconds - R.breaks[a].seconds));
}

function breakStory(inside, text, ids) {
  const record = R.breaks[ids[0]];
  const times = Math.max(ids.length, record.count);
  const [, line, end, column, endColumn] = record.at;
  if (column !== null && column !== undefined && text) {
    const last = end === line && endColumn ? endColumn : text.length;
    inside.append(el('div', { class: 'marks', 'aria-hidden': 'true' },
      el('span', { class: 'carets' }, ' '.repeat(columnOf(text, column)) + '^'.repeat(Math.max(1, columnOf(text, last) - columnOf(text, column))))));
  }
  inside.append(story('break', ids.join(' '), record, [
    ['why', record.reason || record.why],
    ['cost', record.seconds > 0 ? `${seconds(record.seconds)} per call, measured over ${counted(record.samples, 'sample')}` : record.cost],
    ['cure', record.cure],
  ], [record.seconds > 0 && `${seconds(record.seconds)} per call`, times > 1 && `met ${times} times`].filter(Boolean).join(', ')));
}

// Columns are told in bytes of UTF-8, as Python's compiler counts them.
function columnOf(text, bytes_) {
  let left = bytes_;
  let columns = 0;
  for (const sign of text) {
    if (left <= 0) break;
    const code = sign.codePointAt(0);
    left -= code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    columns += 1;
  }
  return columns;
}

// Recompiles of one line for one value are one story, however often the value changed.
function alike(notes) {
  const groups = new Map();
  for (const note of notes) {
    const key = note.kind === 'recompile' ? `${note.record.code} ${note.record.source}` : note.id;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(note);
  }
  return groups.values();
}

function noteStory(inside, group) {
  const { kind, record } = group[0];
  const shown = group.slice(0, 12);
  const changes = shown.map((note) => `now ${note.record.now}, before ${note.record.before}`).join('; ') + (group.length > 12 ? '; …' : '');
  inside.append(story(kind === 'note' ? (record.plain ? 'plain' : 'fallback') : kind, group.map((note) => note.id).join(' '), record, [
    ['why', kind === 'recompile' ? `${record.source}: ${changes}` : record.reason],
    ['cure', record.cure],
  ], kind === 'recompile' ? `compiled again${group.length > 1 ? ` ${group.length} times` : ''}` : ''));
}

function story(kind, id, record, facts, aside) {
  return el('details', { class: 'story', data: { story: `${kind} ${id}` } },
    el('summary', null, el('span', { class: `tag ${kind}` }, record.code), el('b', null, record.title), el('span', { class: 'times' }, aside)),
    el('div', null,
      el('dl', { class: 'facts' }, facts.filter(([, value]) => value).map(([name, value]) => [el('dt', null, name), el('dd', null, value)])),
      (record.inlined || []).filter(Boolean).map((at) => el('p', null, 'reached from ', placeLink(at)))));
}

function light() {
  for (const [key, row] of source.rows) {
    const on = chosen.lines.has(key);
    row.classList.toggle('is-linked', on && chosen.kind !== 'line');
    row.classList.toggle('is-chosen', on && chosen.kind === 'line');
  }
}

onChoice((go) => {
  const [first] = chosen.lines;
  const wanted = chosen.kind && first ? Number(first.split(':')[0]) : -1;
  // A kernel may come of several files: the one that is open stays, if it has a line of it.
  const here = [...chosen.lines].find((key) => key.startsWith(`${source.file}:`));
  if (wanted >= 0 && !here && byId('code')) openFile(wanted);
  light();
  const row = source.rows.get(here || first);
  if (row && go) row.scrollIntoView({ block: 'center' });
  if (chosen.kind === 'break' || chosen.kind === 'note' || chosen.kind === 'recompile') {
    for (const opened of document.querySelectorAll('.story')) {
      const [kind, ...ids] = opened.dataset.story.split(' ');
      const same = chosen.kind === 'note' ? kind === 'plain' || kind === 'fallback' : kind === chosen.kind;
      if (same && ids.includes(chosen.id)) opened.open = true;
    }
  }
});
