// The kernels: the roofline, and the table.

const moved = (kernel) => kernel.reads + kernel.writes;
const gigabytes = (kernel) => (kernel.seconds > 0 ? moved(kernel) / kernel.seconds : 0);
const mostWeight = Math.max(0, ...R.kernels.map((kernel) => kernel.weight));

function shareBar(value) {
  return value > 0 ? [percent(value), el('span', { class: 'bar-cell', 'aria-hidden': 'true' }, el('i', { css: { width: `${Math.min(100, value * 100).toFixed(0)}%` } }))] : NONE;
}

function kernelLinesText(kernel) {
  const places = kernel.lines.length ? kernel.lines : kernel.at ? [kernel.at] : [];
  return [...new Set(places.map(placeText))];
}

function unfusedText(kernel) {
  return [...new Set(kernel.unfused.map((reason) => reason.why))].join('; ');
}

const KERNEL_COLUMNS = [
  { title: 'Kernel', mono: true, text: (k) => `${k.name} ${k.operators.join(' ')} ${k.kind}`, key: (k) => k.name, cell: (k) => cut(k.name, 34) },
  { title: 'Time', num: true, text: () => '', key: (k) => k.seconds, cell: (k) => seconds(k.seconds) },
  { title: 'Share', num: true, text: () => '', key: (k) => k.weight, cell: (k) => (totalSeconds > 0 ? shareBar(k.weight / totalSeconds) : NONE) },
  { title: 'Of roofline', num: true, text: () => '', key: (k) => k.share, cell: (k) => shareBar(k.share) },
  { title: 'Bound by', text: (k) => k.bound, key: (k) => k.bound, cell: (k) => k.bound || NONE },
  { title: 'Rate', num: true, text: () => '', key: gigabytes, cell: (k) => rate(gigabytes(k), 'B/s') },
  { title: 'Shape', mono: true, text: (k) => k.shape, key: (k) => k.shape },
  { title: 'Operators', mono: true, wide: true, text: (k) => k.operators.join(' '), key: (k) => k.operators.length, cell: (k) => cut(k.operators.map(shortOp).join(', '), 90) },
  {
    title: 'Lines', mono: true, text: (k) => kernelLinesText(k).join(' '), key: (k) => kernelLinesText(k)[0] || '',
    cell: (k) => { const places = k.lines.length ? k.lines : k.at ? [k.at] : []; return [places.length ? placeLink(places[0], briefPlace(places[0])) : '', places.length > 1 ? ` +${places.length - 1}` : '']; },
  },
  { title: 'Not fused because', text: unfusedText, key: unfusedText, cell: (k) => el('span', { class: 'one-line', title: unfusedText(k) }, cut(unfusedText(k), 64)) },
];

// Columns of which nothing is known are left out.
function kernelColumns() {
  const unknown = { Time: 'seconds', Share: 'weight', Rate: 'seconds', 'Of roofline': 'share', 'Bound by': 'bound' };
  return KERNEL_COLUMNS.filter((column) => {
    const name = unknown[column.title];
    if (column.title === 'Not fused because') return R.kernels.some((k) => k.unfused.length);
    return !name || R.kernels.some((k) => k[name]);
  });
}

function kernelsPanel(panel) {
  if (!R.kernels.length) panel.append(el('p', { class: 'empty' }, 'No kernel was made.'));
  else {
    const columns = kernelColumns();
    const sort = columns.findIndex((column) => column.title === 'Share');
    panel.append(
      roofline(),
      table({ label: 'Kernels and library calls', columns, rows: R.kernels, kind: 'kernel', sort: sort < 0 ? undefined : sort, descending: true }));
  }
  if (R.schedules.length) {
    panel.append(el('h2', null, 'Measured schedules'), table({
      label: 'Schedules', rows: R.schedules, columns: [
        { title: 'Kernel', mono: true, text: (s) => s.name, key: (s) => s.name },
        { title: 'Chosen', text: (s) => s.chosen, key: (s) => s.chosen },
        { title: 'Schedules tried', wide: true, text: (s) => s.times.map(([way, time]) => `${way} ${seconds(time)}`).join(', ') },
        { title: 'Remembered', text: (s) => (s.remembered ? 'yes' : 'no') },
      ],
    }));
  }
  if (R.libraries.length) {
    panel.append(el('h2', null, 'Files of kernels'), table({
      label: 'Files of kernels', rows: R.libraries, columns: [
        { title: 'Name', mono: true, text: (l) => l.name, key: (l) => l.name },
        { title: 'Frame', mono: true, text: (l) => l.frame, key: (l) => l.frame },
        { title: 'Size', num: true, text: (l) => bytes(l.bytes), key: (l) => l.bytes },
        { title: 'Time', num: true, text: (l) => seconds(l.seconds), key: (l) => l.seconds },
        { title: 'From the store', text: (l) => (l.cached ? 'yes' : 'no'), key: (l) => Number(l.cached) },
        { title: 'Operators', wide: true, text: (l) => cut([...new Set(l.covers.map(shortOp))].join(', '), 160) },
      ],
    }));
  }
}

