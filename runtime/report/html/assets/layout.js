// A layered drawing of a graph (after Sugiyama, Tagawa and Toda, 1981): layers by longest path, an order within each by
// the middle of the neighbours, places that are nearest to those without overlap. Long edges pass through small
// stand-ins, one a source and layer, so that the edges of one value run together.
// In: boxes with {height, ins: [numbers of boxes]}. Out: {boxes: [{x, y, width, height}], parts: [{from, to, x1, y1, x2, y2}], ...}.

const BOX = { width: 224, across: 26, down: 36, thin: 12, reach: 24 };

// Numbers in an order in which what is read comes before what reads it; a circle, which no graph should have, is cut.
function inOrder(boxes) {
  const waits = boxes.map((box) => box.ins.length);
  const readers = boxes.map(() => []);
  boxes.forEach((box, number) => box.ins.forEach((from) => readers[from].push(number)));
  const ready = [];
  boxes.forEach((_box, number) => { if (!waits[number]) ready.push(number); });
  const order = [];
  const done = new Set();
  let next = 0;
  while (order.length < boxes.length) {
    if (!ready.length) {
      while (done.has(next)) next += 1;
      ready.push(next);
    }
    const number = ready.shift();
    if (done.has(number)) continue;
    done.add(number);
    order.push(number);
    for (const reader of readers[number]) if ((waits[reader] -= 1) === 0) ready.push(reader);
  }
  return { order, readers };
}

function layersOf(boxes) {
  const { order, readers } = inOrder(boxes);
  const layer = new Array(boxes.length).fill(0);
  const seen = new Set();
  for (const number of order) {
    for (const from of boxes[number].ins) if (seen.has(from)) layer[number] = Math.max(layer[number], layer[from] + 1);
    seen.add(number);
  }
  // What reads nothing stands right above its first reader, not at the top of all.
  for (const number of order) {
    if (!boxes[number].ins.length && readers[number].length) {
      layer[number] = Math.max(0, Math.min(...readers[number].map((reader) => layer[reader])) - 1);
    }
  }
  return layer;
}

// Boxes and stand-ins by layer, with the links between neighbouring layers; and the edges too long to be drawn always.
function woven(boxes, layer) {
  const rows = [];
  const items = boxes.map((box, number) => ({ number, width: BOX.width, up: [], down: [], x: 0, layer: layer[number] }));
  for (const item of items) (rows[item.layer] ||= []).push(item);
  for (let at = 0; at < rows.length; at += 1) rows[at] ||= [];
  const links = [];
  const far = [];
  const passing = new Map(); // "source:layer" -> stand-in
  const join = (a, b, from) => {
    if (a.down.includes(b)) return;
    a.down.push(b); b.up.push(a);
    links.push({ a, b, from });
  };
  boxes.forEach((box, number) => {
    for (const from of new Set(box.ins)) {
      const [top, bottom] = [layer[from], layer[number]];
      if (bottom <= top || bottom - top > BOX.reach) { far.push([from, number]); continue; }
      let above = items[from];
      for (let at = top + 1; at < bottom; at += 1) {
        const key = `${from}:${at}`;
        if (!passing.has(key)) {
          const item = { number: -1, from, width: BOX.thin, up: [], down: [], x: 0, layer: at };
          passing.set(key, item);
          rows[at].push(item);
        }
        join(above, passing.get(key), from);
        above = passing.get(key);
      }
      join(above, items[number], from);
    }
  });
  return { rows, items, links, far };
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function arrangeRows(rows) {
  rows.forEach((row) => row.forEach((item, index) => { item.index = index; }));
  for (let sweep = 0; sweep < 6; sweep += 1) {
    const side = sweep % 2 ? 'down' : 'up';
    const list = sweep % 2 ? [...rows].reverse() : rows;
    for (const row of list) {
      const wish = new Map(row.map((item) => [item, item[side].length ? mean(item[side].map((other) => other.index)) : item.index]));
      row.sort((a, b) => wish.get(a) - wish.get(b) || a.index - b.index);
      row.forEach((item, index) => { item.index = index; });
    }
  }
}

// The places nearest to the wished ones (least squares) that keep the order and the distances: neighbours that would
// overlap are pooled.
function settle(row, wishes) {
  const pools = [];
  let offset = 0;
  row.forEach((item, index) => {
    if (index) offset += (row[index - 1].width + item.width) / 2 + BOX.across;
    item.offset = offset;
    let pool = { sum: wishes[index] - offset, count: 1, first: index };
    while (pools.length && pools[pools.length - 1].sum / pools[pools.length - 1].count > pool.sum / pool.count) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, count: before.count + pool.count, first: before.first };
    }
    pools.push(pool);
  });
  pools.forEach((pool, number) => {
    const end = number + 1 < pools.length ? pools[number + 1].first : row.length;
    for (let index = pool.first; index < end; index += 1) row[index].x = pool.sum / pool.count + row[index].offset;
  });
}

function place(rows) {
  rows.forEach((row) => settle(row, row.map(() => 0)));
  rows.forEach((row) => { const middle = row.length ? mean(row.map((item) => item.x)) : 0; row.forEach((item) => { item.x -= middle; }); });
  for (let sweep = 0; sweep < 6; sweep += 1) {
    const list = sweep % 2 ? [...rows].reverse() : rows;
    for (const row of list) {
      settle(row, row.map((item) => {
        const near = sweep % 2 ? item.down : item.up;
        return near.length ? mean(near.map((other) => other.x)) : item.x;
      }));
    }
  }
}

function layout(boxes) {
  const layer = layersOf(boxes);
  const { rows, items, links, far } = woven(boxes, layer);
  arrangeRows(rows);
  place(rows);
  const tops = [];
  let y = 16;
  rows.forEach((row, at) => {
    tops[at] = y;
    y += Math.max(0, ...row.filter((item) => item.number >= 0).map((item) => boxes[item.number].height)) + BOX.down;
  });
  let left = Infinity;
  let right = -Infinity;
  for (const row of rows) for (const item of row) { left = Math.min(left, item.x - item.width / 2); right = Math.max(right, item.x + item.width / 2); }
  const dx = 24 - (left === Infinity ? 0 : left);
  const bottomOf = (item) => (item.number >= 0 ? tops[item.layer] + boxes[item.number].height : (tops[item.layer + 1] ?? y) - BOX.down);
  return {
    boxes: items.map((item) => ({ x: item.x + dx - item.width / 2, y: tops[item.layer], width: item.width, height: boxes[item.number].height })),
    // A stand-in is passed straight: the part above it goes to its top, and it has a part of its own.
    parts: [
      ...links.map(({ a, b, from }) => ({ from, to: b.number, x1: a.x + dx, y1: bottomOf(a), x2: b.x + dx, y2: tops[b.layer] })),
      ...rows.flat().filter((item) => item.number < 0).map((item) => ({ from: item.from, to: -1, x1: item.x + dx, y1: tops[item.layer], x2: item.x + dx, y2: bottomOf(item) })),
    ],
    far,
    width: right === -Infinity ? 0 : right - left + 48,
    height: y,
  };
}
