// 1. k0_bmm
// 2. k1_bitwise_not
// 3. k2_softmax
// 4. k3_bmm

// bmm
// mul.Tensor
extern "C" void k0_bmm(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 16, 8] stride [128, 8, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[2, 16, 8] stride [128, 8, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[2, 16, 16] stride [256, 16, 1]
  (void)threads;
  for (i64_t item = 0; item < 64; ++item) {
    const i64_t first = item % 2 * W;
    const int count = W;
    const i64_t x1 = (item / 2) % 16;
    const i64_t x0 = (item / 2) / 16;
    f32 t3[W];
    auto row = [&](const i64_t x2, const int k) __attribute__((always_inline)) {
      const float *p0 = b0 + x0 * 128 + x1 * 8;
      const float *p1 = b1 + x0 * 128 + x2 * 8;
      float *p2 = b2 + x0 * 256 + x1 * 16 + x2;
      f32 a3_0 = splat<f32>(0.0f);
      {
        auto body = [&](const i64_t i, auto n, f32 &a3_0) __attribute__((always_inline)) {
          const f32 v0 = ld(p0 + i, n);
          const f32 v1 = ld(p1 + i, n);
          const f32 v2 = v0 * v1;
          a3_0 = a3_0 + keep(v2, splat<f32>(0.0f), n);
        };
        i64_t at = 0;
        for (; at + 8 <= 8; at += 8) body(at, full{}, a3_0);
      }
      t3[k] = a3_0;
    };
    for (int k = 0; k < count; ++k) row(first + k, k);
    const f32 v3 = fold_over(t3, [](f32 a, f32 b) { return a + b; });
    const i64_t i = first;
    constexpr full n{};
    const float *p0 = b0 + x0 * 128 + x1 * 8;
    const float *p1 = b1 + x0 * 128;
    float *p2 = b2 + x0 * 256 + x1 * 16;
    const f32 v4 = splat<f32>(0.125f);
    const f32 v5 = v3 * v4;
    st(p2 + i, v5, n);
  }
}

// tril
// bitwise_not
extern "C" void k1_bitwise_not(void **buffers, int threads) {
  bool_t *__restrict b0 = (bool_t *)buffers[0];  // bool[16, 16] stride [16, 1]
  (void)threads;
  for (i64_t item = 0; item < 16; ++item) {
    const i64_t x0 = (item);
    bool_t *p0 = b0 + x0 * 16;
    const mask v1 = splat<mask>(-1);
    const mask v2 = splat<mask>(0);
    {
      auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
        const mask v0 = within(up(-16, 1, x0 * -1 + i));
        const mask v3 = where(v0, v1, v2);
        const mask v4 = ~v3;
        st(p0 + i, v4, n);
      };
      i64_t at = 0;
      for (; at + 8 <= 16; at += 8) body(at, full{});
    }
  }
}

