// 1. k0_abs

// sub.Tensor
// abs
extern "C" void k0_abs(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[30, 8] stride [8, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[20, 8] stride [8, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[30, 20, 8] stride [160, 8, 1]
  (void)threads;
  for (i64_t item = 0; item < 600; ++item) {
    const i64_t x1 = (item) % 20;
    const i64_t x0 = (item) / 20;
    const float *p0 = b0 + x0 * 8;
    const float *p1 = b1 + x1 * 8;
    float *p2 = b2 + x0 * 160 + x1 * 8;
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 - v1;
        const f32 v3 = abs(v2);
        st(p2 + i, v3, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 8; at += 8) body(at, full{});
    }
  }
}
