// 1. aten.bmm.default
// 2. k0_bitwise_not
// 3. k1_softmax
// 4. aten.bmm.default

// tril
// bitwise_not
extern "C" void k0_bitwise_not(void **buffers, int threads) {
  bool_t *__restrict b0 = (bool_t *)buffers[0];  // bool[16, 16] stride [16, 1]
  (void)threads;
  for (i64_t item = 0; item < 16; ++item) {
    const i64_t x0 = (item);
    bool_t *p0 = b0 + x0 * 16;
    const i64 v1 = splat<i64>(0ll);
    const mask v3 = splat<mask>(-1);
    const mask v4 = splat<mask>(0);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const i64 v0 = splat<i64>(0 + x0 * -1 + i) + lanes<i64>(0) * 1ll;
        const mask v2 = narrow(v0 <= v1);
        const mask v5 = where(v2, v3, v4);
        const mask v6 = ~v5;
        st(p0 + i, v6, n);
      };
      i64_t at = 0;
      for (; at + 4 <= 16; at += 4) body(at, full{});
    }
  }
}

// mul.Tensor
// masked_fill.Scalar
// _softmax
extern "C" void k1_softmax(void **buffers, int threads) {
  const bool_t *__restrict b0 = (const bool_t *)buffers[0];  // bool[16, 16] stride [16, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[2, 16, 16] stride [256, 16, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[2, 16, 16] stride [256, 16, 1]
  (void)threads;
  for (i64_t item = 0; item < 32; ++item) {
    const i64_t x1 = (item) % 16;
    const i64_t x0 = (item) / 16;
    const bool_t *p0 = b0 + x1 * 16;
    const float *p1 = b1 + x0 * 256 + x1 * 16;
    float *p2 = b2 + x0 * 256 + x1 * 16;
    const f32 v0 = splat<f32>(-__builtin_inff());
    const f32 v3 = splat<f32>(0.125f);
    f32 a6_0 = splat<f32>(-__builtin_inff());
    f32 a6_1 = splat<f32>(-__builtin_inff());
    f32 a6_2 = splat<f32>(-__builtin_inff());
    f32 a6_3 = splat<f32>(-__builtin_inff());
    {
      auto body = [&](const i64_t i, auto n, f32 &a6_0) __attribute__((always_inline)) {
        const mask v1 = ld(p0 + i, n);
        const f32 v2 = ld(p1 + i, n);
        const f32 v4 = v2 * v3;
        const f32 v5 = where(v1, v0, v4);
        a6_0 = maximum(keep(v5, splat<f32>(-__builtin_inff()), n), a6_0);
      };
      i64_t at = 0;
      for (; at + 8 <= 16; at += 8) body(at, full{}, a6_0);
    }
    a6_0 = maximum(a6_1, a6_0);
    a6_0 = maximum(a6_2, a6_0);
    a6_0 = maximum(a6_3, a6_0);
    const f32 v6 = fold(a6_0, [](f32 a, f32 b) { return maximum(b, a); });
    alignas(64) float t8[16];
    f32 a9_0 = splat<f32>(0.0f);
    f32 a9_1 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a9_0) __attribute__((always_inline)) {
        const mask v1 = ld(p0 + i, n);
        const f32 v2 = ld(p1 + i, n);
        const f32 v4 = v2 * v3;
        const f32 v5 = where(v1, v0, v4);
        const f32 v7 = v5 - v6;
        const f32 v8 = exp(v7);
        put(t8 + i, v8, n);
        a9_0 = a9_0 + keep(v8, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 16 <= 16; at += 16) {
        body(at + 0, full{}, a9_0);
        body(at + 8, full{}, a9_1);
      }
    }
    a9_0 = a9_0 + a9_1;
    const f32 v9 = fold(a9_0, [](f32 a, f32 b) { return a + b; });
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v8 = raw<f32>(t8 + i, n);
        const f32 v10 = v8 / v9;
        st(p2 + i, v10, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 16; at += 8) body(at, full{});
    }
  }
}
