// 1. k0_native_layer_norm

// add.Tensor
// native_layer_norm
// gelu
// add.Tensor
extern "C" void k0_native_layer_norm(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[16, 256] stride [256, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[16, 256] stride [256, 1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[256] stride [1]
  const float *__restrict b3 = (const float *)buffers[3];  // float32[256] stride [1]
  float *__restrict b4 = (float *)buffers[4];  // float32[16, 256] stride [256, 1]
  float *__restrict b5 = (float *)buffers[5];  // float32[16, 256] stride [256, 1]
  (void)threads;
  for (i64_t item = 0; item < 16; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 256;
    const float *p1 = b1 + x0 * 256;
    const float *p2 = b2;
    const float *p3 = b3;
    float *p4 = b4 + x0 * 256;
    float *p5 = b5 + x0 * 256;
    const f32 v4 = splat<f32>(256.0f);
    const f32 v10 = splat<f32>(9.999999747378752e-06f);
    const f32 v18 = splat<f32>(0.7071067690849304f);
    const f32 v21 = splat<f32>(1.0f);
    const f32 v23 = splat<f32>(0.5f);
    f32 a3_0 = splat<f32>(0.0f);
    f32 a3_1 = splat<f32>(0.0f);
    f32 a3_2 = splat<f32>(0.0f);
    f32 a3_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a3_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 + v1;
        a3_0 = a3_0 + keep(v2, splat<f32>(0.0f), n);
        st(p5 + i, v2, n);
      };
      i64_t at = 0;
      for (; at + 32 <= 256; at += 32) {
        body(at + 0, full{}, a3_0);
        body(at + 8, full{}, a3_1);
        body(at + 16, full{}, a3_2);
        body(at + 24, full{}, a3_3);
      }
    }
    a3_0 = a3_0 + a3_1;
    a3_0 = a3_0 + a3_2;
    a3_0 = a3_0 + a3_3;
    const f32 v3 = fold(a3_0, [](f32 a, f32 b) { return a + b; });
    const f32 v5 = v3 / v4;
    f32 a8_0 = splat<f32>(0.0f);
    f32 a8_1 = splat<f32>(0.0f);
    f32 a8_2 = splat<f32>(0.0f);
    f32 a8_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a8_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 + v1;
        const f32 v6 = v2 - v5;
        const f32 v7 = v6 * v6;
        a8_0 = a8_0 + keep(v7, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 256; at += 32) {
        body(at + 0, full{}, a8_0);
        body(at + 8, full{}, a8_1);
        body(at + 16, full{}, a8_2);
        body(at + 24, full{}, a8_3);
      }
    }
    a8_0 = a8_0 + a8_1;
    a8_0 = a8_0 + a8_2;
    a8_0 = a8_0 + a8_3;
    const f32 v8 = fold(a8_0, [](f32 a, f32 b) { return a + b; });
    const f32 v9 = v8 / v4;
    const f32 v11 = v9 + v10;
    const f32 v12 = 1 / sqrt(v11);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 + v1;
        const f32 v6 = v2 - v5;
        const f32 v13 = v6 * v12;
        const f32 v14 = ld(p2 + i, n);
        const f32 v15 = v13 * v14;
        const f32 v16 = ld(p3 + i, n);
        const f32 v17 = v15 + v16;
        const f32 v19 = v17 * v18;
        const f32 v20 = erf(v19);
        const f32 v22 = v21 + v20;
        const f32 v24 = v23 * v17;
        const f32 v25 = v24 * v22;
        st(p4 + i, v25, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 256; at += 8) body(at, full{});
    }
  }
}
