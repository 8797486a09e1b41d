// 1. k0_mul

// gather
// mul.Tensor
extern "C" void k0_mul(void **buffers, int threads) {
  const i64_t *__restrict b0 = (const i64_t *)buffers[0];  // int64[30, 40] stride [40, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[30, 40] stride [40, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[30, 40] stride [40, 1]
  int *const trouble = (int *)buffers[3];
  (void)threads;
  for (i64_t item = 0; item < 30; ++item) {
    const i64_t x0 = (item);
    const i64_t *p0 = b0 + x0 * 40;
    const float *p1 = b1 + x0 * 40;
    float *p2 = b2 + x0 * 40;
    const f32 v3 = splat<f32>(2.0f);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const i64 v0 = ld(p0 + i, n);
        const i64 v1 = checked(v0, 0, 40, trouble, n);
        const f32 v2 = ldg(p1, v1, n);
        const f32 v4 = v2 * v3;
        st(p2 + i, v4, n);
      };
      i64_t at = 0;
      for (; at + 4 <= 40; at += 4) body(at, full{});
    }
  }
}
