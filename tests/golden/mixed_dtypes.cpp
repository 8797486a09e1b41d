// 1. k0_mul

// add.Tensor
// _to_copy
// mul.Tensor
extern "C" void k0_mul(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[40] stride [1]
  const bf16_t *__restrict b1 = (const bf16_t *)buffers[1];  // bfloat16[40] stride [1]
  double *__restrict b2 = (double *)buffers[2];  // float64[40] stride [1]
  (void)threads;
  const float *p0 = b0;
  const bf16_t *p1 = b1;
  double *p2 = b2;
  const f64 v5 = splat<f64>(3.0);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const f32 v1 = ld(p1 + i, n);
      const f32 v2 = v1;
      const f32 v3 = v0 + v2;
      const f64 v4 = conv<f64>(v3);
      const f64 v6 = v4 * v5;
      st(p2 + i, v6, n);
    };
    i64_t at = 0;
    for (; at + 4 <= 40; at += 4) body(at, full{});
  }
}
