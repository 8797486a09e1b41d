// Products of float32 matrices: y[b] = bias[b] + x[b] * w[b], w read as [n, k] or as [k, n].
//
// Panels of 32 columns of w, at most 192 deep, are packed into the first-level cache and multiplied
// with the rows of x, as many at a time as their sums fit the registers (Goto and van de Geijn,
// 2008): twelve with AVX-512, six with AVX2, there for half of the columns. Each pass over k adds
// to the y of the pass before, so that no sum is a chain of more than 192: errors stay near those
// of a library that blocks k. Element-wise operators after a product are applied to each tile of up
// to twelve rows of a panel as soon as it is finished: the graph's own kernel, an `Epilogue`, is
// called for it, and the product is never in memory.
// Products of few rows with a weight in rows leave the weight as it is (`few_rows`).
// codegen/kernels/matmul_f32.py chooses the products and defines `numbers`,
// codegen/fusion/epilogue.py defines epilogues.
enum { DEPTH = 192, ROWS = 192, SERIAL = 1 << 17 };

// c = start + a * b over R rows and N vectors of columns; `start` may be c.
template <int R, int N>
ALWAYS void tile(const float *a, Z a_row, const float *b, Z depth, float *c, Z c_row,
                 const float *start, Z start_row) {
  M sums[R][N];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) sums[r][v] = M{};
#pragma GCC unroll 1
  for (Z k = 0; k < depth; ++k) {
    M right[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) right[v] = *(const M *)(b + k * COLUMNS + v * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      M all = a[r * a_row + k] - M{};
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sums[r][v] += all * right[v];
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v)
      *(M *)(c + r * c_row + v * LANES) =
          *(const M *)(start + r * start_row + v * LANES) + sums[r][v];
}

// The same for all 32 columns: two vectors at a time, all of them where there are few rows.
template <int R>
ALWAYS void tiles(const float *a, Z a_row, const float *b, Z depth, float *c, Z c_row,
                  const float *start, Z start_row) {
  constexpr int N = R <= 2 ? VECTORS : 2;
#pragma GCC unroll 2
  for (int v = 0; v < COLUMNS; v += N * LANES)
    tile<R, N>(a, a_row, b + v, depth, c + v, c_row, start + v, start_row);
}

// The same for the last columns of the result, which may be fewer than 32.
template <int R>
static __attribute__((noinline)) void rows(const float *a, Z a_row, const float *b, Z depth,
                                           float *c, Z c_row, const float *start, Z start_row,
                                           Z columns) {
  if (columns == COLUMNS) return tiles<R>(a, a_row, b, depth, c, c_row, start, start_row);
  float room[R * COLUMNS], given[R * COLUMNS];
  for (int r = 0; r < R; ++r)
    for (Z j = 0; j < COLUMNS; ++j)
      given[r * COLUMNS + j] = j < columns ? start[r * start_row + j] : 0.0f;
  tiles<R>(a, a_row, b, depth, room, COLUMNS, given, COLUMNS);
  for (int r = 0; r < R; ++r)
    for (Z j = 0; j < columns; ++j) c[r * c_row + j] = room[r * COLUMNS + j];
}

#ifndef __clang__
// Transpose as many rows as a vector has lanes: pairs are exchanged at distances 1, 2, 4, 8.
ALWAYS void transpose(F *t) {
#pragma GCC unroll 4
  for (int far = 1; far < LANES; far *= 2) {
    const J low = LANE + ((J)((LANE & far) != 0) & (LANES - far));
    F u[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i)
      u[i] = i & far ? __builtin_shuffle(t[i ^ far], t[i], low + far)
                     : __builtin_shuffle(t[i], t[i ^ far], low);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) t[i] = u[i];
  }
}
#endif

// A panel as [depth, 32]; zeros after its columns.
static void pack(const float *w, Z w_n, Z w_k, Z columns, Z depth, float *to) {
  Z ready = 0;
#ifndef __clang__
  for (; w_k == 1 && ready + LANES <= columns; ready += LANES) {
    Z k = 0;
    for (; k + LANES <= depth; k += LANES) {
      F t[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; ++i) t[i] = *(const M *)(w + (ready + i) * w_n + k);
      transpose(t);
#pragma GCC unroll 16
      for (int i = 0; i < LANES; ++i) *(M *)(to + (k + i) * COLUMNS + ready) = t[i];
    }
    for (; k < depth; ++k)
      for (int i = 0; i < LANES; ++i) to[k * COLUMNS + ready + i] = w[(ready + i) * w_n + k];
  }
#endif
  if (w_n == 1 && columns == COLUMNS) {
    for (Z k = 0; k < depth; ++k)
#pragma GCC unroll 4
      for (int v = 0; v < COLUMNS; v += LANES)
        *(M *)(to + k * COLUMNS + v) = *(const M *)(w + k * w_k + v);
    return;
  }
  for (Z k = 0; k < depth; ++k)
    for (Z j = ready; j < COLUMNS; ++j)
      to[k * COLUMNS + j] = j < columns ? w[j * w_n + k * w_k] : 0.0f;
}

