// 1. k0_mean

// mean.dim
// sub.Tensor
// mul.Tensor
// mean.dim
// add.Scalar
// rsqrt
// mul.Tensor
// mul.Tensor
// mul.Tensor
extern "C" void k0_mean(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 8, 6, 6] stride [288, 36, 6, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[8] stride [1]
  float *__restrict b2 = (float *)buffers[2];  // float32[2, 8, 6, 6] stride [288, 36, 6, 1]
  (void)threads;
  for (i64_t item = 0; item < 8; ++item) {
    const i64_t x1 = (item) % 4;
    const i64_t x0 = (item) / 4;
    const float *p0 = b0 + x0 * 288 + x1 * 72;
    const float *p1 = b1 + x1 * 2;
    float *p2 = b2 + x0 * 288 + x1 * 72;
    const f32 v2 = splat<f32>(72.0f);
    const f32 v8 = splat<f32>(9.999999747378752e-06f);
    const f32 v14 = splat<f32>(2.0f);
    f32 a1_0 = splat<f32>(0.0f);
    f32 a1_1 = splat<f32>(0.0f);
    f32 a1_2 = splat<f32>(0.0f);
    f32 a1_3 = splat<f32>(0.0f);
    auto e1_0 = splat<f32>(0.0f);
    auto e1_1 = splat<f32>(0.0f);
    auto e1_2 = splat<f32>(0.0f);
    auto e1_3 = splat<f32>(0.0f);
    for (i64_t x2 = 0; x2 < 2; ++x2) {
      {
        for (i64_t block = 0; block < 36; block += 1024) {
          const i64_t end = block + 1024 < 36 ? block + 1024 : 36;
          auto s1_0 = splat<f32>(0.0f);
          auto s1_1 = splat<f32>(0.0f);
          auto s1_2 = splat<f32>(0.0f);
          auto s1_3 = splat<f32>(0.0f);
          auto body = [&](const i64_t i, auto n, f32 &a1_0) __attribute__((always_inline)) {
            const f32 v0 = ld(p0 + x2 * 36 + i, n);
            a1_0 = a1_0 + keep(v0, splat<f32>(0.0f), n);
          };
          i64_t at = block;
          for (; at + 32 <= end; at += 32) {
            body(at + 0, full{}, s1_0);
            body(at + 8, full{}, s1_1);
            body(at + 16, full{}, s1_2);
            body(at + 24, full{}, s1_3);
          }
          if (at < end) body(at, int(end - at), s1_0);
          two_sum(a1_0, e1_0, s1_0);
          two_sum(a1_1, e1_1, s1_1);
          two_sum(a1_2, e1_2, s1_2);
          two_sum(a1_3, e1_3, s1_3);
        }
      }
    }
    two_sum(a1_0, e1_0, a1_1);
    e1_0 = e1_0 + e1_1;
    two_sum(a1_0, e1_0, a1_2);
    e1_0 = e1_0 + e1_2;
    two_sum(a1_0, e1_0, a1_3);
    e1_0 = e1_0 + e1_3;
    a1_0 = with_lost(a1_0, e1_0);
    const f32 v1 = fold(a1_0, [](f32 a, f32 b) { return a + b; });
    const f32 v3 = v1 / v2;
    f32 a6_0 = splat<f32>(0.0f);
    f32 a6_1 = splat<f32>(0.0f);
    f32 a6_2 = splat<f32>(0.0f);
    f32 a6_3 = splat<f32>(0.0f);
    auto e6_0 = splat<f32>(0.0f);
    auto e6_1 = splat<f32>(0.0f);
    auto e6_2 = splat<f32>(0.0f);
    auto e6_3 = splat<f32>(0.0f);
    for (i64_t x2 = 0; x2 < 2; ++x2) {
      {
        for (i64_t block = 0; block < 36; block += 1024) {
          const i64_t end = block + 1024 < 36 ? block + 1024 : 36;
          auto s6_0 = splat<f32>(0.0f);
          auto s6_1 = splat<f32>(0.0f);
          auto s6_2 = splat<f32>(0.0f);
          auto s6_3 = splat<f32>(0.0f);
          auto body = [&](const i64_t i, auto n, f32 &a6_0) __attribute__((always_inline)) {
            const f32 v0 = ld(p0 + x2 * 36 + i, n);
            const f32 v4 = v0 - v3;
            const f32 v5 = v4 * v4;
            a6_0 = a6_0 + keep(v5, splat<f32>(0.0f), n);
          };
          i64_t at = block;
          for (; at + 32 <= end; at += 32) {
            body(at + 0, full{}, s6_0);
            body(at + 8, full{}, s6_1);
            body(at + 16, full{}, s6_2);
            body(at + 24, full{}, s6_3);
          }
          if (at < end) body(at, int(end - at), s6_0);
          two_sum(a6_0, e6_0, s6_0);
          two_sum(a6_1, e6_1, s6_1);
          two_sum(a6_2, e6_2, s6_2);
          two_sum(a6_3, e6_3, s6_3);
        }
      }
    }
    two_sum(a6_0, e6_0, a6_1);
    e6_0 = e6_0 + e6_1;
    two_sum(a6_0, e6_0, a6_2);
    e6_0 = e6_0 + e6_2;
    two_sum(a6_0, e6_0, a6_3);
    e6_0 = e6_0 + e6_3;
    a6_0 = with_lost(a6_0, e6_0);
    const f32 v6 = fold(a6_0, [](f32 a, f32 b) { return a + b; });
    const f32 v7 = v6 / v2;
    const f32 v9 = v7 + v8;
    const f32 v10 = 1 / sqrt(v9);
    for (i64_t x2 = 0; x2 < 2; ++x2) {
      {
        auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + x2 * 36 + i, n);
          const f32 v4 = v0 - v3;
          const f32 v11 = v4 * v10;
          const f32 v12 = one(p1 + x2);
          const f32 v13 = v11 * v12;
          const f32 v15 = v13 * v14;
          st(p2 + x2 * 36 + i, v15, n);
        };
        i64_t at = 0;
        for (; at + 8 <= 36; at += 8) body(at, full{});
        if (at < 36) body(at, 4);
      }
    }
  }
}
