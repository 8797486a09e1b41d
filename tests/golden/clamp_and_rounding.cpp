// 1. k0_add

// clamp
// floor
// round
// add.Tensor
extern "C" void k0_add(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[90] stride [1]
  float *__restrict b1 = (float *)buffers[1];  // float32[90] stride [1]
  (void)threads;
  const float *p0 = b0;
  float *p1 = b1;
  const f32 v1 = splat<f32>(-1.0f);
  const f32 v4 = splat<f32>(1.0f);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const mask v2 = v0 < v1;
      const f32 v3 = where(v2, v1, v0);
      const mask v5 = v3 > v4;
      const f32 v6 = where(v5, v4, v3);
      const f32 v7 = floor(v6);
      const f32 v8 = rint(v0);
      const f32 v9 = v7 + v8;
      st(p1 + i, v9, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 90; at += 8) body(at, full{});
    if (at < 90) body(at, 2);
  }
}
