// 1. k0_mul

// relu
// constant_pad_nd
// mul.Tensor
extern "C" void k0_mul(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 3, 20, 30] stride [1800, 600, 30, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[2, 3, 22, 32] stride [2112, 704, 32, 1]
  (void)threads;
  for (i64_t item = 0; item < 132; ++item) {
    const i64_t x1 = (item) % 22;
    const i64_t x0 = (item) / 22;
    const float *p0 = b0 + x0 * 600 + x1 * 30 + -31;
    float *p1 = b1 + x0 * 704 + x1 * 32;
    const f32 v0 = splat<f32>(0.0f);
    const f32 v2 = splat<f32>(0.0f);
    const f32 v4 = splat<f32>(0.0f);
    const f32 v8 = splat<f32>(2.0f);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const mask v1 = within(up(1, 31, i)) & splat<mask>(-(x1 >= 1 && x1 < 21));
        const f32 v3 = x1 >= 1 && x1 < 21 ? ldif(p0 + i, up(1, 31, i), v2, n) : v2;
        const mask v5 = v3 < v4;
        const f32 v6 = where(v5, v4, v3);
        const f32 v7 = where(v1, v6, v0);
        const f32 v9 = v7 * v8;
        st(p1 + i, v9, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 32; at += 8) body(at, full{});
    }
  }
}
