// The header text of the kernels: vector types of W lanes, memory access, conversions, math.
//
// No file includes this one. codegen.cpp takes the sections from it that a translation unit needs
// and puts them into a namespace for each W. A section is a line `//: name <- sections it needs`
// and the lines up to the next such line. There is never an #include: that way a kernel compiles in
// 40 ms. The compiler is GCC 12 or newer, or Clang; at -O3 loops over the lanes of a vector become
// vector instructions (fma, sqrt, floor) where the machine has them.
//
// Registers: bool is an i32 mask (0 or -1), or an i8 mask where all of a kernel's registers are
// bytes (BYTES); bfloat16 and float16 are f32, already rounded. Errors (ulp) are against the exact
// result; nan, inf, -0 and denormals are as in libm.

//: types
// GCC calls functions of this length through the linkage table instead of inlining them, and spills
// every vector around the call.
#define INLINE static inline __attribute__((always_inline))
typedef signed char i8 __attribute__((vector_size(W)));
typedef unsigned char u8 __attribute__((vector_size(W)));
typedef short i16 __attribute__((vector_size(W * 2)));
typedef unsigned short u16 __attribute__((vector_size(W * 2)));
typedef int i32 __attribute__((vector_size(W * 4)));
typedef unsigned u32 __attribute__((vector_size(W * 4)));
typedef long long i64 __attribute__((vector_size(W * 8)));
typedef unsigned long long u64 __attribute__((vector_size(W * 8)));
typedef float f32 __attribute__((vector_size(W * 4)));
typedef double f64 __attribute__((vector_size(W * 8)));
#ifdef BYTES
typedef i8 mask;
#else
typedef i32 mask;
#endif
typedef int int32B __attribute__((vector_size(32)));
typedef int int64B __attribute__((vector_size(64)));  // a whole register of AVX-512
typedef long long long64B __attribute__((vector_size(64)));
template <class T> struct vec;
template <> struct vec<float> { typedef f32 type; };
template <> struct vec<double> { typedef f64 type; };
template <> struct vec<signed char> { typedef i8 type; };
template <> struct vec<unsigned char> { typedef u8 type; };
template <> struct vec<short> { typedef i16 type; };
template <> struct vec<int> { typedef i32 type; };
template <> struct vec<long long> { typedef i64 type; };
template <class V, class S> INLINE V splat(S s) {
  auto lane = V{}[0];
  lane = s;
  // GCC makes a broadcast of this, but not of a loop over the lanes; -0 stays -0
  return lane - V{};
}
// The numbers of the lanes as a pack: a constant vector is written with them. GCC takes a loop over
// the lanes apart only late, and half of its time for a kernel went there.
template <class T, T... k> struct Numbers {};
#ifdef __clang__
template <class T, T n> using Upto = __make_integer_seq<Numbers, T, n>;
#else
template <class T, T n> using Upto = Numbers<T, __integer_pack(n)...>;
#endif
typedef Upto<int, W> Lanes;
template <class V, int... k> INLINE V lanes(i64_t from, Numbers<int, k...>) {
  return splat<V>(from) + V{k...};
}
template <class V> INLINE V lanes(i64_t from) { return lanes<V>(from, Lanes{}); }
template <class To, class From> INLINE To conv(From v) { return __builtin_convertvector(v, To); }
// Floats to integers. Without the zero that the compiler does not know, GCC would make trunc(v) of a
// conversion and one back, which keeps nan, infinities and the sign of -0.5.
template <class To, class From> INLINE To whole(From v) {
  i64_t zero = 0;
  __asm__("" : "+r"(zero));
  return conv<To>(v) ^ splat<To>(zero);
}
INLINE int counted(full) { return W; }
INLINE int counted(int n) { return n; }
INLINE mask first(int n) { return lanes<mask>(0) < splat<mask>(n); }
INLINE i64 wide(mask m) { return conv<i64>(m); }
#ifdef BYTES
INLINE mask narrow(i8 m) { return m; }
INLINE i8 where(mask m, i8 a, i8 b) { return m ? a : b; }
INLINE u8 where(mask m, u8 a, u8 b) { return m ? a : b; }
template <class To> INLINE To ones(mask m) { return (To)-m; }
#else
INLINE mask narrow(i64 m) { return conv<i32>(m); }
INLINE mask narrow(i32 m) { return m; }
INLINE mask narrow(i16 m) { return conv<i32>(m); }
INLINE mask narrow(i8 m) { return conv<i32>(conv<i16>(m)); }
template <class To> INLINE To ones(mask m) { return conv<To>(conv<u16>((u32)-m)); }
// where(mask, a, b): a mask has 4 bytes per lane, whatever a and b have
INLINE f32 where(mask m, f32 a, f32 b) { return m ? a : b; }
INLINE i32 where(mask m, i32 a, i32 b) { return m ? a : b; }
INLINE f64 where(mask m, f64 a, f64 b) { return wide(m) ? a : b; }
INLINE i64 where(mask m, i64 a, i64 b) { return wide(m) ? a : b; }
// of bools that stayed wide (`cpp/masks.py`)
INLINE f64 where(i64 m, f64 a, f64 b) { return m ? a : b; }
INLINE i64 where(i64 m, i64 a, i64 b) { return m ? a : b; }
INLINE i16 where(mask m, i16 a, i16 b) { return conv<i16>(m) ? a : b; }
INLINE i8 where(mask m, i8 a, i8 b) { return conv<i8>(conv<i16>(m)) ? a : b; }
INLINE u8 where(mask m, u8 a, u8 b) { return conv<i8>(conv<i16>(m)) ? a : b; }
#endif
// a > b ? a : b and a < b ? a : b: the result is b if one of them is nan. x86 has one instruction
// for it, but GCC makes two of the ternary where comparisons give mask registers.
#if defined(__AVX512F__) && !defined(__clang__)
typedef float float16B __attribute__((vector_size(64)));
typedef double double8B __attribute__((vector_size(64)));
#define PICK(NAME, SIGN, OF) \
  template <class V> INLINE V NAME(V a, V b) { \
    static_assert(__is_same(V, f32) || __is_same(V, f64)); \
    if constexpr (sizeof(V) == 64 && sizeof(a[0]) == 4) \
      return (V)__builtin_ia32_##OF##ps512_mask((float16B)a, (float16B)b, (float16B)a, 0xffff, 4); \
    else if constexpr (sizeof(V) == 64) \
      return (V)__builtin_ia32_##OF##pd512_mask((double8B)a, (double8B)b, (double8B)a, 0xff, 4); \
    else \
      return a SIGN b ? a : b; \
  }
#else
#define PICK(NAME, SIGN, OF) template <class V> INLINE V NAME(V a, V b) { return a SIGN b ? a : b; }
#endif
PICK(larger, >, max)
PICK(smaller, <, min)
#undef PICK
// into [low, high]; nan stays
template <class V> INLINE V clamped(V v, V low, V high) { return smaller(high, larger(low, v)); }
// lanes from n on become `other`
template <class V> INLINE V keep(V v, V, full) { return v; }
template <class V> INLINE V keep(V v, V other, int n) { return where(first(n), v, other); }

//: fma <- types
// a * b + c, rounded once. A loop over the lanes means the same, but GCC first moves it through
// memory, lane by lane, before it finds the instruction: thirty of them in a kernel take it a
// second.
#if defined(__FMA__) && !defined(__clang__)
typedef float float4B __attribute__((vector_size(16)));
typedef float float8B __attribute__((vector_size(32)));
typedef double double2B __attribute__((vector_size(16)));
typedef double double4B __attribute__((vector_size(32)));
#endif
template <class V> INLINE V fused(V a, V b, V c) {
#if defined(__FMA__) && !defined(__clang__)
  constexpr int S = sizeof(a[0]), N = sizeof(V) / S;
#ifdef __AVX512F__
  if constexpr (S == 4 && N == 16)
    return (V)__builtin_ia32_vfmaddps512_mask((float16B)a, (float16B)b, (float16B)c, 0xffff, 4);
  if constexpr (S == 8 && N == 8)
    return (V)__builtin_ia32_vfmaddpd512_mask((double8B)a, (double8B)b, (double8B)c, 0xff, 4);
#endif
  if constexpr (S == 4 && N == 8)
    return (V)__builtin_ia32_vfmaddps256((float8B)a, (float8B)b, (float8B)c);
  if constexpr (S == 8 && N == 4)
    return (V)__builtin_ia32_vfmaddpd256((double4B)a, (double4B)b, (double4B)c);
  if constexpr (S == 4 && N == 4)
    return (V)__builtin_ia32_vfmaddps((float4B)a, (float4B)b, (float4B)c);
  if constexpr (S == 8 && N == 2)
    return (V)__builtin_ia32_vfmaddpd((double2B)a, (double2B)b, (double2B)c);
#endif
  V r;
  for (int i = 0; i < (int)(sizeof(V) / sizeof(a[0])); ++i)
    if constexpr (sizeof(a[0]) == 4) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    else r[i] = __builtin_fma(a[i], b[i], c[i]);
  return r;
}
INLINE f32 fma(f32 a, f32 b, f32 c) {
#ifdef __FP_FAST_FMAF
  return fused(a, b, c);
#else
  return a * b + c;
#endif
}
INLINE f64 fma(f64 a, f64 b, f64 c) {
#ifdef __FP_FAST_FMA
  return fused(a, b, c);
#else
  return a * b + c;
#endif
}