// masked_fill.Scalar
// _softmax
extern "C" void k2_softmax(void **buffers, int threads) {
  const bool_t *__restrict b0 = (const bool_t *)buffers[0];  // bool[16, 16] stride [16, 1]
  const float *b1 = (const float *)buffers[1];  // float32[2, 16, 16] stride [256, 16, 1]
  float *b2 = (float *)buffers[2];  // float32[2, 16, 16] stride [256, 16, 1]
  (void)threads;
  for (i64_t item = 0; item < 2; ++item) {
    const i64_t x0 = (item);
    const bool_t *p0 = b0;
    const float *p1 = b1 + x0 * 256;
    float *p2 = b2 + x0 * 256;
    auto rows = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = splat<f32>(-__builtin_inff());
      alignas(64) float t3[128];
      f32 a4_0 = splat<f32>(-__builtin_inff());
      f32 a4_1 = splat<f32>(-__builtin_inff());
      {
        auto body = [&](const i64_t x2, f32 &a4_0) __attribute__((always_inline)) {
          const mask v1 = lds(p0 + x2 + i * 16, 16, n);
          const f32 v2 = lds(p1 + x2 + i * 16, 16, n);
          const f32 v3 = where(v1, v0, v2);
          put(t3 + (x2) * 8, v3, full{});
          a4_0 = maximum(v3, a4_0);
        };
        i64_t at = 0;
        if constexpr (__is_same(decltype(n), full)) {
          mask t1_[W];
          f32 t2_[W];
          auto square = [&](const i64_t x2, const int k, f32 &a4_0) __attribute__((always_inline)) {
            const mask v1 = t1_[k];
            const f32 v2 = t2_[k];
            const f32 v3 = where(v1, v0, v2);
            put(t3 + (x2) * 8, v3, full{});
            a4_0 = maximum(v3, a4_0);
          };
          for (; at + W <= 16; at += W) {
            for (int k = 0; k < W; ++k) t1_[k] = ld(p0 + at + (i + k) * 16, n);
            turn_over(t1_);
            for (int k = 0; k < W; ++k) t2_[k] = ld(p1 + at + (i + k) * 16, n);
            turn_over(t2_);
            for (int k = 0; k < W; k += 2) {
              square(at + k + 0, k + 0, a4_0);
              square(at + k + 1, k + 1, a4_1);
            }
          }
        }
        for (; at + 2 <= 16; at += 2) {
          body(at + 0, a4_0);
          body(at + 1, a4_1);
        }
      }
      a4_0 = maximum(a4_1, a4_0);
      const f32 v4 = a4_0;
      alignas(64) float t6[128];
      f32 a7_0 = splat<f32>(0.0f);
      f32 a7_1 = splat<f32>(0.0f);
      f32 a7_2 = splat<f32>(0.0f);
      f32 a7_3 = splat<f32>(0.0f);
      {
        auto body = [&](const i64_t x2, f32 &a7_0) __attribute__((always_inline)) {
          const f32 v3 = raw<f32>(t3 + (x2) * 8, full{});
          const f32 v5 = v3 - v4;
          const f32 v6 = exp(v5);
          put(t6 + (x2) * 8, v6, full{});
          a7_0 = a7_0 + v6;
        };
        i64_t at = 0;
        for (; at + 4 <= 16; at += 4) {
          body(at + 0, a7_0);
          body(at + 1, a7_1);
          body(at + 2, a7_2);
          body(at + 3, a7_3);
        }
      }
      a7_0 = a7_0 + a7_1;
      a7_0 = a7_0 + a7_2;
      a7_0 = a7_0 + a7_3;
      const f32 v7 = a7_0;
      {
        auto body = [&](const i64_t x2) __attribute__((always_inline)) {
          const f32 v6 = raw<f32>(t6 + (x2) * 8, full{});
          const f32 v8 = v6 / v7;
          sts(p2 + x2 + i * 16, 16, v8, n);
        };
        i64_t at = 0;
        if constexpr (__is_same(decltype(n), full)) {
          f32 s0_[W];
          auto square = [&](const i64_t x2, const int k) __attribute__((always_inline)) {
            const f32 v6 = raw<f32>(t6 + (x2) * 8, full{});
            const f32 v8 = v6 / v7;
            s0_[k] = v8;
          };
          for (; at + W <= 16; at += W) {
            #pragma GCC unroll 8
            for (int k = 0; k < W; k += 1) {
              square(at + k + 0, k + 0);
            }
            turn_over(s0_);
            for (int k = 0; k < W; ++k) st(p2 + at + (i + k) * 16, s0_[k], n);
          }
        }
        for (; at + 1 <= 16; at += 1) body(at);
      }
    };
    i64_t at = 0;
    for (; at + 8 <= 16; at += 8) rows(at, full{});
  }
}

