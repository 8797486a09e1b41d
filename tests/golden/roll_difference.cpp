// 1. k0_sub

// roll
// sub.Tensor
extern "C" void k0_sub(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[30, 40] stride [40, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[30, 40] stride [40, 1]
  (void)threads;
  for (i64_t item = 0; item < 30; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 40 + 39;
    const float *p1 = b0 + x0 * 40 + -1;
    const float *p2 = b0 + x0 * 40;
    float *p3 = b1 + x0 * 40;
    const f32 v0 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v2 = ldif(p0 + i, up(0, 1, i), v0, n);
        const f32 v4 = ldif(p1 + i, up(1, 40, i), v2, n);
        const f32 v5 = ld(p2 + i, n);
        const f32 v6 = v4 - v5;
        st(p3 + i, v6, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 40; at += 8) body(at, full{});
    }
  }
}
