// 1. k0_addmm

// addmm
// native_layer_norm
// gelu
// mm
extern "C" void k0_addmm(void **buffers, int threads) {
  const float *__restrict b0 = (const float *)buffers[0];  // float32[50, 3] stride [3, 1]
  const float *__restrict b1 = (const float *)buffers[1];  // float32[2, 3] stride [3, 1]
  const float *__restrict b2 = (const float *)buffers[2];  // float32[2] stride [1]
  const float *__restrict b3 = (const float *)buffers[3];  // float32[2] stride [1]
  const float *__restrict b4 = (const float *)buffers[4];  // float32[3, 2] stride [2, 1]
  float *__restrict b5 = (float *)buffers[5];  // float32[50, 3] stride [3, 1]
  (void)threads;
  const float *p0 = b0;
  const float *p1 = b1;
  const float *p2 = b0 + 1;
  const float *p3 = b1 + 1;
  const float *p4 = b0 + 2;
  const float *p5 = b1 + 2;
  const float *p6 = b2;
  const float *p7 = b1 + 3;
  const float *p8 = b1 + 4;
  const float *p9 = b1 + 5;
  const float *p10 = b2 + 1;
  const float *p11 = b3;
  const float *p12 = b3 + 1;
  const float *p13 = b4;
  const float *p14 = b4 + 1;
  const float *p15 = b4 + 2;
  const float *p16 = b4 + 3;
  const float *p17 = b4 + 4;
  const float *p18 = b4 + 5;
  float *p19 = b5;
  float *p20 = b5 + 1;
  float *p21 = b5 + 2;
  const f32 v1 = one(p1);
  const f32 v4 = one(p3);
  const f32 v6 = one(p5);
  const f32 v9 = one(p6);
  const f32 v11 = one(p7);
  const f32 v13 = one(p8);
  const f32 v14 = one(p9);
  const f32 v17 = one(p10);
  const f32 v20 = splat<f32>(2.0f);
  const f32 v27 = splat<f32>(9.999999747378752e-06f);
  const f32 v30 = splat<f32>(0.0f);
  const f32 v32 = one(p11);
  const f32 v36 = one(p12);
  const f32 v39 = splat<f32>(0.7071067690849304f);
  const f32 v42 = splat<f32>(1.0f);
  const f32 v44 = splat<f32>(0.5f);
  const f32 v52 = one(p13);
  const f32 v54 = one(p14);
  const f32 v56 = one(p15);
  const f32 v58 = one(p16);
  const f32 v60 = one(p17);
  const f32 v62 = one(p18);
  {
    auto body = [&](const i64_t i, auto n) __attribute__((always_inline)) {
      const f32 v0 = lds(p0 + i * 3, 3, n);
      const f32 v2 = v0 * v1;
      const f32 v3 = lds(p2 + i * 3, 3, n);
      const f32 v5 = lds(p4 + i * 3, 3, n);
      const f32 v7 = fma(v3, v4, v2);
      const f32 v8 = fma(v5, v6, v7);
      const f32 v10 = v8 + v9;
      const f32 v12 = v0 * v11;
      const f32 v15 = fma(v3, v13, v12);
      const f32 v16 = fma(v5, v14, v15);
      const f32 v18 = v16 + v17;
      const f32 v19 = v10 + v18;
      const f32 v21 = v19 / v20;
      const f32 v22 = v10 - v21;
      const f32 v23 = v22 * v22;
      const f32 v24 = v18 - v21;
      const f32 v25 = fma(v24, v24, v23);
      const f32 v26 = v25 / v20;
      const f32 v28 = v26 + v27;
      const f32 v29 = 1 / sqrt(v28);
      const f32 v31 = v22 * v29;
      const f32 v33 = v31 * v32;
      const f32 v34 = v33 + v30;
      const f32 v35 = v24 * v29;
      const f32 v37 = v35 * v36;
      const f32 v38 = v37 + v30;
      const f32 v40 = v34 * v39;
      const f32 v41 = erf(v40);
      const f32 v43 = v42 + v41;
      const f32 v45 = v44 * v34;
      const f32 v46 = v45 * v43;
      const f32 v47 = v38 * v39;
      const f32 v48 = erf(v47);
      const f32 v49 = v42 + v48;
      const f32 v50 = v44 * v38;
      const f32 v51 = v50 * v49;
      const f32 v53 = v46 * v52;
      const f32 v55 = fma(v51, v54, v53);
      const f32 v57 = v46 * v56;
      const f32 v59 = fma(v51, v58, v57);
      const f32 v61 = v46 * v60;
      const f32 v63 = fma(v51, v62, v61);
      sts(p19 + i * 3, 3, v55, n);
      sts(p20 + i * 3, 3, v59, n);
      sts(p21 + i * 3, 3, v63, n);
    };
    i64_t at = 0;
    for (; at + 8 <= 50; at += 8) body(at, full{});
    if (at < 50) body(at, 2);
  }
}
