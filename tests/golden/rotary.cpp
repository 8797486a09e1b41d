// 1. k0_cat

// neg
// mul.Tensor
// mul.Tensor
// mul.Tensor
// add.Tensor
// mul.Tensor
// add.Tensor
// cat
extern "C" void k0_cat(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 4, 16, 32] stride [2048, 512, 32, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[16, 32] stride [32, 1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[16, 32] stride [32, 1]
  float *__restrict b3 = (float *)buffers[3];  // float32[2, 4, 16, 16] stride [2048, 512, 32, 1]
  float *__restrict b4 = (float *)buffers[4];  // float32[2, 4, 16, 16] stride [2048, 512, 32, 1]
  (void)threads;
  for (i64_t item = 0; item < 128; ++item) {
    const i64_t x1 = (item) % 16;
    const i64_t x0 = (item) / 16;
    const float *p0 = b0 + x0 * 512 + x1 * 32;
    const float *p1 = b1 + x1 * 32;
    const float *p2 = b0 + x0 * 512 + x1 * 32 + 16;
    const float *p3 = b2 + x1 * 32;
    const float *p4 = b1 + x1 * 32 + 16;
    const float *p5 = b2 + x1 * 32 + 16;
    float *p6 = b3 + x0 * 512 + x1 * 32;
    float *p7 = b4 + x0 * 512 + x1 * 32 + 16;
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = ld(p1 + i, n);
        const f32 v2 = v0 * v1;
        const f32 v3 = ld(p2 + i, n);
        const f32 v4 = -v3;
        const f32 v5 = ld(p3 + i, n);
        const f32 v6 = v4 * v5;
        const f32 v7 = v2 + v6;
        const f32 v8 = ld(p4 + i, n);
        const f32 v9 = v3 * v8;
        const f32 v10 = ld(p5 + i, n);
        const f32 v11 = v0 * v10;
        const f32 v12 = v9 + v11;
        st(p6 + i, v7, n);
        st(p7 + i, v12, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 16; at += 8) body(at, full{});
    }
  }
}