//: narrow_floats <- types
// Registers hold bfloat16 and float16 as floats that are already rounded, so to_bf16 and to_f16 are
// exact.
#if defined(__AVX512BW__) && !defined(__clang__)
typedef short short16B __attribute__((vector_size(32)));
typedef int int16B __attribute__((vector_size(64)));
#endif
#if defined(__F16C__) && !defined(__clang__)
typedef short short8B __attribute__((vector_size(16)));
#endif
template <class V> INLINE u32 widened(V h) {
#if defined(__AVX512BW__) && !defined(__clang__)
  if constexpr (sizeof(V) == 32)
    return (u32)__builtin_ia32_pmovzxwd512_mask((short16B)h, int16B{}, 0xffff);
#endif
  return conv<u32>(h);
}
template <class V> INLINE u16 narrowed(V w) {
#if defined(__AVX512BW__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64)
    return (u16)__builtin_ia32_pmovdw512_mask((int16B)w, short16B{}, 0xffff);
#endif
  return conv<u16>(w);
}
INLINE f32 from_bf16(u16 h) { return (f32)(widened(h) << 16); }
INLINE u16 to_bf16(f32 v) { return narrowed((u32)v >> 16); }
// v must not be a nan with a payload in its lower half
INLINE f32 round_bf16_plain(f32 v) {
  u32 u = (u32)v;
  return (f32)((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}
INLINE f32 round_bf16(f32 v) { return v != v ? (f32)splat<u32>(0x7fc00000u) : round_bf16_plain(v); }
// float16 by integer arithmetic and one exact multiplication: correct for denormals, infinities and
// nan
template <class V> INLINE f32 from_f16(V h) {
#if defined(__AVX512BW__) && !defined(__clang__)
  if constexpr (sizeof(V) == 32)
    return (f32)__builtin_ia32_vcvtph2ps512_mask((short16B)h, float16B{}, 0xffff, 4);
#endif
#if defined(__F16C__) && !defined(__clang__)
  if constexpr (sizeof(V) == 16) return (f32)__builtin_ia32_vcvtph2ps256((short8B)h);
#endif
  u32 w = conv<u32>(h);
  f32 small = (f32)((w & 0x7fffu) << 13) * 0x1p112f;
  u32 bits = (u32)small;
  bits |= (u32)((w & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return (f32)(bits | ((w & 0x8000u) << 16));
}
template <class V> INLINE u16 to_f16(V v) {
#if defined(__AVX512BW__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64)
    return (u16)__builtin_ia32_vcvtps2ph512_mask((float16B)v, 0, short16B{}, 0xffff);
#endif
#if defined(__F16C__) && !defined(__clang__)
  if constexpr (sizeof(V) == 32)
    return (u16)__builtin_ia32_vcvtps2ph256((float __attribute__((vector_size(32))))v, 0);
#endif
  u32 u = (u32)v, sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  f32 magnitude = (f32)a;
  // denormal results: adding 0.5 leaves the rounded 10 bits at the end of the sum
  u32 low = (u32)(magnitude + 0.5f) - 0x3f000000u;
  u32 normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
  u32 r = (i32)a < 0x38800000 ? low : normal;
  r = (i32)a >= 0x477ff000 ? splat<u32>(0x7c00u) : r;
  r = (i32)a > 0x7f800000 ? splat<u32>(0x7e00u) : r;
  return conv<u16>(r | sign);
}
INLINE f32 round_f16(f32 v) { return from_f16(to_f16(v)); }

//: memory <- types narrow_floats
// ld: W neighbours; lds: with a stride; one: the same element in all lanes. n: `full` or the number
// of lanes.
#if defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
typedef char char16B __attribute__((vector_size(16)));
typedef char char32B __attribute__((vector_size(32)));
typedef char char64B __attribute__((vector_size(64)));
typedef short short8V __attribute__((vector_size(16)));
typedef short short16V __attribute__((vector_size(32)));
typedef short short32V __attribute__((vector_size(64)));
typedef int int4V __attribute__((vector_size(16)));
typedef int int8V __attribute__((vector_size(32)));
typedef long long long2V __attribute__((vector_size(16)));
typedef long long long4V __attribute__((vector_size(32)));
// for a load or store of some lanes: bytes of the vector, element, type and name of the instruction
#define PARTS(OF) \
  OF(64, char, char64B, qi512) OF(32, char, char32B, qi256) OF(16, char, char16B, qi128) \
  OF(64, short, short32V, hi512) OF(32, short, short16V, hi256) OF(16, short, short8V, hi128) \
  OF(32, int, int8V, si256) OF(16, int, int4V, si128) OF(32, long long, long4V, di256) OF(16, long long, long2V, di128)
INLINE unsigned long long bits(int n) { return n < 64 ? (1ull << n) - 1 : ~0ull; }
#endif
template <class V, class T> INLINE V raw(const T *p, full) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class T> INLINE V raw(const T *p, int n) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
    return (V)__builtin_ia32_loaddqusi512_mask((const int *)p, int64B{}, (u16_t)((1u << n) - 1));
  if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
    return (V)__builtin_ia32_loaddqudi512_mask((const long long *)p, long64B{},
                                               (u8_t)((1u << n) - 1));
#endif
#if defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
#define PART(BYTES, OF, KIND, NAME) \
  if constexpr (sizeof(V) == BYTES && sizeof(T) == sizeof(OF)) \
    return (V)__builtin_ia32_loaddqu##NAME##_mask((const OF *)p, KIND{}, bits(n));
  PARTS(PART)
#undef PART
#endif
  V v = V{};
  __builtin_memcpy(&v, p, n * sizeof(T));
  return v;
}
template <class T, class V> INLINE void put(T *p, V v, full) { __builtin_memcpy(p, &v, sizeof v); }
template <class T, class V> INLINE void put(T *p, V v, int n) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
    return __builtin_ia32_storedqusi512_mask((int *)p, (int64B)v, (u16_t)((1u << n) - 1));
  if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
    return __builtin_ia32_storedqudi512_mask((long long *)p, (long64B)v, (u8_t)((1u << n) - 1));
#endif
#if defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
#define PART(BYTES, OF, KIND, NAME) \
  if constexpr (sizeof(V) == BYTES && sizeof(T) == sizeof(OF)) \
    return __builtin_ia32_storedqu##NAME##_mask((OF *)p, (KIND)v, bits(n));
  PARTS(PART)
#undef PART
#endif
  __builtin_memcpy(p, &v, n * sizeof(T));
}
template <class V, class T> INLINE V raws(const T *p, i64_t s, full) {
  V v;
  for (int i = 0; i < W; ++i) v[i] = p[i * s];
  return v;
}
template <class V, class T> INLINE V raws(const T *p, i64_t s, int n) {
  V v = V{};
  for (int i = 0; i < n; ++i) v[i] = p[i * s];
  return v;
}
template <class T, class V> INLINE void puts(T *p, i64_t s, V v, full) {
  for (int i = 0; i < W; ++i) p[i * s] = v[i];
}
template <class T, class V> INLINE void puts(T *p, i64_t s, V v, int n) {
  for (int i = 0; i < n; ++i) p[i * s] = v[i];
}
INLINE mask truth(u8 v) { return narrow((i8)(v != 0)); }
INLINE u8 untruth(mask m) { return ones<u8>(m); }
template <class T, class N> INLINE auto ld(const T *p, N n) {
  return raw<typename vec<T>::type>(p, n);
}
template <class N> INLINE f32 ld(const bf16_t *p, N n) {
  return from_bf16(raw<u16>((const u16_t *)p, n));
}
template <class N> INLINE f32 ld(const f16_t *p, N n) {
  return from_f16(raw<u16>((const u16_t *)p, n));
}
template <class N> INLINE mask ld(const bool_t *p, N n) {
  return truth(raw<u8>((const u8_t *)p, n));
}
template <class T, class N> INLINE auto lds(const T *p, i64_t s, N n) {
  return raws<typename vec<T>::type>(p, s, n);
}
template <class N> INLINE f32 lds(const bf16_t *p, i64_t s, N n) {
  return from_bf16(raws<u16>((const u16_t *)p, s, n));
}
template <class N> INLINE f32 lds(const f16_t *p, i64_t s, N n) {
  return from_f16(raws<u16>((const u16_t *)p, s, n));
}
template <class N> INLINE mask lds(const bool_t *p, i64_t s, N n) {
  return truth(raws<u8>((const u8_t *)p, s, n));
}
// lane i is p[-i]
template <class V> INLINE V behind(V v, int n) {
  V r;
  for (int i = 0; i < W; ++i) r[i] = v[(n - 1 - i) & (W - 1)];
  return r;
}
template <class T> INLINE auto ldr(const T *p, full n) { return behind(ld(p - (W - 1), n), W); }
template <class T> INLINE auto ldr(const T *p, int n) { return behind(ld(p - (n - 1), n), n); }
template <class T> INLINE auto one(const T *p) { return splat<typename vec<T>::type>(*p); }
INLINE f32 one(const bf16_t *p) { return from_bf16(splat<u16>(p->bits)); }
INLINE f32 one(const f16_t *p) { return from_f16(splat<u16>(p->bits)); }
INLINE mask one(const bool_t *p) { return splat<mask>(p->bits ? -1 : 0); }
template <class T, class V, class N> INLINE void st(T *p, V v, N n) { put(p, v, n); }
template <class N> INLINE void st(bf16_t *p, f32 v, N n) { put((u16_t *)p, to_bf16(v), n); }
template <class N> INLINE void st(f16_t *p, f32 v, N n) { put((u16_t *)p, to_f16(v), n); }
template <class N> INLINE void st(bool_t *p, mask v, N n) { put((u8_t *)p, untruth(v), n); }
template <class T, class V, class N> INLINE void sts(T *p, i64_t s, V v, N n) { puts(p, s, v, n); }
template <class N> INLINE void sts(bf16_t *p, i64_t s, f32 v, N n) {
  puts((u16_t *)p, s, to_bf16(v), n);
}
template <class N> INLINE void sts(f16_t *p, i64_t s, f32 v, N n) {
  puts((u16_t *)p, s, to_f16(v), n);
}
template <class N> INLINE void sts(bool_t *p, i64_t s, mask v, N n) {
  puts((u8_t *)p, s, untruth(v), n);
}

//: tile <- memory
// W vectors of W lanes as the rows of a square: lane j of row i and lane i of row j are exchanged.
template <int bytes> struct ints;
template <> struct ints<1> { typedef i8 type; };
template <> struct ints<2> { typedef i16 type; };
template <> struct ints<4> { typedef i32 type; };
template <> struct ints<8> { typedef i64 type; };
template <int d, bool high, class V, int... k> INLINE V woven(V a, V b, Numbers<int, k...>) {
#ifdef __clang__
  return V{(high ? (k & d ? b[k] : a[k + d]) : (k & d ? b[k - d] : a[k]))...};
#else
  typedef typename ints<sizeof(a[0])>::type From;
  return __builtin_shuffle(a, b, From{(k & d ? W + k - !high * d : k + high * d)...});
#endif
}
template <int d, bool high, class V> INLINE V woven(V a, V b) {
  return woven<d, high>(a, b, Lanes{});
}
template <int d = W / 2, class V> INLINE void turn_over(V (&t)[W]) {
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i)
    if (!(i & d)) {
      const V a = t[i], b = t[i + d];
      t[i] = woven<d, false>(a, b);
      t[i + d] = woven<d, true>(a, b);
    }
  if constexpr (d > 1) turn_over<d / 2>(t);
}
// Row i of such a square, reduced by f, in lane i: each step combines halves of two rows in one
// vector.
template <int d = W / 2, class V, class F> INLINE V fold_over(V (&t)[W], F f) {
#pragma GCC unroll 16
  for (int i = 0; i < d; ++i)
    t[i] = f(woven<d, false>(t[i], t[i + d]), woven<d, true>(t[i], t[i + d]));
  if constexpr (d > 1) return fold_over<d / 2>(t, f);
  else return t[0];
}

//: gather <- memory
// ldg: each lane at its own offset
template <class V, class T> INLINE V rawg(const T *p, i64 at, full) {
  V v;
  for (int i = 0; i < W; ++i) v[i] = p[at[i]];
  return v;
}
template <class V, class T> INLINE V rawg(const T *p, i64 at, int n) {
  V v = V{};
  for (int i = 0; i < n; ++i) v[i] = p[at[i]];
  return v;
}
template <class T, class N> INLINE auto ldg(const T *p, i64 at, N n) {
  return rawg<typename vec<T>::type>(p, at, n);
}
template <class N> INLINE f32 ldg(const bf16_t *p, i64 at, N n) {
  return from_bf16(rawg<u16>((const u16_t *)p, at, n));
}
template <class N> INLINE f32 ldg(const f16_t *p, i64 at, N n) {
  return from_f16(rawg<u16>((const u16_t *)p, at, n));
}
template <class N> INLINE mask ldg(const bool_t *p, i64 at, N n) {
  return truth(rawg<u8>((const u8_t *)p, at, n));
}

template <class V> INLINE bool none(V wrong) {
#if defined(__AVX512DQ__) && defined(__AVX512VL__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64) return !__builtin_ia32_cvtd2mask512((int64B)wrong);
  if constexpr (sizeof(V) == 32) return !__builtin_ia32_cvtd2mask256((int32B)wrong);
#endif
  int any = 0;
  for (int i = 0; i < W; ++i) any |= wrong[i];
  return !any;
}
// 32-bit positions, for lanes that walk along a row. If no position is greater than the last one,
// and that is near, two loads and one shuffle replace the loads of single lanes.
template <class T, class N> INLINE auto ldg(const T *p, i32 at, N n) {
  typedef decltype(ld(p, n)) V;
#if !defined(__clang__)
  if constexpr (sizeof(V{}[0]) >= 4 && W >= 4) {
    const u32 on = (u32)(at - splat<i32>(at[0]));
    const unsigned last = on[counted(n) - 1];
    const i32 behind = keep((i32)(on > splat<u32>(last)), i32{}, n);
    if (last < 2 * W && none(behind)) {
      const T *const near = p + at[0];
      const int count = (int)last + 1;
      const V low = ld(near, count < W ? count : W);
      const V high = count > W ? ld(near + W, count - W) : low;
      if constexpr (sizeof(V{}[0]) == 4) return __builtin_shuffle(low, high, (i32)on);
      else return __builtin_shuffle(low, high, conv<i64>((i32)on));
    }
  }
#endif
  return ldg(p, conv<i64>(at), n);
}

//: load_if <- gather
// Loads of some lanes only; the others are `other`, and their memory is not read. span: lanes
// from..to-1.
struct span { i64_t from, to; };
INLINE span operator&(span a, span b) {
  return {a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
}
// low <= at + lane < high
INLINE span up(i64_t low, i64_t high, i64_t at) { return {low - at, high - at}; }
// low <= at - lane < high
INLINE span down(i64_t low, i64_t high, i64_t at) { return {at - high + 1, at - low + 1}; }
INLINE i64_t floored(i64_t a, i64_t b) { return a / b - (a % b < 0); }
INLINE span apart(i64_t low, i64_t high, i64_t at, i64_t s) {  // low <= at + s * lane < high
  return s > 0 ? span{-floored(at - low, s), -floored(at - high, s)}
               : span{floored(at - high, -s) + 1, floored(at - low, -s) + 1};
}
INLINE int lane(i64_t i, int n) { return i < 0 ? 0 : i > n ? n : (int)i; }
INLINE mask within(span s) { return first(lane(s.to, W)) & ~first(lane(s.from, W)); }
template <class T, class V, class N> INLINE V ldif(const T *p, span s, V other, N n) {
  const int last = lane(s.to, counted(n)), from = lane(s.from, counted(n));
  if (last - from == counted(n)) return ld(p, n);
  if (from >= last) return other;
  V read = ld(p + from, last - from);
  if (from) {
    const V there = read;
    for (int i = 0; i < W; ++i) read[i] = there[(i - from) & (W - 1)];
  }
  return where(first(last) & ~first(from), read, other);
}
template <class T, class V, class N> INLINE V ldrif(const T *p, span s, V other, N n) {
  const int last = lane(s.to, counted(n)), from = lane(s.from, counted(n));
  if (last - from == counted(n)) return ldr(p, n);
  if (from >= last) return other;
  return where(first(last) & ~first(from), behind(ld(p - (last - 1), last - from), last), other);
}
template <class T, class V, class N> INLINE V ldm(const T *p, i64 at, mask m, V other, N n) {
  for (int i = 0; i < counted(n); ++i)
    if (m[i]) other[i] = one(p + at[i])[0];
  return other;
}

template <class T, class V, class N> INLINE V ldsp(const T *p, i64 at, span s, V other, N n) {
  for (int i = lane(s.from, counted(n)), last = lane(s.to, counted(n)); i < last; ++i)
    other[i] = one(p + at[i])[0];
  return other;
}

//: inside <- load_if

//: scatter <- memory
// Stores at data-dependent positions: `merge` for neighbours, `scatter` lane by lane in order,
// because two lanes may have the same position.
struct replaced { template <class A, class B> INLINE B of(A, B b) { return b; } };
struct added { template <class A, class B> INLINE A of(A a, B b) { return a + b; } };
struct multiplied { template <class A, class B> INLINE A of(A a, B b) { return a * b; } };
struct greatest {
  template <class A> INLINE A of(A a, A b) { return a != a ? a : ((b > a) | (b != b)) ? b : a; }
};
struct least {
  template <class A> INLINE A of(A a, A b) { return a != a ? a : ((b < a) | (b != b)) ? b : a; }
};
template <class F, class T, class V, class N> INLINE void merge(T *p, V v, N n) {
  if constexpr (__is_same(F, replaced)) st(p, v, n);
  else st(p, F::of(ld(p, n), v), n);
}
template <class F, class T, class V, class N> INLINE void scatter(T *p, i64 at, V v, N n) {
  for (int i = 0; i < counted(n); ++i) p[at[i]] = F::of(p[at[i]], (T)v[i]);
}
template <class F, class N> INLINE void scatter(bf16_t *p, i64 at, f32 v, N n) {
  scatter<F>((u16_t *)p, at, to_bf16(v), n);
}
template <class F, class N> INLINE void scatter(f16_t *p, i64 at, f32 v, N n) {
  scatter<F>((u16_t *)p, at, to_f16(v), n);
}
template <class F, class N> INLINE void scatter(bool_t *p, i64 at, mask v, N n) {
  scatter<F>((u8_t *)p, at, untruth(v), n);
}
INLINE void copied(void *to, const void *from, i64_t bytes, int threads) {
  const i64_t parts = bytes >= 1 << 18 ? threads : 1,
              step = ((bytes + parts - 1) / parts + 63) & -64ll;
#pragma omp parallel for num_threads(threads) schedule(static) if (parts > 1)
  for (i64_t part = 0; part < parts; ++part) {
    const i64_t at = part * step, left = bytes - at;
    if (left > 0)
      __builtin_memcpy((char *)to + at, (const char *)from + at, left < step ? left : step);
  }
}
template <class T, class V> INLINE void filled(T *p, V v, i64_t count) {
  i64_t i = 0;
  for (; i + W <= count; i += W) st(p + i, v, full{});
  if (i < count) st(p + i, v, int(count - i));
}

//: checked <- types
// Values must be in [low, high). If one is not, the kernel reports trouble to the caller and uses
// `low` instead.
template <class N> INLINE i64 checked(i64 v, i64_t low, i64_t high, int *trouble, N n) {
  const i64 wrong = (v < low) | (v >= high);
  i64_t any = 0;
#if defined(__AVX512DQ__) && !defined(__clang__)
  if constexpr (sizeof(i64) == 64)
    any = __builtin_ia32_cvtq2mask512((long64B)wrong) & ((1 << counted(n)) - 1);
  else
#endif
  for (int i = 0; i < counted(n); ++i) any |= wrong[i];
  if (any) __atomic_store_n(trouble, 1, __ATOMIC_RELAXED);
  return wrong ? splat<i64>(low) : v;
}
INLINE i64_t checked(i64_t v, i64_t low, i64_t high, int *trouble) {
  if (v >= low && v < high) return v;
  __atomic_store_n(trouble, 1, __ATOMIC_RELAXED);
  return low;
}

//: any <- types
INLINE bool any_lane(mask m) {
  int r = 0;
  for (int i = 0; i < W; ++i) r |= m[i];
  return r;
}

//: minmax <- types
INLINE f32 maximum(f32 a, f32 b) { return a != a ? a : larger(a, b); }
INLINE f64 maximum(f64 a, f64 b) { return a != a ? a : larger(a, b); }
template <class V> INLINE V maximum(V a, V b) { return a > b ? a : b; }
INLINE f32 minimum(f32 a, f32 b) { return a != a ? a : smaller(a, b); }
INLINE f64 minimum(f64 a, f64 b) { return a != a ? a : smaller(a, b); }
template <class V> INLINE V minimum(V a, V b) { return a < b ? a : b; }
template <class V> INLINE V fmax(V a, V b) { return b != b ? a : larger(a, b); }
template <class V> INLINE V fmin(V a, V b) { return b != b ? a : smaller(a, b); }

//: bits <- types
INLINE f32 abs(f32 v) { return (f32)((u32)v & 0x7fffffffu); }
INLINE f64 abs(f64 v) { return (f64)((u64)v & 0x7fffffffffffffffull); }
INLINE i8 abs(i8 v) { return v < 0 ? -v : v; }
INLINE i16 abs(i16 v) { return v < 0 ? -v : v; }
INLINE i32 abs(i32 v) { return v < 0 ? -v : v; }
INLINE i64 abs(i64 v) { return v < 0 ? -v : v; }
INLINE u8 abs(u8 v) { return v; }
INLINE f32 copysign(f32 a, f32 b) { return (f32)(((u32)a & 0x7fffffffu) | ((u32)b & 0x80000000u)); }
INLINE f64 copysign(f64 a, f64 b) {
  return (f64)(((u64)a & ~(1ull << 63)) | ((u64)b & (1ull << 63)));
}
INLINE mask isinf(f32 v) { return abs(v) == __builtin_inff(); }
INLINE mask isinf(f64 v) { return narrow(abs(v) == __builtin_inf()); }
INLINE mask isfinite(f32 v) { return abs(v) < __builtin_inff(); }
INLINE mask isfinite(f64 v) { return narrow(abs(v) < __builtin_inf()); }
INLINE mask signbit(f32 v) { return (i32)v < 0; }
INLINE mask signbit(f64 v) { return narrow((i64)v < 0); }
template <class V> INLINE V sign(V v) {
  V one = splat<V>(1), zero = V{};
  return (v > 0 ? one : zero) - (v < 0 ? one : zero);
}

//: rounding <- types
// The instruction by its name where the machine has it: GCC moves a loop over the lanes through
// memory before it finds it.
template <int HOW, class V> INLINE bool rounded(V v, V &r) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64) {
    if constexpr (sizeof(v[0]) == 4)
      r = (V)__builtin_ia32_rndscaleps_mask((float16B)v, HOW, (float16B)v, 0xffff, 4);
    else r = (V)__builtin_ia32_rndscalepd_mask((double8B)v, HOW, (double8B)v, 0xff, 4);
    return true;
  }
#endif
#if defined(__AVX__) && !defined(__clang__)
  if constexpr (sizeof(V) == 32) {
    if constexpr (sizeof(v[0]) == 4)
      r = (V)__builtin_ia32_roundps256((float __attribute__((vector_size(32))))v, HOW);
    else r = (V)__builtin_ia32_roundpd256((double __attribute__((vector_size(32))))v, HOW);
    return true;
  }
#endif
  return false;
}
#define EACH(NAME, HOW) \
  INLINE f32 NAME(f32 v) { f32 r; if (!rounded<HOW>(v, r)) for (int i = 0; i < W; ++i) r[i] = __builtin_##NAME##f(v[i]); return r; } \
  INLINE f64 NAME(f64 v) { f64 r; if (!rounded<HOW>(v, r)) for (int i = 0; i < W; ++i) r[i] = __builtin_##NAME(v[i]); return r; }
EACH(floor, 9)
EACH(ceil, 10)
EACH(trunc, 11)
EACH(rint, 4)
#undef EACH
#define EACH(NAME) \
  INLINE f32 NAME(f32 v) { f32 r; for (int i = 0; i < W; ++i) r[i] = __builtin_##NAME##f(v[i]); return r; } \
  INLINE f64 NAME(f64 v) { f64 r; for (int i = 0; i < W; ++i) r[i] = __builtin_##NAME(v[i]); return r; }
EACH(sqrt)
#undef EACH

//: libm64 <- fma
// Doubles: SLEEF, as in ATen, if the loaded torch exports it; otherwise libm, one lane at a time.
extern "C" void *dlopen(const char *, int);
extern "C" void *dlsym(void *, const char *);
#if defined(__AVX512F__)
constexpr int S = 8;
#define SLEEF(NAME, ULP) "Sleef_" #NAME "d8_" #ULP
#elif defined(__AVX__)
constexpr int S = 4;
#define SLEEF(NAME, ULP) "Sleef_" #NAME "d4_" #ULP
#else
constexpr int S = 2;
#define SLEEF(NAME, ULP) "Sleef_" #NAME "d2_" #ULP
#endif
typedef double sleef_t __attribute__((vector_size(S * 8)));
INLINE void *from_torch(const char *name) {
  void *torch = dlopen("libtorch_cpu.so", 5);  // RTLD_LAZY | RTLD_NOLOAD
  return torch ? dlsym(torch, name) : nullptr;
}
// looked up once, when the kernel is loaded, for the functions that it uses
template <class F> sleef_t (*const of_one)(sleef_t) = (sleef_t (*)(sleef_t))from_torch(F::name);
template <class F>
sleef_t (*const of_two)(sleef_t, sleef_t) = (sleef_t (*)(sleef_t, sleef_t))from_torch(F::name);
INLINE sleef_t piece(const f64 &v, int at) {
  sleef_t r = sleef_t{};
  __builtin_memcpy(&r, (const double *)&v + at, (W < S ? W : S) * 8);
  return r;
}
INLINE void set_piece(f64 &v, int at, sleef_t r) {
  __builtin_memcpy((double *)&v + at, &r, (W < S ? W : S) * 8);
}
#define LANES64(NAME, ULP) \
  struct in_##NAME { static constexpr const char *name = SLEEF(NAME, ULP); }; \
  static f64 NAME(f64 v) { \
    f64 r; \
    if (auto f = of_one<in_##NAME>) for (int i = 0; i < W; i += S) set_piece(r, i, f(piece(v, i))); \
    else for (int i = 0; i < W; ++i) r[i] = ::NAME(v[i]); \
    return r; \
  }
#define PAIRS64(NAME, ULP) \
  struct in_##NAME { static constexpr const char *name = SLEEF(NAME, ULP); }; \
  static f64 NAME(f64 a, f64 b) { \
    f64 r; \
    if (auto f = of_two<in_##NAME>) for (int i = 0; i < W; i += S) set_piece(r, i, f(piece(a, i), piece(b, i))); \
    else for (int i = 0; i < W; ++i) r[i] = ::NAME(a[i], b[i]); \
    return r; \
  }
LANES64(exp, u10)
LANES64(expm1, u10)
LANES64(log, u10)
LANES64(log1p, u10)
LANES64(sin, u10)
LANES64(cos, u10)
LANES64(tanh, u10)
LANES64(erf, u10)
LANES64(exp2, u10)
LANES64(log2, u10)
LANES64(log10, u10)
LANES64(tan, u10)
LANES64(asin, u10)
LANES64(acos, u10)
LANES64(atan, u10)
LANES64(atanh, u10)
LANES64(erfc, u15)
PAIRS64(atan2, u10)
PAIRS64(hypot, u05)
PAIRS64(pow, u10)
// SLEEF overflows too early: libm beyond FAR
#define ENDS64(NAME, FAR) \
  struct in_##NAME { static constexpr const char *name = SLEEF(NAME, u10); }; \
  static f64 NAME(f64 v) { \
    f64 r; \
    const i64 inside = (v > -FAR) & (v < FAR); \
    i64_t near = of_one<in_##NAME> ? -1 : 0; \
    for (int i = 0; i < W; ++i) near &= inside[i]; \
    if (near) for (int i = 0; i < W; i += S) set_piece(r, i, of_one<in_##NAME>(piece(v, i))); \
    else for (int i = 0; i < W; ++i) r[i] = ::NAME(v[i]); \
    return r; \
  }
ENDS64(sinh, 709.0)
ENDS64(cosh, 709.0)
ENDS64(asinh, 1e150)
ENDS64(acosh, 1e150)
__attribute__((noinline, cold)) static f64 fmod_by_lanes(f64 a, f64 b) {
  f64 r; for (int i = 0; i < W; ++i) r[i] = ::fmod(a[i], b[i]); return r;
}
// Exact: the quotient is rounded to the whole number below or above it, and both remainders are
// doubles.
static f64 fmod(f64 a, f64 b) {
#ifdef __FP_FAST_FMA
  const f64 x = (f64)((u64)a & ~(1ull << 63)), y = (f64)((u64)b & ~(1ull << 63));
  const i64 plain = ((x < y * 0x1p51) & (y < __builtin_inf())) | (y == 0);
  i64_t all = -1;
  for (int i = 0; i < W; ++i) all &= plain[i];
  if (__builtin_expect(!all, 0)) return fmod_by_lanes(a, b);
  const f64 q = x / y, n = (q + 0x1p52) - 0x1p52;
  f64 r = fma(n > q ? 1.0 - n : -n, y, x);
  r = r < 0 ? r + y : r;
  return (f64)((u64)r | ((u64)a & (1ull << 63)));
#else
  return fmod_by_lanes(a, b);
#endif
}
INLINE f64 sigmoid(f64 v) { return 1.0 / (1.0 + exp(-v)); }

//: shifts <- types
template <class V> INLINE V shl(V a, V b, int width) {
  return (b < 0) | (b >= splat<V>(width)) ? V{} : a << (b & splat<V>(width - 1));
}
template <class V> INLINE V shr(V a, V b, int width) {
  V top = splat<V>(width - 1), count = (b < 0) | (b >= splat<V>(width)) ? top : b;
  return a >> count;
}
INLINE u8 shr(u8 a, u8 b, int) { return b >= (u8{} + 8) ? u8{} : a >> (b & 7); }

//: exp <- fma
// Cody-Waite reduction by ln 2, a polynomial, scaling by 2^n; 1.0 ulp
INLINE f32 exp_parts(f32 x, f32 &n) {
  n = fma(x, splat<f32>(1.44269504f), splat<f32>(12582912.f)) - 12582912.f;
  return fma(n, splat<f32>(-1.42860677e-6f), fma(n, splat<f32>(-0.693145752f), x));
}
INLINE f32 exp_tail(f32 r) {  // (e^r - 1 - r) / r^2
  f32 p = fma(r, splat<f32>(1.9875691500e-4f), splat<f32>(1.3981999507e-3f));
  p = fma(p, r, splat<f32>(8.3334519073e-3f));
  p = fma(p, r, splat<f32>(4.1665795894e-2f));
  p = fma(p, r, splat<f32>(1.6666665459e-1f));
  return fma(p, r, splat<f32>(5.0000001201e-1f));
}
INLINE f32 power_of_two(i32 k) { return (f32)((k + 127) << 23); }
// p * 2^n for a whole n, rounded once; in two factors, because 2^n itself may not be a float
template <class V> INLINE V scaled(V p, V n) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64)
    return (V)__builtin_ia32_scalefps512_mask((float16B)p, (float16B)n, (float16B)p, 0xffff, 4);
#endif
  i32 k = conv<i32>(n), half = k >> 1;
  return p * power_of_two(half) * power_of_two(k - half);
}
INLINE f32 exp(f32 x) {
  f32 n, r = exp_parts(clamped(x, splat<f32>(-110.f), splat<f32>(100.f)), n);
  return scaled(fma(r * r, exp_tail(r), r) + 1.f, n);
}

//: sigmoid <- exp
INLINE f32 sigmoid(f32 x) {  // exp(-x): the factors carry the sign
  f32 y = clamped(x, splat<f32>(-100.f), splat<f32>(110.f));
  f32 n = fma(y, splat<f32>(-1.44269504f), splat<f32>(12582912.f)) - 12582912.f;
  f32 r = fma(n, splat<f32>(-1.42860677e-6f), fma(n, splat<f32>(-0.693145752f), -y));
  return 1.f / (1.f + scaled(fma(r * r, exp_tail(r), r) + 1.f, n));
}

//: expm1 <- exp
// 2^k (e^r - 1) + (2^k - 1); 1.5 ulp
INLINE f32 expm1(f32 x) {
  f32 n, r = exp_parts(clamped(x, splat<f32>(-30.f), splat<f32>(100.f)), n);
  i32 k = conv<i32>(n), half = k >> 1;
  f32 em1 = fma(r * r, exp_tail(r), r), a = power_of_two(half), b = power_of_two(k - half);
  f32 scale = a * b, near = fma(scale, em1, scale - 1.f), far = (em1 + 1.f) * a * b;
  f32 v = k > 100 ? far : near;
  return x == 0.f ? x : v;
}

//: tanh <- exp bits
// below 0.6 a polynomial, fitted for this file to (tanh(x) / x - 1) / x^2; above 1 - 2 / (e^2x +
// 1); 1.4 ulp
INLINE f32 tanh(f32 x) {
  f32 a = abs(x), t = a * a;
  f32 p = fma(t, splat<f32>(-5.89514e-3f), splat<f32>(2.079596e-2f));
  p = fma(p, t, splat<f32>(-5.378383e-2f));
  p = fma(p, t, splat<f32>(1.3331924e-1f));
  p = fma(p, t, splat<f32>(-3.3333298e-1f));
  f32 far = 1.f - 2.f / (exp(2.f * smaller(splat<f32>(10.f), a)) + 1.f);
  return copysign(a < 0.6f ? fma(p * t, a, a) : far, x);
}

//: log <- fma
// mantissa in [sqrt(1/2), sqrt(2)), a polynomial, exponent in two parts; 0.9 ulp
INLINE f32 log(f32 x) {
  i32 tiny = x < 1.17549435e-38f;
  f32 y = tiny ? x * 8388608.f : x;
  i32 b = (i32)y - 0x3f3504f3;
  i32 e = (b >> 23) - (tiny & 23);
  f32 f = (f32)((b & 0x7fffff) + 0x3f3504f3) - 1.f, n = conv<f32>(e), z = f * f;
  f32 p = fma(f, splat<f32>(7.0376836292e-2f), splat<f32>(-1.1514610310e-1f));
  p = fma(p, f, splat<f32>(1.1676998740e-1f));
  p = fma(p, f, splat<f32>(-1.2420140846e-1f));
  p = fma(p, f, splat<f32>(1.4249322787e-1f));
  p = fma(p, f, splat<f32>(-1.6668057665e-1f));
  p = fma(p, f, splat<f32>(2.0000714765e-1f));
  p = fma(p, f, splat<f32>(-2.4999993993e-1f));
  p = fma(p, f, splat<f32>(3.3333331174e-1f));
  p = fma(n, splat<f32>(-2.12194440e-4f), p * f * z);
  p = fma(z, splat<f32>(-0.5f), p);
  f32 v = fma(n, splat<f32>(0.693359375f), f + p);
  v = x == 0.f ? splat<f32>(-__builtin_inff()) : v;
  v = x < 0.f ? splat<f32>(__builtin_nanf("")) : v;
  return (x == __builtin_inff()) | (x != x) ? x : v;
}

//: log1p <- log
// log(u) + (x - (u - 1)) / u with u = 1 + x rounded; 1.5 ulp
INLINE f32 log1p(f32 x) {
  f32 u = 1.f + x;
  f32 v = log(u) + (x - (u - 1.f)) / u;
  v = x == -1.f ? splat<f32>(-__builtin_inff()) : v;
  return (x == 0.f) | (x == __builtin_inff()) ? x : v;
}

//: doubles <- fma any
// Functions of f32 that are computed in double, so that only the last rounding counts (0.51 ulp):
// short polynomials made for this file by interpolation at Chebyshev's nodes. dd: as many doubles
// as fit a register, so an f32 is one or two of them. Arguments outside the range of a formula are
// corrected at the end or go to libm, one lane at a time.
#if defined(__AVX512F__)
constexpr int D = W * 8 > 64 ? W / 2 : W;
#elif defined(__AVX__)
constexpr int D = W * 8 > 32 ? W / 2 : W;
#else
constexpr int D = W * 8 > 16 ? W / 2 : W;
#endif
typedef double dd __attribute__((vector_size(D * 8)));
typedef long long dl __attribute__((vector_size(D * 8)));
typedef float df __attribute__((vector_size(D * 4)));
INLINE dd all(double d) { return d - dd{}; }
template <class V> INLINE dd widen(V v) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 32)
    return (dd)__builtin_ia32_cvtps2pd512_mask((float __attribute__((vector_size(32))))v,
                                               double8B{}, 0xff, 4);
#endif
  return __builtin_convertvector(v, dd);
}
template <class V> INLINE df rounded(V v) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64)
    return (df)__builtin_ia32_cvtpd2ps512_mask((double8B)v,
                                               (float __attribute__((vector_size(32)))){}, 0xff, 4);
#endif
  return __builtin_convertvector(v, df);
}
struct halves { df low, high; };
template <class V> INLINE halves apart(V v) {
#if defined(__AVX512F__) && !defined(__clang__)
  typedef double double4B __attribute__((vector_size(32)));
  if constexpr (sizeof(V) == 64)
    return {(df)__builtin_ia32_extractf64x4_mask((double8B)v, 0, double4B{}, 0xf),
            (df)__builtin_ia32_extractf64x4_mask((double8B)v, 1, double4B{}, 0xf)};
#endif
  halves r{};
  __builtin_memcpy(&r, &v, sizeof v);
  return r;
}
template <class V> INLINE V together(halves h) {
#if defined(__AVX512F__) && !defined(__clang__)
  typedef double double4B __attribute__((vector_size(32)));
  if constexpr (sizeof(V) == 64) {
    double8B r = __builtin_ia32_insertf64x4_mask(double8B{}, (double4B)h.low, 0, double8B{}, 0xff);
    return (V)__builtin_ia32_insertf64x4_mask(r, (double4B)h.high, 1, double8B{}, 0xff);
  }
#endif
  V r;
  __builtin_memcpy(&r, &h, sizeof r);
  return r;
}
template <class F> INLINE f32 doubly(f32 x, F f) {
  if constexpr (D == W) return (f32)rounded(f(widen((df)x)));
  else {
    halves h = apart(x);
    return together<f32>({rounded(f(widen(h.low))), rounded(f(widen(h.high)))});
  }
}
template <class F> INLINE f32 doubly(f32 x, f32 y, F f) {
  if constexpr (D == W) return (f32)rounded(f(widen((df)x), widen((df)y)));
  else {
    halves a = apart(x), b = apart(y);
    return together<f32>({rounded(f(widen(a.low), widen(b.low))),
                          rounded(f(widen(a.high), widen(b.high)))});
  }
}
template <class V> INLINE V fma(V a, V b, V c) {  // if dd is not f64
#ifdef __FP_FAST_FMA
  return fused(a, b, c);
#else
  return a * b + c;
#endif
}
// the highest coefficient first
template <class... C> INLINE dd series(dd x, double last, C... rest) {
  dd r = all(last);
  ((r = fma(r, x, all(rest))), ...);
  return r;
}
template <class V> INLINE V root(V v) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64)
    return (V)__builtin_ia32_sqrtpd512_mask((double8B)v, double8B{}, 0xff, 4);
