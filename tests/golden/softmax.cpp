// 1. k0_softmax

// _softmax
extern "C" void k0_softmax(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[64, 1000] stride [1000, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[64, 1000] stride [1000, 1]
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (i64_t item = 0; item < 64; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 1000;
    float *p1 = b1 + x0 * 1000;
    f32 a1_0 = splat<f32>(-__builtin_inff());
    f32 a1_1 = splat<f32>(-__builtin_inff());
    f32 a1_2 = splat<f32>(-__builtin_inff());
    f32 a1_3 = splat<f32>(-__builtin_inff());
    {
      auto body = [&](const i64_t i, auto n, f32 &a1_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        a1_0 = maximum(keep(v0, splat<f32>(-__builtin_inff()), n), a1_0);
      };
      i64_t at = 0;
      for (; at + 32 <= 1000; at += 32) {
        body(at + 0, full{}, a1_0);
        body(at + 8, full{}, a1_1);
        body(at + 16, full{}, a1_2);
        body(at + 24, full{}, a1_3);
      }
      for (; at + 8 <= 1000; at += 8) body(at, full{}, a1_0);
    }
    a1_0 = maximum(a1_1, a1_0);
    a1_0 = maximum(a1_2, a1_0);
    a1_0 = maximum(a1_3, a1_0);
    const f32 v1 = fold(a1_0, [](f32 a, f32 b) { return maximum(b, a); });
    f32 a4_0 = splat<f32>(0.0f);
    f32 a4_1 = splat<f32>(0.0f);
    f32 a4_2 = splat<f32>(0.0f);
    f32 a4_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a4_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v2 = v0 - v1;
        const f32 v3 = exp(v2);
        st(p1 + i, v3, n);
        a4_0 = a4_0 + keep(v3, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 1000; at += 32) {
        body(at + 0, full{}, a4_0);
        body(at + 8, full{}, a4_1);
        body(at + 16, full{}, a4_2);
        body(at + 24, full{}, a4_3);
      }
      for (; at + 8 <= 1000; at += 8) body(at, full{}, a4_0);
    }
    a4_0 = a4_0 + a4_1;
    a4_0 = a4_0 + a4_2;
    a4_0 = a4_0 + a4_3;
    const f32 v4 = fold(a4_0, [](f32 a, f32 b) { return a + b; });
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v3 = ld(p1 + i, n);
        const f32 v5 = v3 / v4;
        st(p1 + i, v5, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 1000; at += 8) body(at, full{});
    }
  }
}