// Fetches a panel, or a part of one.
static Ahead ahead_of(const Product<float> &p, const float *w, Z columns, Z depth) {
  if (p.w_k == 1) return {w, columns, p.w_n, 1, 0, (depth + 15) / 16};
  return {w, depth, p.w_k, 1, 0, (columns + 15) / 16};
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
  Z columns = smaller(p.n - j, COLUMNS), beside = smaller(p.n - j - columns, COLUMNS);
  Z passes = (p.k + DEPTH - 1) / DEPTH, deep = ((p.k + passes - 1) / passes + 15) / 16 * 16;
  for (Z k = 0; k < p.k; k += deep) {
    Z depth = smaller(p.k - k, deep), further = smaller(p.k - k - depth, deep);
    bool last = p.epilogue && !further;
    pack(w + k * p.w_k, p.w_n, p.w_k, columns, depth, packed);
    Ahead ahead = further ? ahead_of(p, w + (k + depth) * p.w_k, columns, further)
                          : ahead_of(p, w + COLUMNS * p.w_n, beside, smaller(p.k, deep));
    Z share = ahead.left() * TALL / (to - from) + 1;
    for (Z m = from; m < to;) {
      const float *a = x + m * p.x_row + k, *start = k ? y + m * y_row : bias + m * p.bias_row;
      float *target = last ? done : y + m * y_row;
      Z start_row = k ? y_row : p.bias_row, left = to - m;
      ahead.fetch(share);
#define TAKE(R) \
  if (left >= R) { \
    rows<R>(a, p.x_row, packed, depth, target, y_row, start, start_row, columns); \
    Z first = batch * p.m + m; \
    if (last) p.epilogue(p.buffers, p.numbers, done, first, first + R, j, j + columns); \
    m += R; \
    continue; \
  }
      TAKE(TALL) TAKE(LANES / 2) TAKE(4) TAKE(2) TAKE(1)
    }
  }
}

#ifndef __clang__
// Up to 32 rows: packing the weight takes longer than multiplying it. x is packed instead, and rows
// of the weight, read once and in their order, are the left factor of y's transpose.
enum { TOGETHER = 24, PART = 256 };  // rows of the weight; a sum's terms

// R rows of the weight times m rows of x, added to `sums`, [R, 32].
template <int R>
static __attribute__((noinline)) void few_tiles(const float *w, Z w_n, const float *packed, Z depth,
                                                Z m, float *sums) {
  for (Z v = 0; v < m; v += 2 * LANES) {
    float *c = sums + v;
    if (m - v > LANES)
      tile<R, 2>(w, w_n, packed + v, depth, c, COLUMNS, c, COLUMNS);
    else
      tile<R, 1>(w, w_n, packed + v, depth, c, COLUMNS, c, COLUMNS);
  }
}

// Columns [j, j + columns) of y. `packed` is x as [k, 32].
static void few_columns(const Product<float> &p, const float *packed, Z j, Z columns) {
  float sums[TOGETHER * COLUMNS] __attribute__((aligned(64))) = {},
        done[LANES * COLUMNS] __attribute__((aligned(64)));
  for (Z r = 0; r < columns;) {
    const float *w = p.w + (j + r) * p.w_n;
#define TAKE_FEW(R) \
  if (columns - r >= R) { \
    for (Z k = 0; k < p.k; k += PART) \
      few_tiles<R>(w + k, p.w_n, packed + k * COLUMNS, smaller(p.k - k, PART), p.m, \
                   sums + r * COLUMNS); \
    r += R; \
    continue; \
  }
    TAKE_FEW(TALL) TAKE_FEW(LANES / 2) TAKE_FEW(4) TAKE_FEW(2) TAKE_FEW(1)
  }
  for (Z m = 0; m < p.m; m += LANES) {
    Z last = smaller(p.m, m + LANES);
    for (Z part = 0; part < columns; part += LANES) {
      F t[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; ++i) t[i] = *(const M *)(sums + (part + i) * COLUMNS + m);
      transpose(t);
#pragma GCC unroll 16
      for (int i = 0; i < LANES; ++i) *(M *)(done + i * COLUMNS + part) = t[i];
    }
    for (Z row = m; row < last; ++row) {
      float *from = done + (row - m) * COLUMNS, *to = p.epilogue ? from : p.y + row * p.n + j;
      const float *bias = p.bias + row * p.bias_row + j;
      for (Z c = 0; c < columns; ++c) to[c] = from[c] + (p.bias ? bias[c] : 0.0f);
    }
    if (p.epilogue) p.epilogue(p.buffers, p.numbers, done, m, last, j, j + columns);
  }
}

// Whether there was memory for x, and y is written.
static bool few_rows(const Product<float> &p, int threads) {
  auto *packed = (float *)__builtin_malloc(COLUMNS * p.k * sizeof(float));
  if (packed == nullptr) return false;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
#pragma omp for schedule(static)
    for (Z k = 0; k < p.k; k += PART)
      pack(p.x + k, p.x_row, 1, p.m, smaller(p.k - k, PART), packed + k * COLUMNS);
#pragma omp for schedule(static)
    for (Z j = 0; j < p.n; j += TOGETHER)
      few_columns(p, packed, j, smaller(p.n - j, TOGETHER));
  }
  __builtin_free(packed);
  return true;
}
#endif

extern "C" void product_f32(void **buffers, int threads, const Z *n) {
  const Product<float> p(buffers, n);
  Z panels = (p.n + COLUMNS - 1) / COLUMNS, blocks = (p.m + ROWS - 1) / ROWS;
  Z height = ((p.m + blocks - 1) / blocks + 11) / 12 * 12;
  if (p.batch * p.m * p.n * p.k < SERIAL) threads = 1;
#ifndef __clang__
  bool few = p.batch == 1 && p.w_k == 1 && p.m <= COLUMNS && p.m * p.n * p.k >= SERIAL;
  if (few && few_rows(p, threads)) return;
#endif
#pragma omp parallel for collapse(3) num_threads(threads) schedule(static) if (threads > 1)
  for (Z batch = 0; batch < p.batch; ++batch)
    for (Z block = 0; block < blocks; ++block)
      for (Z j = 0; j < panels; ++j) {
        Z from = block * height, to = from + height < p.m ? from + height : p.m;
        if (from < to) panel(p, batch, from, to, j * COLUMNS);
      }
}
