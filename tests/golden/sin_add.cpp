// 1. k0_add

// sin
// mul.Tensor
// add.Tensor
extern "C" void k0_add(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[1000] stride [1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[1000] stride [1]
  float *__restrict b2 = (float *)buffers[2];  // float32[1000] stride [1]
  (void)threads;
  const float *p0 = b0;
  const float *p1 = b1;
  float *p2 = b2;
  const f32 v3 = splat<f32>(2.0f);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const f32 v1 = sin(v0);
      const f32 v2 = ld(p1 + i, n);
      const f32 v4 = v2 * v3;
      const f32 v5 = v1 + v4;
      st(p2 + i, v5, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 1000; at += 8) body(at, full{});
  }
}
