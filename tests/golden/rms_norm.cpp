// 1. k0_mean

// pow.Tensor_Scalar
// mean.dim
// add.Tensor
// rsqrt
// mul.Tensor
// mul.Tensor
extern "C" void k0_mean(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[16, 512] stride [512, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[512] stride [1]
  float *__restrict b2 = (float *)buffers[2];  // float32[16, 512] stride [512, 1]
  (void)threads;
  for (i64_t item = 0; item < 16; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 512;
    const float *p1 = b1;
    float *p2 = b2 + x0 * 512;
    const f32 v3 = splat<f32>(512.0f);
    const f32 v5 = splat<f32>(9.999999974752427e-07f);
    f32 a2_0 = splat<f32>(0.0f);
    f32 a2_1 = splat<f32>(0.0f);
    f32 a2_2 = splat<f32>(0.0f);
    f32 a2_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a2_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = v0 * v0;
        a2_0 = a2_0 + keep(v1, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 512; at += 32) {
        body(at + 0, full{}, a2_0);
        body(at + 8, full{}, a2_1);
        body(at + 16, full{}, a2_2);
        body(at + 24, full{}, a2_3);
      }
    }
    a2_0 = a2_0 + a2_1;
    a2_0 = a2_0 + a2_2;
    a2_0 = a2_0 + a2_3;
    const f32 v2 = fold(a2_0, [](f32 a, f32 b) { return a + b; });
    const f32 v4 = v2 / v3;
    const f32 v6 = v4 + v5;
    const f32 v7 = 1 / sqrt(v6);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v8 = v0 * v7;
        const f32 v9 = ld(p1 + i, n);
        const f32 v10 = v8 * v9;
        st(p2 + i, v10, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 512; at += 8) body(at, full{});
    }
  }
}
