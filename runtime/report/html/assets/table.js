// A table that is sorted by its headings, filtered by a text, and grows as it is asked to: there may be thousands of
// rows. A column: {title, num, text(row), cell(row), key(row), first}: `text` is what the filter sees, `key` what sorts.

const CHUNK = 150;

function table({ label, columns, rows, kind, sort, descending, empty }) {
  const state = { by: sort, down: Boolean(descending), filter: '', limit: CHUNK };
  const shown = new Map(); // row number -> tr
  const body = el('tbody');
  const count = el('span', { role: 'status' });
  const more = el('button', { type: 'button', class: 'more', hidden: true, onclick: () => { state.limit += CHUNK * 4; draw(); } }, 'Show more');
  const heads = columns.map((column, number) => el('th', { scope: 'col', class: column.num && 'num' },
    column.key
      ? el('button', { type: 'button', onclick: () => order(number) }, column.title)
      : el('span', null, column.title)));
  const numbered = rows.map((row, number) => ({ row, number, text: '' }));
  let order_ = numbered;

  function textOf(item) {
    if (!item.text) item.text = columns.map((c) => (c.text ? c.text(item.row, item.number) : '')).join(' ').toLowerCase();
    return item.text;
  }
  function compare(a, b) {
    const column = columns[state.by];
    const [x, y] = [column.key(a.row, a.number), column.key(b.row, b.number)];
    const by = typeof x === 'number' ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
    return (state.down ? -by : by) || a.number - b.number;
  }
  function order(number) {
    state.down = state.by === number ? !state.down : Boolean(columns[number].num);
    state.by = number;
    arrange();
    tell(`sorted by ${columns[number].title}, ${state.down ? 'descending' : 'ascending'}`);
  }
  function arrange() {
    heads.forEach((head, number) => {
      if (number === state.by) head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    order_ = numbered.filter((item) => words.every((word) => textOf(item).includes(word)));
    if (state.by !== undefined) order_.sort(compare);
    draw();
  }
  function line(item) {
    const go = kind && (() => choose(kind, item.number));
    return el('tr', { class: kind && 'can', onclick: go, data: { row: item.number } },
      columns.map((column, c) => {
        const inside = column.cell ? column.cell(item.row, item.number) : column.text(item.row, item.number);
        const first = c === 0 && kind
          ? el('button', { type: 'button', class: 'link', onclick: (event) => { event.stopPropagation(); go(); } }, inside)
          : inside;
        return el('td', { class: [column.num && 'num', column.mono && 'mono', column.wide && 'wide'].filter(Boolean).join(' ') || null }, first);
      }));
  }
  function draw() {
    shown.clear();
    const part = order_.slice(0, state.limit);
    body.replaceChildren(...part.map((item) => { const tr = line(item); shown.set(item.number, tr); return tr; }));
    more.hidden = order_.length <= state.limit;
    count.textContent = order_.length === rows.length ? rows.length > 6 ? `${rows.length} rows` : '' : `${order_.length} of ${rows.length} rows`;
    light();
  }
  function light() {
    for (const [number, tr] of shown) {
      tr.classList.toggle('is-linked', kind === 'kernel' && chosen.kernels.has(number));
      tr.classList.toggle('is-chosen', chosen.kind === kind && Number(chosen.id) === number);
    }
  }
  // Brings the chosen row into sight, past the filter and the rows not yet drawn.
  function reveal() {
    if (chosen.kind !== kind) return;
    const number = Number(chosen.id);
    let index = order_.findIndex((item) => item.number === number);
    if (index < 0) { filter.value = state.filter = ''; arrange(); index = order_.findIndex((item) => item.number === number); }
    if (index >= state.limit) { state.limit = index + CHUNK; draw(); }
    shown.get(number)?.scrollIntoView({ block: 'center' });
  }
  const filter = el('input', {
    type: 'search', placeholder: 'Filter', 'aria-label': `Filter ${label}`,
    oninput: (event) => { state.filter = event.target.value; state.limit = CHUNK; arrange(); },
  });
  onChoice((go) => { light(); if (go) reveal(); });
  arrange();
  if (!rows.length) return el('p', { class: 'empty' }, empty || 'None.');
  return el('div', { class: 'table' },
    el('div', { class: 'table-tools', hidden: rows.length <= 6 }, filter, count),
    el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
      el('table', null, el('caption', { class: 'unseen' }, label), el('thead', null, el('tr', null, heads)), body)),
    more);
}
