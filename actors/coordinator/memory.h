/* actors/coordinator/memory.h - memory of ops, and bitmaps. */
#ifndef SL_COORDINATOR_MEMORY_H
#define SL_COORDINATOR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- memory.c: what an op allocates while it lives, in recycled chunks ---- */
struct co_chunk;
struct co_chunks { /* free chunks, shared by all ops; bounded */
    struct co_chunk *first;
    uint32_t count;
};
struct co_memory {
    struct co_chunks *chunks;
    struct co_chunk *first; /* the one in use */
};
/* Zeroed memory that lives until reset. NULL: out of memory. */
void *co_memory_take(struct co_memory *memory, size_t count, size_t item_bytes);
/* A copy with a final 0. NULL: out of memory. */
void *co_memory_keep(struct co_memory *memory, const void *from, size_t length);
void co_memory_reset(struct co_memory *memory);
void co_chunks_fini(struct co_chunks *chunks);

/* ---- bit i & 7 of byte i >> 3, as on the wire ---- */
static inline bool co_bit(const uint8_t *bits, uint64_t i)
{
    return ((uint32_t)bits[i >> 3] >> (i & 7) & 1u) != 0;
}
static inline void co_bit_set(uint8_t *bits, uint64_t i)
{
    bits[i >> 3] = (uint8_t)((uint32_t)bits[i >> 3] | UINT32_C(1) << (i & 7));
}
static inline uint64_t co_bits_bytes(uint64_t count)
{
    return (count + 7) / 8;
}
uint32_t co_bits_count(const uint8_t *bits, uint32_t count);

#endif
