// Depthwise convolutions of float32 images, one- or two-dimensional: each channel of the result
// reads one channel of x, y = bias + w * x.
//
// Neighbours of a row of the result are one vector: sixteen with AVX-512, eight with AVX2. A row of
// x under one column of the weight is read once for all rows of the result that it counts in: eight
// of them are summed at a time, and their sums stay in registers. Nothing is copied or packed.
// Positions outside of x add nothing, even if the weight is infinite or nan there: their lanes are
// masked, and rows outside are left out. Element-wise operators after a convolution are applied to
// tiles of 32 positions and up to eight channels (`Epilogue`). codegen/kernels/depthwise.py chooses
// the convolutions and defines `numbers`.
enum { TAPS = 256, CHANNELS = 8, PLACES = 1024, ROWS = 8, SERIAL = 1 << 16 };

struct Depthwise {
  const float *x, *w, *bias;
  float *y;
  Epilogue<float> epilogue;
  void **buffers;  // of the epilogue, like its numbers
  const Z *numbers;
  Z batch, in, out;  // channels
  Z size[2], kernel[2], result[2], stride[2], pad[2], dilation[2];
  Z x_batch, x_channel, x_row, w_out, w_step[2];
};

// One channel, and a part of its positions: whole rows, or a part of one row.
struct Part {
  const float *x;
  float w[TAPS];  // by columns
  float bias;
  Z top, rows, left, columns;
  float *to;  // the first position
  Z room;     // positions that may be written, in their order: later rows overwrite
};

// A vector of elements of a row, `S` apart, or `step` if that is 0, from `at` on; for S = 2 in the
// order of `halves`.
template <int S> struct Lanes {
  int at, step;
  Mask low, high, there, next;
  MEMBER Lanes(Z at, Z given, Z size) : at(at), step(S ? S : given) {
    const J lane = S == 2 ? HALVES : LANE;
    there = inside(lane * step, size);
    if (S != 2) return;
    low = inside(LANE, size), high = inside(LANE + (int)LANES, size);
    next = inside(lane * 2 + 1, size);
  }
  MEMBER Mask inside(J lane, Z size) const { return mask_of(within(lane + at, size)); }
  MEMBER F of(const float *row) const {
    if (S == 1) return load(row + at, there);
    return gathered(row + at, LANE * step, there);
  }
  // The elements, and those after them.
  MEMBER F halves(const float *row, F &after) const {
    F a = load(row + at, low), b = load(row + at + LANES, high);
    after = odd_half(a, b);
    return even_half(a, b);
  }
};

// A vector of sums from position `place` of the part on.
ALWAYS void put(const Part &p, F sums, Z place) {
  sums += p.bias - F{};
  if (place + LANES <= p.room)
    *(M *)(p.to + place) = (M)sums;
  else
    store(p.to + place, sums, first_lanes(p.room - place));
}

// What column `j` of the weight, of K rows, adds to R rows of the result, and with `Two` the column
// after it; the rows of x begin `S` apart at row `high`.
template <int R, int K, int S, bool Finite, bool Two>
ALWAYS void column(const Depthwise &c, const Part &p, Z high, Z wide, Z j, F (&sums)[R]) {
  enum { READ = (R - 1) * S + K };
  const Lanes<S> lanes(wide + j * c.dilation[1], S, c.size[1]);
  const float *rows = p.x + high * c.x_row;
  F w[Two + 1][K];
#pragma GCC unroll 16
  for (int i = 0; i < (Two + 1) * K; ++i) w[i / K][i % K] = p.w[j * K + i] - F{};
#pragma GCC unroll 24
  for (int h = 0; h < READ; ++h) {
    if ((unsigned long long)(high + h) >= (unsigned long long)c.size[0]) continue;
    const float *row = rows + h * c.x_row;
    F after, x = S == 2 ? lanes.halves(row, after) : lanes.of(row);
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) {
      if (h < i || (h - i) % S != 0 || (h - i) / S >= R) continue;
      F &sum = sums[(h - i) / S];
      sum = Finite ? sum + x * w[0][i] : add(sum, x, w[0][i], lanes.there);
      if (Two) sum = Finite ? sum + after * w[Two][i] : add(sum, after, w[Two][i], lanes.next);
    }
  }
}

