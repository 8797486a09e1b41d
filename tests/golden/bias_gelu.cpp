// 1. k0_gelu

// add.Tensor
// gelu
extern "C" void k0_gelu(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[32, 100] stride [100, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[100] stride [1]
  float *__restrict b2 = (float *)buffers[2];  // float32[32, 100] stride [100, 1]
  (void)threads;
  for (i64_t item = 0; item < 32; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 100;
    const float *p1 = b1;
    float *p2 = b2 + x0 * 100;
    const f32 v3 = splat<f32>(0.7071067690849304f);
    const f32 v6 = splat<f32>(1.0f);
    const f32 v8 = splat<f32>(0.5f);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 + v1;
        const f32 v4 = v2 * v3;
        const f32 v5 = erf(v4);
        const f32 v7 = v6 + v5;
        const f32 v9 = v8 * v2;
        const f32 v10 = v9 * v7;
        st(p2 + i, v10, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 100; at += 8) body(at, full{});
      if (at < 100) body(at, 4);
    }
  }
}