#endif
  V r;
  for (int i = 0; i < D; ++i) r[i] = __builtin_sqrt(v[i]);
  return r;
}
INLINE dd size(dd v) { return (dd)((dl)v & 0x7fffffffffffffffll); }
INLINE dd signed_as(dd v, dd sign) {
  return (dd)(((dl)v & 0x7fffffffffffffffll) | ((dl)sign & (1ll << 63)));
}
// the nearest whole number, also as an integer in the low bits, for |v| < 2^51
INLINE dd nearest(dd v, dl &whole) {
  dd moved = v + 0x1.8p52;
  whole = (dl)moved - 0x4338000000000000ll;
  return moved - 0x1.8p52;
}
INLINE dd exp_dd(dd x) {  // |x| < 700
  dl k;
  dd n = nearest(x * 1.4426950408889634, k), r = fma(n, all(-0.6931471805599453), x);
  dd p = series(r, 0.00019907569310848288, 0.0013948578326459795, 0.008333283538708528,
                   0.041666218319291945, 0.16666666786308587, 0.5000000107729166, 0.999999999995509,
                   0.9999999999595618);
  return (dd)((dl)p + (k << 52));
}
// for normal x > 0: the logarithm of the mantissa times `unit`, plus the exponent times ln2
INLINE dd log_dd(dd x, dd unit, dd ln2) {
  dl b = (dl)x - 0x3fe6a09e667f3bcdll;
  dl k = (dl)(((unsigned long long __attribute__((vector_size(D * 8))))b + (1ull << 63)) >> 52)
         - 2048;
  dd f = (dd)((b & 0xfffffffffffffll) + 0x3fe6a09e667f3bcdll) - 1.0;
  dd s = f / (f + 2.0), z = s * s;
  dd p = series(z, 0.09805643118933004, 0.11087019255842062, 0.14286085493390444,
                   0.19999997423652094, 0.33333333339859816, 0.9999999999999732);
  dd n = (dd)(k + 0x4338000000000000ll) - 0x1.8p52;
  return fma(n, ln2, (s + s) * p * unit);
}
INLINE dd log_dd(dd x) { return log_dd(x, all(1.0), all(0.6931471805599453)); }
INLINE dd atan_dd(dd t) {  // 0 <= t <= 1
  return t * series(t * t, -0.0006633954571104787, 0.00473248419342192, -0.015828322749149415,
                           0.033826218952786875, -0.05395668057137172, 0.07228278345377252,
                           -0.08974171958363882, 0.11091922963683302, -0.14283813255743194,
                           0.19999901102171555, -0.3333333129088999, 0.9999999999293037);
}
INLINE dd asin_dd(dd z) {  // asin(sqrt z) / sqrt z, z <= 1/4
  return series(z, 0.0347484248080839, 0.0074010072390753795, 0.024650862660604088,
                   0.03010250689966149, 0.04466113930866896, 0.07499941908754719,
                   0.16666667364186447, 0.9999999999863537);
}
struct sine_cosine { dd sine, cosine; dl quadrant; };
// pi / 2 in parts, and the largest float (REACH) for which they give the quadrant exactly
#ifdef __FP_FAST_FMA
constexpr float REACH = 0x1p30f;
INLINE dd reduced(dd x, dd n) {
  return fma(n, all(-6.123233995736766e-17), fma(n, all(-1.5707963267948966), x));
}
#else
constexpr float REACH = 0x1p19f;
INLINE dd reduced(dd x, dd n) {
  return ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11)
         - n * 2.02226624879595063154e-21;
}
#endif
INLINE sine_cosine sincos_dd(dd x) {  // |x| <= REACH
  dl q;
  dd n = nearest(x * 0.6366197723675814, q);
  dd r = reduced(x, n), z = r * r;
  dd s = series(z, 2.717269367045458e-06, -0.00019839193964485497, 0.00833332875517132,
                   -0.1666666663131027, 0.9999999999956297);
  dd c = series(z, -2.7172666562783097e-07, 2.479891815008481e-05, -0.0013888880342838477,
                   0.04166666654292815, -0.4999999999934461, 0.9999999999999437);
  return {r * s, c, q};
}
#define COLD1(NAME) \
  __attribute__((noinline, cold)) static f32 NAME##_by_lanes(f32 v) { \
    f32 r; for (int i = 0; i < W; ++i) r[i] = ::NAME##f(v[i]); return r; }
