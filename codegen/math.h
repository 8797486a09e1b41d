// The kernels' own header text: vector types of W lanes, memory access, conversions, math.
//
// Not included by anything: codegen.cpp takes from it the sections that a translation unit needs (a section is
// a line `//: name <- sections it needs`, and what follows) and puts them into a namespace for each W. No #include
// is ever used: a kernel compiles in 40 ms that way. GCC 12 or newer, or Clang; loops over the lanes of a vector
// become vector instructions (fma, sqrt, floor) at -O3 where the machine has them.
// Registers: bool is an i32 mask (0 or -1); bfloat16 and float16 are f32, already rounded.
// Errors are against the exact result, in units in the last place, nan, inf, -0 and denormals as libm.

//: types
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
typedef i32 mask;
typedef int int64B __attribute__((vector_size(64)));        // one whole register of AVX-512
typedef long long long64B __attribute__((vector_size(64)));
template <class T> struct vec;
template <> struct vec<float> { typedef f32 type; };
template <> struct vec<double> { typedef f64 type; };
template <> struct vec<signed char> { typedef i8 type; };
template <> struct vec<unsigned char> { typedef u8 type; };
template <> struct vec<short> { typedef i16 type; };
template <> struct vec<int> { typedef i32 type; };
template <> struct vec<long long> { typedef i64 type; };
template <class V, class S> inline V splat(S s) { V v; for (int i = 0; i < W; ++i) v[i] = s; return v; }
template <class V> inline V lanes(i64_t from) { V v; for (int i = 0; i < W; ++i) v[i] = from + i; return v; }
template <class To, class From> inline To conv(From v) { return __builtin_convertvector(v, To); }
inline mask first(int n) { return lanes<i32>(0) < n; }
inline i64 wide(mask m) { return conv<i64>(m); }
inline mask narrow(i64 m) { return conv<i32>(m); }
inline mask narrow(i32 m) { return m; }
inline mask narrow(i16 m) { return conv<i32>(m); }
inline mask narrow(i8 m) { return conv<i32>(conv<i16>(m)); }
// where(mask, a, b), a mask being 4 bytes a lane whatever a and b are
inline f32 where(mask m, f32 a, f32 b) { return m ? a : b; }
inline i32 where(mask m, i32 a, i32 b) { return m ? a : b; }
inline f64 where(mask m, f64 a, f64 b) { return wide(m) ? a : b; }
inline i64 where(mask m, i64 a, i64 b) { return wide(m) ? a : b; }
inline i16 where(mask m, i16 a, i16 b) { return conv<i16>(m) ? a : b; }
inline i8 where(mask m, i8 a, i8 b) { return conv<i8>(conv<i16>(m)) ? a : b; }
inline u8 where(mask m, u8 a, u8 b) { return conv<i8>(conv<i16>(m)) ? a : b; }
// lanes at n and beyond become `other`
template <class V> inline V keep(V v, V, full) { return v; }
template <class V> inline V keep(V v, V other, int n) { return where(first(n), v, other); }

