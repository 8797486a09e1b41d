// 1. k0_any

// gt.Scalar
// any.dim
// all.dim
extern "C" void k0_any(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[20, 64] stride [64, 1]
  bool_t *__restrict b1 = (bool_t *)buffers[1];  // bool[20] stride [1]
  bool_t *__restrict b2 = (bool_t *)buffers[2];  // bool[20] stride [1]
  (void)threads;
  for (i64_t item = 0; item < 3; ++item) {
    const i64_t first = item * W;
    const int count = 20 - first < W ? int(20 - first) : W;
    mask t3[W];
    mask t4[W];
    auto row = [&](const i64_t x0, const int k) __attribute__((always_inline)) {
      const float *p0 = b0 + x0 * 64;
      bool_t *p1 = b1 + x0;
      bool_t *p2 = b2 + x0;
      const f32 v1 = splat<f32>(0.0f);
      mask a3_0 = splat<mask>(0);
      mask a4_0 = splat<mask>(-1);
      {
        auto body = [&](const i64_t i, auto n, mask &a3_0, mask &a4_0) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + i, n);
          const mask v2 = v0 > v1;
          a3_0 = a3_0 | keep(v2, splat<mask>(0), n);
          a4_0 = a4_0 & keep(v2, splat<mask>(-1), n);
        };
        i64_t at = 0;
        for (; at + 8 <= 64; at += 8) body(at, full{}, a3_0, a4_0);
      }
      t3[k] = a3_0;
      t4[k] = a4_0;
    };
    for (int k = 0; k < count; ++k) row(first + k, k);
    for (int k = count; k < W; ++k) t3[k] = splat<mask>(0);
    const mask v3 = fold_over(t3, [](mask a, mask b) { return a | b; });
    for (int k = count; k < W; ++k) t4[k] = splat<mask>(-1);
    const mask v4 = fold_over(t4, [](mask a, mask b) { return a & b; });
    auto behind = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const float *p0 = b0;
      bool_t *p1 = b1;
      bool_t *p2 = b2;
      st(p1 + i, v3, n);
      st(p2 + i, v4, n);
    };
    if (count == W) behind(first, full{});
    else behind(first, count);
  }
}
