// 1. k0_mm

// mm
// mul.Tensor
extern "C" void k0_mm(void **buffers, int threads) {
  const bf16_t *__restrict b0 = (const bf16_t *)buffers[0];  // bfloat16[4, 200] stride [200, 1]
  const bf16_t *__restrict b1 = (const bf16_t *)buffers[1];  // bfloat16[30, 200] stride [200, 1]
  bf16_t *__restrict b2 = (bf16_t *)buffers[2];  // bfloat16[4, 30] stride [30, 1]
  (void)threads;
  for (i64_t item = 0; item < 30; ++item) {
    const i64_t x0 = (item);
    const bf16_t *p0 = b0;
    const bf16_t *p1 = b1 + x0 * 200;
    const bf16_t *p2 = b0 + 200;
    const bf16_t *p3 = b0 + 400;
    const bf16_t *p4 = b0 + 600;
    bf16_t *p5 = b2 + x0;
    bf16_t *p6 = b2 + x0 + 30;
    bf16_t *p7 = b2 + x0 + 60;
    bf16_t *p8 = b2 + x0 + 90;
    const f32 v8 = splat<f32>(2.0f);
    f32 a5_0 = splat<f32>(0.0f);
    f32 a5_1 = splat<f32>(0.0f);
    f32 a5_2 = splat<f32>(0.0f);
    f32 a5_3 = splat<f32>(0.0f);
    f32 a14_0 = splat<f32>(0.0f);
    f32 a14_1 = splat<f32>(0.0f);
    f32 a14_2 = splat<f32>(0.0f);
    f32 a14_3 = splat<f32>(0.0f);
    f32 a22_0 = splat<f32>(0.0f);
    f32 a22_1 = splat<f32>(0.0f);
    f32 a22_2 = splat<f32>(0.0f);
    f32 a22_3 = splat<f32>(0.0f);
    f32 a30_0 = splat<f32>(0.0f);
    f32 a30_1 = splat<f32>(0.0f);
    f32 a30_2 = splat<f32>(0.0f);
    f32 a30_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a5_0, f32 &a14_0, f32 &a22_0, f32 &a30_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = v0;
        const f32 v2 = ld(p1 + i, n);
        const f32 v3 = v2;
        const f32 v4 = v1 * v3;
        const f32 v11 = ld(p2 + i, n);
        const f32 v12 = v11;
        const f32 v13 = v12 * v3;
        const f32 v19 = ld(p3 + i, n);
        const f32 v20 = v19;
        const f32 v21 = v20 * v3;
        const f32 v27 = ld(p4 + i, n);
        const f32 v28 = v27;
        const f32 v29 = v28 * v3;
        a5_0 = a5_0 + keep(v4, splat<f32>(0.0f), n);
        a14_0 = a14_0 + keep(v13, splat<f32>(0.0f), n);
        a22_0 = a22_0 + keep(v21, splat<f32>(0.0f), n);
        a30_0 = a30_0 + keep(v29, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 200; at += 32) {
        body(at + 0, full{}, a5_0, a14_0, a22_0, a30_0);
        body(at + 8, full{}, a5_1, a14_1, a22_1, a30_1);
        body(at + 16, full{}, a5_2, a14_2, a22_2, a30_2);
        body(at + 24, full{}, a5_3, a14_3, a22_3, a30_3);
      }
      for (; at + 8 <= 200; at += 8) body(at, full{}, a5_0, a14_0, a22_0, a30_0);
    }
    a5_0 = a5_0 + a5_1;
    a5_0 = a5_0 + a5_2;
    a5_0 = a5_0 + a5_3;
    const f32 v5 = fold(a5_0, [](f32 a, f32 b) { return a + b; });
    a14_0 = a14_0 + a14_1;
    a14_0 = a14_0 + a14_2;
    a14_0 = a14_0 + a14_3;
    const f32 v14 = fold(a14_0, [](f32 a, f32 b) { return a + b; });
    a22_0 = a22_0 + a22_1;
    a22_0 = a22_0 + a22_2;
    a22_0 = a22_0 + a22_3;
    const f32 v22 = fold(a22_0, [](f32 a, f32 b) { return a + b; });
    a30_0 = a30_0 + a30_1;
    a30_0 = a30_0 + a30_2;
    a30_0 = a30_0 + a30_3;
    const f32 v30 = fold(a30_0, [](f32 a, f32 b) { return a + b; });
    const f32 v6 = round_bf16_plain(v5);
    const f32 v7 = v6;
    const f32 v9 = v7 * v8;
    const f32 v10 = round_bf16_plain(v9);
    const f32 v15 = round_bf16_plain(v14);
    const f32 v16 = v15;
    const f32 v17 = v16 * v8;
    const f32 v18 = round_bf16_plain(v17);
    const f32 v23 = round_bf16_plain(v22);
    const f32 v24 = v23;
    const f32 v25 = v24 * v8;
    const f32 v26 = round_bf16_plain(v25);
    const f32 v31 = round_bf16_plain(v30);
    const f32 v32 = v31;
    const f32 v33 = v32 * v8;
    const f32 v34 = round_bf16_plain(v33);
    st(p5, v10, 1);
    st(p6, v18, 1);
    st(p7, v26, 1);
    st(p8, v34, 1);
  }
}
