// The data that every rank sends, so that every receiver can verify what it received.
//
// The value of an element depends on the rank that sends it, on its index and on the round: data that is stale, comes
// from a wrong rank or at a wrong position does not match. Values are 1 to 16: sums of 16 ranks are whole numbers up to
// 256, exact in bf16 and in any order of adding, so that a result is either bit-exact or wrong. Zero is never correct.
// src/pattern.rs is the same function for the host.
#pragma once

typedef unsigned long long u64;

__device__ static inline unsigned pattern_value(unsigned rank, u64 index, unsigned round) {
    unsigned x = (unsigned)index * 0x9E3779B1u ^ (unsigned)(index >> 32) * 0x85EBCA77u ^ (rank + 1u) * 0xC2B2AE3Du
        ^ round * 0x27D4EB2Fu;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 12;
    x *= 0x297A2D39u;
    return (x >> 28) + 1u;
}

// The sum of an element over `ranks` ranks from `first` on.
__device__ static inline unsigned pattern_sum(unsigned first, unsigned ranks, u64 index, unsigned round) {
    unsigned sum = 0;
    for (unsigned rank = first; rank < first + ranks; ++rank) sum += pattern_value(rank, index, round);
    return sum;
}

// Reports wrong elements: their number, and the complement of the first one's position, so that zeros mean none.
__device__ static inline void report_wrong(u64 *wrong, u64 count, u64 first) {
    if (count == 0) return;
    atomicAdd(&wrong[0], count);
    atomicMax(&wrong[1], ~first);
}
