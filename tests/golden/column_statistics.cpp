// 1. k0_mean

// mean.dim
// amax
extern "C" void k0_mean(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[300, 40] stride [40, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[40] stride [1]
  float *__restrict b2 = (float *)buffers[2];  // float32[40] stride [1]
  (void)threads;
  const float *p0 = b0;
  float *p1 = b1;
  float *p2 = b2;
  auto wide = [&](const i64_t start) __attribute__((always_inline)) {
    constexpr full n{};
    const f32 v2 = splat<f32>(300.0f);
    f32 r1[4];
    f32 r4[4];
    {
      f32 a1[4];
      #pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) a1[c] = splat<f32>(0.0f);
      f32 e1[4];
      #pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) e1[c] = splat<f32>(0.0f);
      f32 a4[4];
      #pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) a4[c] = splat<f32>(-__builtin_inff());
      auto body = [&](const i64_t x1, const i64_t i, const int c, f32 &a1_0, f32 &a4_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + x1 * 40 + i, n);
        a1_0 = a1_0 + v0;
        a4_0 = maximum(v0, a4_0);
      };
      for (i64_t block = 0; block < 300; block += 32) {
        const i64_t end = block + 32 < 300 ? block + 32 : 300;
        f32 s1[4];
        #pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) s1[c] = splat<f32>(0.0f);
        for (i64_t at = block; at < end; ++at) {
          #pragma GCC unroll 4
          for (int c = 0; c < 4; ++c) body(at, start + c * W, c, s1[c], a4[c]);
        }
        #pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
          two_sum(a1[c], e1[c], s1[c]);
        }
      }
      #pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) r1[c] = with_lost(a1[c], e1[c]);
      #pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) r4[c] = a4[c];
    }
    f32 r3[4];
    #pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const i64_t i = start + c * W;
      const f32 v1 = r1[c];
      const f32 v3 = v1 / v2;
      r3[c] = v3;
    }
    #pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const i64_t i = start + c * W;
      const f32 v3 = r3[c];
      const f32 v4 = r4[c];
      st(p1 + i, v3, n);
      st(p2 + i, v4, n);
    }
  };
  auto rows = [&](const i64_t i, auto n) __attribute__((always_inline)) {
    const f32 v2 = splat<f32>(300.0f);
    f32 a1_0 = splat<f32>(0.0f);
    f32 a1_1 = splat<f32>(0.0f);
    f32 a1_2 = splat<f32>(0.0f);
    f32 a1_3 = splat<f32>(0.0f);
    f32 a4_0 = splat<f32>(-__builtin_inff());
    f32 a4_1 = splat<f32>(-__builtin_inff());
    f32 a4_2 = splat<f32>(-__builtin_inff());
    f32 a4_3 = splat<f32>(-__builtin_inff());
    auto e1_0 = splat<f32>(0.0f);
    auto e1_1 = splat<f32>(0.0f);
    auto e1_2 = splat<f32>(0.0f);
    auto e1_3 = splat<f32>(0.0f);
    {
      for (i64_t block = 0; block < 300; block += 128) {
        const i64_t end = block + 128 < 300 ? block + 128 : 300;
        auto s1_0 = splat<f32>(0.0f);
        auto s1_1 = splat<f32>(0.0f);
        auto s1_2 = splat<f32>(0.0f);
        auto s1_3 = splat<f32>(0.0f);
        auto body = [&](const i64_t x1, f32 &a1_0, f32 &a4_0) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + x1 * 40 + i, n);
          a1_0 = a1_0 + v0;
          a4_0 = maximum(v0, a4_0);
        };
        i64_t at = block;
        for (; at + 4 <= end; at += 4) {
          body(at + 0, s1_0, a4_0);
          body(at + 1, s1_1, a4_1);
          body(at + 2, s1_2, a4_2);
          body(at + 3, s1_3, a4_3);
        }
        two_sum(a1_0, e1_0, s1_0);
        two_sum(a1_1, e1_1, s1_1);
        two_sum(a1_2, e1_2, s1_2);
        two_sum(a1_3, e1_3, s1_3);
      }
    }
    two_sum(a1_0, e1_0, a1_1);
    e1_0 = e1_0 + e1_1;
    two_sum(a1_0, e1_0, a1_2);
    e1_0 = e1_0 + e1_2;
    two_sum(a1_0, e1_0, a1_3);
    e1_0 = e1_0 + e1_3;
    a1_0 = with_lost(a1_0, e1_0);
    const f32 v1 = a1_0;
    a4_0 = maximum(a4_1, a4_0);
    a4_0 = maximum(a4_2, a4_0);
    a4_0 = maximum(a4_3, a4_0);
    const f32 v4 = a4_0;
    const f32 v3 = v1 / v2;
    st(p1 + i, v3, n);
    st(p2 + i, v4, n);
  };
  i64_t at = 0;
  for (; at + 32 <= 40; at += 32) wide(at);
  for (; at < 40; at += W) rows(at, int(40 - at) < W ? int(40 - at) : W);
}
