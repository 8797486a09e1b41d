// Convolutions of float32 images, one- or two-dimensional, forward or transposed: y = bias + w * x.
//
// A convolution is a product of the weight's rows (output channels) with columns, which are
// positions of the result. 32 positions and at most 192 summands (input channels and taps) are
// gathered from x into the first-level cache and multiplied with twelve rows of the weight at a
// time, six with AVX2; the weight is read in its own layout. Nothing is packed and kept between
// calls. Each such block is added to the sum of the blocks before it, so that no sum is a chain of
// more than 256: errors stay near those of a library that blocks the sum. Positions outside of x
// add nothing, even if the weight is infinite or nan there: results that are nan are computed
// again. A transposed convolution is one such product per position modulo the stride (Dumoulin and
// Visin, 2016, section 4). Element-wise operators after a convolution are applied to each tile of 32
// positions and up to twelve channels as soon as it is finished: the graph's own kernel, an
// `Epilogue`, is called for it, and the result before the epilogue is never in memory.
// codegen/kernels/convolution.py chooses the convolutions and defines `numbers`,
// codegen/fusion/epilogue.py defines epilogues.
typedef int Y __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
enum { DEPTH = 256, WANTED = 192, ROWS = 256, SERIAL = 1 << 16 };
// The compiler must compute this address here: otherwise it keeps one address per row, more than
// there are registers.
#define HIDDEN(change) (change, ({ asm("" : "+r"(from)); }))

// One dimension of the result, or of its positions that are equal modulo the stride. Position j and
// tap t multiply x[j * step + t * tap + from] with weight[t * weight_step + weight_from], and add
// to y[j * y_step + y_from].
struct Side {
  Z places, taps, step, tap, from, weight_step, weight_from, y_step, y_from;
};

struct Convolution {
  const float *x, *w, *bias;
  float *y;
  Epilogue<float> epilogue;
  void **buffers;  // of the epilogue, like its numbers
  const Z *numbers;
  Z batch, in, out;  // channels
  Z size[2], kernel[2], result[2], stride[2], pad[2], dilation[2];
  Z x_batch, x_channel, x_row, w_out, w_in, w_step[2];
  Z transposed;
};

// The positions of a vector: their starts in x, their addresses in y, and how many exist.
struct Places {
  J high, wide;
  int y[LANES];
  int live;
  int stride;  // of the addresses: 1, 2, or 0 for any other
  int cut;     // where the second of two rows of stride 1 begins; LANES: there is none
};

static Side side(const Convolution &c, int d, Z phase) {
  if (!c.transposed)
    return {c.result[d], c.kernel[d], c.stride[d], c.dilation[d], -c.pad[d], 1, 0, 1, 0};
  Z s = c.stride[d], taps = (c.kernel[d] - phase + s - 1) / s;
  Z first = (c.pad[d] - phase + s - 1) / s, end = (c.result[d] - 1 + c.pad[d] - phase + s) / s;
  if (c.pad[d] < phase) first = 0;
  if (c.result[d] - 1 + c.pad[d] < phase) end = 0;
  return {end > first ? end - first : 0, taps > 0 ? taps : 0, 1, -1, first, s, phase, s,
          phase + s * first - c.pad[d]};
}

