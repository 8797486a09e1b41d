// 1. k0_logical_not

// gt.Tensor
// ne.Scalar
// bitwise_and.Tensor
// logical_not
extern "C" void k0_logical_not(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[77] stride [1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[77] stride [1]
  bool_t *__restrict b2 = (bool_t *)buffers[2];  // bool[77] stride [1]
  (void)threads;
  const float *p0 = b0;
  const float *p1 = b1;
  bool_t *p2 = b2;
  const f32 v3 = splat<f32>(0.0f);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const f32 v1 = ld(p1 + i, n);
      const mask v2 = v0 > v1;
      const mask v4 = v0 != v3;
      const mask v5 = v2 & v4;
      const mask v6 = ~v5;
      st(p2 + i, v6, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 77; at += 8) body(at, full{});
    if (at < 77) body(at, 5);
  }
}
