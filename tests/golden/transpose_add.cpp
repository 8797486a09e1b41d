// 1. k0_add

// add.Tensor
extern "C" void k0_add(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[120, 130] stride [130, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[130, 120] stride [120, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[130, 120] stride [1, 130]
  (void)threads;
  for (i64_t item = 0; item < 15; ++item) {
    const i64_t from = item / 15 % 1 * 512;
    const i64_t to = from + 512 < 130 ? from + 512 : 130;
    const i64_t first = item % 15 * W;
    const int count = 120 - first < W ? int(120 - first) : W;
    const float *p0 = b0;
    const float *p1 = b1;
    float *p2 = b2;
    f32 t1[W];
    auto plain = [&](const i64_t x0, const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + x0 * 130 + i, n);
      const f32 v1 = lds(p1 + x0 + i * 120, 120, n);
      const f32 v2 = v0 + v1;
      st(p2 + x0 * 130 + i, v2, n);
    };
    auto square = [&](const i64_t x0, const i64_t i, const full n) __attribute__((always_inline)) {
      const f32 v0 = ld(p0 + x0 * 130 + i, n);
      const f32 v1 = t1[x0 - first];
      const f32 v2 = v0 + v1;
      st(p2 + x0 * 130 + i, v2, n);
    };
    i64_t at = from;
    if (count == W) for (; at + W <= to; at += W) {
      for (int k = 0; k < W; ++k) t1[k] = ld(p1 + first + (at + k) * 120, full{});
      turn_over(t1);
      for (int k = 0; k < W; ++k) square(first + k, at, full{});
    }
    for (int k = 0; k < count; ++k) {
      i64_t i = at;
      for (; i + W <= to; i += W) plain(first + k, i, full{});
      if (i < to) plain(first + k, i, int(to - i));
    }
  }
}
