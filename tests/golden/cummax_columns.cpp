// 1. k0_cummax

// mul.Tensor
// cummax
extern "C" void k0_cummax(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[40, 48] stride [48, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[40, 48] stride [48, 1]
  i64_t *__restrict b2 = (i64_t *)buffers[2];  // int64[40, 48] stride [48, 1]
  (void)threads;
  const float *p0 = b0;
  float *p1 = b1;
  i64_t *p2 = b2;
  auto wide = [&](const i64_t start) __attribute__((always_inline)) {
    constexpr full n{};
    const f32 v1 = splat<f32>(2.0f);
    const i64 v8 = splat<i64>(0ll);
    {
      f32 c3[4];
      #pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) c3[c] = splat<f32>(-__builtin_inff());
      i64 c10[4];
      #pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) c10[c] = splat<i64>(-9223372036854775807ll - 1);
      auto body = [&](const i64_t x1, const i64_t i, const int c) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + x1 * 48 + i, n);
        const f32 v2 = v0 * v1;
        const f32 v3 = c3[c] = maximum(c3[c], v2);
        const mask v4 = v2 == v3;
        const mask v5 = narrow(v2 != v2);
        const mask v6 = v4 | v5;
        const i64 v7 = splat<i64>(0 + x1);
        const i64 v9 = where(v6, v7, v8);
        const i64 v10 = c10[c] = maximum(c10[c], v9);
        st(p1 + x1 * 48 + i, v3, n);
        st(p2 + x1 * 48 + i, v10, n);
      };
      for (i64_t at = 0; at < 40; ++at) {
        #pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) body(at, start + c * W, c);
      }
    }
  };
  i64_t at = 0;
  for (; at + 16 <= 48; at += 16) wide(at);
}
