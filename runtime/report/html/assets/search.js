// The search of the bar: lines of the files, kernels, operators, guards, breaks; a combobox with a list.

const MOST_FOUND = 40;

function* everything() {
  for (const [id, b] of R.breaks.entries()) yield ['break', id, `${b.code} ${b.title} ${b.reason} ${placeText(b.at)}`, `${b.code} ${b.title}`];
  for (const [id, r] of R.recompiles.entries()) yield ['recompile', id, `${r.code} ${r.title} ${r.source} ${r.now}`, `${r.source}: ${r.now}`];
  for (const [id, k] of R.kernels.entries()) yield ['kernel', id, `${k.name} ${k.operators.join(' ')} ${k.shape}`, k.name];
  for (const [f, file] of R.files.entries()) {
    for (const segment of file.segments) {
      for (const [offset, text] of segment.text.split('\n').entries()) {
        if (text.trim()) yield ['line', placeKey(f, segment.start + offset), `${text} ${file.short}:${segment.start + offset}`, text.trim()];
      }
    }
  }
  for (const [g, one] of R.graphs.entries()) for (const [n, node] of one.nodes.entries()) yield ['node', `${g}.${n}`, `${node[0]} ${node[1]} ${node[2]}`, `${node[0]} = ${node[1]}`];
  for (const [id, guard] of R.guards.entries()) yield ['guard', id, `${guard.text} ${guard.source}`, guard.text];
}

function matches(wanted) {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  const counts = {};
  if (!words.length) return found;
  for (const [kind, id, text, title] of everything()) {
    const lower = text.toLowerCase();
    if (!words.every((word) => lower.includes(word))) continue;
    counts[kind] = (counts[kind] || 0) + 1;
    if (counts[kind] > 12) continue; // so that one kind does not fill the list
    found.push([kind, id, title]);
    if (found.length >= MOST_FOUND) break;
  }
  return found;
}

function search() {
  const input = byId('search');
  const list = byId('found');
  let at = -1;
  const close = () => { list.hidden = true; input.setAttribute('aria-expanded', 'false'); input.removeAttribute('aria-activedescendant'); at = -1; };
  const point = (next) => {
    const options = [...list.querySelectorAll('[data-found]')];
    if (!options.length) return;
    at = (next + options.length) % options.length;
    options.forEach((option, number) => option.setAttribute('aria-selected', String(number === at)));
    options[at].scrollIntoView({ block: 'nearest' });
    input.setAttribute('aria-activedescendant', options[at].id);
  };
  const draw = () => {
    const found = matches(input.value);
    list.replaceChildren(...found.map(([kind, id, title], number) => el('li', {
      role: 'option', id: `found-${number}`, 'aria-selected': 'false', data: { found: `${kind} ${id}` },
      onmousedown: (event) => { event.preventDefault(); take(kind, id); },
    }, el('span', null, kind), el('span', null, title))));
    if (!found.length && input.value.trim()) list.append(el('li', { role: 'option', 'aria-disabled': 'true', 'aria-selected': 'false' }, el('span'), el('span', null, 'Nothing found.')));
    list.hidden = !list.childElementCount;
    input.setAttribute('aria-expanded', String(!list.hidden));
    at = -1;
    if (found.length) point(0);
  };
  const take = (kind, id) => { close(); input.blur(); choose(kind, id, true); };
  input.addEventListener('input', draw);
  input.addEventListener('focus', () => { if (input.value.trim()) draw(); });
  input.addEventListener('blur', close);
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown') { event.preventDefault(); point(at + 1); }
    else if (event.key === 'ArrowUp') { event.preventDefault(); point(at - 1); }
    else if (event.key === 'Enter' && at >= 0) { const [kind, id] = list.querySelectorAll('[data-found]')[at].dataset.found.split(' '); take(kind, id); }
    else if (event.key === 'Escape') { if (list.hidden) input.blur(); close(); event.stopPropagation(); }
  });
}