#define COLD2(NAME) \
  __attribute__((noinline, cold)) static f32 NAME##_by_lanes(f32 a, f32 b) { \
    f32 r; for (int i = 0; i < W; ++i) r[i] = ::NAME##f(a[i], b[i]); return r; }
INLINE f32 log_edges(f32 x, f32 v) {
  v = x == 0.f ? splat<f32>(-__builtin_inff()) : v;
  v = x < 0.f ? splat<f32>(__builtin_nanf("")) : v;
  return (x == __builtin_inff()) | (x != x) ? x : v;
}

//: sincos <- bits doubles
// quadrant by three-part pi/2; beyond 8192 in double; beyond REACH by libm, whose reduction is
// exact for any argument; 0.8 ulp
COLD1(sin)
COLD1(cos)
template <bool cosine> __attribute__((noinline)) static f32 sine_of_large(f32 x) {
  if (any_lane(~(abs(x) <= REACH))) return cosine ? cos_by_lanes(x) : sin_by_lanes(x);
  return doubly(x, [](dd v) {
    const sine_cosine t = sincos_dd(v);
    const dl quadrant = cosine ? t.quadrant + 1 : t.quadrant;
    const dd r = (quadrant & 1) != 0 ? t.cosine : t.sine;
    return (dd)((dl)r ^ ((quadrant & 2) << 62));
  });
}
template <bool cosine> INLINE f32 sine(f32 x) {
  if (__builtin_expect(any_lane(~(abs(x) <= 8192.f)), 0)) return sine_of_large<cosine>(x);
  f32 shifted = fma(x, splat<f32>(0.636619772f), splat<f32>(12582912.f));
  i32 q = (i32)shifted - 0x4b400000;
  f32 n = shifted - 12582912.f;
  // exact, like the next one: these parts of pi / 2 have few bits
  f32 whole = fma(n, splat<f32>(-1.5703125f), x);
  whole = fma(n, splat<f32>(-4.83751296997e-4f), whole);
  f32 part = n * -7.54979e-08f, r = whole + part, back = r - whole;
  // the rounding error of the sum; the next line adds those of the product and of pi / 2
  f32 rest = (whole - (r - back)) + (part - back);
  rest = fma(n, splat<f32>(1.7151245e-15f), rest - fma(n, splat<f32>(7.54979e-08f), part));
  f32 z = r * r, flat = fma(z, splat<f32>(-0.5f), splat<f32>(1.f));
  f32 s = fma(z, splat<f32>(-1.9515295891e-4f), splat<f32>(8.3321608736e-3f));
  s = fma(s, z, splat<f32>(-1.6666654611e-1f));
  s = r + fma(s * z, r, rest * flat);
  f32 c = fma(z, splat<f32>(2.443315711809948e-5f), splat<f32>(-1.388731625493765e-3f));
  c = fma(c, z, splat<f32>(4.166664568298827e-2f));
  f32 lost = fma(z, splat<f32>(-0.5f), 1.f - flat) - 0.5f * fma(r, r, -z) - rest * r;
  c = flat + fma(c, z * z, lost);
  i32 quadrant = cosine ? q + 1 : q;
  f32 v = (quadrant & 1) != 0 ? c : s;
  v = (f32)((i32)v ^ ((quadrant & 2) << 30));
  return !cosine ? (x == 0.f ? x : v) : v;
}
INLINE f32 sin(f32 x) { return sine<false>(x); }
INLINE f32 cos(f32 x) { return sine<true>(x); }