// bmm
extern "C" void k3_bmm(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[2, 16, 16] stride [256, 16, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[2, 16, 8] stride [128, 8, 1]
  float *__restrict b2 = (float *)buffers[2];  // float32[2, 16, 8] stride [128, 8, 1]
  (void)threads;
  for (i64_t item = 0; item < 2; ++item) {
    const i64_t x0 = (item);
    const float *p0 = b0 + x0 * 256;
    const float *p1 = b1 + x0 * 128;
    const float *p2 = b1 + x0 * 128 + 1;
    const float *p3 = b1 + x0 * 128 + 2;
    const float *p4 = b1 + x0 * 128 + 3;
    const float *p5 = b1 + x0 * 128 + 4;
    const float *p6 = b1 + x0 * 128 + 5;
    const float *p7 = b1 + x0 * 128 + 6;
    const float *p8 = b1 + x0 * 128 + 7;
    float *p9 = b2 + x0 * 128;
    float *p10 = b2 + x0 * 128 + 1;
    float *p11 = b2 + x0 * 128 + 2;
    float *p12 = b2 + x0 * 128 + 3;
    float *p13 = b2 + x0 * 128 + 4;
    float *p14 = b2 + x0 * 128 + 5;
    float *p15 = b2 + x0 * 128 + 6;
    float *p16 = b2 + x0 * 128 + 7;
    auto rows = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      f32 a3_0 = splat<f32>(0.0f);
      f32 a3_1 = splat<f32>(0.0f);
      f32 a6_0 = splat<f32>(0.0f);
      f32 a6_1 = splat<f32>(0.0f);
      f32 a9_0 = splat<f32>(0.0f);
      f32 a9_1 = splat<f32>(0.0f);
      f32 a12_0 = splat<f32>(0.0f);
      f32 a12_1 = splat<f32>(0.0f);
      f32 a15_0 = splat<f32>(0.0f);
      f32 a15_1 = splat<f32>(0.0f);
      f32 a18_0 = splat<f32>(0.0f);
      f32 a18_1 = splat<f32>(0.0f);
      f32 a21_0 = splat<f32>(0.0f);
      f32 a21_1 = splat<f32>(0.0f);
      f32 a24_0 = splat<f32>(0.0f);
      f32 a24_1 = splat<f32>(0.0f);
      {
        auto body = [&](const i64_t x2, f32 &a3_0, f32 &a6_0, f32 &a9_0, f32 &a12_0, f32 &a15_0, f32 &a18_0, f32 &a21_0, f32 &a24_0) __attribute__((always_inline)) {
          const f32 v0 = lds(p0 + x2 + i * 16, 16, n);
          const f32 v1 = one(p1 + x2 * 8);
          const f32 v2 = v0 * v1;
          const f32 v4 = one(p2 + x2 * 8);
          const f32 v5 = v0 * v4;
          const f32 v7 = one(p3 + x2 * 8);
          const f32 v8 = v0 * v7;
          const f32 v10 = one(p4 + x2 * 8);
          const f32 v11 = v0 * v10;
          const f32 v13 = one(p5 + x2 * 8);
          const f32 v14 = v0 * v13;
          const f32 v16 = one(p6 + x2 * 8);
          const f32 v17 = v0 * v16;
          const f32 v19 = one(p7 + x2 * 8);
          const f32 v20 = v0 * v19;
          const f32 v22 = one(p8 + x2 * 8);
          const f32 v23 = v0 * v22;
          a3_0 = a3_0 + v2;
          a6_0 = a6_0 + v5;
          a9_0 = a9_0 + v8;
          a12_0 = a12_0 + v11;
          a15_0 = a15_0 + v14;
          a18_0 = a18_0 + v17;
          a21_0 = a21_0 + v20;
          a24_0 = a24_0 + v23;
        };
        i64_t at = 0;
        for (; at + 2 <= 16; at += 2) {
          body(at + 0, a3_0, a6_0, a9_0, a12_0, a15_0, a18_0, a21_0, a24_0);
          body(at + 1, a3_1, a6_1, a9_1, a12_1, a15_1, a18_1, a21_1, a24_1);
        }
      }
      a3_0 = a3_0 + a3_1;
      const f32 v3 = a3_0;
      a6_0 = a6_0 + a6_1;
      const f32 v6 = a6_0;
      a9_0 = a9_0 + a9_1;
      const f32 v9 = a9_0;
      a12_0 = a12_0 + a12_1;
      const f32 v12 = a12_0;
      a15_0 = a15_0 + a15_1;
      const f32 v15 = a15_0;
      a18_0 = a18_0 + a18_1;
      const f32 v18 = a18_0;
      a21_0 = a21_0 + a21_1;
      const f32 v21 = a21_0;
      a24_0 = a24_0 + a24_1;
      const f32 v24 = a24_0;
      sts(p9 + i * 8, 8, v3, n);
      sts(p10 + i * 8, 8, v6, n);
      sts(p11 + i * 8, 8, v9, n);
      sts(p12 + i * 8, 8, v12, n);
      sts(p13 + i * 8, 8, v15, n);
      sts(p14 + i * 8, 8, v18, n);
      sts(p15 + i * 8, 8, v21, n);
      sts(p16 + i * 8, 8, v24, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 16; at += 8) rows(at, full{});
  }
}
