// 1. k0_log_softmax

// _log_softmax
extern "C" void k0_log_softmax(void **buffers, int threads) {
  const bf16_t *__restrict b0 = (const bf16_t *)buffers[0];  // bfloat16[16, 300] stride [300, 1]
  bf16_t *__restrict b1 = (bf16_t *)buffers[1];  // bfloat16[16, 300] stride [300, 1]
  (void)threads;
  for (i64_t item = 0; item < 16; ++item) {
    const i64_t x0 = (item);
    const bf16_t *p0 = b0 + x0 * 300;
    bf16_t *p1 = b1 + x0 * 300;
    f32 a2_0 = splat<f32>(-__builtin_inff());
    f32 a2_1 = splat<f32>(-__builtin_inff());
    f32 a2_2 = splat<f32>(-__builtin_inff());
    f32 a2_3 = splat<f32>(-__builtin_inff());
    {
      auto body = [&](const i64_t i, auto n, f32 &a2_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = v0;
        a2_0 = maximum(keep(v1, splat<f32>(-__builtin_inff()), n), a2_0);
      };
      i64_t at = 0;
      for (; at + 32 <= 300; at += 32) {
        body(at + 0, full{}, a2_0);
        body(at + 8, full{}, a2_1);
        body(at + 16, full{}, a2_2);
        body(at + 24, full{}, a2_3);
      }
      for (; at + 8 <= 300; at += 8) body(at, full{}, a2_0);
      if (at < 300) body(at, 4, a2_0);
    }
    a2_0 = maximum(a2_1, a2_0);
    a2_0 = maximum(a2_2, a2_0);
    a2_0 = maximum(a2_3, a2_0);
    const f32 v2 = fold(a2_0, [](f32 a, f32 b) { return maximum(b, a); });
    f32 a5_0 = splat<f32>(0.0f);
    f32 a5_1 = splat<f32>(0.0f);
    f32 a5_2 = splat<f32>(0.0f);
    f32 a5_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a5_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = v0;
        const f32 v3 = v1 - v2;
        const f32 v4 = exp(v3);
        a5_0 = a5_0 + keep(v4, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 300; at += 32) {
        body(at + 0, full{}, a5_0);
        body(at + 8, full{}, a5_1);
        body(at + 16, full{}, a5_2);
        body(at + 24, full{}, a5_3);
      }
      for (; at + 8 <= 300; at += 8) body(at, full{}, a5_0);
      if (at < 300) body(at, 4, a5_0);
    }
    a5_0 = a5_0 + a5_1;
    a5_0 = a5_0 + a5_2;
    a5_0 = a5_0 + a5_3;
    const f32 v5 = fold(a5_0, [](f32 a, f32 b) { return a + b; });
    const f32 v6 = log(v5);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = v0;
        const f32 v3 = v1 - v2;
        const f32 v7 = v3 - v6;
        const f32 v8 = round_bf16_plain(v7);
        st(p1 + i, v8, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 300; at += 8) body(at, full{});
      if (at < 300) body(at, 4);
    }
  }
}