//: log2 <- doubles
INLINE f32 log2(f32 x) {
  return log_edges(x, doubly(x, [](dd v) { return log_dd(v, all(1.4426950408889634), all(1.0)); }));
}

//: log10 <- doubles
INLINE f32 log10(f32 x) {
  return log_edges(x, doubly(x, [](dd v) { return log_dd(v, all(0.4342944819032518),
      all(0.30102999566398119)); }));
}

//: exp2 <- exp
// 1 ulp
INLINE f32 exp2(f32 x) {
  f32 y = clamped(x, splat<f32>(-160.f), splat<f32>(160.f));
  f32 n = (y + 12582912.f) - 12582912.f, r = y - n;
  f32 p = fma(r, splat<f32>(1.546144846e-4f), splat<f32>(1.340042818e-3f));
  p = fma(p, r, splat<f32>(9.618056679e-3f));
  p = fma(p, r, splat<f32>(5.550327227e-2f));
  p = fma(p, r, splat<f32>(2.402265092e-1f));
  p = fma(p, r, splat<f32>(6.931472067e-1f));
  return scaled(fma(p, r, splat<f32>(1.f)), n);
}

//: sinh <- doubles
INLINE f32 sinh(f32 x) {
  return doubly(x, [](dd v) {
    dd a = size(v), e = exp_dd(a > 100.0 ? all(100.0) : a), z = v * v;
    dd p = series(z, 2.819018792792959e-06, 0.00019835713875553468, 0.008333353205516371,
                     0.1666666641809776, 1.0000000000497202);
    dd r = a < 1.0 ? v * p : signed_as(0.5 * (e - 1.0 / e), v);
    return v != v ? v : r;
  });
}

