// 1. k0_any

// gt.Scalar
// any.dim
// all.dim
extern "C" void k0_any(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[20, 64] stride [64, 1]
  bool_t *__restrict b1 = (bool_t *)buffers[1];  // bool[20] stride [1]
  bool_t *__restrict b2 = (bool_t *)buffers[2];  // bool[20] stride [1]
  (void)threads;
  for (i64_t item = 0; item < 20; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 64;
    bool_t *p1 = b1 + x0;
    bool_t *p2 = b2 + x0;
    const f32 v1 = splat<f32>(0.0f);
    mask a3_0 = splat<mask>(0);
    mask a3_1 = splat<mask>(0);
    mask a3_2 = splat<mask>(0);
    mask a3_3 = splat<mask>(0);
    mask a4_0 = splat<mask>(-1);
    mask a4_1 = splat<mask>(-1);
    mask a4_2 = splat<mask>(-1);
    mask a4_3 = splat<mask>(-1);
    {
      auto body = [&](const i64_t i, auto n, mask &a3_0, mask &a4_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const mask v2 = v0 > v1;
        a3_0 = a3_0 | keep(v2, splat<mask>(0), n);
        a4_0 = a4_0 & keep(v2, splat<mask>(-1), n);
      };
      i64_t at = 0;
      for (; at + 32 <= 64; at += 32) {
        body(at + 0, full{}, a3_0, a4_0);
        body(at + 8, full{}, a3_1, a4_1);
        body(at + 16, full{}, a3_2, a4_2);
        body(at + 24, full{}, a3_3, a4_3);
      }
    }
    a3_0 = a3_0 | a3_1;
    a3_0 = a3_0 | a3_2;
    a3_0 = a3_0 | a3_3;
    const mask v3 = fold(a3_0, [](mask a, mask b) { return a | b; });
    a4_0 = a4_0 & a4_1;
    a4_0 = a4_0 & a4_2;
    a4_0 = a4_0 & a4_3;
    const mask v4 = fold(a4_0, [](mask a, mask b) { return a & b; });
    st(p1, v3, 1);
    st(p2, v4, 1);
  }
}
