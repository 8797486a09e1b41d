// 1. k0_sum

// abs
// sum.dim_IntList
extern "C" void k0_sum(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[60, 70] stride [70, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[60] stride [1]
  (void)threads;
  for (i64_t item = 0; item < 8; ++item) {
    const i64_t first = item * W;
    const int count = 60 - first < W ? int(60 - first) : W;
    f32 t2[W];
    auto row = [&](const i64_t x0, const int k) __attribute__((always_inline)) {
      const float *p0 = b0 + x0 * 70;
      float *p1 = b1 + x0;
      f32 a2_0 = splat<f32>(0.0f);
      {
        auto body = [&](const i64_t i, auto n, f32 &a2_0) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + i, n);
          const f32 v1 = abs(v0);
          a2_0 = a2_0 + keep(v1, splat<f32>(0.0f), n);
        };
        i64_t at = 0;
        for (; at + 8 <= 70; at += 8) body(at, full{}, a2_0);
        if (at < 70) body(at, 6, a2_0);
      }
      t2[k] = a2_0;
    };
    for (int k = 0; k < count; ++k) row(first + k, k);
    for (int k = count; k < W; ++k) t2[k] = splat<f32>(0.0f);
    const f32 v2 = fold_over(t2, [](f32 a, f32 b) { return a + b; });
    auto behind = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const float *p0 = b0;
      float *p1 = b1;
      st(p1 + i, v2, n);
    };
    if (count == W) behind(first, full{});
    else behind(first, count);
  }
}