static Places places(const Convolution &c, const Side *s, Z from) {
  Places p;
  Z all = s[0].places * s[1].places, high = from / s[1].places, wide = from % s[1].places;
  // within a row: no carry; with few channels the general loop would cost too much
  if (from < all && wide + LANES <= s[1].places) {
    int h = high * s[0].step + s[0].from, w = wide * s[1].step + s[1].from;
    p.high = h - J{}, p.wide = w + LANE * (int)s[1].step;
    *(Y *)p.y = (int)((high * s[0].y_step + s[0].y_from) * c.result[1]
                      + wide * s[1].y_step + s[1].y_from)
                + LANE * (int)s[1].y_step;
    p.live = p.cut = LANES;
    p.stride = s[1].step == 1 || s[1].step == 2 ? s[1].step : 0;
    return p;
  }
  p.live = all <= from ? 0 : all - from < LANES ? all - from : LANES;
  int address[LANES], cuts = 0;
  p.cut = LANES;
  for (int i = 0; i < LANES; ++i) {
    bool there = i < p.live;
    int h = there ? high * s[0].step + s[0].from : -(1 << 28), w = wide * s[1].step + s[1].from;
    p.high[i] = h, p.wide[i] = w;
    p.y[i] = (high * s[0].y_step + s[0].y_from) * c.result[1] + wide * s[1].y_step + s[1].y_from;
    address[i] = h * c.x_row + w;
    if (++wide == s[1].places) {
      wide = 0, ++high;
      if (i + 1 < p.live) p.cut = i + 1, ++cuts;
    }
  }
  p.stride = p.live > 1 ? address[1] - address[0] : 1;
  for (int i = 1; i < p.live; ++i)
    if (address[i] - address[i - 1] != p.stride) p.stride = 0;
  if (p.stride || cuts != 1 || s[1].step != 1) p.cut = LANES;
  if (p.stride != 1 && p.stride != 2) p.stride = 0;
  return p;
}

// x at a vector of positions under tap (high, wide), of `n` channels, into `to`: one row per
// channel, `step` rows apart; zeros outside of x. Returns whether all positions are inside.
ALWAYS bool gather(const Convolution &c, const Places &p, const float *x, Z high, Z wide, Z n,
                   float *to, Z step) {
  J h = p.high + (int)high, w = p.wide + (int)wide;
  Mask in = mask_of(within(h, c.size[0]) & within(w, c.size[1]));
  J at = h * (int)c.x_row + w;
  if (p.cut < LANES) {
    const float *from = x + at[0], *second = x + at[p.cut] - p.cut;
    Mask low = in & first_lanes(p.cut), upper = in & ~low;
    for (Z k = 0; k < n; ++k, to += step * COLUMNS, from += c.x_channel, second += c.x_channel)
      *(M *)to = load(from, low) + load(second, upper);
  } else if (p.stride == 1) {
    const float *from = x + at[0];
    for (Z k = 0; k < n; ++k, to += step * COLUMNS, from += c.x_channel) *(M *)to = load(from, in);
  } else if (p.stride == 2) {
    const float *from = x + at[0];
    Mask low = spread(in, 0), upper = spread(in, 1);
    for (Z k = 0; k < n; ++k, to += step * COLUMNS, from += c.x_channel)
      *(M *)to = evens(load(from, low), load(from + LANES, upper));
  } else {
    for (Z k = 0; k < n; ++k, to += step * COLUMNS, x += c.x_channel)
      *(M *)to = gathered(x, at, in);
  }
  return bits(in) == (1u << p.live) - 1;
}

// y = start + a * b over R rows and N vectors of columns. `at` has the offsets in a row of a; they
// are consecutive if it is not there. `start` may be y. Returns whether a result is nan, if
// `checked`.
template <int R, int N>
ALWAYS bool tile(const float *a, Z a_row, const int *at, const float *b, Z depth, float *y,
                 Z y_row, const float *start, Z start_row, const float *bias, Z bias_row,
                 bool checked) {
  M sums[R][N];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) sums[r][v] = M{};
  auto add = [&](const float *from, Z k) __attribute__((always_inline)) {
    M right[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) right[v] = *(const M *)(b + k * COLUMNS + v * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      if (r && r % 3 == 0) HIDDEN(from += 3 * a_row);
      M all = from[r % 3 * a_row] - M{};
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sums[r][v] += all * right[v];
    }
  };
  if (at)
#pragma GCC unroll (LANES == 16 ? 2 : 1)
    for (Z k = 0; k < depth; ++k) add(a + at[k], k);
  else
