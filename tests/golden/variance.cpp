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
    const f64 v3 = splat<f64>(200.0);
    const f64 v8 = splat<f64>(199.0);
    f64 a2_0 = splat<f64>(0.0);
    f64 a2_1 = splat<f64>(0.0);
    f64 a2_2 = splat<f64>(0.0);
    f64 a2_3 = splat<f64>(0.0);
    {
      auto body = [&](const i64_t i, auto n, f64 &a2_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f64 v1 = conv<f64>(v0);
        a2_0 = a2_0 + keep(v1, splat<f64>(0.0), n);
      };
      i64_t at = 0;
      for (; at + 16 <= 200; at += 16) {
        body(at + 0, full{}, a2_0);
        body(at + 4, full{}, a2_1);
        body(at + 8, full{}, a2_2);
        body(at + 12, full{}, a2_3);
      }
      for (; at + 4 <= 200; at += 4) body(at, full{}, a2_0);
    }
    a2_0 = a2_0 + a2_1;
    a2_0 = a2_0 + a2_2;
    a2_0 = a2_0 + a2_3;
    const f64 v2 = fold(a2_0, [](f64 a, f64 b) { return a + b; });
    const f64 v4 = v2 / v3;
    f64 a7_0 = splat<f64>(0.0);
    f64 a7_1 = splat<f64>(0.0);
    f64 a7_2 = splat<f64>(0.0);
    f64 a7_3 = splat<f64>(0.0);
    {
      auto body = [&](const i64_t i, auto n, f64 &a7_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f64 v1 = conv<f64>(v0);
        const f64 v5 = v1 - v4;
        const f64 v6 = v5 * v5;
        a7_0 = a7_0 + keep(v6, splat<f64>(0.0), n);
      };
      i64_t at = 0;
      for (; at + 16 <= 200; at += 16) {
        body(at + 0, full{}, a7_0);
        body(at + 4, full{}, a7_1);
        body(at + 8, full{}, a7_2);
        body(at + 12, full{}, a7_3);
      }
      for (; at + 4 <= 200; at += 4) body(at, full{}, a7_0);
    }
    a7_0 = a7_0 + a7_1;
    a7_0 = a7_0 + a7_2;
    a7_0 = a7_0 + a7_3;
    const f64 v7 = fold(a7_0, [](f64 a, f64 b) { return a + b; });
    const f64 v9 = v7 / v8;
    const f32 v10 = conv<f32>(v9);
    st(p1, v10, 1);
  }
}