// Attained operations a second over operations a byte, both in powers of ten (Williams, Waterman, Patterson, 2009).
function roofline() {
  const dots = R.kernels.map((kernel, number) => ({ kernel, number, x: moved(kernel) ? kernel.flops / moved(kernel) : 0, y: kernel.seconds > 0 ? kernel.flops / kernel.seconds : 0 }))
    .filter((dot) => dot.x > 0 && dot.y > 0).sort((a, b) => b.kernel.weight - a.kernel.weight).slice(0, 400);
  const roof = R.roofs.find((r) => r.memory > 0) || R.roofs[0];
  if (dots.length < 2) return '';
  const [wide, high, left, bottom] = [880, 300, 64, 40];
  const span = (values) => [Math.floor(Math.log10(Math.min(...values)) - .1), Math.ceil(Math.log10(Math.max(...values)) + .1)];
  const [x0, x1] = span(dots.map((d) => d.x));
  const tops = roof ? [roof.compute, ...dots.map((d) => d.y)].filter((v) => v > 0) : dots.map((d) => d.y);
  const [y0, y1] = span([...tops, ...dots.map((d) => d.y)]);
  const X = (v) => left + ((Math.log10(v) - x0) / (x1 - x0)) * (wide - left - 16);
  const Y = (v) => 12 + (1 - (Math.log10(v) - y0) / (y1 - y0)) * (high - bottom - 12);
  const grid = [];
  for (let p = x0; p <= x1; p += 1) grid.push(svg('line', { class: 'axis', x1: X(10 ** p), x2: X(10 ** p), y1: 12, y2: high - bottom }), svg('text', { x: X(10 ** p), y: high - bottom + 16, 'text-anchor': 'middle' }, p < -2 || p > 3 ? `1e${p}` : String(Number((10 ** p).toPrecision(1)))));
  for (let p = y0; p <= y1; p += 1) grid.push(svg('line', { class: 'axis', x1: left, x2: wide - 16, y1: Y(10 ** p), y2: Y(10 ** p) }), svg('text', { x: left - 8, y: Y(10 ** p) + 4, 'text-anchor': 'end' }, scaled(10 ** p, [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']]).replace(/\.0+|\.00/, '')));
  const text = `Roofline of ${counted(dots.length, 'kernel')}`;
  const drawn = dots.map(({ kernel, number, x, y }) => svg('circle', {
    class: `dot ${kernel.kind}`, cx: X(x), cy: Y(y), r: 4 + 9 * Math.sqrt(mostWeight ? kernel.weight / mostWeight : 0), data: { kernel: number }, onclick: () => choose('kernel', number),
  }, svg('title', null, `${kernel.name}: ${rate(y, 'FLOP/s')} at ${x.toPrecision(2)} FLOP per byte, ${seconds(kernel.seconds)}`)));
  onChoice(() => drawn.forEach((dot) => dot.classList.toggle('is-linked', chosen.kernels.has(Number(dot.dataset.kernel)))));
  return el('figure', { class: 'chart', css: { margin: '0 0 1.2rem' } },
    svg('svg', { viewBox: `0 0 ${wide} ${high}`, role: 'img', 'aria-label': `${text}; the table below has the same kernels` },
      grid, roofPath(roof, X, Y, x0, x1), drawn,
      svg('text', { x: (left + wide) / 2, y: high - 6, 'text-anchor': 'middle' }, 'floating-point operations per byte moved'),
      svg('text', { x: 14, y: (high - bottom) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(high - bottom) / 2})` }, 'operations per second')));
}

function roofPath(roof, X, Y, x0, x1) {
  if (!roof || !roof.memory) return '';
  const points = [];
  for (let p = x0; p <= x1 + .001; p += .05) {
    const y = Math.min(roof.memory * 10 ** p, roof.compute || Infinity);
    points.push(`${X(10 ** p).toFixed(1)} ${Math.max(12, Y(y)).toFixed(1)}`);
  }
  return svg('path', { class: 'roof', d: `M${points.join('L')}` });
}