//: cosh <- doubles
INLINE f32 cosh(f32 x) {
  return doubly(x, [](dd v) {
    dd a = size(v), e = exp_dd(a > 100.0 ? all(100.0) : a);
    return v != v ? v : 0.5 * (e + 1.0 / e);
  });
}

//: asin <- doubles
template <bool arccosine> INLINE f32 arc(f32 x) {
  return doubly(x, [](dd v) {
    dd a = size(v);
    dl far = a > 0.5;
    dd z = far ? 0.5 - 0.5 * a : v * v, s = far ? root(z) : a, p = s * asin_dd(z);
    dd r = signed_as(far ? 1.5707963267948966 - (p + p) : p, v);
    if (!arccosine) return r;
    dd turned = v < 0.0 ? 3.141592653589793 - (p + p) : p + p;
    return far ? turned : 1.5707963267948966 - r;
  });
}
INLINE f32 asin(f32 x) { return x == 0.f ? x : arc<false>(x); }

//: acos <- asin
INLINE f32 acos(f32 x) { return arc<true>(x); }

//: atan <- doubles
INLINE f32 atan(f32 x) {
  return doubly(x, [](dd v) {
    dd a = size(v);
    dl far = a > 1.0;
    dd p = atan_dd(far ? 1.0 / a : a);
    return signed_as(far ? 1.5707963267948966 - p : p, v);
  });
}

