// 1. k0_cat
// 2. k1_add

// neg
// cat
extern "C" void k0_cat(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 4, 16, 32] stride [2048, 512, 32, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[2, 4, 16, 16] stride [2048, 512, 32, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[2, 4, 16, 16] stride [2048, 512, 32, 1]
  (void)threads;
  for (i64_t item = 0; item < 128; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 32 + 16;
    const float *p1 = b0 + x0 * 32;
    float *p2 = b1 + x0 * 32;
    float *p3 = b2 + x0 * 32 + 16;
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = -v0;
        const f32 v2 = ld(p1 + i, n);
        st(p2 + i, v1, n);
        st(p3 + i, v2, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 16; at += 8) body(at, full{});
    }
  }
}

// mul.Tensor
// mul.Tensor
// add.Tensor
extern "C" void k1_add(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 4, 16, 32] stride [2048, 512, 32, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[16, 32] stride [32, 1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[2, 4, 16, 32] stride [2048, 512, 32, 1]
  const float *__restrict b3 = (const float *)buffers[3];  // float32[16, 32] stride [32, 1]
  float *__restrict b4 = (float *)buffers[4];  // float32[2, 4, 16, 32] stride [2048, 512, 32, 1]
  (void)threads;
  for (i64_t item = 0; item < 8; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 512;
    const float *p1 = b1;
    const float *p2 = b2 + x0 * 512;
    const float *p3 = b3;
    float *p4 = b4 + x0 * 512;
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 * v1;
        const f32 v3 = ld(p2 + i, n);
        const f32 v4 = ld(p3 + i, n);
        const f32 v5 = v3 * v4;
        const f32 v6 = v2 + v5;
        st(p4 + i, v6, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 512; at += 8) body(at, full{});
    }
  }
}
