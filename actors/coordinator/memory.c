/* actors/coordinator/memory.c - memory of ops in recycled chunks; bitmaps. */
#include "actors/coordinator/internal.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES     (64 * SL_KIB)
#define CHUNKS_KEPT_MAX 256u

struct co_chunk {
    struct co_chunk *next;
    size_t capacity_bytes, used_bytes;
    _Alignas(16) unsigned char bytes[];
};

static struct co_chunk *chunk_get(struct co_chunks *chunks, size_t need_bytes)
{
    if (need_bytes <= CHUNK_BYTES && chunks->first != NULL) {
        struct co_chunk *chunk = chunks->first;
        chunks->first = chunk->next;
        chunks->count--;
        return chunk;
    }
    size_t capacity_bytes = SL_MAX(need_bytes, (size_t)CHUNK_BYTES);
    struct co_chunk *chunk = malloc(sizeof(*chunk) + capacity_bytes);
    if (chunk != NULL) {
        chunk->capacity_bytes = capacity_bytes;
    }
    return chunk;
}

void *co_memory_take(struct co_memory *memory, size_t count, size_t item_bytes)
{
    if (item_bytes != 0 && count > (SIZE_MAX / 2) / item_bytes) {
        return NULL;
    }
    size_t need_bytes = sl_align_up(SL_MAX(count * item_bytes, (size_t)1), 16);
    struct co_chunk *chunk = memory->first;
    if (chunk == NULL || chunk->capacity_bytes - chunk->used_bytes < need_bytes) {
        chunk = chunk_get(memory->chunks, need_bytes);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->used_bytes = 0;
        chunk->next = memory->first;
        memory->first = chunk;
    }
    void *bytes = chunk->bytes + chunk->used_bytes;
    chunk->used_bytes += need_bytes;
    memset(bytes, 0, need_bytes);
    return bytes;
}

void *co_memory_keep(struct co_memory *memory, const void *from, size_t length)
{
    char *kept = co_memory_take(memory, length + 1, 1);
    if (kept != NULL && length > 0) {
        memcpy(kept, from, length);
    }
    return kept;
}

void co_memory_reset(struct co_memory *memory)
{
    while (memory->first != NULL) {
        struct co_chunk *chunk = memory->first;
        memory->first = chunk->next;
        if (chunk->capacity_bytes > CHUNK_BYTES || memory->chunks->count == CHUNKS_KEPT_MAX) {
            free(chunk);
            continue;
        }
        chunk->next = memory->chunks->first;
        memory->chunks->first = chunk;
        memory->chunks->count++;
    }
}

void co_chunks_fini(struct co_chunks *chunks)
{
    while (chunks->first != NULL) {
        struct co_chunk *chunk = chunks->first;
        chunks->first = chunk->next;
        free(chunk);
    }
    chunks->count = 0;
}

uint32_t co_bits_count(const uint8_t *bits, uint32_t count)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < count; i++) {
        set += co_bit(bits, i) ? 1u : 0u;
    }
    return set;
}
