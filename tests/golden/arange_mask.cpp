// 1. k0_mul

// mul.Tensor
extern "C" void k0_mul(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[9, 64] stride [64, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[9, 64] stride [64, 1]
  (void)threads;
  for (i64_t item = 0; item < 9; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 64;
    float *p1 = b1 + x0 * 64;
    const i64 v2 = splat<i64>(17ll);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const i64 v1 = splat<i64>(0 + i) + lanes<i64>(0) * 1ll;
        const mask v3 = narrow(v1 < v2);
        const f32 v4 = conv<f32>(-v3);
        const f32 v5 = v0 * v4;
        st(p1 + i, v5, n);
      };
      i64_t at = 0;
      for (; at + 4 <= 64; at += 4) body(at, full{});
    }
  }
}