//: atan2 <- doubles
INLINE f32 atan2(f32 y, f32 x) {
  f32 r = doubly(y, x, [](dd u, dd v) {
    dd a = size(u), b = size(v);
    dl steep = a > b;
    dd over = steep ? b : a, under = steep ? a : b;
    dd q = over / under;
    q = under == 0.0 ? all(0.0) : over == all(__builtin_inf()) ? all(1.0) : q;
    dd p = atan_dd(q);
    p = steep ? 1.5707963267948966 - p : p;
    p = (dl)v < 0 ? 3.141592653589793 - p : p;
    return signed_as(p, u);
  });
  return x != x ? x : y != y ? y : r;
}

//: asinh <- doubles
INLINE f32 asinh(f32 x) {
  f32 r = doubly(x, [](dd v) {
    dd a = size(v), near = a * fma(a * a, all(-1.0 / 6), all(1.0));
    return signed_as(a < 1e-4 ? near : log_dd(a + root(fma(a, a, all(1.0)))), v);
  });
  return (x - x) != 0.f ? x : r;
}

//: acosh <- doubles
INLINE f32 acosh(f32 x) {
  f32 r = doubly(x, [](dd v) { return log_dd(v + root((v - 1.0) * (v + 1.0))); });
  r = x < 1.f ? splat<f32>(__builtin_nanf("")) : x == 1.f ? f32{} : r;
  return (x == __builtin_inff()) | (x != x) ? x : r;
}

//: atanh <- doubles
INLINE f32 atanh(f32 x) {
  f32 r = doubly(x, [](dd v) {
    dd a = size(v), near = a * fma(a * a, all(1.0 / 3), all(1.0));
    dd inside = a < 1.0 ? a : all(0.5);
    dd r = a < 1e-4 ? near : 0.5 * log_dd((1.0 + inside) / (1.0 - inside));
    r = a == 1.0 ? all(__builtin_inf()) : r;
    r = a > 1.0 ? all(__builtin_nan("")) : r;
    return signed_as(r, v);
  });
  return x != x ? x : r;
}

//: tan <- doubles
COLD1(tan)
INLINE f32 tan(f32 x) {
  if (__builtin_expect(any_lane(~(((f32)((u32)x & 0x7fffffffu)) <= REACH)), 0))
    return tan_by_lanes(x);
  f32 r = doubly(x, [](dd v) {
    sine_cosine t = sincos_dd(v);
    dl odd = (t.quadrant & 1) != 0;
    return (odd ? -t.cosine : t.sine) / (odd ? t.sine : t.cosine);
  });
  return x == 0.f ? x : r;
}

//: erfc <- doubles
// t exp(P(t) - x^2) with t = 1 / (1 + x / 2)
INLINE f32 erfc(f32 x) {
  return doubly(x, [](dd v) {
    dd a = size(v);
    a = a > 12.0 ? all(12.0) : a;
    dd t = 1.0 / fma(a, all(0.5), all(1.0));
    dd p = series(t, -0.1770136535165625, 1.4118443533271814, -4.93126860907309, 9.783102041873585,
                     -11.927718504596655, 9.054266585064546, -4.28746868008984, 1.4407981121228168,
                     -0.3358491508890481, -0.14875934334233218, -0.07136582478467003,
                     0.07945087326948491, 0.3755317605770487, 0.9999609438985807,
                     -1.265510903861503);
    dd r = t * exp_dd(fma(-a, a, p));
    r = v < 0.0 ? 2.0 - r : r;
    return v != v ? v : r;
  });
}

//: hypot <- doubles
INLINE f32 hypot(f32 a, f32 b) {
  f32 r = doubly(a, b, [](dd u, dd v) { return root(fma(u, u, v * v)); });
  const f32 inf = splat<f32>(__builtin_inff());
  return ((f32)((u32)a & 0x7fffffffu) == inf) | ((f32)((u32)b & 0x7fffffffu) == inf) ? inf : r;
}

//: pow <- doubles
COLD2(pow)
INLINE f32 pow(f32 x, f32 y) {
  const f32 a = (f32)((u32)x & 0x7fffffffu), inf = splat<f32>(__builtin_inff());
  const mask plain = (a > 0.f) & (a < inf) & ((f32)((u32)y & 0x7fffffffu) < inf);
  if (__builtin_expect(any_lane(~plain), 0)) return pow_by_lanes(x, y);
  f32 r = doubly(a, y, [](dd u, dd v) {
    dd e = v * log_dd(u);
    e = e > 200.0 ? all(200.0) : e < -200.0 ? all(-200.0) : e;
    return exp_dd(e);
  });
  if (__builtin_expect(any_lane(x < 0.f), 0)) {  // only whole exponents; odd ones change the sign
    const f32 t = (f32)((u32)y & 0x7fffffffu), large = splat<f32>(0x1p23f), shifted = t + large;
    const mask whole = (t >= large) | (shifted - large == t);
    const mask odd = t < large ? -((i32)shifted & 1) : t < 0x1p24f ? -((i32)t & 1) : mask{};
    const f32 turned = (f32)((u32)r ^ ((u32)odd & 0x80000000u));
    r = x < 0.f ? whole ? turned : splat<f32>(__builtin_nanf("")) : r;
  }
  return r;
}

//: fmod <- doubles
// Exact: the quotient of two floats below 2^28 is never closer to a whole number than a double can
// tell, and the remainder is a float.
COLD2(fmod)
INLINE f32 fmod(f32 a, f32 b) {
  const f32 u = (f32)((u32)a & 0x7fffffffu), v = (f32)((u32)b & 0x7fffffffu);
  const mask plain = ((u < v * 0x1p27f) & (v < __builtin_inff())) | (v == 0.f);
  if (__builtin_expect(any_lane(~plain), 0)) return fmod_by_lanes(a, b);
  f32 r = doubly(u, v, [](dd x, dd y) {
    dd q = x / y, n = q + 0x1p52;
    n = n - 0x1p52;
    n = n > q ? n - 1.0 : n;
    return fma(-n, y, x);
  });
  return (f32)((u32)r | ((u32)a & 0x80000000u));
}

//: division <- fmod libm64 bits rounding
// torch's remainder and floor division of floats
template <class V> INLINE V remainder(V a, V b) {
  V m = fmod(a, b);
  return (m != 0) & ((b < 0) != (m < 0)) ? m + b : m;
}
template <class V> INLINE V floor_div(V a, V b) {
  V m = fmod(a, b), q = (a - m) / b, zero = V{};
  q = (m != 0) & ((b < 0) != (m < 0)) ? q - 1 : q;
  V f = floor(q);
  f = q - f > splat<V>(0.5) ? f + 1 : f;
  f = q != 0 ? f : copysign(zero, a / b);
  return b == 0 ? a / b : f;
}

