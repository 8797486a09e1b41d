// 1. k0_add

// mul.Tensor
// add.Tensor
extern "C" void k0_add(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[20, 31] stride [31, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[10, 30] stride [30, 1]
  (void)threads;
  for (i64_t item = 0; item < 10; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 62 + 1;
    const float *p1 = b0 + x0 * 62 + 31;
    float *p2 = b1 + x0 * 30;
    const f32 v1 = splat<f32>(2.0f);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v2 = v0 * v1;
        const f32 v3 = ld(p1 + i, n);
        const f32 v4 = v2 + v3;
        st(p2 + i, v4, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 30; at += 8) body(at, full{});
      if (at < 30) body(at, 6);
    }
  }
}
