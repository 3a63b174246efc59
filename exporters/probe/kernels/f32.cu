// Sums, patterns and checks in 32-bit floating point.
#include "pattern.h"

// to = mine + theirs: one step of a ring, in which `theirs` is usually in the neighbour's memory.
extern "C" __global__ void gaunt_add_f32(float *to, const float *mine, const float *theirs, u64 count) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    u64 done = 0;
    if (((u64)to | (u64)mine | (u64)theirs) % 16 == 0) {
        const float4 *a = (const float4 *)theirs, *b = (const float4 *)mine;
        float4 *c = (float4 *)to;
        const u64 vectors = count / 4;
        u64 i = at;
        for (; i + 3 * stride < vectors; i += 4 * stride) {
            // All remote loads are issued first.
            float4 far[4], near[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) far[k] = a[i + k * stride];
#pragma unroll
            for (int k = 0; k < 4; ++k) near[k] = b[i + k * stride];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                c[i + k * stride] = make_float4(far[k].x + near[k].x, far[k].y + near[k].y, far[k].z + near[k].z,
                    far[k].w + near[k].w);
            }
        }
        for (; i < vectors; i += stride) {
            const float4 far = a[i], near = b[i];
            c[i] = make_float4(far.x + near.x, far.y + near.y, far.z + near.z, far.w + near.w);
        }
        done = vectors * 4;
    }
    for (u64 i = done + at; i < count; i += stride) to[i] = mine[i] + theirs[i];
}

// Writes what `rank` sends; the first element has the index `base`.
extern "C" __global__ void gaunt_pattern_f32(float *to, u64 count, u64 base, unsigned rank, unsigned round) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = at; i < count; i += stride) to[i] = (float)pattern_value(rank, base + i, round);
}

// Checks, bit by bit, that elements are the sum of what `ranks` ranks from `first` on sent. `place` is the position
// of the first one, for the report.
extern "C" __global__ void gaunt_check_f32(const float *data, u64 count, u64 base, u64 place, unsigned first,
    unsigned ranks, unsigned round, u64 *wrong) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    u64 found = 0, where = 0;
    for (u64 i = at; i < count; i += stride) {
        const float right = (float)pattern_sum(first, ranks, base + i, round);
        if (__float_as_uint(data[i]) == __float_as_uint(right)) continue;
        if (found == 0) where = place + i;
        ++found;
    }
    report_wrong(wrong, found, where);
}
