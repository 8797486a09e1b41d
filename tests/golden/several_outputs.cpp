// 1. k0_mul

// exp
// add.Tensor
// mul.Tensor
extern "C" void k0_mul(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[6, 50] stride [50, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[6, 50] stride [50, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[6, 50] stride [50, 1]
  float *__restrict b3 = (float *)buffers[3];  // float32[6, 50] stride [50, 1]
  (void)threads;
  const float *p0 = b0;
  float *p1 = b1;
  float *p2 = b2;
  float *p3 = b3;
  const f32 v2 = splat<f32>(1.0f);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const f32 v1 = exp(v0);
      const f32 v3 = v1 + v2;
      const f32 v4 = v0 * v0;
      st(p1 + i, v1, n);
      st(p2 + i, v3, n);
      st(p3 + i, v4, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 300; at += 8) body(at, full{});
    if (at < 300) body(at, 4);
  }
}
