// What every rank sends, so that everybody knows what must arrive.
//
// The value of an element depends on the rank that sends it, on its index and on the round: data that is stale, comes
// from a wrong rank or lies in a wrong place does not fit. Values are 1 to 16: sums of 16 ranks are whole numbers up to
// 256, exact in bf16 and in any order of adding, so that a result is right to the last bit or wrong. Zero never is right.
// src/pattern.rs holds the same function for the host.
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

// The sum that `ranks` ranks from `first` on make of an element.
__device__ static inline unsigned pattern_sum(unsigned first, unsigned ranks, u64 index, unsigned round) {
    unsigned sum = 0;
    for (unsigned rank = first; rank < first + ranks; ++rank) sum += pattern_value(rank, index, round);
    return sum;
}

// Tells of wrong elements: how many, and the complement of the first one's place, so that zeros mean none.
__device__ static inline void report_wrong(u64 *wrong, u64 count, u64 first) {
    if (count == 0) return;
    atomicAdd(&wrong[0], count);
    atomicMax(&wrong[1], ~first);
}
