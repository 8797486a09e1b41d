// 1. k0_lt
// 2. k1_mul

// arange.start_step
// lt.Scalar
extern "C" void k0_lt(void **buffers, int threads) {
  bool_t *__restrict b0 = (bool_t *)buffers[0];  // bool[64] stride [1]
  (void)threads;
  bool_t *p0 = b0;
  const i64 v1 = splat<i64>(17ll);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const i64 v0 = splat<i64>(0 + i) + lanes<i64>(0) * 1ll;
      const mask v2 = narrow(v0 < v1);
      st(p0 + i, v2, n);
    };
    i64_t at = 0;
    for (; at + 4 <= 64; at += 4) body(at, full{});
  }
}

// mul.Tensor
extern "C" void k1_mul(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[9, 64] stride [64, 1]
  const bool_t *__restrict b1 = (const bool_t *)buffers[1];  // bool[64] stride [1]
  float *__restrict b2 = (float *)buffers[2];  // float32[9, 64] stride [64, 1]
  (void)threads;
  for (i64_t item = 0; item < 9; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 64;
    const bool_t *p1 = b1;
    float *p2 = b2 + x0 * 64;
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const mask v1 = ld(p1 + i, n);
        const f32 v2 = conv<f32>(-v1);
        const f32 v3 = v0 * v2;
        st(p2 + i, v3, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 64; at += 8) body(at, full{});
    }
  }
}
