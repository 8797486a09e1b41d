// Products of few rows of bfloat16: y[b] = bias[b] + x[b] * w[b], where w is [n, k], as the weight
// of a linear layer.
//
// A dot product of a row of x and a row of w runs along k with vdpbf16ps: 32 products of pairs,
// sums in 16 lanes of float32. Up to six rows of x are multiplied with four rows of w (two with
// eight); each pair has its own vector of sums, whose lanes are added at the end of a row. So w is
// read once, in its own layout, without packing or copies; the order of a sum depends only on k.
// The result is rounded once, after the bias is added, as the library does. Like the library's, the
// instruction treats denormals as zero. Epilogues get tiles, here of bfloat16, as in matmul_f32.h,
// and `numbers` are those of matmul_f32.h. The instructions are inline assembly, because compilers
// name them differently, and because the text is also compiled for processors without them.
// codegen/kernels/matmul_bf16.py chooses the products.
typedef float L __attribute__((vector_size(64), aligned(2), may_alias));
typedef float Q __attribute__((vector_size(16), aligned(4), may_alias));
typedef unsigned short H;
typedef unsigned U;
enum { ROWS = 66, STEP = 32, DEPTH = 1024, SERIAL = 1 << 18 };

ALWAYS V load(const H *p) { return *(const L *)p; }
// The elements whose bits are set; the others are zero, and their memory is not read.
ALWAYS V load(const H *p, U some) {
  V v;
  asm("vmovdqu16 %1, %0 %{%2%}%{z%}" : "=v"(v) : "m"(*(const L *)p), "Yk"(some));
  return v;
}
ALWAYS void add(V &sum, V a, V b) { asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

#ifdef __clang__
#define MIXED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIXED(a, b, ...) __builtin_shuffle(a, b, I{__VA_ARGS__})
#endif

// The sums of the lanes of four vectors.
ALWAYS Q folded(const V *t) {
  V ab = MIXED(t[0], t[1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
         MIXED(t[0], t[1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  V cd = MIXED(t[2], t[3], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
         MIXED(t[2], t[3], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  V all = MIXED(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
          MIXED(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  all += MIXED(all, all, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  all += MIXED(all, all, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  Q sums;
  __builtin_memcpy(&sums, &all, sizeof sums);
  return sums;
}

// R rows of x by C rows of w; `more`: add to the content of `to`.
template <int R, int C>
static __attribute__((noinline)) void meet(const H *x, Z x_row, const H *const *w, Z k, bool more,
                                           float *to) {
  V sums[R][C];
  const H *rows[C];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) rows[c] = w[c];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sums[r][c] = V{};
  Z at = 0;
  for (; at + STEP <= k; at += STEP) {
    V right[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) right[c] = load(rows[c] + at);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      V left = load(x + r * x_row + at);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) add(sums[r][c], left, right[c]);
    }
  }
  if (at < k) {
    U some = (1u << (k - at)) - 1;
    V right[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) right[c] = load(rows[c] + at, some);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      V left = load(x + r * x_row + at, some);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) add(sums[r][c], left, right[c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int c = 0; c < C; c += 4) {
      Q *target = (Q *)(to + r * COLUMNS + c);
      *target = more ? *target + folded(sums[r] + c) : folded(sums[r] + c);
    }
}

ALWAYS float wide(H h) {
  U bits = (U)h << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
ALWAYS H rounded(float value) {
  U bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return value != value ? 0x7fc0 : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
ALWAYS void finish(const float *sums, const H *bias, Z columns, H *to) {
  if (bias == nullptr)
    for (Z j = 0; j < columns; ++j) to[j] = rounded(sums[j]);
  else
    for (Z j = 0; j < columns; ++j) to[j] = rounded(sums[j] + wide(bias[j]));
}

// Rows [from, to), at most ROWS, of the columns from j on, at most COLUMNS.
static void panel(const Product<H> &p, Z batch, Z from, Z to, Z j) {
  float sums[ROWS * COLUMNS] __attribute__((aligned(64)));
  H done[ROWS * COLUMNS] __attribute__((aligned(64)));
  const H *x = p.x + batch * p.x_batch, *w = p.w + batch * p.w_batch;
  Z columns = p.n - j < COLUMNS ? p.n - j : COLUMNS, height = to - from, parts = (height + 5) / 6;
  int together = height <= 2 ? 8 : 4;
  Z passes = (p.k + DEPTH - 1) / DEPTH,
    deep = ((p.k + passes - 1) / passes + STEP - 1) / STEP * STEP;
  for (Z k = 0; k < p.k; k += deep)
    for (Z part = 0; part < parts; ++part) {
      Z m = height * part / parts, count = height * (part + 1) / parts - m,
        depth = p.k - k < deep ? p.k - k : deep;
      const H *left = x + (from + m) * p.x_row + k;
      for (Z c = 0; c < columns; c += together) {
        const H *rows[8];
        for (int i = 0; i < 8; ++i)
          rows[i] = w + (c + i < columns ? j + c + i : p.n - 1) * p.w_n + k;
        float *target = sums + m * COLUMNS + c;
        if (count == 1) meet<1, 8>(left, p.x_row, rows, depth, k > 0, target);
        else if (count == 2) meet<2, 8>(left, p.x_row, rows, depth, k > 0, target);
        else if (count == 3) meet<3, 4>(left, p.x_row, rows, depth, k > 0, target);
        else if (count == 4) meet<4, 4>(left, p.x_row, rows, depth, k > 0, target);
        else if (count == 5) meet<5, 4>(left, p.x_row, rows, depth, k > 0, target);
        else meet<6, 4>(left, p.x_row, rows, depth, k > 0, target);
      }
    }
  for (Z m = from; m < to; ++m) {
    const H *bias =
        p.bias == nullptr ? nullptr : p.bias + batch * p.bias_batch + m * p.bias_row + j;
    H *target = p.epilogue ? done + (m - from) * COLUMNS : p.y + (batch * p.m + m) * p.n + j;
    if (columns == COLUMNS) finish(sums + (m - from) * COLUMNS, bias, COLUMNS, target);
    else finish(sums + (m - from) * COLUMNS, bias, columns, target);
  }
  if (p.epilogue)
    p.epilogue(p.buffers, p.numbers, done, batch * p.m + from, batch * p.m + to, j, j + columns);
}

extern "C" void product_bf16(void **buffers, int threads, const Z *n) {
  const Product<H> p(buffers, n);
  if (p.batch * p.m * p.n * p.k < SERIAL) threads = 1;
  Z panels = (p.n + COLUMNS - 1) / COLUMNS, blocks = (p.m + ROWS - 1) / ROWS;
  while (p.batch * panels * blocks < threads && blocks * 6 < p.m) ++blocks;
#pragma omp parallel for collapse(3) num_threads(threads) schedule(static) if (threads > 1)
  for (Z batch = 0; batch < p.batch; ++batch)
    for (Z block = 0; block < blocks; ++block)
      for (Z j = 0; j < panels; ++j)
        panel(p, batch, p.m * block / blocks, p.m * (block + 1) / blocks, j * COLUMNS);
}
