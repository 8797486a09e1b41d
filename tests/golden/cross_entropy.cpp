// 1. k0_log_softmax
// 2. k1_sum

// _log_softmax
// nll_loss_forward
extern "C" void k0_log_softmax(void **buffers, int threads) {
  const i64_t *__restrict b0 = (const i64_t *)buffers[0];  // int64[32] stride [1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[32, 100] stride [100, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[32] stride [1]
  int *const trouble = (int *)buffers[3];
  (void)threads;
  for (i64_t item = 0; item < 32; ++item) {
    const i64_t x0 = (item);
    const i64_t *p0 = b0 + x0;
    const float *p1 = b1 + x0 * 100;
    const float *p2 = b1 + x0 * 100;
    float *p3 = b2 + x0;
    const i64 v0 = one(p0);
    const i64 v1 = splat<i64>(-100ll);
    const mask v2 = narrow(v0 != v1);
    const i64 v3 = splat<i64>(0ll);
    const i64 v4 = where(v2, v0, v3);
    const i64 v5 = checked(v4, 0, 100, trouble, 1);
    const f32 v11 = one(p2 + v5[0]);
    const f32 v16 = splat<f32>(0.0f);
    f32 a7_0 = splat<f32>(-__builtin_inff());
    f32 a7_1 = splat<f32>(-__builtin_inff());
    f32 a7_2 = splat<f32>(-__builtin_inff());
    f32 a7_3 = splat<f32>(-__builtin_inff());
    {
      auto body = [&](const i64_t i, auto n, f32 &a7_0) __attribute__((always_inline)) {
        const f32 v6 = ld(p1 + i, n);
        a7_0 = maximum(keep(v6, splat<f32>(-__builtin_inff()), n), a7_0);
      };
      i64_t at = 0;
      for (; at + 32 <= 100; at += 32) {
        body(at + 0, full{}, a7_0);
        body(at + 8, full{}, a7_1);
        body(at + 16, full{}, a7_2);
        body(at + 24, full{}, a7_3);
      }
      if (at < 100) body(at, 4, a7_0);
    }
    a7_0 = maximum(a7_1, a7_0);
    a7_0 = maximum(a7_2, a7_0);
    a7_0 = maximum(a7_3, a7_0);
    const f32 v7 = fold(a7_0, [](f32 a, f32 b) { return maximum(b, a); });
    const f32 v12 = v11 - v7;
    f32 a10_0 = splat<f32>(0.0f);
    f32 a10_1 = splat<f32>(0.0f);
    f32 a10_2 = splat<f32>(0.0f);
    f32 a10_3 = splat<f32>(0.0f);
    {
      auto body = [&](const i64_t i, auto n, f32 &a10_0) __attribute__((always_inline)) {
        const f32 v6 = ld(p1 + i, n);
        const f32 v8 = v6 - v7;
        const f32 v9 = exp(v8);
        a10_0 = a10_0 + keep(v9, splat<f32>(0.0f), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 100; at += 32) {
        body(at + 0, full{}, a10_0);
        body(at + 8, full{}, a10_1);
        body(at + 16, full{}, a10_2);
        body(at + 24, full{}, a10_3);
      }
      if (at < 100) body(at, 4, a10_0);
    }
    a10_0 = a10_0 + a10_1;
    a10_0 = a10_0 + a10_2;
    a10_0 = a10_0 + a10_3;
    const f32 v10 = fold(a10_0, [](f32 a, f32 b) { return a + b; });
    const f32 v13 = log(v10);
    const f32 v14 = v12 - v13;
    const f32 v15 = -v14;
    const f32 v17 = where(v2, v15, v16);
    st(p3, v17, 1);
  }
}

// sum
// ne.Scalar
// _to_copy
// sum
// div.Tensor
extern "C" void k1_sum(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[32] stride [1]
  const i64_t *__restrict b1 = (const i64_t *)buffers[1];  // int64[32] stride [1]
  float *__restrict b2 = (float *)buffers[2];  // float32[] stride []
  (void)threads;
  const float *p0 = b0;
  const i64_t *p1 = b1;
  float *p2 = b2;
  const i64 v3 = splat<i64>(-100ll);
  f32 a1_0 = splat<f32>(0.0f);
  f32 a1_1 = splat<f32>(0.0f);
  f32 a1_2 = splat<f32>(0.0f);
  f32 a1_3 = splat<f32>(0.0f);
  f32 a6_0 = splat<f32>(0.0f);
  f32 a6_1 = splat<f32>(0.0f);
  f32 a6_2 = splat<f32>(0.0f);
  f32 a6_3 = splat<f32>(0.0f);
  {
    auto body = [&](const i64_t i, auto n, f32 &a1_0, f32 &a6_0) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const i64 v2 = ld(p1 + i, n);
      const mask v4 = narrow(v2 != v3);
      const f32 v5 = conv<f32>(-v4);
      a1_0 = a1_0 + keep(v0, splat<f32>(0.0f), n);
      a6_0 = a6_0 + keep(v5, splat<f32>(0.0f), n);
    };
    i64_t at = 0;
    for (; at + 16 <= 32; at += 16) {
      body(at + 0, full{}, a1_0, a6_0);
      body(at + 4, full{}, a1_1, a6_1);
      body(at + 8, full{}, a1_2, a6_2);
      body(at + 12, full{}, a1_3, a6_3);
    }
  }
  a1_0 = a1_0 + a1_1;
  a1_0 = a1_0 + a1_2;
  a1_0 = a1_0 + a1_3;
  const f32 v1 = fold(a1_0, [](f32 a, f32 b) { return a + b; });
  a6_0 = a6_0 + a6_1;
  a6_0 = a6_0 + a6_2;
  a6_0 = a6_0 + a6_3;
  const f32 v6 = fold(a6_0, [](f32 a, f32 b) { return a + b; });
  const f32 v7 = v1 / v6;
  st(p2, v7, 1);
}
