// 1. k0_add

// embedding
// add.Tensor
extern "C" void k0_add(void **buffers, int threads) {
  const i64_t *__restrict b0 = (const i64_t *)buffers[0];  // int64[4, 16] stride [16, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[50, 24] stride [24, 1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[16, 24] stride [24, 1]
  float *__restrict b3 = (float *)buffers[3];  // float32[4, 16, 24] stride [384, 24, 1]
  int *const trouble = (int *)buffers[4];
  (void)threads;
  for (i64_t item = 0; item < 64; ++item) {
    const i64_t x1 = (item) % 16;
    const i64_t x0 = (item) / 16;
    const i64_t *p0 = b0 + x0 * 16 + x1;
    const float *p1 = b1;
    const float *p2 = b2 + x1 * 24;
    float *p3 = b3 + x0 * 384 + x1 * 24;
    const i64_t v0 = *(p0);
    const i64_t v1 = checked(v0, 0, 50, trouble);
    const i64_t v3 = v1 * 24ll;
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v4 = ld(p1 + i + v3, n);
        const f32 v5 = ld(p2 + i, n);
        const f32 v6 = v4 + v5;
        st(p3 + i, v6, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 24; at += 8) body(at, full{});
    }
  }
}
