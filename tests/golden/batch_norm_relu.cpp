// 1. k0_relu

// native_batch_norm
// relu
extern "C" void k0_relu(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[8] stride [1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[8] stride [1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[2, 8, 5, 5] stride [200, 25, 5, 1]
  float *__restrict b3 = (float *)buffers[3];  // float32[2, 8, 5, 5] stride [200, 25, 5, 1]
  (void)threads;
  for (i64_t item = 0; item < 16; ++item) {
    const i64_t x1 = (item) % 8;
    const i64_t x0 = (item) / 8;
    const float *p0 = b0 + x1;
    const float *p1 = b1 + x1;
    const float *p2 = b2 + x0 * 200 + x1 * 25;
    float *p3 = b3 + x0 * 200 + x1 * 25;
    const f32 v0 = one(p0);
    const f32 v1 = splat<f32>(9.999999747378752e-06f);
    const f32 v2 = v0 + v1;
    const f32 v3 = sqrt(v2);
    const f32 v4 = splat<f32>(1.0f);
    const f32 v5 = v4 / v3;
    const f32 v6 = v5 * v4;
    const f32 v7 = one(p1);
    const f32 v8 = -v7;
    const f32 v9 = splat<f32>(0.0f);
    const f32 v10 = fma(v8, v6, v9);
    const f32 v13 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v11 = ld(p2 + i, n);
        const f32 v12 = fma(v11, v6, v10);
        const mask v14 = v12 < v13;
        const f32 v15 = where(v14, v13, v12);
        st(p3 + i, v15, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 25; at += 8) body(at, full{});
      if (at < 25) body(at, 1);
    }
  }
}
