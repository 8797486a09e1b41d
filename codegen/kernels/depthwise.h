// Depthwise convolutions of float32 images, one- or two-dimensional: each channel of the result
// reads one channel of x, y = bias + w * x.
//
// Sixteen neighbours of a row of the result are one vector. A row of x under one column of the
// weight is read once for all rows of the result that it counts in: eight of them are summed at a
// time, and their sums stay in registers. Nothing is copied or packed. Positions outside of x add
// nothing, even if the weight is infinite or nan there: their lanes are masked, and rows outside
// are left out. Element-wise operators after a convolution are applied to tiles of 32 positions and
// up to eight channels (`Epilogue`). codegen/kernels/depthwise.py chooses the convolutions and
// defines `numbers`.
typedef float F __attribute__((vector_size(64)));
typedef unsigned short Mask;
enum { LANES = 16, TAPS = 256, CHANNELS = 8, PLACES = 1024, ROWS = 8, SERIAL = 1 << 16 };

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
  float *to;   // the first position in y, or in the first tile
  Z tile;      // the distance of two tiles; 0: none, positions are contiguous
};

ALWAYS Mask first_lanes(Z n) { return n >= LANES ? -1 : n <= 0 ? 0 : (1 << n) - 1; }
// The lanes of neighbours from `at` on that are in [0, size).
ALWAYS Mask inside(Z at, Z size) { return first_lanes(size - at) & ~first_lanes(-at); }

// Sixteen elements of a row, `S` apart, or `step` if that is 0, from `at` on.
template <int S> struct Lanes {
  Z at;
  int step;
  Mask low, high, there;
  __attribute__((always_inline)) Lanes(Z at, Z step, Z size) : at(at), step(step), low(0), high(0) {
    if (S == 1) {
      there = inside(at, size);
    } else if (S == 2) {
      low = inside(at, size), high = inside(at + LANES, size);
      there = __builtin_ia32_pext_si(low | (unsigned)high << 16, 0x55555555);
    } else {
      there = 0;
      for (int i = 0; i < LANES; ++i) there |= (at + i * step >= 0 && at + i * step < size) << i;
    }
  }
  __attribute__((always_inline)) F of(const float *row) const {
    if (S == 1) return __builtin_ia32_loadups512_mask(row + at, F{}, there);
    if (S == 2) {
      F a = __builtin_ia32_loadups512_mask(row + at, F{}, low);
      F b = __builtin_ia32_loadups512_mask(row + at + LANES, F{}, high);
#ifdef __clang__
      return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                     30);
#else
      const I even = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
      return __builtin_shuffle(a, b, even);
#endif
    }
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return __builtin_ia32_gathersiv16sf(F{}, row + at, lane * step, there, 4);
  }
};

ALWAYS F add(F sum, F x, F w, Mask there) {
  return __builtin_ia32_vfmaddps512_mask3(x, w, sum, there, 4);
}

// Sixteen sums, of which `n` count, from position `place` of the part on.
ALWAYS void store(const Part &p, F sums, Z place, Z n) {
  sums += p.bias - F{};
  Mask all = first_lanes(n);
  if (!p.tile) return __builtin_ia32_storeups512_mask(p.to + place, sums, all);
  float *to = p.to + place / COLUMNS * p.tile;
  Z lane = place % COLUMNS, here = COLUMNS - lane;
  __builtin_ia32_storeups512_mask(to + lane, sums, all & first_lanes(here));
  if (here < n) __builtin_ia32_storeups512_mask(to + p.tile - here, sums, all & ~first_lanes(here));
}

// Eight rows of the result from row `r` on, in sixteen columns from column `q` on, under a kernel
// of K rows, S rows of x apart.
template <int K, int S>
ALWAYS void eight(const Depthwise &c, const Part &p, Z r, Z q) {
  enum { READ = (ROWS - 1) * S + K };
  Z high = (p.top + r) * S - c.pad[0], wide = (p.left + q) * S - c.pad[1];
  const float *rows = p.x + high * c.x_row;
  F sums[ROWS] = {};
  for (Z j = 0; j < c.kernel[1]; ++j) {
    const Lanes<S> lanes(wide + j * c.dilation[1], S, c.size[1]);
    F w[K];
#pragma GCC unroll 8
    for (int i = 0; i < K; ++i) w[i] = p.w[j * K + i] - F{};
#pragma GCC unroll 24
    for (int h = 0; h < READ; ++h) {
      if ((unsigned long long)(high + h) >= (unsigned long long)c.size[0]) continue;
      F x = lanes.of(rows + h * c.x_row);
#pragma GCC unroll 8
      for (int i = 0; i < K; ++i)
        if (h >= i && (h - i) % S == 0 && (h - i) / S < ROWS)
          sums[(h - i) / S] = add(sums[(h - i) / S], x, w[i], lanes.there);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
    if (r + i < p.rows) store(p, sums[i], (r + i) * p.columns + q, p.columns - q);
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
        F x = lanes.of(p.x + high * c.x_row);
        sums[v] = add(sums[v], x, p.w[j * c.kernel[0] + i] - F{}, lanes.there);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < N; ++v)
    if (q + v * LANES < p.columns)
      store(p, sums[v], r * p.columns + q + v * LANES, p.columns - q - v * LANES);
}

template <int K, int S>
static __attribute__((noinline)) void by_rows(const Depthwise &c, const Part &p) {
  for (Z r = 0; r < p.rows; r += ROWS)
    for (Z q = 0; q < p.columns; q += LANES) eight<K, S>(c, p, r, q);
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
#define TAKE(K) \
  if (k == K) return s == 1 ? by_rows<K, 1>(c, p) : by_rows<K, 2>(c, p);
    TAKE(3) TAKE(5) TAKE(7)
  }
  if (c.stride[1] == 1) return by_columns<1>(c, p);
  if (c.stride[1] == 2) return by_columns<2>(c, p);
  by_columns<0>(c, p);
}

// Channels [from, to) of an image.
static void task(const Depthwise &c, Part &p, Z image, Z from, Z to) {
  float tiles[CHANNELS * (PLACES + COLUMNS)] __attribute__((aligned(64)));
  const Z plane = c.result[0] * c.result[1], each = c.out / c.in;
  Z place = p.top * c.result[1] + p.left, end = place + p.rows * p.columns;
  p.tile = c.epilogue ? (to - from) * COLUMNS : 0;
  for (Z m = from; m < to; ++m) {
    p.x = c.x + image * c.x_batch + m / each * c.x_channel;
    for (Z j = 0; j < c.kernel[1]; ++j)
      for (Z i = 0; i < c.kernel[0]; ++i)
        p.w[j * c.kernel[0] + i] = c.w[m * c.w_out + i * c.w_step[0] + j * c.w_step[1]];
    p.bias = c.bias ? c.bias[m] : -0.f;
    p.to = c.epilogue ? tiles + (m - from) * COLUMNS : c.y + (image * c.out + m) * plane + place;
    compute(c, p);
  }
  if (!c.epilogue) return;
  Z first = image * c.out;
  for (const float *tile = tiles; place < end; place += COLUMNS, tile += p.tile)
    c.epilogue(c.buffers, c.numbers, tile, first + from, first + to, place,
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
