// 1. k0_addmm

// addmm
// relu
extern "C" void k0_addmm(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[1, 200] stride [200, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[30, 200] stride [200, 1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[30] stride [1]
  float *__restrict b3 = (float *)buffers[3];  // float32[1, 30] stride [30, 1]
  (void)threads;
  for (i64_t item = 0; item < 30; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0;
    const float *p1 = b1 + x0 * 200;
    const float *p2 = b2 + x0;
    float *p3 = b3 + x0;
    const f32 v4 = one(p2);
    const f32 v6 = splat<f32>(0.0f);
    f32 a3_0 = splat<f32>(0.0f);
    f32 a3_1 = splat<f32>(0.0f);
    f32 a3_2 = splat<f32>(0.0f);
    f32 a3_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a3_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 * v1;
        a3_0 = a3_0 + keep(v2, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 200; at += 32) {
        body(at + 0, full{}, a3_0);
        body(at + 8, full{}, a3_1);
        body(at + 16, full{}, a3_2);
        body(at + 24, full{}, a3_3);
      }
      for (; at + 8 <= 200; at += 8) body(at, full{}, a3_0);
    }
    a3_0 = a3_0 + a3_1;
    a3_0 = a3_0 + a3_2;
    a3_0 = a3_0 + a3_3;
    const f32 v3 = fold(a3_0, [](f32 a, f32 b) { return a + b; });
    const f32 v5 = v3 + v4;
    const mask v7 = v5 < v6;
    const f32 v8 = where(v7, v6, v5);
    st(p3, v8, 1);
  }
}
