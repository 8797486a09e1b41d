// Products of float32 matrices: y[b] = bias[b] + x[b] * w[b], w read as [n, k] or as [k, n].
//
// Panels of 32 columns of w, at most 192 deep, are packed into the first-level cache and multiplied
// with the rows of x, twelve at a time: 24 sums in vectors of 16 lanes (Goto and van de Geijn,
// 2008). Each pass over k adds to the y of the pass before, so that no sum is a chain of more than
// 192: errors stay near those of a library that blocks k. Element-wise operators after a product
// are applied to each tile of up to twelve rows of a panel as soon as it is finished: the graph's
// own kernel, an `Epilogue`, is called for it, and the product is never in memory.
// codegen/kernels/matmul_f32.py chooses the products and defines `numbers`,
// codegen/fusion/epilogue.py defines epilogues.
enum { DEPTH = 192, ROWS = 192, SERIAL = 1 << 17 };

// c = start + a * b over R rows and 32 columns; `start` may be c.
template <int R>
ALWAYS void tile(const float *a, Z a_row, const float *b, Z depth, float *c, Z c_row,
                 const float *start, Z start_row) {
  V sums[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = V{};
  for (Z k = 0; k < depth; ++k) {
    V left = *(const V *)(b + k * COLUMNS), right = *(const V *)(b + k * COLUMNS + 16);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      V all = a[r * a_row + k] - V{};
      sums[r][0] += all * left;
      sums[r][1] += all * right;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    *(V *)(c + r * c_row) = *(const V *)(start + r * start_row) + sums[r][0];
    *(V *)(c + r * c_row + 16) = *(const V *)(start + r * start_row + 16) + sums[r][1];
  }
}

// The same for the last columns of the result, which may be fewer than 32.
template <int R>
static __attribute__((noinline)) void rows(const float *a, Z a_row, const float *b, Z depth,
                                           float *c, Z c_row, const float *start, Z start_row,
                                           Z columns) {
  if (columns == COLUMNS) return tile<R>(a, a_row, b, depth, c, c_row, start, start_row);
  float room[R * COLUMNS], given[R * COLUMNS];
  for (int r = 0; r < R; ++r)
    for (Z j = 0; j < COLUMNS; ++j)
      given[r * COLUMNS + j] = j < columns ? start[r * start_row + j] : 0.0f;
  tile<R>(a, a_row, b, depth, room, COLUMNS, given, COLUMNS);
  for (int r = 0; r < R; ++r)
    for (Z j = 0; j < columns; ++j) c[r * c_row + j] = room[r * COLUMNS + j];
}

#ifndef __clang__
// Transpose sixteen rows of sixteen: pairs are exchanged at distances 1, 2, 4, 8.
ALWAYS void transpose(V *t) {
  const I low[4] = {{0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30},
                    {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29},
                    {0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27},
                    {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}};
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s) {
    V u[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      int far = i ^ (1 << s);
      u[i] = i & (1 << s) ? __builtin_shuffle(t[far], t[i], low[s] + (1 << s))
                          : __builtin_shuffle(t[i], t[far], low[s]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) t[i] = u[i];
  }
}
#endif

// A panel as [depth, 32]; zeros after its columns.
static void pack(const float *w, Z w_n, Z w_k, Z columns, Z depth, float *to) {
  Z k = 0;
#ifndef __clang__
  for (; w_k == 1 && columns == COLUMNS && k + 16 <= depth; k += 16)
    for (int half = 0; half < COLUMNS; half += 16) {
      V t[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) t[i] = *(const V *)(w + (half + i) * w_n + k);
      transpose(t);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) *(V *)(to + (k + i) * COLUMNS + half) = t[i];
    }
#endif
  if (w_n == 1 && columns == COLUMNS)
    for (; k < depth; ++k) {
      *(V *)(to + k * COLUMNS) = *(const V *)(w + k * w_k);
      *(V *)(to + k * COLUMNS + 16) = *(const V *)(w + k * w_k + 16);
    }
  for (; k < depth; ++k)
    for (Z j = 0; j < COLUMNS; ++j) to[k * COLUMNS + j] = j < columns ? w[j * w_n + k * w_k] : 0.0f;
}

// Rows [from, to) of the panel of columns that begins at j.
static void panel(const Product<float> &p, Z batch, Z from, Z to, Z j) {
  float packed[DEPTH * COLUMNS] __attribute__((aligned(64))), zero[COLUMNS] = {};
  float room[ROWS * COLUMNS] __attribute__((aligned(64))),
        done[12 * COLUMNS] __attribute__((aligned(64)));
  const float *x = p.x + batch * p.x_batch, *w = p.w + batch * p.w_batch + j * p.w_n;
  const float *bias = p.bias == nullptr ? zero : p.bias + batch * p.bias_batch + j;
  float *y = p.epilogue ? room - from * COLUMNS : p.y + batch * p.m * p.n + j;
  Z y_row = p.epilogue ? COLUMNS : p.n;
  Z columns = p.n - j < COLUMNS ? p.n - j : COLUMNS;
  Z passes = (p.k + DEPTH - 1) / DEPTH, deep = ((p.k + passes - 1) / passes + 15) / 16 * 16;
  for (Z k = 0; k < p.k; k += deep) {
    Z depth = p.k - k < deep ? p.k - k : deep;
    bool last = p.epilogue && k + deep >= p.k;
    pack(w + k * p.w_k, p.w_n, p.w_k, columns, depth, packed);
    for (Z m = from; m < to;) {
      const float *a = x + m * p.x_row + k, *start = k ? y + m * y_row : bias + m * p.bias_row;
      float *target = last ? done : y + m * y_row;
      Z start_row = k ? y_row : p.bias_row, left = to - m;
#define TAKE(R) \
  if (left >= R) { \
    rows<R>(a, p.x_row, packed, depth, target, y_row, start, start_row, columns); \
    if (last) p.epilogue(p.buffers, p.numbers, done, batch * p.m + m, batch * p.m + m + R, j, j + columns); \
    m += R; \
    continue; \
  }
      TAKE(12) TAKE(8) TAKE(4) TAKE(2) TAKE(1)
    }
  }
}

extern "C" void product_f32(void **buffers, int threads, const Z *n) {
  const Product<float> p(buffers, n);
  Z panels = (p.n + COLUMNS - 1) / COLUMNS, blocks = (p.m + ROWS - 1) / ROWS;
  Z height = ((p.m + blocks - 1) / blocks + 11) / 12 * 12;
  if (p.batch * p.m * p.n * p.k < SERIAL) threads = 1;
#pragma omp parallel for collapse(3) num_threads(threads) schedule(static) if (threads > 1)
  for (Z batch = 0; batch < p.batch; ++batch)
    for (Z block = 0; block < blocks; ++block)
      for (Z j = 0; j < panels; ++j) {
        Z from = block * height, to = from + height < p.m ? from + height : p.m;
        if (from < to) panel(p, batch, from, to, j * COLUMNS);
      }
}
