// 1. k0_var

// var.correction
extern "C" void k0_var(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[20, 200] stride [200, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[20] stride [1]
  (void)threads;
  for (i64_t item = 0; item < 20; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 200;
    float *p1 = b1 + x0;
    const f32 v2 = splat<f32>(200.0f);
    const f32 v7 = splat<f32>(199.0f);
    f32 a1_0 = splat<f32>(0.0f);
    f32 a1_1 = splat<f32>(0.0f);
    f32 a1_2 = splat<f32>(0.0f);
    f32 a1_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a1_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        a1_0 = a1_0 + keep(v0, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 200; at += 32) {
        body(at + 0, full{}, a1_0);
        body(at + 8, full{}, a1_1);
        body(at + 16, full{}, a1_2);
        body(at + 24, full{}, a1_3);
      }
      for (; at + 8 <= 200; at += 8) body(at, full{}, a1_0);
    }
    a1_0 = a1_0 + a1_1;
    a1_0 = a1_0 + a1_2;
    a1_0 = a1_0 + a1_3;
    const f32 v1 = fold(a1_0, [](f32 a, f32 b) { return a + b; });
    const f32 v3 = v1 / v2;
    f32 a6_0 = splat<f32>(0.0f);
    f32 a6_1 = splat<f32>(0.0f);
    f32 a6_2 = splat<f32>(0.0f);
    f32 a6_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a6_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v4 = v0 - v3;
        const f32 v5 = v4 * v4;
        a6_0 = a6_0 + keep(v5, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 200; at += 32) {
        body(at + 0, full{}, a6_0);
        body(at + 8, full{}, a6_1);
        body(at + 16, full{}, a6_2);
        body(at + 24, full{}, a6_3);
      }
      for (; at + 8 <= 200; at += 8) body(at, full{}, a6_0);
    }
    a6_0 = a6_0 + a6_1;
    a6_0 = a6_0 + a6_2;
    a6_0 = a6_0 + a6_3;
    const f32 v6 = fold(a6_0, [](f32 a, f32 b) { return a + b; });
    const f32 v8 = v6 / v7;
    st(p1, v8, 1);
  }
}