//: fma <- types
inline f32 fma(f32 a, f32 b, f32 c) {
#ifdef __FP_FAST_FMAF
  f32 r;
  for (int i = 0; i < W; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
#else
  return a * b + c;
#endif
}
inline f64 fma(f64 a, f64 b, f64 c) {
#ifdef __FP_FAST_FMA
  f64 r;
  for (int i = 0; i < W; ++i) r[i] = __builtin_fma(a[i], b[i], c[i]);
  return r;
#else
  return a * b + c;
#endif
}

//: narrow_floats <- types
// float16 by integer arithmetic and one exact multiplication: right for denormals, infinities and nan
inline f32 from_bf16(u16 h) { return (f32)(conv<u32>(h) << 16); }
inline u16 to_bf16(f32 v) {
  u32 u = (u32)v;
  u32 r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return conv<u16>((u32)(v != v ? (i32)splat<u32>(0x7fc0u) : (i32)r));
}
inline f32 from_f16(u16 h) {
  u32 w = conv<u32>(h);
  f32 small = (f32)((w & 0x7fffu) << 13) * 0x1p112f;
  u32 bits = (u32)small;
  bits |= (u32)((w & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return (f32)(bits | ((w & 0x8000u) << 16));
}
inline u16 to_f16(f32 v) {
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
inline f32 round_bf16(f32 v) { return from_bf16(to_bf16(v)); }
inline f32 round_f16(f32 v) { return from_f16(to_f16(v)); }

//: memory <- types narrow_floats
// ld: W neighbours; lds: with a stride; one: the same element in all lanes. n: `full` or the number of lanes.
template <class V, class T> inline V raw(const T *p, full) { V v; __builtin_memcpy(&v, p, sizeof v); return v; }
template <class V, class T> inline V raw(const T *p, int n) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
    return (V)__builtin_ia32_loaddqusi512_mask((const int *)p, int64B{}, (u16_t)((1u << n) - 1));
  if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
    return (V)__builtin_ia32_loaddqudi512_mask((const long long *)p, long64B{}, (u8_t)((1u << n) - 1));
#endif
  V v = V{};
  __builtin_memcpy(&v, p, n * sizeof(T));
  return v;
}
template <class T, class V> inline void put(T *p, V v, full) { __builtin_memcpy(p, &v, sizeof v); }
template <class T, class V> inline void put(T *p, V v, int n) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
    return __builtin_ia32_storedqusi512_mask((int *)p, (int64B)v, (u16_t)((1u << n) - 1));
  if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
    return __builtin_ia32_storedqudi512_mask((long long *)p, (long64B)v, (u8_t)((1u << n) - 1));
#endif
  __builtin_memcpy(p, &v, n * sizeof(T));
}
template <class V, class T> inline V raws(const T *p, i64_t s, full) {
  V v;
  for (int i = 0; i < W; ++i) v[i] = p[i * s];
  return v;
}
template <class V, class T> inline V raws(const T *p, i64_t s, int n) {
  V v = V{};
  for (int i = 0; i < n; ++i) v[i] = p[i * s];
  return v;
}
template <class T, class V> inline void puts(T *p, i64_t s, V v, full) { for (int i = 0; i < W; ++i) p[i * s] = v[i]; }
template <class T, class V> inline void puts(T *p, i64_t s, V v, int n) { for (int i = 0; i < n; ++i) p[i * s] = v[i]; }
inline mask truth(u8 v) { return conv<i32>(conv<i16>((i8)(v != 0))); }
inline u8 untruth(mask m) { return conv<u8>(conv<u16>((u32)-m)); }
template <class T, class N> inline auto ld(const T *p, N n) { return raw<typename vec<T>::type>(p, n); }
template <class N> inline f32 ld(const bf16_t *p, N n) { return from_bf16(raw<u16>((const u16_t *)p, n)); }
template <class N> inline f32 ld(const f16_t *p, N n) { return from_f16(raw<u16>((const u16_t *)p, n)); }
template <class N> inline mask ld(const bool_t *p, N n) { return truth(raw<u8>((const u8_t *)p, n)); }
template <class T, class N> inline auto lds(const T *p, i64_t s, N n) { return raws<typename vec<T>::type>(p, s, n); }
template <class N> inline f32 lds(const bf16_t *p, i64_t s, N n) { return from_bf16(raws<u16>((const u16_t *)p, s, n)); }
template <class N> inline f32 lds(const f16_t *p, i64_t s, N n) { return from_f16(raws<u16>((const u16_t *)p, s, n)); }
template <class N> inline mask lds(const bool_t *p, i64_t s, N n) { return truth(raws<u8>((const u8_t *)p, s, n)); }
template <class T> inline auto one(const T *p) { return splat<typename vec<T>::type>(*p); }
inline f32 one(const bf16_t *p) { return from_bf16(splat<u16>(p->bits)); }
inline f32 one(const f16_t *p) { return from_f16(splat<u16>(p->bits)); }
inline mask one(const bool_t *p) { return splat<i32>(p->bits ? -1 : 0); }
template <class T, class V, class N> inline void st(T *p, V v, N n) { put(p, v, n); }
template <class N> inline void st(bf16_t *p, f32 v, N n) { put((u16_t *)p, to_bf16(v), n); }
template <class N> inline void st(f16_t *p, f32 v, N n) { put((u16_t *)p, to_f16(v), n); }
template <class N> inline void st(bool_t *p, mask v, N n) { put((u8_t *)p, untruth(v), n); }
template <class T, class V, class N> inline void sts(T *p, i64_t s, V v, N n) { puts(p, s, v, n); }
template <class N> inline void sts(bf16_t *p, i64_t s, f32 v, N n) { puts((u16_t *)p, s, to_bf16(v), n); }
template <class N> inline void sts(f16_t *p, i64_t s, f32 v, N n) { puts((u16_t *)p, s, to_f16(v), n); }
template <class N> inline void sts(bool_t *p, i64_t s, mask v, N n) { puts((u8_t *)p, s, untruth(v), n); }

//: minmax <- types
inline f32 maximum(f32 a, f32 b) { return (a > b) | (a != a) ? a : b; }
inline f64 maximum(f64 a, f64 b) { return (a > b) | (a != a) ? a : b; }
template <class V> inline V maximum(V a, V b) { return a > b ? a : b; }
inline f32 minimum(f32 a, f32 b) { return (a < b) | (a != a) ? a : b; }
inline f64 minimum(f64 a, f64 b) { return (a < b) | (a != a) ? a : b; }
template <class V> inline V minimum(V a, V b) { return a < b ? a : b; }
template <class V> inline V fmax(V a, V b) { return (a > b) | (b != b) ? a : b; }
template <class V> inline V fmin(V a, V b) { return (a < b) | (b != b) ? a : b; }

//: bits <- types
inline f32 abs(f32 v) { return (f32)((u32)v & 0x7fffffffu); }
inline f64 abs(f64 v) { return (f64)((u64)v & 0x7fffffffffffffffull); }
inline i8 abs(i8 v) { return v < 0 ? -v : v; }
inline i16 abs(i16 v) { return v < 0 ? -v : v; }
inline i32 abs(i32 v) { return v < 0 ? -v : v; }
inline i64 abs(i64 v) { return v < 0 ? -v : v; }
inline u8 abs(u8 v) { return v; }
inline f32 copysign(f32 a, f32 b) { return (f32)(((u32)a & 0x7fffffffu) | ((u32)b & 0x80000000u)); }
inline f64 copysign(f64 a, f64 b) { return (f64)(((u64)a & ~(1ull << 63)) | ((u64)b & (1ull << 63))); }
inline mask isinf(f32 v) { return abs(v) == __builtin_inff(); }
inline mask isinf(f64 v) { return narrow(abs(v) == __builtin_inf()); }
inline mask isfinite(f32 v) { return abs(v) < __builtin_inff(); }
inline mask isfinite(f64 v) { return narrow(abs(v) < __builtin_inf()); }
inline mask signbit(f32 v) { return (i32)v < 0; }
inline mask signbit(f64 v) { return narrow((i64)v < 0); }
template <class V> inline V sign(V v) { V one = splat<V>(1), zero = V{}; return (v > 0 ? one : zero) - (v < 0 ? one : zero); }

//: rounding <- types
#define EACH(NAME) \
  inline f32 NAME(f32 v) { f32 r; for (int i = 0; i < W; ++i) r[i] = __builtin_##NAME##f(v[i]); return r; } \
  inline f64 NAME(f64 v) { f64 r; for (int i = 0; i < W; ++i) r[i] = __builtin_##NAME(v[i]); return r; }
EACH(floor)
EACH(ceil)
EACH(trunc)
EACH(rint)
EACH(sqrt)
#undef EACH

//: libm <- types
// The rare ones: libm, a lane at a time
#define LANES1(NAME) \
  inline f32 NAME(f32 v) { f32 r; for (int i = 0; i < W; ++i) r[i] = ::NAME##f(v[i]); return r; } \
  inline f64 NAME(f64 v) { f64 r; for (int i = 0; i < W; ++i) r[i] = ::NAME(v[i]); return r; }
#define LANES2(NAME) \
  inline f32 NAME(f32 a, f32 b) { f32 r; for (int i = 0; i < W; ++i) r[i] = ::NAME##f(a[i], b[i]); return r; } \
  inline f64 NAME(f64 a, f64 b) { f64 r; for (int i = 0; i < W; ++i) r[i] = ::NAME(a[i], b[i]); return r; }
LANES1(exp2)
LANES1(log2)
LANES1(log10)
LANES1(tan)
LANES1(asin)
LANES1(acos)
LANES1(atan)
LANES1(sinh)
LANES1(cosh)
LANES1(asinh)
LANES1(acosh)
LANES1(atanh)
LANES1(erfc)
LANES2(atan2)
LANES2(hypot)
LANES2(pow)
LANES2(fmod)

//: libm64 <- types
#define LANES64(NAME) inline f64 NAME(f64 v) { f64 r; for (int i = 0; i < W; ++i) r[i] = ::NAME(v[i]); return r; }
LANES64(exp)
LANES64(expm1)
LANES64(log)
LANES64(log1p)
LANES64(sin)
LANES64(cos)
LANES64(tanh)
LANES64(erf)
inline f64 sigmoid(f64 v) { return 1.0 / (1.0 + exp(-v)); }

//: division <- libm bits rounding
// torch's remainder and floor division of floats
template <class V> inline V remainder(V a, V b) {
  V m = fmod(a, b);
  return (m != 0) & ((b < 0) != (m < 0)) ? m + b : m;
}
template <class V> inline V floor_div(V a, V b) {
  V m = fmod(a, b), q = (a - m) / b, zero = V{};
  q = (m != 0) & ((b < 0) != (m < 0)) ? q - 1 : q;
  V f = floor(q);
  f = q - f > splat<V>(0.5) ? f + 1 : f;
  f = q != 0 ? f : copysign(zero, a / b);
  return b == 0 ? a / b : f;
}

//: shifts <- types
template <class V> inline V shl(V a, V b, int width) { return (b < 0) | (b >= (V{} + width)) ? V{} : a << (b & (width - 1)); }
template <class V> inline V shr(V a, V b, int width) {
  V top = V{} + (width - 1), count = (b < 0) | (b >= (V{} + width)) ? top : b;
  return a >> count;
}
inline u8 shr(u8 a, u8 b, int) { return b >= (u8{} + 8) ? u8{} : a >> (b & 7); }

//: exp <- fma
// Cody-Waite reduction by ln 2, a polynomial, two-step scaling; 1.0 ulp
inline f32 exp_parts(f32 x, i32 &k) {
  f32 shifted = fma(x, splat<f32>(1.44269504f), splat<f32>(12582912.f));
  k = (i32)shifted - 0x4b400000;
  f32 n = shifted - 12582912.f;
  return fma(n, splat<f32>(-1.42860677e-6f), fma(n, splat<f32>(-0.693145752f), x));
}
inline f32 exp_tail(f32 r) {  // (e^r - 1 - r) / r^2
  f32 p = fma(r, splat<f32>(1.9875691500e-4f), splat<f32>(1.3981999507e-3f));
  p = fma(p, r, splat<f32>(8.3334519073e-3f));
  p = fma(p, r, splat<f32>(4.1665795894e-2f));
  p = fma(p, r, splat<f32>(1.6666665459e-1f));
  return fma(p, r, splat<f32>(5.0000001201e-1f));
}
inline f32 power_of_two(i32 k) { return (f32)((k + 127) << 23); }
inline f32 exp(f32 x) {
  i32 k;
  f32 lowest = splat<f32>(-110.f), highest = splat<f32>(100.f);
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  f32 r = exp_parts(x, k);
  f32 p = fma(r * r, exp_tail(r), r) + 1.f;
  i32 half = k >> 1;
  return p * power_of_two(half) * power_of_two(k - half);
}

//: sigmoid <- exp
inline f32 sigmoid(f32 x) { return 1.f / (1.f + exp(-x)); }

//: expm1 <- exp
// 2^k (e^r - 1) + (2^k - 1); 1.5 ulp
inline f32 expm1(f32 x) {
  i32 k;
  f32 lowest = splat<f32>(-30.f), highest = splat<f32>(100.f);
  f32 y = x < lowest ? lowest : x;
  y = y > highest ? highest : y;
  f32 r = exp_parts(y, k);
  i32 half = k >> 1;
  f32 em1 = fma(r * r, exp_tail(r), r), a = power_of_two(half), b = power_of_two(k - half);
  f32 scale = a * b, near = fma(scale, em1, scale - 1.f), far = (em1 + 1.f) * a * b;
  f32 v = k > 100 ? far : near;
  return x == 0.f ? x : v;
}

//: tanh <- expm1 bits
// (e^2x - 1) / (e^2x + 1) by expm1 of -2|x|; 2.5 ulp
inline f32 tanh(f32 x) {
  f32 t = expm1(-2.f * abs(x));
  return copysign(t / (t + 2.f), x);
}

//: log <- fma
// mantissa in [sqrt(1/2), sqrt(2)), a polynomial, exponent in two parts; 0.9 ulp
inline f32 log(f32 x) {
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
inline f32 log1p(f32 x) {
  f32 u = 1.f + x;
  f32 v = log(u) + (x - (u - 1.f)) / u;
  v = x == -1.f ? splat<f32>(-__builtin_inff()) : v;
  return (x == 0.f) | (x == __builtin_inff()) ? x : v;
}

//: sincos <- fma bits
// quadrant by three-part pi/2; lanes beyond 8192 go to libm, whose reduction is exact for any argument; 1.5 ulp
inline bool any_lane(mask m) {
  int r = 0;
  for (int i = 0; i < W; ++i) r |= m[i];
  return r;
}
template <bool cosine> inline f32 sine(f32 x) {
  if (__builtin_expect(any_lane(~(abs(x) <= 8192.f)), 0)) {
    f32 v;
    for (int i = 0; i < W; ++i) v[i] = cosine ? ::cosf(x[i]) : ::sinf(x[i]);
    return v;
  }
  f32 shifted = fma(x, splat<f32>(0.636619772f), splat<f32>(12582912.f));
  i32 q = (i32)shifted - 0x4b400000;
  f32 n = shifted - 12582912.f;
  f32 r = fma(n, splat<f32>(-1.5703125f), x);
  r = fma(n, splat<f32>(-4.83751296997e-4f), r);
  r = fma(n, splat<f32>(-7.54978942e-8f), r);
  f32 z = r * r;
  f32 s = fma(z, splat<f32>(-1.9515295891e-4f), splat<f32>(8.3321608736e-3f));
  s = fma(s, z, splat<f32>(-1.6666654611e-1f));
  s = fma(s * z, r, r);
  f32 c = fma(z, splat<f32>(2.443315711809948e-5f), splat<f32>(-1.388731625493765e-3f));
  c = fma(c, z, splat<f32>(4.166664568298827e-2f));
  c = fma(c, z * z, fma(z, splat<f32>(-0.5f), splat<f32>(1.f)));
  i32 quadrant = cosine ? q + 1 : q;
  f32 v = (quadrant & 1) != 0 ? c : s;
  v = (f32)((i32)v ^ ((quadrant & 2) << 30));
  return !cosine ? (x == 0.f ? x : v) : v;
}
inline f32 sin(f32 x) { return sine<false>(x); }
inline f32 cos(f32 x) { return sine<true>(x); }

//: erf <- fma
// x P(x^2) / Q(x^2), our own weighted fit of erf(x)/x on [0, 3.9] (1.8e-9), clamped; 5.7 ulp, exact near 0
inline f32 erf(f32 x) {
  f32 edge = splat<f32>(3.9f);
  f32 y = x > edge ? edge : x;
  y = y < -edge ? -edge : y;
  f32 t = y * y;
  f32 p = fma(t, splat<f32>(-1.267698611e-08f), splat<f32>(4.586478037e-06f));
  p = fma(p, t, splat<f32>(3.758999227e-04f));
  p = fma(p, t, splat<f32>(3.835019934e-03f));
  p = fma(p, t, splat<f32>(5.422109260e-02f));
  p = fma(p, t, splat<f32>(1.851067457e-01f));
  p = fma(p, t, splat<f32>(1.128379169f));
  f32 q = fma(t, splat<f32>(6.218565257e-05f), splat<f32>(1.299647912e-03f));
  q = fma(q, t, splat<f32>(1.541978629e-02f));
  q = fma(q, t, splat<f32>(1.138450538e-01f));
  q = fma(q, t, splat<f32>(4.973799863e-01f));
  q = fma(q, t, splat<f32>(1.f));
  f32 v = y * p / q, one = splat<f32>(1.f);
  v = v > one ? one : v;
  return v < -one ? -one : v;
}

//: argmax <- types
// The better of two (value, position) pairs; nan wins over numbers, of equals the smaller position
template <class V> inline void pick_max(V &best, i64 &place, V v, i64 at) {
  mask equal = narrow(v == best) | (narrow(v != v) & narrow(best != best));
  mask take = narrow(v > best) | (narrow(v != v) & narrow(best == best)) | (equal & narrow(at < place));
  best = where(take, v, best);
  place = where(take, at, place);
}
template <class V> inline void pick_min(V &best, i64 &place, V v, i64 at) {
  mask equal = narrow(v == best) | (narrow(v != v) & narrow(best != best));
  mask take = narrow(v < best) | (narrow(v != v) & narrow(best == best)) | (equal & narrow(at < place));
  best = where(take, v, best);
  place = where(take, at, place);
}
