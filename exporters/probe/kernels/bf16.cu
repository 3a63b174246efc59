// Sums, patterns and checks in bfloat16; GPUs have the rounding instruction from sm_80 on.
#include "pattern.h"

// The sums of two pairs of bf16, rounded to nearest: a bf16 is the upper half of a float.
__device__ static inline unsigned add_pairs(unsigned a, unsigned b) {
    const float low = __uint_as_float(a << 16) + __uint_as_float(b << 16);
    const float high = __uint_as_float(a & 0xffff0000u) + __uint_as_float(b & 0xffff0000u);
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// A small whole number as bf16: exact up to 256.
__device__ static inline unsigned short whole(unsigned value) {
    return (unsigned short)(__float_as_uint((float)value) >> 16);
}

// to = mine + theirs.
extern "C" __global__ void gaunt_add_bf16(unsigned short *to, const unsigned short *mine,
    const unsigned short *theirs, u64 count) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    u64 done = 0;
    if (((u64)to | (u64)mine | (u64)theirs) % 16 == 0) {
        const uint4 *a = (const uint4 *)theirs, *b = (const uint4 *)mine;
        uint4 *c = (uint4 *)to;
        const u64 vectors = count / 8;
        u64 i = at;
        for (; i + 3 * stride < vectors; i += 4 * stride) {
            uint4 far[4], near[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) far[k] = a[i + k * stride];
#pragma unroll
            for (int k = 0; k < 4; ++k) near[k] = b[i + k * stride];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                c[i + k * stride] = make_uint4(add_pairs(far[k].x, near[k].x), add_pairs(far[k].y, near[k].y),
                    add_pairs(far[k].z, near[k].z), add_pairs(far[k].w, near[k].w));
            }
        }
        for (; i < vectors; i += stride) {
            const uint4 far = a[i], near = b[i];
            c[i] = make_uint4(add_pairs(far.x, near.x), add_pairs(far.y, near.y), add_pairs(far.z, near.z),
                add_pairs(far.w, near.w));
        }
        done = vectors * 8;
    }
    for (u64 i = done + at; i < count; i += stride) to[i] = (unsigned short)add_pairs(mine[i], theirs[i]);
}

// Writes what `rank` sends; the first element has the index `base`.
extern "C" __global__ void gaunt_pattern_bf16(unsigned short *to, u64 count, u64 base, unsigned rank,
    unsigned round) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = at; i < count; i += stride) to[i] = whole(pattern_value(rank, base + i, round));
}

// Checks, bit by bit, that elements are the sum of what `ranks` ranks from `first` on sent.
extern "C" __global__ void gaunt_check_bf16(const unsigned short *data, u64 count, u64 base, u64 place,
    unsigned first, unsigned ranks, unsigned round, u64 *wrong) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    u64 found = 0, where = 0;
    for (u64 i = at; i < count; i += stride) {
        if (data[i] == whole(pattern_sum(first, ranks, base + i, round))) continue;
        if (found == 0) where = place + i;
        ++found;
    }
    report_wrong(wrong, found, where);
}