// R rows of the result from row `r` on, in a vector of columns from column `q` on.
template <int R, int K, int S, bool Finite>
ALWAYS void block(const Depthwise &c, const Part &p, Z r, Z q) {
  Z high = (p.top + r) * S - c.pad[0], wide = (p.left + q) * S - c.pad[1], j = 0;
  F sums[R] = {};
  const float *ahead = p.x + (high + R * S) * c.x_row + wide;
#pragma GCC unroll 16
  for (int h = 0; h < R * S; ++h) __builtin_prefetch(ahead + h * c.x_row);
  for (; S == 2 && c.dilation[1] == 1 && j + 2 <= c.kernel[1]; j += 2)
    column<R, K, S, Finite, S == 2>(c, p, high, wide, j, sums);
  for (; j < c.kernel[1]; ++j) column<R, K, S, Finite, false>(c, p, high, wide, j, sums);
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
    if (r + i < p.rows)
      put(p, S == 2 ? in_order(sums[i]) : sums[i], (r + i) * p.columns + q);
}

// N vectors of one row of the result.
template <int N, int S>
ALWAYS void along(const Depthwise &c, const Part &p, Z r, Z q) {
  F sums[N] = {};
  Z step = S ? S : c.stride[1];
  for (Z j = 0; j < c.kernel[1]; ++j) {
    Z wide = (p.left + q) * step + j * c.dilation[1] - c.pad[1];
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) {
      const Lanes<S> lanes(wide + v * LANES * step, step, c.size[1]);
      for (Z i = 0; i < c.kernel[0]; ++i) {
        Z high = (p.top + r) * c.stride[0] + i * c.dilation[0] - c.pad[0];
        if (high < 0 || high >= c.size[0]) continue;
        const float *row = p.x + high * c.x_row;
        F after, x = S == 2 ? lanes.halves(row, after) : lanes.of(row);
        sums[v] = add(sums[v], x, p.w[j * c.kernel[0] + i] - F{}, lanes.there);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < N; ++v)
    if (q + v * LANES < p.columns)
      put(p, S == 2 ? in_order(sums[v]) : sums[v], r * p.columns + q + v * LANES);
}

template <int K, int S, bool Finite>
static __attribute__((noinline)) void by_rows(const Depthwise &c, const Part &p) {
  enum { R = LANES == 8 && K == 7 ? 4 : ROWS };  // all sums and weights have registers
  for (Z r = 0; r < p.rows; r += R)
    for (Z q = 0; q < p.columns; q += LANES) {
      Z last = p.columns - LANES;  // the last vector of a row overlaps the one before
      block<R, K, S, Finite>(c, p, r, q > last && last >= 0 ? last : q);
    }
}

// With AVX2 a masked sum takes twice the time of one that adds zeros.
template <int K, int S> ALWAYS void by_rows(const Depthwise &c, const Part &p, bool finite) {
  if (LANES < 16 && finite) return by_rows<K, S, LANES < 16>(c, p);
  by_rows<K, S, false>(c, p);
}

static bool is_finite(const float *w, Z n) {
  bool odd = false;
  for (Z i = 0; i < n; ++i) odd |= !(__builtin_fabsf(w[i]) <= __FLT_MAX__);
  return !odd;
}

template <int S>
static __attribute__((noinline)) void by_columns(const Depthwise &c, const Part &p) {
  for (Z r = 0; r < p.rows; ++r) {
    Z q = 0;
    for (; q + 2 * LANES < p.columns; q += 4 * LANES) along<4, S>(c, p, r, q);
    for (; q < p.columns; q += LANES) along<1, S>(c, p, r, q);
  }
}

static void compute(const Depthwise &c, const Part &p) {
  Z s = c.stride[0], k = c.kernel[0];
  if (s == c.stride[1] && c.dilation[0] == 1 && (s == 1 || s == 2)) {
    bool finite = is_finite(p.w, k * c.kernel[1]);
#define TAKE(K) \
  if (k == K) return s == 1 ? by_rows<K, 1>(c, p, finite) : by_rows<K, 2>(c, p, finite);
    TAKE(3) TAKE(5) TAKE(7)
  }
  if (c.stride[1] == 1) return by_columns<1>(c, p);
  if (c.stride[1] == 2) return by_columns<2>(c, p);
  by_columns<0>(c, p);
}

// Channels [from, to) of an image.
static void task(const Depthwise &c, Part &p, Z image, Z from, Z to) {
  float tiles[CHANNELS * (PLACES + COLUMNS)] __attribute__((aligned(64)));
  float line[PLACES + COLUMNS] __attribute__((aligned(64)));
  const Z plane = c.result[0] * c.result[1], each = c.out / c.in, tile = (to - from) * COLUMNS;
  Z place = p.top * c.result[1] + p.left, count = p.rows * p.columns;
  p.room = c.epilogue ? PLACES + COLUMNS : count;
  for (Z m = from; m < to; ++m) {
    p.x = c.x + image * c.x_batch + m / each * c.x_channel;
    for (Z j = 0; j < c.kernel[1]; ++j)
      for (Z i = 0; i < c.kernel[0]; ++i)
        p.w[j * c.kernel[0] + i] = c.w[m * c.w_out + i * c.w_step[0] + j * c.w_step[1]];
    p.bias = c.bias ? c.bias[m] : -0.f;
    p.to = c.epilogue ? line : c.y + (image * c.out + m) * plane + place;
    compute(c, p);
    float *to_tile = tiles + (m - from) * COLUMNS;
    for (Z at = 0; c.epilogue && at < count; at += COLUMNS, to_tile += tile)
#pragma GCC unroll 4
      for (int v = 0; v < COLUMNS; v += LANES) *(M *)(to_tile + v) = *(const M *)(line + at + v);
  }
  if (!c.epilogue) return;
  Z first = image * c.out, end = place + count;
  for (const float *at = tiles; place < end; place += COLUMNS, at += tile)
    c.epilogue(c.buffers, c.numbers, at, first + from, first + to, place,
               place + COLUMNS < end ? place + COLUMNS : end);
}

extern "C" void depthwise_f32(void **buffers, int threads, const Z *n) {
  Depthwise c = {(const float *)buffers[0] + n[0], (const float *)buffers[1] + n[1], nullptr,
                 (float *)buffers[3], (Epilogue<float>)n[25], buffers + 4, n + 26, n[4], n[5],
                 n[6], {n[7], n[8]}, {n[9], n[10]}, {n[11], n[12]}, {n[13], n[14]},
                 {n[15], n[16]}, {n[17], n[18]}, n[19], n[20], n[21], n[22], {n[23], n[24]}};
  if (n[2]) c.bias = (const float *)buffers[2] + n[3];
  const Z columns = c.result[1] < PLACES ? c.result[1] : PLACES;
  Z rows = columns < c.result[1] ? 1 : PLACES / columns;
  if (rows > ROWS) rows -= rows % ROWS;
  if (rows > c.result[0]) rows = c.result[0];
  const Z across = (c.result[1] + columns - 1) / columns, down = (c.result[0] + rows - 1) / rows;
  const Z groups = (c.out + CHANNELS - 1) / CHANNELS, tasks = c.batch * groups * down * across;
  if (c.batch * c.out * c.result[0] * c.result[1] * c.kernel[0] * c.kernel[1] < SERIAL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (Z one = 0; one < tasks; ++one) {
    Z rest = one / across, from = rest / down % groups * CHANNELS;
    Part p;
    p.top = rest % down * rows, p.left = one % across * columns;
    p.rows = rows < c.result[0] - p.top ? rows : c.result[0] - p.top;
    p.columns = columns < c.result[1] - p.left ? columns : c.result[1] - p.left;
    task(c, p, rest / down / groups, from, from + CHANNELS < c.out ? from + CHANNELS : c.out);
  }
}
