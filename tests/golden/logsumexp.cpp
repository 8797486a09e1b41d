// 1. k0_logsumexp

// mul.Tensor
// logsumexp
extern "C" void k0_logsumexp(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[16, 90] stride [90, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[16] stride [1]
  (void)threads;
  for (i64_t item = 0; item < 16; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 90;
    float *p1 = b1 + x0;
    const f32 v1 = splat<f32>(2.0f);
    const f32 v5 = splat<f32>(0.0f);
    f32 a3_0 = splat<f32>(-__builtin_inff());
    f32 a3_1 = splat<f32>(-__builtin_inff());
    f32 a3_2 = splat<f32>(-__builtin_inff());
    f32 a3_3 = splat<f32>(-__builtin_inff());
    {
      auto body = [&](const i64_t i, auto n, f32 &a3_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v2 = v0 * v1;
        a3_0 = maximum(keep(v2, splat<f32>(-__builtin_inff()), n), a3_0);
      };
      i64_t at = 0;
      for (; at + 32 <= 90; at += 32) {
        body(at + 0, full{}, a3_0);
        body(at + 8, full{}, a3_1);
        body(at + 16, full{}, a3_2);
        body(at + 24, full{}, a3_3);
      }
      for (; at + 8 <= 90; at += 8) body(at, full{}, a3_0);
      if (at < 90) body(at, 2, a3_0);
    }
    a3_0 = maximum(a3_1, a3_0);
    a3_0 = maximum(a3_2, a3_0);
    a3_0 = maximum(a3_3, a3_0);
    const f32 v3 = fold(a3_0, [](f32 a, f32 b) { return maximum(b, a); });
    const mask v4 = isinf(v3);
    const f32 v6 = where(v4, v5, v3);
    f32 a9_0 = splat<f32>(0.0f);
    f32 a9_1 = splat<f32>(0.0f);
    f32 a9_2 = splat<f32>(0.0f);
    f32 a9_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a9_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v2 = v0 * v1;
        const f32 v7 = v2 - v6;
        const f32 v8 = exp(v7);
        a9_0 = a9_0 + keep(v8, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 90; at += 32) {
        body(at + 0, full{}, a9_0);
        body(at + 8, full{}, a9_1);
        body(at + 16, full{}, a9_2);
        body(at + 24, full{}, a9_3);
      }
      for (; at + 8 <= 90; at += 8) body(at, full{}, a9_0);
      if (at < 90) body(at, 2, a9_0);
    }
    a9_0 = a9_0 + a9_1;
    a9_0 = a9_0 + a9_2;
    a9_0 = a9_0 + a9_3;
    const f32 v9 = fold(a9_0, [](f32 a, f32 b) { return a + b; });
    const f32 v10 = log(v9);
    const f32 v11 = v10 + v6;
    st(p1, v11, 1);
  }
}