#pragma GCC unroll (LANES == 16 ? 2 : 1)
    for (Z k = 0; k < depth; ++k) add(a + k, k);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      M before = start ? *(const M *)(start + r * start_row + v * LANES) : bias[r * bias_row] - M{};
      *(M *)(y + r * y_row + v * LANES) = sums[r][v] += before;
    }
  if (!checked) return false;
  J odd = {};
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) odd |= (J)(sums[r][v] != sums[r][v]);
  return bits(mask_of(odd));
}

static bool is_finite(const Convolution &c, const float *w, Z out) {
  for (Z o = 0; o < out; ++o)
    for (Z i = 0; i < c.in; ++i)
      for (Z h = 0; h < c.kernel[0]; ++h)
        for (Z k = 0; k < c.kernel[1]; ++k)
          if (!(__builtin_fabsf(
                    w[o * c.w_out + i * c.w_in + h * c.w_step[0] + k * c.w_step[1]])
                <= __FLT_MAX__))
            return false;
  return true;
}

// One position of one channel, summed over the taps inside of x.
static float inside(const Convolution &c, const Side *s, const float *x, const float *w, Z high,
                    Z wide) {
  double sum = 0;
  for (Z i = 0; i < c.in; ++i)
    for (Z a = 0; a < s[0].taps; ++a)
      for (Z b = 0; b < s[1].taps; ++b) {
        Z h = high + a * s[0].tap, v = wide + b * s[1].tap;
        if (h < 0 || h >= c.size[0] || v < 0 || v >= c.size[1]) continue;
        Z at = i * c.w_in + (a * s[0].weight_step + s[0].weight_from) * c.w_step[0] +
            (b * s[1].weight_step + s[1].weight_from) * c.w_step[1];
        sum += (double)x[i * c.x_channel + h * c.x_row + v] * w[at];
      }
  return sum;
}

// The same over all vectors of columns: two at a time, all of them where there are few rows.
template <int R, int N>
ALWAYS bool rows(const float *a, Z a_row, const int *at, const float *b, Z depth, float *y, Z y_row,
                 const float *start, Z start_row, const float *bias, Z bias_row, bool checked) {
  if constexpr (N > 2 && R > 2) {
    bool odd = rows<R, 2>(a, a_row, at, b, depth, y, y_row, start, start_row, bias, bias_row,
                          checked);
    return odd | rows<R, N - 2>(a, a_row, at, b + 2 * LANES, depth, y + 2 * LANES, y_row,
                                start ? start + 2 * LANES : start, start_row, bias, bias_row,
                                checked);
  }
  return tile<R, N>(a, a_row, at, b, depth, y, y_row, start, start_row, bias, bias_row, checked);
}

// Fetches `n` channels of x at positions [from, to).
static Ahead ahead_of(const Convolution &c, const Side *s, const float *x, Z n, Z from, Z to) {
  if (from >= to) n = 0, to = from + 1;
  auto place = [&](Z at) {
    return (at / s[1].places * s[0].step + s[0].from) * c.x_row
        + at % s[1].places * s[1].step + s[1].from;
  };
  Z first = place(from), last = place(to - 1) + (s[1].taps - 1) * s[1].tap;
  Z length = last > first ? last - first : first - last;
  return {x + smaller(first, last), n, c.x_channel, s[0].taps, s[0].tap * c.x_row,
          smaller(length / 16 + 2, 32)};
}

