// 1. k0_sum

// abs
// sum.dim_IntList
extern "C" void k0_sum(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[60, 70] stride [70, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[60] stride [1]
  (void)threads;
  for (i64_t item = 0; item < 60; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 70;
    float *p1 = b1 + x0;
    f32 a2_0 = splat<f32>(0.0f);
    f32 a2_1 = splat<f32>(0.0f);
    f32 a2_2 = splat<f32>(0.0f);
    f32 a2_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a2_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = abs(v0);
        a2_0 = a2_0 + keep(v1, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 70; at += 32) {
        body(at + 0, full{}, a2_0);
        body(at + 8, full{}, a2_1);
        body(at + 16, full{}, a2_2);
        body(at + 24, full{}, a2_3);
      }
      if (at < 70) body(at, 6, a2_0);
    }
    a2_0 = a2_0 + a2_1;
    a2_0 = a2_0 + a2_2;
    a2_0 = a2_0 + a2_3;
    const f32 v2 = fold(a2_0, [](f32 a, f32 b) { return a + b; });
    st(p1, v2, 1);
  }
}
