// 1. k0_argmax
// 2. k1_argmin

// argmax
extern "C" void k0_argmax(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[20, 64] stride [64, 1]
  i64_t *__restrict b1 = (i64_t *)buffers[1];  // int64[20] stride [1]
  (void)threads;
  for (i64_t item = 0; item < 20; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 64;
    i64_t *p1 = b1 + x0;
    f32 a1_0 = splat<f32>(-__builtin_inff());
    i32 k1_0 = splat<i32>(2147483647);
    f32 a1_1 = splat<f32>(-__builtin_inff());
    i32 k1_1 = splat<i32>(2147483647);
    f32 a1_2 = splat<f32>(-__builtin_inff());
    i32 k1_2 = splat<i32>(2147483647);
    f32 a1_3 = splat<f32>(-__builtin_inff());
    i32 k1_3 = splat<i32>(2147483647);
    {
      auto body = [&](const i64_t i, auto n, f32 &a1_0, i32 &k1_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + i, n);
        later_max(a1_0, k1_0, keep(v0, splat<f32>(-__builtin_inff()), n), splat<i32>(0 + i) + lanes<i32>(0) * 1);
      };
      i64_t at = 0;
      for (; at + 32 <= 64; at += 32) {
        body(at + 0, full{}, a1_0, k1_0);
        body(at + 8, full{}, a1_1, k1_1);
        body(at + 16, full{}, a1_2, k1_2);
        body(at + 24, full{}, a1_3, k1_3);
      }
    }
    pick_max(a1_0, k1_0, a1_1, k1_1);
    pick_max(a1_0, k1_0, a1_2, k1_2);
    pick_max(a1_0, k1_0, a1_3, k1_3);
    #pragma GCC unroll 8
    for (int by = W / 2; by; by /= 2)
      pick_max(a1_0, k1_0, turned(a1_0, by), turned(k1_0, by));
    k1_0 = k1_0 == splat<i32>(2147483647) ? i32{} : k1_0;
    const i64 v1 = conv<i64>(k1_0);
    st(p1, v1, 1);
  }
}

// argmin
extern "C" void k1_argmin(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[20, 64] stride [64, 1]
  i64_t *__restrict b1 = (i64_t *)buffers[1];  // int64[64] stride [1]
  (void)threads;
  const float *p0 = b0;
  i64_t *p1 = b1;
  auto rows = [&](const i64_t i, auto n) __attribute__((always_inline)) {
    f32 a1_0 = splat<f32>(__builtin_inff());
    i32 k1_0 = splat<i32>(2147483647);
    f32 a1_1 = splat<f32>(__builtin_inff());
    i32 k1_1 = splat<i32>(2147483647);
    f32 a1_2 = splat<f32>(__builtin_inff());
    i32 k1_2 = splat<i32>(2147483647);
    f32 a1_3 = splat<f32>(__builtin_inff());
    i32 k1_3 = splat<i32>(2147483647);
    {
      auto body = [&](const i64_t x1, f32 &a1_0, i32 &k1_0) __attribute__((always_inline)) {
        const f32 v0 = ld(p0 + x1 * 64 + i, n);
        later_min(a1_0, k1_0, v0, splat<i32>(0 + x1));
      };
      i64_t at = 0;
      for (; at + 4 <= 20; at += 4) {
        body(at + 0, a1_0, k1_0);
        body(at + 1, a1_1, k1_1);
        body(at + 2, a1_2, k1_2);
        body(at + 3, a1_3, k1_3);
      }
    }
    pick_min(a1_0, k1_0, a1_1, k1_1);
    pick_min(a1_0, k1_0, a1_2, k1_2);
    pick_min(a1_0, k1_0, a1_3, k1_3);
    k1_0 = k1_0 == splat<i32>(2147483647) ? i32{} : k1_0;
    const i64 v1 = conv<i64>(k1_0);
    st(p1 + i, v1, n);
  };
  i64_t at = 0;
  for (; at + 8 <= 64; at += 8) rows(at, full{});
}
