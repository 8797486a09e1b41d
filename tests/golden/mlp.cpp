// 1. k0_mm
// 2. k1_mm

// mm
// relu
extern "C" void k0_mm(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[4, 16] stride [16, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[32, 16] stride [16, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[4, 32] stride [32, 1]
  (void)threads;
  for (i64_t item = 0; item < 4; ++item) {
    const i64_t first = item * W;
    const int count = W;
    f32 t3[W];
    f32 t6[W];
    f32 t9[W];
    f32 t12[W];
    auto row = [&](const i64_t x0, const int k) __attribute__((always_inline)) {
      const float *p0 = b0;
      const float *p1 = b1 + x0 * 16;
      const float *p2 = b0 + 16;
      const float *p3 = b0 + 32;
      const float *p4 = b0 + 48;
      float *p5 = b2 + x0;
      float *p6 = b2 + x0 + 32;
      float *p7 = b2 + x0 + 64;
      float *p8 = b2 + x0 + 96;
      f32 a3_0 = splat<f32>(0.0f);
      f32 a6_0 = splat<f32>(0.0f);
      f32 a9_0 = splat<f32>(0.0f);
      f32 a12_0 = splat<f32>(0.0f);
      {
        auto body = [&](const i64_t i, auto n, f32 &a3_0, f32 &a6_0, f32 &a9_0, f32 &a12_0) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + i, n);
          const f32 v1 = ld(p1 + i, n);
          const f32 v2 = v0 * v1;
          const f32 v4 = ld(p2 + i, n);
          const f32 v5 = v4 * v1;
          const f32 v7 = ld(p3 + i, n);
          const f32 v8 = v7 * v1;
          const f32 v10 = ld(p4 + i, n);
          const f32 v11 = v10 * v1;
          a3_0 = a3_0 + keep(v2, splat<f32>(0.0f), n);
          a6_0 = a6_0 + keep(v5, splat<f32>(0.0f), n);
          a9_0 = a9_0 + keep(v8, splat<f32>(0.0f), n);
          a12_0 = a12_0 + keep(v11, splat<f32>(0.0f), n);
        };
        i64_t at = 0;
        for (; at + 8 <= 16; at += 8) body(at, full{}, a3_0, a6_0, a9_0, a12_0);
      }
      t3[k] = a3_0;
      t6[k] = a6_0;
      t9[k] = a9_0;
      t12[k] = a12_0;
    };
    for (int k = 0; k < count; ++k) row(first + k, k);
    const f32 v3 = fold_over(t3, [](f32 a, f32 b) { return a + b; });
    const f32 v6 = fold_over(t6, [](f32 a, f32 b) { return a + b; });
    const f32 v9 = fold_over(t9, [](f32 a, f32 b) { return a + b; });
    const f32 v12 = fold_over(t12, [](f32 a, f32 b) { return a + b; });
    const i64_t i = first;
    constexpr full n{};
    const float *p0 = b0;
    const float *p1 = b1;
    const float *p2 = b0 + 16;
    const float *p3 = b0 + 32;
    const float *p4 = b0 + 48;
    float *p5 = b2;
    float *p6 = b2 + 32;
    float *p7 = b2 + 64;
    float *p8 = b2 + 96;
    st(p5 + i, v3, n);
    st(p6 + i, v6, n);
    st(p7 + i, v9, n);
    st(p8 + i, v12, n);
  }
}

// mm
extern "C" void k1_mm(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[4, 32] stride [32, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[8, 32] stride [32, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[4, 8] stride [8, 1]
  (void)threads;
  for (i64_t item = 0; item < 1; ++item) {
    const i64_t first = item * W;
    const int count = W;
    f32 t6[W];
    f32 t11[W];
    f32 t16[W];
    f32 t21[W];
    auto row = [&](const i64_t x0, const int k) __attribute__((always_inline)) {
      const float *p0 = b0;
      const float *p1 = b1 + x0 * 32;
      const float *p2 = b0 + 32;
      const float *p3 = b0 + 64;
      const float *p4 = b0 + 96;
      float *p5 = b2 + x0;
      float *p6 = b2 + x0 + 8;
      float *p7 = b2 + x0 + 16;
      float *p8 = b2 + x0 + 24;
      const f32 v1 = splat<f32>(0.0f);
      f32 a6_0 = splat<f32>(0.0f);
      f32 a11_0 = splat<f32>(0.0f);
      f32 a16_0 = splat<f32>(0.0f);
      f32 a21_0 = splat<f32>(0.0f);
      {
        auto body = [&](const i64_t i, auto n, f32 &a6_0, f32 &a11_0, f32 &a16_0, f32 &a21_0) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + i, n);
          const mask v2 = v0 < v1;
          const f32 v3 = where(v2, v1, v0);
          const f32 v4 = ld(p1 + i, n);
          const f32 v5 = v3 * v4;
          const f32 v7 = ld(p2 + i, n);
          const mask v8 = v7 < v1;
          const f32 v9 = where(v8, v1, v7);
          const f32 v10 = v9 * v4;
          const f32 v12 = ld(p3 + i, n);
          const mask v13 = v12 < v1;
          const f32 v14 = where(v13, v1, v12);
          const f32 v15 = v14 * v4;
          const f32 v17 = ld(p4 + i, n);
          const mask v18 = v17 < v1;
          const f32 v19 = where(v18, v1, v17);
          const f32 v20 = v19 * v4;
          a6_0 = a6_0 + keep(v5, splat<f32>(0.0f), n);
          a11_0 = a11_0 + keep(v10, splat<f32>(0.0f), n);
          a16_0 = a16_0 + keep(v15, splat<f32>(0.0f), n);
          a21_0 = a21_0 + keep(v20, splat<f32>(0.0f), n);
        };
        i64_t at = 0;
        for (; at + 8 <= 32; at += 8) body(at, full{}, a6_0, a11_0, a16_0, a21_0);
      }
      t6[k] = a6_0;
      t11[k] = a11_0;
      t16[k] = a16_0;
      t21[k] = a21_0;
    };
    for (int k = 0; k < count; ++k) row(first + k, k);
    const f32 v6 = fold_over(t6, [](f32 a, f32 b) { return a + b; });
    const f32 v11 = fold_over(t11, [](f32 a, f32 b) { return a + b; });
    const f32 v16 = fold_over(t16, [](f32 a, f32 b) { return a + b; });
    const f32 v21 = fold_over(t21, [](f32 a, f32 b) { return a + b; });
    const i64_t i = first;
    constexpr full n{};
    const float *p0 = b0;
    const float *p1 = b1;
    const float *p2 = b0 + 32;
    const float *p3 = b0 + 64;
    const float *p4 = b0 + 96;
    float *p5 = b2;
    float *p6 = b2 + 8;
    float *p7 = b2 + 16;
    float *p8 = b2 + 24;
    st(p5 + i, v6, n);
    st(p6 + i, v11, n);
    st(p7 + i, v16, n);
    st(p8 + i, v21, n);
  }
}
