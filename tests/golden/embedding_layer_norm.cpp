// 1. k0_native_layer_norm

// embedding
// add.Tensor
// native_layer_norm
extern "C" void k0_native_layer_norm(void **buffers, int threads) {
  const i64_t *__restrict b0 = (const i64_t *)buffers[0];  // int64[4, 16] stride [16, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[50, 24] stride [24, 1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[16, 24] stride [24, 1]
  const float *__restrict b3 = (const float *)buffers[3];  // float32[24] stride [1]
  float *__restrict b4 = (float *)buffers[4];  // float32[4, 16, 24] stride [384, 24, 1]
  int *const trouble = (int *)buffers[5];
  (void)threads;
  for (i64_t item = 0; item < 64; ++item) {
    const i64_t x1 = (item) % 16;
    const i64_t x0 = (item) / 16;
    const i64_t *p0 = b0 + x0 * 16 + x1;
    const float *p1 = b1;
    const float *p2 = b2 + x1 * 24;
    const float *p3 = b3;
    float *p4 = b4 + x0 * 384 + x1 * 24;
    const i64_t v0 = *(p0);
    const i64_t v1 = checked(v0, 0, 50, trouble);
    const i64_t v3 = v1 * 24ll;
    const f32 v8 = splat<f32>(24.0f);
    const f32 v14 = splat<f32>(9.999999747378752e-06f);
    const f32 v20 = splat<f32>(0.0f);
    f32 a7_0 = splat<f32>(0.0f);
    f32 a7_1 = splat<f32>(0.0f);
    f32 a7_2 = splat<f32>(0.0f);
    f32 a7_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a7_0) __attribute__((always_inline)) {
        const f32 v4 = ld(p1 + i + v3, n);
        const f32 v5 = ld(p2 + i, n);
        const f32 v6 = v4 + v5;
        a7_0 = a7_0 + keep(v6, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 8 <= 24; at += 8) body(at, full{}, a7_0);
    }
    a7_0 = a7_0 + a7_1;
    a7_0 = a7_0 + a7_2;
    a7_0 = a7_0 + a7_3;
    const f32 v7 = fold(a7_0, [](f32 a, f32 b) { return a + b; });
    const f32 v9 = v7 / v8;
    f32 a12_0 = splat<f32>(0.0f);
    f32 a12_1 = splat<f32>(0.0f);
    f32 a12_2 = splat<f32>(0.0f);
    f32 a12_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a12_0) __attribute__((always_inline)) {
        const f32 v4 = ld(p1 + i + v3, n);
        const f32 v5 = ld(p2 + i, n);
        const f32 v6 = v4 + v5;
        const f32 v10 = v6 - v9;
        const f32 v11 = v10 * v10;
        a12_0 = a12_0 + keep(v11, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 8 <= 24; at += 8) body(at, full{}, a12_0);
    }
    a12_0 = a12_0 + a12_1;
    a12_0 = a12_0 + a12_2;
    a12_0 = a12_0 + a12_3;
    const f32 v12 = fold(a12_0, [](f32 a, f32 b) { return a + b; });
    const f32 v13 = v12 / v8;
    const f32 v15 = v13 + v14;
    const f32 v16 = 1 / sqrt(v15);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v4 = ld(p1 + i + v3, n);
        const f32 v5 = ld(p2 + i, n);
        const f32 v6 = v4 + v5;
        const f32 v10 = v6 - v9;
        const f32 v17 = v10 * v16;
        const f32 v18 = ld(p3 + i, n);
        const f32 v19 = v17 * v18;
        const f32 v21 = v19 + v20;
        st(p4 + i, v21, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 24; at += 8) body(at, full{});
    }
  }
}
