// Copies bytes between two addresses that this GPU can access: in its own memory, or to or from a peer's.
typedef unsigned long long u64;

// Copies elements of one width. Four loads are in flight before the first store: latency over a link is long, and a
// limit on SMs leaves few threads to hide it.
template <typename T>
__device__ static inline void copy_elements(T *to, const T *from, u64 count, u64 at, u64 stride) {
    u64 i = at;
    for (; i + 3 * stride < count; i += 4 * stride) {
        T a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
        to[i] = a;
        to[i + stride] = b;
        to[i + 2 * stride] = c;
        to[i + 3 * stride] = d;
    }
    for (; i < count; i += stride) to[i] = from[i];
}

extern "C" __global__ void gaunt_copy(unsigned char *to, const unsigned char *from, u64 bytes) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    const u64 place = (u64)to | (u64)from;
    u64 done = 0;
    if (place % 16 == 0) {
        copy_elements((uint4 *)to, (const uint4 *)from, bytes / 16, at, stride);
        done = bytes / 16 * 16;
    } else if (place % 4 == 0) {
        copy_elements((unsigned *)to, (const unsigned *)from, bytes / 4, at, stride);
        done = bytes / 4 * 4;
    }
    for (u64 i = done + at; i < bytes; i += stride) to[i] = from[i];
}

// Blocks a stream until the host opens the gate, so that all work is queued before the first byte moves. After `nanos`
// it times out and sets gate[1]: the kernel must not outlive a host that dies or is late.
extern "C" __global__ void gaunt_gate(volatile unsigned *gate, u64 nanos) {
    u64 began, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do {
        if (gate[0] != 0) return;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - began < nanos);
    gate[1] = 1;
}
