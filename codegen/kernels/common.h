// The common part of the kernels of `registry.py`. It precedes the text of each, which therefore
// has no #include.
#ifdef __clang__
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("fp-contract=fast")
#endif
typedef long long Z;
#define MEMBER inline __attribute__((always_inline))
#define ALWAYS static MEMBER
enum { COLUMNS = 32 };  // columns of a tile
typedef float V __attribute__((vector_size(64), aligned(4), may_alias));
typedef int I __attribute__((vector_size(64)));

ALWAYS Z smaller(Z a, Z b) { return a < b ? a : b; }

// The part of an operand that is read next: `outer` times `inner` rows of `lines` lines. It is
// fetched a bit at a time while another part is multiplied: its rows are far from each other, and
// the processor does not foresee them.
struct Ahead {
  const float *from;
  Z outer, outer_step, inner, inner_step, lines;
  const float *row = from;
  Z at = 0, line = 0;

  MEMBER Z left() const { return outer * inner * lines; }

  MEMBER void fetch(Z count) {
    for (; count > 0 && outer > 0; --count) {
      __builtin_prefetch(row + line * 16, 0, 2);
      if (++line < lines) continue;
      line = 0, row += inner_step;
      if (++at < inner) continue;
      at = 0, --outer, row = from += outer_step;
    }
  }
};

// Rows [first, last), counted over all batches, and columns [from, to) of a result; a row of the
// tile holds 32.
template <class T>
using Epilogue = void (*)(void **buffers, const Z *numbers, const T *tile, Z first, Z last,
                          Z from, Z to);

// y[b] = bias[b] + x[b] * w[b]; codegen/kernels/matmul_f32.py defines the numbers.
template <class T>
struct Product {
  const T *x, *w, *bias;
  T *y;
  Epilogue<T> epilogue;
  void **buffers;  // of the epilogue, like its numbers
  const Z *numbers;
  Z batch, m, n, k, x_batch, x_row, w_batch, w_n, w_k, bias_batch, bias_row;

  Product(void **given, const Z *at)
      : x((const T *)given[0] + at[0]), w((const T *)given[1] + at[1]),
        bias(at[2] ? (const T *)given[2] + at[3] : nullptr), y((T *)given[3]),
        epilogue((Epilogue<T>)at[15]), buffers(given + 4), numbers(at + 16),
        batch(at[4]), m(at[5]), n(at[6]), k(at[7]), x_batch(at[8]), x_row(at[9]),
        w_batch(at[10]), w_n(at[11]), w_k(at[12]), bias_batch(at[13]), bias_row(at[14]) {}
};

