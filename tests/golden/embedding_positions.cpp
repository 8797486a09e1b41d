// 1. aten.embedding.default
// 2. k0_add

// add.Tensor
extern "C" void k0_add(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[4, 16, 24] stride [384, 24, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[16, 24] stride [24, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[4, 16, 24] stride [384, 24, 1]
  (void)threads;
  for (i64_t item = 0; item < 4; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 384;
    const float *p1 = b1;
    float *p2 = b2 + x0 * 384;
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 + v1;
        st(p2 + i, v2, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 384; at += 8) body(at, full{});
    }
  }
}
