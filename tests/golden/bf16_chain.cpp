// 1. k0_sub

// mul.Tensor
// add.Tensor
// relu
// mul.Tensor
// sub.Tensor
extern "C" void k0_sub(void **buffers, int threads) {
  const bf16_t *__restrict b0 = (const bf16_t *)buffers[0];  // bfloat16[513] stride [1]
  const bf16_t *__restrict b1 = (const bf16_t *)buffers[1];  // bfloat16[513] stride [1]
  bf16_t *__restrict b2 = (bf16_t *)buffers[2];  // bfloat16[513] stride [1]
  (void)threads;
  const bf16_t *p0 = b0;
  const bf16_t *p1 = b1;
  bf16_t *p2 = b2;
  const f32 v7 = splat<f32>(1.0f);
  const f32 v8 = splat<f32>(1.0f);
  const f32 v12 = splat<f32>(0.0f);
  const f32 v17 = splat<f32>(0.5f);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const f32 v1 = v0;
      const f32 v2 = ld(p1 + i, n);
      const f32 v3 = v2;
      const f32 v4 = v1 * v3;
      const f32 v5 = round_bf16_plain(v4);
      const f32 v6 = v5;
      const f32 v9 = v6 + v8;
      const f32 v10 = round_bf16_plain(v9);
      const f32 v11 = v10;
      const mask v13 = v11 < v12;
      const f32 v14 = where(v13, v12, v11);
      const f32 v15 = round_bf16_plain(v14);
      const f32 v16 = v15;
      const f32 v18 = v16 * v17;
      const f32 v19 = round_bf16_plain(v18);
      const f32 v20 = v19;
      const f32 v21 = v20 - v3;
      const f32 v22 = round_bf16_plain(v21);
      st(p2 + i, v22, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 513; at += 8) body(at, full{});
    if (at < 513) body(at, 1);
  }
}
