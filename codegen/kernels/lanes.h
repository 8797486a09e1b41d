// Vectors of the processor's width: registers, in memory, and of int.
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float F __attribute__((vector_size(4 * LANES)));
typedef float M __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int J __attribute__((vector_size(4 * LANES)));
// a product's tile: its rows, of two vectors each, whose sums fit the registers; vectors of 32
// columns
enum { TALL = LANES == 16 ? 12 : 6, VECTORS = COLUMNS / LANES };

// Operations on some lanes of a vector, by a mask: AVX-512 has a register of bits for it, AVX2 a
// vector whose lanes are 0 or -1.
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (J){__VA_ARGS__})
#endif

// The lanes of a position that are in [0, size).
ALWAYS J within(J at, long long size) {
  typedef unsigned Whole __attribute__((vector_size(4 * LANES)));
  return (J)((Whole)at < (unsigned)size);
}

#ifdef __AVX512F__
typedef unsigned short Mask;
#define LANE (J{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
ALWAYS Mask mask_of(J v) { return __builtin_ia32_cvtd2mask512(v); }
ALWAYS unsigned bits(Mask mask) { return mask; }
ALWAYS F load(const float *from, Mask mask) {
  return __builtin_ia32_loadups512_mask(from, F{}, mask);
}
ALWAYS void store(float *to, F all, Mask mask) {
  __builtin_ia32_storeups512_mask(to, all, mask);
}
ALWAYS F gathered(const float *from, J at, Mask mask) {
  return __builtin_ia32_gathersiv16sf(F{}, from, at, mask, 4);
}
ALWAYS F add(F sum, F x, F w, Mask mask) {
  return __builtin_ia32_vfmaddps512_mask3(x, w, sum, mask, 4);
}
ALWAYS F evens(F a, F b) {
  return SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
// The even and the odd lanes of two vectors, in the order HALVES, which costs least.
#define HALVES LANE
ALWAYS F even_half(F a, F b) { return evens(a, b); }
ALWAYS F odd_half(F a, F b) {
  return SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
ALWAYS F in_order(F all) { return all; }
// Every second lane of two vectors, as `evens` reads them.
ALWAYS Mask spread(Mask mask, int half) {
  return __builtin_ia32_pdep_si(half ? mask >> 8 : mask & 0xff, 0x5555);
}
#else
typedef J Mask;
#define LANE (J{0, 1, 2, 3, 4, 5, 6, 7})
ALWAYS Mask mask_of(J v) { return v; }
ALWAYS unsigned bits(Mask mask) { return __builtin_ia32_movmskps256((F)mask); }
ALWAYS F load(const float *from, Mask mask) {
  return __builtin_ia32_maskloadps256((const F *)from, mask);
}
ALWAYS void store(float *to, F all, Mask mask) {
  // a masked store is slow on some processors
  if (bits(mask) == 0xff)
    *(M *)to = (M)all;
  else
    __builtin_ia32_maskstoreps256((F *)to, mask, all);
}
ALWAYS F gathered(const float *from, J at, Mask mask) {
#ifdef __clang__
  return __builtin_ia32_gatherd_ps256(F{}, from, at, (F)mask, 4);
#else
  return __builtin_ia32_gathersiv8sf(F{}, from, at, (F)mask, 4);
#endif
}
ALWAYS F add(F sum, F x, F w, Mask mask) {
  return __builtin_ia32_blendvps256(sum, sum + x * w, (F)mask);
}
ALWAYS F evens(F a, F b) { return SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
#define HALVES (J{0, 1, 4, 5, 2, 3, 6, 7})
ALWAYS F even_half(F a, F b) { return SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14); }
ALWAYS F odd_half(F a, F b) { return SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15); }
ALWAYS F in_order(F all) { return SHUFFLE(all, all, 0, 1, 4, 5, 2, 3, 6, 7); }
ALWAYS Mask spread(Mask mask, int half) {
  const Mask even = {-1, 0, -1, 0, -1, 0, -1, 0};
  return even & (half ? SHUFFLE(mask, mask, 4, 4, 5, 5, 6, 6, 7, 7)
                      : SHUFFLE(mask, mask, 0, 0, 1, 1, 2, 2, 3, 3));
}
#endif
ALWAYS Mask first_lanes(int n) { return mask_of(LANE < n); }
