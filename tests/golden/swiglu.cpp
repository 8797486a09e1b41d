// 1. k0_mul

// silu
// mul.Tensor
extern "C" void k0_mul(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[8, 333] stride [333, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[8, 333] stride [333, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[8, 333] stride [333, 1]
  (void)threads;
  const float *p0 = b0;
  const float *p1 = b1;
  float *p2 = b2;
  const f32 v1 = splat<f32>(1.0f);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const f32 v2 = -v0;
      const f32 v3 = exp(v2);
      const f32 v4 = v1 + v3;
      const f32 v5 = v0 / v4;
      const f32 v6 = ld(p1 + i, n);
      const f32 v7 = v5 * v6;
      st(p2 + i, v7, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 2664; at += 8) body(at, full{});
  }
}
