// 1. aten.mm.default
// 2. k0_relu
// 3. aten.mm.default

// relu
extern "C" void k0_relu(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[4, 32] stride [32, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[4, 32] stride [32, 1]
  (void)threads;
  const float *p0 = b0;
  float *p1 = b1;
  const f32 v1 = splat<f32>(0.0f);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const mask v2 = v0 < v1;
      const f32 v3 = where(v2, v1, v0);
      st(p1 + i, v3, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 128; at += 8) body(at, full{});
  }
}
