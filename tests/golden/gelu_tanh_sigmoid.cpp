// 1. k0_add

// gelu
// tanh
// mul.Tensor
// sigmoid
// add.Tensor
extern "C" void k0_add(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[64, 1000] stride [1000, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[64, 1000] stride [1000, 1]
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (i64_t item = 0; item < 8; ++item) {
    const i64_t from = (item % 8) * 8192;
    const i64_t to = from + 8192 < 64000 ? from + 8192 : 64000;
    const float *p0 = b0;
    float *p1 = b1;
    const f32 v1 = splat<f32>(0.7071067690849304f);
    const f32 v4 = splat<f32>(1.0f);
    const f32 v6 = splat<f32>(0.5f);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        const f32 v2 = v0 * v1;
        const f32 v3 = erf(v2);
        const f32 v5 = v4 + v3;
        const f32 v7 = v6 * v0;
        const f32 v8 = v7 * v5;
        const f32 v9 = tanh(v0);
        const f32 v10 = v8 * v9;
        const f32 v11 = sigmoid(v0);
        const f32 v12 = v10 + v11;
        st(p1 + i, v12, n);
      };
      i64_t at = from;
      for (; at + 8 <= to; at += 8) body(at, full{});
    }
  }
}
