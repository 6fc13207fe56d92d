/* tests/gpu/ptx_lane.h - runtime of a kernel's PTX that ptx_to_c.py translated: one lane of a
 * warp, and the exchange with its neighbours. */
#ifndef SL_PTX_LANE_H
#define SL_PTX_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PTX_MATES 4u /* lanes that exchange: those of a chunk */

struct mates {
    pthread_barrier_t met;
    uint32_t values[PTX_MATES];
};
struct lane {
    uint32_t tid, ntid, ctaid, nctaid;
    struct mates *mates; /* NULL: nothing is exchanged */
};

typedef void (*ptx_kernel_fn)(const unsigned char *param, struct lane *t);
struct ptx_kernels {
    const char *name;
    ptx_kernel_fn gather, scatter, hash, hash_runs;
};
extern const struct ptx_kernels ptx_kernels[];
extern const unsigned ptx_kernel_count;

/* A GPU refuses an address that is not a multiple of the access, and so does this. */
#define ALIGNED(at, width)         \
    do {                           \
        if ((at) % (width) != 0) { \
            abort();               \
        }                          \
    } while (0)

/* shfl.sync.bfly: the value of the lane whose number differs by `lanes`; all lanes of the mask
 * meet. */
static inline uint32_t lanes_swap(struct lane *t, uint32_t value, uint32_t lanes, uint32_t clamp,
                                  uint32_t mask)
{
    uint32_t first = t->tid % 32 / PTX_MATES * PTX_MATES;
    if (t->mates == NULL || lanes == 0 || lanes >= PTX_MATES || clamp != 31 ||
        mask != UINT32_C(0xf) << first) {
        abort();
    }
    t->mates->values[t->tid % PTX_MATES] = value;
    (void)pthread_barrier_wait(&t->mates->met);
    uint32_t got = t->mates->values[t->tid % PTX_MATES ^ lanes];
    (void)pthread_barrier_wait(&t->mates->met);
    return got;
}

/* bfi.b64: the low `count` bits of a, at bit `from` of b. */
static inline uint64_t bits_insert(uint64_t a, uint64_t b, uint32_t from, uint32_t count)
{
    if (from > 63 || count == 0) {
        return b;
    }
    uint64_t bits = count > 63 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    return (b & ~(bits << from)) | (a & bits) << from;
}

/* prmt.b32: each nibble of `choice` names a byte of a (0..3) or b (4..7). */
static inline uint32_t bytes_permute(uint32_t a, uint32_t b, uint32_t choice)
{
    uint64_t all = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (unsigned i = 0; i < 4; i++) {
        uint32_t nibble = choice >> 4 * i & 0xf;
        if (nibble > 7) { /* the sign of a byte: not used */
            abort();
        }
        out |= (uint32_t)(all >> 8 * nibble & 0xff) << 8 * i;
    }
    return out;
}

#endif