// Channels [from, to) at `count` times N vectors of positions of an image. Where a column is short,
// there are several such panels: then each row of the result is written in longer parts.
template <int N>
static __attribute__((noinline)) void panel(const Convolution &c, const Side *s, Z image, Z from,
                                            Z to, Z place, Z count) {
  float packed[DEPTH * COLUMNS] __attribute__((aligned(64))),
      room[ROWS * COLUMNS] __attribute__((aligned(64)));
  float done[12 * COLUMNS] __attribute__((aligned(64)));
  int at[DEPTH];
  const float zero = 0;
  Z taps = s[0].taps * s[1].taps, most = taps ? WANTED / taps : 0, in = taps ? c.in : 0;
  if (most < 1) most = 1;
  Z passes = (in + most - 1) / most, deep = passes ? (in + passes - 1) / passes : 1;
  Z all = s[0].places * s[1].places, plane = c.result[0] * c.result[1], first = image * c.out;
  bool direct = place + count * N * LANES <= all && !c.transposed && !c.epilogue, odd = false,
       whole = true;
  const float *x = c.x + image * c.x_batch, *w = c.w, *bias = c.bias ? c.bias : &zero;
  float *y = c.y + image * c.out * plane;
  Z bias_row = c.bias ? 1 : 0, before = 0, area = c.kernel[0] * c.kernel[1], depth;
  bool consecutive = !c.transposed && (c.in == 1 || c.w_in == area) &&
      (c.kernel[0] == 1 || c.w_step[0] == c.kernel[1]) && (c.kernel[1] == 1 || c.w_step[1] == 1);
  Places p[N];
  auto look = [&](Z from) {
    for (int v = 0; v < N; ++v) p[v] = places(c, s, from + v * LANES);
  };
  look(place);
  do {
    Z n = smaller(in - before, deep);
    depth = n * taps;
    for (Z g = 0; g < count; ++g) {
      if (count > 1) look(place + g * COLUMNS);
      for (Z i = 0, tap = 0; i < s[0].taps; ++i)
        for (Z j = 0; j < s[1].taps; ++j, ++tap)
          for (int v = 0; v < N; ++v)
            whole &= gather(c, p[v], x + before * c.x_channel, i * s[0].tap, j * s[1].tap, n,
                            packed + (g * depth + tap) * COLUMNS + v * LANES, taps);
    }
    for (Z i = 0, tap = 0; i < s[0].taps && !consecutive; ++i)
      for (Z j = 0; j < s[1].taps; ++j, ++tap) {
        Z in_w = (i * s[0].weight_step + s[0].weight_from) * c.w_step[0] +
            (j * s[1].weight_step + s[1].weight_from) * c.w_step[1];
        for (Z k = 0; k < n; ++k) at[k * taps + tap] = (before + k) * c.w_in + in_w;
      }
    bool last = before + deep >= in;
    Z here = place, further = in - before - n;
    if (last) here += count * COLUMNS, further = in;
    Ahead ahead = ahead_of(c, s, last ? x : x + (before + n) * c.x_channel, smaller(further, deep),
                           here, smaller(here + count * COLUMNS, all));
    Z share = ahead.left() * TALL / (to - from) + 1;
    for (Z m = from; m < to;) {
      float *mine = room + (m - from) * COLUMNS,
            *target = !last ? mine : direct ? y + m * plane + place : c.epilogue ? done : mine;
      Z target_row = direct && last ? plane : COLUMNS, left = to - m;
      const float *start = before ? mine : nullptr, *a = consecutive ? w + before * c.w_in : w;
      ahead.fetch(share);
#define TAKE(R) \
  if (left >= R) { \
    for (Z g = 0; g < count; ++g) { \
      odd |= rows<R, N>(a + m * c.w_out, c.w_out, consecutive ? nullptr : at, \
                        packed + g * depth * COLUMNS, depth, target, target_row, start, COLUMNS, \
                        bias + m * bias_row, bias_row, last && !whole); \
      Z column = place + g * COLUMNS, end = smaller(column + N * LANES, all); \
      if (last && c.epilogue) \
        c.epilogue(c.buffers, c.numbers, done, first + m, first + m + R, column, end); \
      else \
        target += COLUMNS; \
    } \
    m += R; \
    continue; \
  }
      TAKE(TALL) TAKE(LANES / 2) TAKE(4) TAKE(2) TAKE(1)
    }
    before += deep;
  } while (before < in);
  if (!whole && odd && !is_finite(c, w + from * c.w_out, to - from))
    for (Z g = 0; g < count; ++g) {
      Z column = place + g * COLUMNS, end = smaller(column + N * LANES, all);
      look(column);
      for (Z m = from; m < to; ++m)
        for (int v = 0; v < N; ++v)
          for (int i = 0; i < p[v].live; ++i) {
            float *target = direct ? y + m * plane + p[v].y[i]
                                   : room + (m - from) * COLUMNS + v * LANES + i;
            *target = inside(c, s, x, w + m * c.w_out, p[v].high[i], p[v].wide[i]) +
                bias[m * bias_row];
          }
      if (c.epilogue)
        c.epilogue(c.buffers, c.numbers, room, first + from, first + to, column, end);
    }
  for (Z m = from; m < to && !direct && !c.epilogue; ++m)
    for (int v = 0; v < N; ++v) {
      const float *mine = room + (m - from) * COLUMNS + v * LANES;
      for (int i = 0; i < p[v].live; ++i) y[m * plane + p[v].y[i]] = mine[i];
    }
}

