// 1. k0_where

// remainder.Scalar
// eq.Scalar
// floor_divide
// neg
// where.self
extern "C" void k0_where(void **buffers, int threads) {
  const i64_t *__restrict b0 = (const i64_t *)buffers[0];  // int64[1000] stride [1]
  i64_t *__restrict b1 = (i64_t *)buffers[1];  // int64[1000] stride [1]
  (void)threads;
  const i64_t *p0 = b0;
  i64_t *p1 = b1;
  const i64 v1 = splat<i64>(3ll);
  const i64 v3 = splat<i64>(0ll);
  const i64 v5 = splat<i64>(2ll);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const i64 v0 = ld(p0 + i, n);
      const i64 v2 = v0 % v1 + (v1 & ((v0 % v1 != 0) & ((v0 ^ v1) < 0)));
      const i64 v4 = v2 == v3;
      const i64 v6 = v0 / v5 + ((v0 % v5 != 0) & ((v0 ^ v5) < 0));
      const i64 v7 = -v0;
      const i64 v8 = where(v4, v6, v7);
      st(p1 + i, v8, n);
    };
    i64_t at = 0;
    for (; at + 4 <= 1000; at += 4) body(at, full{});
  }
}