//: erf <- exp bits
// Fitted for this file: below 1 a polynomial for erf(x) / x - 1, above it one for log(1 - erf(x));
// 1.1 ulp. With AVX-512 erf(x) / x by 16 polynomials whose coefficients are in registers: 0.7 ulp,
// half the instructions.
#if defined(__AVX512F__) && !defined(__clang__)
// one row per power; that of 0 in two parts
alignas(64) static const float ERF[7][16] = {
  {1.12837911f, 1.10423255f, 1.03716648f, 0.941022575f, 0.832687557f, 0.72663343f, 0.631904244f,
   0.552025914f, 0.486695588f, 0.433776587f, 0.390723825f, 0.355284363f, 0.325695157f, 0.300645143f,
   0.279171109f, 0.260559767f},
  {5.69111158e-08f, -1.5749515e-09f, 9.75084014e-09f, -2.67952718e-08f, -1.72160703e-08f,
   2.46743781e-08f, 6.1944383e-09f, -2.88540232e-08f, -9.93963756e-09f, 9.78818715e-09f,
   1.25041746e-08f, -1.14569021e-08f, -8.47217052e-09f, 8.89392648e-09f, -1.2276427e-08f,
   1.40810368e-08f},
  {0.f, -0.18508476f, -0.329753995f, -0.410402119f, -0.426803499f, -0.396315396f, -0.341991752f,
   -0.282736301f, -0.229422733f, -0.185934916f, -0.152077407f, -0.126090139f, -0.106049232f,
   -0.0903824195f, -0.0779356882f, -0.0678912848f},
  {-0.376122355f, -0.333489448f, -0.224020571f, -0.0913376957f, 0.0211460572f, 0.0901618153f,
   0.115879692f, 0.112223521f, 0.0949890688f, 0.0751277804f, 0.0578185096f, 0.0443913788f,
   0.0344493203f, 0.0271553975f, 0.0217543636f, 0.0176892746f},
  {0.f, 0.106794782f, 0.168346703f, 0.167476743f, 0.120504014f, 0.0596090406f, 0.0107052205f,
   -0.0166575443f, -0.0258619189f, -0.0248143617f, -0.0200463198f, -0.0150526837f, -0.0110440087f,
   -0.00812671613f, -0.00606626226f, -0.00460799597f},
  {0.112180732f, 0.0875329748f, 0.0294480175f, -0.0277573075f, -0.0576123297f, -0.0563728511f,
   -0.0374855101f, -0.0167736188f, -0.00279162102f, 0.00359430932f, 0.00508574955f, 0.00446671899f,
   0.00335918157f, 0.00239032926f, 0.00168489583f, 0.00120057305f},
  {0.f, -0.0363512896f, -0.0497781523f, -0.0361418501f, -0.010165629f, 0.0102017317f, 0.0172211528f,
   0.0140989944f, 0.00771642383f, 0.00265159761f, 4.1018764e-05f, -0.00081097486f, -0.000849492906f,
   -0.000653929368f, -0.000455839414f, -0.000310029543f},
};
template <int of> INLINE float16B erf_part(float16B which) {
  return (float16B)__builtin_ia32_permvarsf512_mask(*(const float16B *)ERF[of], (int64B)which,
                                                    float16B{}, 0xffff);
}
#endif
template <class V> INLINE V erf(V x) {
  V a = abs(x);
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64) {
    V y = smaller(splat<V>(3.95f), a),
      which = fma(y, splat<V>(512.f / 131.f), splat<V>(12582912.f));
    V d = fma(which - 12582912.f, splat<V>(-131.f / 512.f), y);
    float16B w = (float16B)which;
    V p = fma((V)erf_part<6>(w), d, (V)erf_part<5>(w));
    p = fma(p, d, (V)erf_part<4>(w));
    p = fma(p, d, (V)erf_part<3>(w));
    p = fma(p, d, (V)erf_part<2>(w));
    return copysign(fma(y, (V)erf_part<0>(w), fma(p, d, (V)erf_part<1>(w)) * y), x);
  }
#endif
  V t = a * a, y = smaller(splat<f32>(4.f), a);
  f32 p = fma(t, splat<f32>(7.85385326e-5f), splat<f32>(-8.01019117e-4f));
  p = fma(p, t, splat<f32>(5.18832741e-3f));
  p = fma(p, t, splat<f32>(-2.68538118e-2f));
  p = fma(p, t, splat<f32>(1.12835851e-1f));
  p = fma(p, t, splat<f32>(-3.76126258e-1f));
  p = fma(p, t, splat<f32>(1.28379166e-1f));
  f32 q = fma(y, splat<f32>(1.86381200e-4f), splat<f32>(-2.94767741e-3f));
  q = fma(q, y, splat<f32>(2.18381382e-2f));
  q = fma(q, y, splat<f32>(-1.03106905e-1f));
  q = fma(q, y, splat<f32>(-6.38144665e-1f));
  q = fma(q, y, splat<f32>(-1.12708929f));
  f32 far = 1.f - exp(fma(q, y, splat<f32>(-3.41499520e-4f)));
  return copysign(a < 1.f ? fma(p, a, a) : far, x);
}

//: argmax <- types
// The better of two (value, position) pairs; nan wins over numbers; of equal values the smaller
// position wins.
template <class V, class P> INLINE void pick_max(V &best, P &place, V v, P at) {
  mask equal = narrow(v == best) | (narrow(v != v) & narrow(best != best));
  mask take = narrow(v > best) | (narrow(v != v) & narrow(best == best))
              | (equal & narrow(at < place));
  best = where(take, v, best);
  place = where(take, at, place);
}
template <class V, class P> INLINE void pick_min(V &best, P &place, V v, P at) {
  mask equal = narrow(v == best) | (narrow(v != v) & narrow(best != best));
  mask take = narrow(v < best) | (narrow(v != v) & narrow(best == best))
              | (equal & narrow(at < place));
  best = where(take, v, best);
  place = where(take, at, place);
}
// The same if `at` is known to be greater than `place`: of equal values the first one stays.
template <class V, class P> INLINE void later_max(V &best, P &place, V v, P at) {
  mask take = narrow(~(v <= best) & (best == best));
  best = where(take, v, best);
  place = where(take, at, place);
}
template <class V, class P> INLINE void later_min(V &best, P &place, V v, P at) {
  mask take = narrow(~(v >= best) & (best == best));
  best = where(take, v, best);
  place = where(take, at, place);
}

//: zeros <- minmax bits any
// whether some lanes hold a zero and others a zero of the other sign
template <class... V> INLINE bool both_zeros(V... a) {
  if (!any_lane((narrow(a == 0) | ...))) return false;
  return any_lane(((narrow(a == 0) & signbit(a)) | ...)) &&
         any_lane(((narrow(a == 0) & ~signbit(a)) | ...));
}
// the smallest position p of a zero, as 2 * p, plus 1 if that zero is negative
template <class P, class V, class N> INLINE void first_zero(P &found, V v, P at, N n) {
  for (int i = 0; i < counted(n); ++i) {
    const auto next = 2 * at[i] + !!__builtin_signbit(v[i]);
    if (v[i] == 0 && next < found[i]) found[i] = next;
  }
}
template <class V, class P> INLINE V with_zero(V v, P found) {
  for (int i = 0; i < W; ++i) v[i] = v[i] == 0 ? found[i] & 1 ? -0. : 0. : v[i];
  return v;
}

//: sum <- types
// sum + v exactly: `lost` collects the rounding errors (Knuth, The Art of Computer Programming 2,
// 4.2.2)
template <class V> INLINE void two_sum(V &sum, V &lost, V v) {
  const V next = sum + v, part = next - sum;
  lost = lost + ((sum - (next - part)) + (v - part));
  sum = next;
}
// the lost part of an inf or nan is nan, and is ignored
template <class V> INLINE V with_lost(V sum, V lost) { return lost == lost ? sum + lost : sum; }

//: scan <- minmax
// The reduction of `before` (the same in all lanes) and all lanes up to each one; `before` becomes
// the last of them.
template <int... I> struct places {};
template <int N, int... I> struct counted_off : counted_off<N - 1, N - 1, I...> {};
template <int... I> struct counted_off<0, I...> { typedef places<I...> type; };
// v[i - by]; `other` in the first lanes
template <int by, class V, int... I> INLINE V behind(V v, V other, places<I...>) {
  return __builtin_shufflevector(v, other, (I < by ? W + I : I - by)...);
}
template <class V, int... I> INLINE V last(V v, places<I...>) {
  return __builtin_shufflevector(v, v, (I, W - 1)...);
}
template <int by = 1, class V, class F> INLINE V prefixes(V v, V identity, F f) {
  if constexpr (by < W)
    return prefixes<by * 2>(f(behind<by>(v, identity, typename counted_off<W>::type()), v),
                            identity, f);
  return v;
}
template <class V, class F> INLINE V scanned(V v, V &before, V identity, F f) {
  v = prefixes(v, identity, f);
  const V found = f(before, v);
  before = f(before, last(v, typename counted_off<W>::type()));
  return found;
}
// one lane after the other
template <class V, class S, class F> INLINE V in_turn(V v, S &before, F f) {
  for (int i = 0; i < W; ++i) v[i] = before = f(before, v[i]);
  return v;
}

//: fold <- memory
template <class V> INLINE V turned(V v, int by) {
  constexpr int N = sizeof(V) / sizeof(v[0]);
  V r;
  for (int i = 0; i < N; ++i) r[i] = v[(i + by) & (N - 1)];
  return r;
}
typedef unsigned long long eights __attribute__((vector_size(W < 8 ? 8 : W)));
template <class V, class F> INLINE V fold(V v, F f) {
  if constexpr (sizeof(v[0]) == 1 && W >= 8) {  // bytes to be turned would go through memory
#pragma GCC unroll 8
    for (int by = W / 16; by; by /= 2) v = f(v, (V)turned((eights)v, by));
#pragma GCC unroll 8
    for (int by = 4; by; by /= 2) v = f(v, (V)((eights)v >> (by * 8)));
    return splat<V>(v[0]);
  }
#pragma GCC unroll 8
  for (int by = W / 2; by; by /= 2) v = f(v, turned(v, by));
  return v;
}
