// 1. k0_softmax

// masked_fill.Scalar
// _softmax
extern "C" void k0_softmax(void **buffers, int threads) {
  const bool_t *__restrict b0 = (const bool_t *)buffers[0];  // bool[16, 48] stride [48, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[4, 16, 48] stride [768, 48, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[4, 16, 48] stride [768, 48, 1]
  (void)threads;
  for (i64_t item = 0; item < 64; ++item) {
    const i64_t x1 = (item) % 16;
    const i64_t x0 = (item) / 16;
    const bool_t *p0 = b0 + x1 * 48;
    const float *p1 = b1 + x0 * 768 + x1 * 48;
    float *p2 = b2 + x0 * 768 + x1 * 48;
    const f32 v0 = splat<f32>(-__builtin_inff());
    f32 a4_0 = splat<f32>(-__builtin_inff());
    f32 a4_1 = splat<f32>(-__builtin_inff());
    f32 a4_2 = splat<f32>(-__builtin_inff());
    f32 a4_3 = splat<f32>(-__builtin_inff());
    {
      auto body = [&](const i64_t i, auto n, f32 &a4_0) __attribute__((always_inline)) {
        const mask v1 = ld(p0 + i, n);
        const f32 v2 = ld(p1 + i, n);
        const f32 v3 = where(v1, v0, v2);
        a4_0 = maximum(keep(v3, splat<f32>(-__builtin_inff()), n), a4_0);
      };
      i64_t at = 0;
      for (; at + 32 <= 48; at += 32) {
        body(at + 0, full{}, a4_0);
        body(at + 8, full{}, a4_1);
        body(at + 16, full{}, a4_2);
        body(at + 24, full{}, a4_3);
      }
      for (; at + 8 <= 48; at += 8) body(at, full{}, a4_0);
    }
    a4_0 = maximum(a4_1, a4_0);
    a4_0 = maximum(a4_2, a4_0);
    a4_0 = maximum(a4_3, a4_0);
    const f32 v4 = fold(a4_0, [](f32 a, f32 b) { return maximum(b, a); });
    f32 a7_0 = splat<f32>(0.0f);
    f32 a7_1 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a7_0) __attribute__((always_inline)) {
        const mask v1 = ld(p0 + i, n);
        const f32 v2 = ld(p1 + i, n);
        const f32 v3 = where(v1, v0, v2);
        const f32 v5 = v3 - v4;
        const f32 v6 = exp(v5);
        st(p2 + i, v6, n);
        a7_0 = a7_0 + keep(v6, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 16 <= 48; at += 16) {
        body(at + 0, full{}, a7_0);
        body(at + 8, full{}, a7_1);
      }
    }
    a7_0 = a7_0 + a7_1;
    const f32 v7 = fold(a7_0, [](f32 a, f32 b) { return a + b; });
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v6 = ld(p2 + i, n);
        const f32 v8 = v6 / v7;
        st(p2 + i, v8, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 48; at += 8) body(at, full{});
    }
  }
}