// One panel of as many vectors as there are positions from `place` on, at most N.
template <int N>
static void last_panel(const Convolution &c, const Side *s, Z image, Z from, Z to, Z place) {
  if constexpr (N > 1)
    if (place + (N - 1) * LANES >= s[0].places * s[1].places)
      return last_panel<N - 1>(c, s, image, from, to, place);
  panel<N>(c, s, image, from, to, place, 1);
}

extern "C" void convolution_f32(void **buffers, int threads, const Z *n) {
  Convolution c = {(const float *)buffers[0] + n[0], (const float *)buffers[1] + n[1], nullptr,
                   (float *)buffers[3], (Epilogue<float>)n[27], buffers + 4, n + 28, n[4], n[5],
                   n[6], {n[7], n[8]}, {n[9], n[10]}, {n[11], n[12]}, {n[13], n[14]},
                   {n[15], n[16]}, {n[17], n[18]}, n[19], n[20], n[21], n[22], n[23],
                   {n[24], n[25]}, n[26]};
  if (n[2]) c.bias = (const float *)buffers[2] + n[3];
  Z phases[2] = {c.transposed ? c.stride[0] : 1, c.transposed ? c.stride[1] : 1};
  Side sides[64][2];
  Z kinds = 0, longest = 0;
  for (Z i = 0; i < phases[0]; ++i)
    for (Z j = 0; j < phases[1]; ++j, ++kinds) {
      sides[kinds][0] = side(c, 0, i), sides[kinds][1] = side(c, 1, j);
      Z places = sides[kinds][0].places * sides[kinds][1].places;
      if (places > longest) longest = places;
    }
  if (c.batch * c.result[0] * c.result[1] * c.out * c.in * c.kernel[0] * c.kernel[1] / kinds
      < SERIAL)
    threads = 1;
  // several panels at a time, where the first-level cache holds them
  Z depth = c.in * c.kernel[0] * c.kernel[1], panels = (longest + COLUMNS - 1) / COLUMNS;
  Z count = c.transposed ? 1 : smaller(8, DEPTH / depth);
  while (count > 1 && c.batch * panels < 4 * threads * count) --count;
  if (count < 1) count = 1;
  Z groups = (panels + count - 1) / count, tasks = c.batch * kinds * groups;
  Z blocks = (c.out + ROWS - 1) / ROWS;
  while (threads > 1 && tasks * blocks < 4 * threads && c.out / (blocks + 1) >= 24) ++blocks;
  Z height = ((c.out + blocks - 1) / blocks + 11) / 12 * 12;
  if (height > ROWS) height = ROWS;
  blocks = (c.out + height - 1) / height;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (Z task = 0; task < tasks * blocks; ++task) {
    Z group = task % groups, rest = task / groups, block = rest % blocks;
    rest /= blocks;
    Z image = rest / kinds;
    const Side *s = sides[rest % kinds];
    Z from = block * height, to = smaller(from + height, c.out);
    Z place = group * count * COLUMNS, all = s[0].places * s[1].places;
    if (place >= all) continue;
    Z full = smaller(count, (all - place) / COLUMNS);
    if (full > 0) panel<VECTORS>(c, s, image, from, to, place, full);
    place += full * COLUMNS;
    if (full < count && place < all) last_panel<VECTORS>(c, s, image, from, to, place);
  }
}
