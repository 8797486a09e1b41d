// 1. k0_cumsum

// cat
// cumsum
// mul.Tensor
extern "C" void k0_cumsum(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[6, 20] stride [20, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[6, 12] stride [12, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[6, 32] stride [32, 1]
  (void)threads;
  for (i64_t item = 0; item < 6; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 20;
    const float *p1 = b1 + x0 * 12 + -20;
    float *p2 = b2 + x0 * 32;
    const f32 v0 = splat<f32>(0.0f);
    const f32 v8 = splat<f32>(2.0f);
    f64 c6 = splat<f64>(0.0);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v2 = ldif(p0 + i, up(0, 20, i), v0, n);
        const f32 v4 = ldif(p1 + i, up(20, 32, i), v2, n);
        const f64 v5 = conv<f64>(v4);
        const f64 v6 = scanned(v5, c6, splat<f64>(0.0), [](auto a, auto b) { return a + b; });
        const f32 v7 = conv<f32>(v6);
        const f32 v9 = v7 * v8;
        st(p2 + i, v9, n);
      };
      i64_t at = 0;
      for (; at + 4 <= 32; at += 4) body(at, full{});
    }
  }
}
