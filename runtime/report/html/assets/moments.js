// What happened when: recompiles with what they were made for, and the timeline of captures, builds and breaks.

const KINDS = ['capture', 'stage', 'build', 'break', 'recompile', 'adopted', 'fallback', 'plain', 'warning'];

function recompilesPanel(panel) {
  panel.append(el('p', { class: 'lead' }, 'A call that no entry fits is compiled again. Each row shows the value now, and the value that the nearest entry was made for.'));
  const moments = R.timeline.filter((m) => m.kind === 'recompile' || m.kind === 'capture');
  if (R.recompiles.length && moments.length) panel.append(lanes(moments, 'Captures and recompiles over time'));
  panel.append(table({
    label: 'Recompiles', rows: R.recompiles, kind: 'recompile', empty: 'Nothing was compiled again.',
    columns: [
      { title: 'What varies', mono: true, text: (r) => r.source || r.title, key: (r) => r.source },
      { title: 'Now', mono: true, text: (r) => r.now, key: (r) => r.now, cell: (r) => el('span', { class: 'now' }, r.now) },
      { title: 'Before', mono: true, text: (r) => r.before, key: (r) => r.before, cell: (r) => el('span', { class: 'before' }, r.before) },
      { title: 'Frame', mono: true, text: (r) => r.frame, key: (r) => r.frame },
      { title: 'Line', mono: true, text: (r) => placeText(r.at), key: (r) => placeText(r.at), cell: (r) => placeLink(r.at) },
      { title: 'Entries', num: true, text: (r) => (r.entries ? `${r.entries} of ${r.limit || '?'}` : NONE), key: (r) => r.entries },
      { title: 'Code', mono: true, text: (r) => `${r.code} ${r.title}`, key: (r) => r.code, cell: (r) => r.code },
      { title: 'Cure', wide: true, text: (r) => r.cure, key: (r) => r.cure },
    ],
  }));
  if (R.symbolic.length) {
    panel.append(el('h2', null, 'Sizes and numbers that vary'), el('p', { class: 'lead' }, 'Graphs take these as inputs, so that other values need no new capture.'), table({
      label: 'Sizes and numbers that vary', rows: R.symbolic, columns: [
        { title: 'What', mono: true, text: (s) => s.source, key: (s) => s.source },
        { title: 'Why', wide: true, text: (s) => s.why, key: (s) => s.why },
        { title: 'Frame', mono: true, text: (s) => s.frame, key: (s) => s.frame },
        { title: 'Line', mono: true, text: (s) => placeText(s.at), key: (s) => placeText(s.at), cell: (s) => placeLink(s.at) },
      ],
    }));
  }
}

// Long times of rest between two happenings are drawn short, so that the happenings can be told apart.
function pressed(moments) {
  const spans = moments.map((m) => [m.when, m.when + m.seconds]).sort((a, b) => a[0] - b[0]);
  const busy = [];
  for (const [from, to] of spans) {
    const last = busy[busy.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else busy.push([from, to]);
  }
  const whole = busy.reduce((sum, [from, to]) => sum + to - from, 0);
  const rest = Math.max(whole * .04, 1e-4);
  const knots = [];
  let at = 0;
  busy.forEach(([from, to], number) => {
    if (number) at += Math.min(rest, from - busy[number - 1][1]);
    knots.push([from, at]);
    at += to - from;
    knots.push([to, at]);
  });
  return { end: at || 1, of: (time) => { const near = knots.findLast(([t]) => t <= time) || knots[0]; return near[1] + Math.max(0, Math.min(time - near[0], at)); } };
}

function lanes(moments, label) {
  const kinds = [...KINDS, ...new Set(moments.map((m) => m.kind).filter((kind) => !KINDS.includes(kind)))].filter((kind) => moments.some((m) => m.kind === kind));
  const [wide, left, step] = [1000, 92, 30];
  const high = kinds.length * step + 34;
  const time = pressed(moments);
  const X = (at) => left + (time.of(at) / time.end) * (wide - left - 14);
  const start = Math.min(...moments.map((m) => m.when));
  const shapes = moments.slice(0, 3000).map((m) => {
    const y = kinds.indexOf(m.kind) * step + 8;
    const width = X(m.when + m.seconds) - X(m.when);
    const title = svg('title', null, `${m.title}${m.frame ? ` in ${m.frame}` : ''}, at ${seconds(m.when - start)}${m.seconds ? `, for ${seconds(m.seconds)}` : ''}`);
    const shape = `lane lane-${KINDS.includes(m.kind) ? m.kind : 'other'}`;
    return m.seconds > 0
      ? svg('rect', { class: shape, x: X(m.when), y, width: Math.max(1.5, width), height: 16, rx: 2 }, title)
      : svg('circle', { class: shape, cx: X(m.when), cy: y + 8, r: 5 }, title);
  });
  return el('figure', { class: 'chart', css: { margin: '0 0 1.2rem' } }, svg('svg', { viewBox: `0 0 ${wide} ${high}`, role: 'img', 'aria-label': `${label}; the table below has the same` },
    kinds.map((kind, number) => [
      svg('text', { class: 'name', x: 0, y: number * step + 20 }, kind),
      svg('line', { class: 'axis', x1: left, x2: wide - 14, y1: number * step + 30, y2: number * step + 30 })]),
    shapes,
    svg('text', { x: left, y: high - 6 }, '0'),
    svg('text', { x: wide - 14, y: high - 6, 'text-anchor': 'end' }, seconds(Math.max(...moments.map((m) => m.when + m.seconds)) - start))));
}

function timelinePanel(panel) {
  if (!R.timeline.length) return panel.append(el('p', { class: 'empty' }, 'Nothing has happened yet.'));
  const start = Math.min(...R.timeline.map((m) => m.when));
  panel.append(
    el('p', { class: 'lead' }, 'Captures, builds of kernels and breaks in the order in which they happened. Idle times are drawn short.'),
    lanes(R.timeline, 'Timeline'),
    table({
      label: 'What happened', rows: R.timeline, sort: 0, columns: [
        { title: 'At', num: true, text: (m) => (m.when > start ? seconds(m.when - start) : '0'), key: (m) => m.when },
        { title: 'What', text: (m) => m.kind, key: (m) => m.kind, cell: (m) => el('span', { class: `tag ${m.kind === 'capture' ? 'compiled' : m.kind}` }, m.kind) },
        { title: 'Of', wide: true, mono: true, text: (m) => m.title, key: (m) => m.title },
        { title: 'Frame', mono: true, text: (m) => m.frame, key: (m) => m.frame },
        { title: 'Took', num: true, text: (m) => seconds(m.seconds), key: (m) => m.seconds },
      ],
    }));
  if (R.warnings.length) {
    panel.append(el('h2', null, 'Warnings'), table({ label: 'Warnings', rows: R.warnings, columns: [
      { title: 'Code', mono: true, text: (w) => w.code, key: (w) => w.code }, { title: 'Text', wide: true, text: (w) => w.text, key: (w) => w.text }] }));
  }
}
