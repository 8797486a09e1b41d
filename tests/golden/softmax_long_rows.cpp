// 1. k0_softmax

// _softmax
extern "C" void k0_softmax(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 200000] stride [200000, 1]
  float *__restrict b1 = (float *)buffers[1];  // float32[2, 200000] stride [200000, 1]
  for (i64_t item = 0; item < 2; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 200000;
    float *p1 = b1 + x0 * 200000;
    f32 part1_[13], *const part1 = part1_;
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (i64_t c = 0; c < 13; ++c) {
      const i64_t from = c * 16384;
      const i64_t to = from + 16384 < 200000 ? from + 16384 : 200000;
      f32 a1_0 = splat<f32>(-__builtin_inff());
      f32 a1_1 = splat<f32>(-__builtin_inff());
      f32 a1_2 = splat<f32>(-__builtin_inff());
      f32 a1_3 = splat<f32>(-__builtin_inff());
      {
        auto body = [&](const i64_t i, auto n, f32 &a1_0) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + i, n);
          a1_0 = maximum(keep(v0, splat<f32>(-__builtin_inff()), n), a1_0);
        };
        i64_t at = from;
        for (; at + 32 <= to; at += 32) {
          body(at + 0, full{}, a1_0);
          body(at + 8, full{}, a1_1);
          body(at + 16, full{}, a1_2);
          body(at + 24, full{}, a1_3);
        }
      }
      a1_0 = maximum(a1_1, a1_0);
      a1_0 = maximum(a1_2, a1_0);
      a1_0 = maximum(a1_3, a1_0);
      part1[c] = a1_0;
    }
    f32 a1_0 = splat<f32>(-__builtin_inff());
    for (i64_t c = 0; c < 13; ++c) {
      a1_0 = maximum(part1[c], a1_0);
    }
    const f32 v1 = fold(a1_0, [](f32 a, f32 b) { return maximum(b, a); });
    f32 part4_[13], *const part4 = part4_;
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (i64_t c = 0; c < 13; ++c) {
      const i64_t from = c * 16384;
      const i64_t to = from + 16384 < 200000 ? from + 16384 : 200000;
      f32 a4_0 = splat<f32>(0.0f);
      f32 a4_1 = splat<f32>(0.0f);
      f32 a4_2 = splat<f32>(0.0f);
      f32 a4_3 = splat<f32>(0.0f);
      auto e4_0 = splat<f32>(0.0f);
      auto e4_1 = splat<f32>(0.0f);
      auto e4_2 = splat<f32>(0.0f);
      auto e4_3 = splat<f32>(0.0f);
      {
        for (i64_t block = from; block < to; block += 1024) {
          const i64_t end = block + 1024 < to ? block + 1024 : to;
          auto s4_0 = splat<f32>(0.0f);
          auto s4_1 = splat<f32>(0.0f);
          auto s4_2 = splat<f32>(0.0f);
          auto s4_3 = splat<f32>(0.0f);
          auto body = [&](const i64_t i, auto n, f32 &a4_0) __attribute__((always_inline)) {
            const f32 v0 = ld(p0 + i, n);
            const f32 v2 = v0 - v1;
            const f32 v3 = exp(v2);
            st(p1 + i, v3, n);
            a4_0 = a4_0 + keep(v3, splat<f32>(0.0f), n);
          };
          i64_t at = block;
          for (; at + 32 <= end; at += 32) {
            body(at + 0, full{}, s4_0);
            body(at + 8, full{}, s4_1);
            body(at + 16, full{}, s4_2);
            body(at + 24, full{}, s4_3);
          }
          two_sum(a4_0, e4_0, s4_0);
          two_sum(a4_1, e4_1, s4_1);
          two_sum(a4_2, e4_2, s4_2);
          two_sum(a4_3, e4_3, s4_3);
        }
      }
      two_sum(a4_0, e4_0, a4_1);
      e4_0 = e4_0 + e4_1;
      two_sum(a4_0, e4_0, a4_2);
      e4_0 = e4_0 + e4_2;
      two_sum(a4_0, e4_0, a4_3);
      e4_0 = e4_0 + e4_3;
      a4_0 = with_lost(a4_0, e4_0);
      part4[c] = a4_0;
    }
    f32 a4_0 = splat<f32>(0.0f);
    for (i64_t c = 0; c < 13; ++c) {
      a4_0 = a4_0 + part4[c];
    }
    const f32 v4 = fold(a4_0, [](f32 a, f32 b) { return a + b; });
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (i64_t c = 0; c < 13; ++c) {
      const i64_t from = c * 16384;
      const i64_t to = from + 16384 < 200000 ? from + 16384 : 200000;
      {
        auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
          const f32 v3 = ld(p1 + i, n);
          const f32 v5 = v3 / v4;
          st(p1 + i, v5, n);
        };
        i64_t at = from;
        for (; at + 8 <= to; at += 8) body(at, full{});
      }
    }
  }
}
