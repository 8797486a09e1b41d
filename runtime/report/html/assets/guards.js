// Guards as a tree by what they look at: self, then .layers, then [0]. Branches are made when they are opened.

function guardTree(rows) {
  const root = { name: '', children: new Map(), leaves: [], count: 0 };
  for (const { guard, id } of rows) {
    let at = root;
    at.count += 1;
    for (const step of guard.path) {
      if (!at.children.has(step)) at.children.set(step, { name: step, children: new Map(), leaves: [], count: 0 });
      at = at.children.get(step);
      at.count += 1;
    }
    at.leaves.push({ guard, id });
  }
  return root;
}

// A branch with one branch only is written in one line with it: self.layers[0].
function joined(node) {
  let name = node.name;
  while (!node.leaves.length && node.children.size === 1) {
    [node] = node.children.values();
    name += node.name;
  }
  return [name, node];
}

function branch(start, open) {
  const [name, node] = joined(start);
  if (!node.children.size && node.leaves.length === 1) return leaf(node.leaves[0], name);
  const inside = el('ul');
  const details = el('details', { ontoggle: () => { if (details.open && !inside.childElementCount) grow(inside, node); } },
    el('summary', null, name, el('span', { class: 'n' }, node.count)), inside);
  if (open) { grow(inside, node); details.open = true; }
  return el('li', null, details);
}

function grow(inside, node) {
  inside.append(...node.leaves.map((one) => leaf(one)), ...[...node.children.values()].map((child) => branch(child, node.children.size === 1)));
}

function leaf({ guard, id }, _name) {
  return el('li', { class: 'leaf', data: { guard: id } },
    el('span', { class: 'tag' }, guard.kind), el('span', null, guard.text),
    guard.at ? linkButton(placeText(guard.at), 'line', placeKey(guard.at[0], guard.at[1]), `line ${placeText(guard.at)}, which made this guard`) : null);
}

function guardsPanel(panel) {
  if (!R.guards.length) return panel.append(el('p', { class: 'empty' }, 'There is no guard.'));
  const rows = R.guards.map((guard, id) => ({ guard, id, text: `${guard.text} ${guard.kind} ${guard.source} ${placeText(guard.at)}`.toLowerCase() }));
  const tree = el('div', { class: 'tree' });
  const count = el('span', { role: 'status' });
  const draw = (wanted) => {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? rows.filter((row) => words.every((word) => row.text.includes(word))) : rows;
    count.textContent = found.length === rows.length ? `${counted(rows.length, 'guard')}` : `${found.length} of ${rows.length} guards`;
    const frames = [...new Set(found.map(({ guard }) => guard.frame))];
    tree.replaceChildren(el('ul', null, frames.map((frame) => {
      const root = guardTree(found.filter(({ guard }) => guard.frame === frame));
      if (frames.length === 1) return [...root.children.values()].map((child) => branch(child, words.length > 0 || root.children.size < 4));
      return branch({ ...root, name: frame, children: root.children, leaves: root.leaves.length ? root.leaves : [] }, true);
    })));
  };
  const filter = el('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter guards', oninput: (event) => draw(event.target.value) });
  panel.append(
    el('p', { class: 'lead' }, 'A call runs a compiled entry only if all its guards hold. If a guard fails, the call is compiled again.'),
    el('div', { class: 'table-tools' }, filter, count), tree);
  draw('');
  onChoice((go) => {
    if (chosen.kind !== 'guard' || !go) return;
    filter.value = R.guards[chosen.id].text.slice(0, 120);
    draw(filter.value);
    tree.querySelectorAll('details').forEach((one) => { one.open = true; });
    tree.querySelector(`[data-guard="${chosen.id}"]`)?.scrollIntoView({ block: 'center' });
  });
}
