// 1. k0_sum

// mul.Tensor
// sum
extern "C" void k0_sum(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[100, 100] stride [100, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[] stride []
  (void)threads;
  const float *p0 = b0;
  float *p1 = b1;
  f32 a2_0 = splat<f32>(0.0f);
  f32 a2_1 = splat<f32>(0.0f);
  f32 a2_2 = splat<f32>(0.0f);
  f32 a2_3 = splat<f32>(0.0f);
  auto e2_0 = splat<f32>(0.0f);
  auto e2_1 = splat<f32>(0.0f);
  auto e2_2 = splat<f32>(0.0f);
  auto e2_3 = splat<f32>(0.0f);
  {
    for (i64_t block = 0; block < 10000; block += 1024) {
      const i64_t end = block + 1024 < 10000 ? block + 1024 : 10000;
      auto s2_0 = splat<f32>(0.0f);
      auto s2_1 = splat<f32>(0.0f);
      auto s2_2 = splat<f32>(0.0f);
      auto s2_3 = splat<f32>(0.0f);
      auto body = [&](const i64_t i, auto n, f32 &a2_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v1 = v0 * v0;
        a2_0 = a2_0 + keep(v1, splat<f32>(0.0f), n);
      };
      i64_t at = block;
      for (; at + 32 <= end; at += 32) {
        body(at + 0, full{}, s2_0);
        body(at + 8, full{}, s2_1);
        body(at + 16, full{}, s2_2);
        body(at + 24, full{}, s2_3);
      }
      for (; at + 8 <= end; at += 8) body(at, full{}, s2_0);
      two_sum(a2_0, e2_0, s2_0);
      two_sum(a2_1, e2_1, s2_1);
      two_sum(a2_2, e2_2, s2_2);
      two_sum(a2_3, e2_3, s2_3);
    }
  }
  two_sum(a2_0, e2_0, a2_1);
  e2_0 = e2_0 + e2_1;
  two_sum(a2_0, e2_0, a2_2);
  e2_0 = e2_0 + e2_2;
  two_sum(a2_0, e2_0, a2_3);
  e2_0 = e2_0 + e2_3;
  a2_0 = with_lost(a2_0, e2_0);
  const f32 v2 = fold(a2_0, [](f32 a, f32 b) { return a + b; });
  st(p1, v2, 1);
}
