// 1. k0_to_copy

// _to_copy
// _to_copy
// _to_copy
extern "C" void k0_to_copy(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[50] stride [1]
  i32_t *__restrict b1 = (i32_t *)buffers[1];  // int32[50] stride [1]
  bool_t *__restrict b2 = (bool_t *)buffers[2];  // bool[50] stride [1]
  f16_t *__restrict b3 = (f16_t *)buffers[3];  // float16[50] stride [1]
  (void)threads;
  const float *p0 = b0;
  i32_t *p1 = b1;
  bool_t *p2 = b2;
  f16_t *p3 = b3;
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + i, n);
      const i32 v1 = whole<i32>(v0);
      const mask v2 = narrow(v0 != 0);
      const f32 v3 = round_f16(v0);
      st(p1 + i, v1, n);
      st(p2 + i, v2, n);
      st(p3 + i, v3, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 50; at += 8) body(at, full{});
    if (at < 50) body(at, 2);
  }
}
