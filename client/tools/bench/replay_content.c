/* client/tools/bench/replay_content.c - see replay_content.h. */
#include "client/tools/bench/replay_content.h"

#include <string.h>
#define XXH_INLINE_ALL /* so that libreplay.so needs no other library */
#include <xxhash.h>

#define GOLDEN            UINT64_C(0x9e3779b97f4a7c15)
#define LAYER_ALIGN_BYTES 256u
#define POISON            0xa5

/* The finaliser of splitmix64: every bit of the input reaches every bit of the output. */
static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t replay_token(uint64_t hash_id, uint32_t j)
{
    return (uint32_t)(mix((hash_id << 16) + j + GOLDEN) >> 32);
}

void replay_tokens(const uint32_t *hash_ids, uint32_t hash_count, uint32_t block_tokens,
                   uint32_t token_count, uint32_t *tokens)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < hash_count; i++) {
        for (uint32_t j = 0; j < block_tokens && at < token_count; j++) {
            tokens[at++] = replay_token(hash_ids[i], j);
        }
    }
}

uint64_t replay_chain(uint64_t parent, const uint32_t *tokens, uint32_t count)
{
    return XXH3_64bits_withSeed(tokens, (size_t)count * sizeof *tokens, parent + GOLDEN);
}

void replay_part(uint64_t chain, uint32_t rank, uint32_t pool, uint64_t *part,
                 uint64_t length_bytes)
{
    uint64_t seed = mix(chain ^ mix(((uint64_t)rank << 32 | pool) + GOLDEN));
    uint64_t words = (length_bytes + 7) / 8;
    for (uint64_t i = 0; i < words; i++) {
        /* One multiplication a word distinguishes positions and is as fast as the memory. */
        uint64_t z = seed + i * GOLDEN;
        z = (z ^ (z >> 32)) * UINT64_C(0xd6e8feb86659fd93);
        part[i] = z ^ (z >> 32);
    }
}

uint64_t replay_layers(uint64_t layer_count, uint64_t block_bytes, uint64_t block_count,
                       struct sl_engine_layer *layers)
{
    uint64_t piece_bytes = block_bytes / layer_count, offset_bytes = 0;
    for (uint64_t i = 0; i < layer_count; i++) {
        bool last = i + 1 == layer_count;
        uint64_t bytes = last ? block_bytes - piece_bytes * (layer_count - 1) : piece_bytes;
        layers[i] = (struct sl_engine_layer){.offset_bytes = offset_bytes,
                                             .length_bytes = bytes * block_count,
                                             .block_stride_bytes = bytes,
                                             .piece_bytes = bytes};
        offset_bytes = sl_align_up(offset_bytes + bytes * block_count, LAYER_ALIGN_BYTES);
    }
    return offset_bytes;
}

/* ---- a request at a time ---- */

void replay_prepare(const uint32_t *hash_ids, uint32_t hash_count, uint32_t block_tokens,
                    uint32_t token_count, uint32_t *tokens, uint64_t *chains, uint32_t chain_count)
{
    uint64_t chain = 0;
    replay_tokens(hash_ids, hash_count, block_tokens, token_count, tokens);
    for (uint32_t i = 0; i < chain_count; i++) {
        uint32_t first = i * block_tokens;
        chain = replay_chain(chain, &tokens[first], SL_MIN(block_tokens, token_count - first));
        chains[i] = chain;
    }
}

static unsigned char *piece_at(const struct replay_place *place, uint64_t layer, uint32_t block)
{
    const struct sl_engine_layer *at = &place->layers[layer];
    return place->memory + at->offset_bytes + block * at->block_stride_bytes;
}

void replay_compute(const struct replay_place *place, const uint32_t *blocks,
                    const uint64_t *chains, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *from = (const unsigned char *)place->part;
        replay_part(chains[i], place->rank, place->pool, place->part, place->block_bytes);
        for (uint64_t l = 0; l < place->layer_count; l++) {
            memcpy(piece_at(place, l, blocks[i]), from, place->layers[l].piece_bytes);
            from += place->layers[l].piece_bytes;
        }
    }
}

void replay_poison(const struct replay_place *place, const uint32_t *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t l = 0; l < place->layer_count; l++) {
            memset(piece_at(place, l, blocks[i]), POISON, place->layers[l].piece_bytes);
        }
    }
}

uint32_t replay_check(const struct replay_place *place, const uint32_t *blocks,
                      const uint64_t *chains, uint32_t count, int32_t *wrong)
{
    uint32_t wrong_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *right = (const unsigned char *)place->part;
        replay_part(chains[i], place->rank, place->pool, place->part, place->block_bytes);
        wrong[i] = -1;
        for (uint64_t l = 0; l < place->layer_count && wrong[i] < 0; l++) {
            uint64_t length = place->layers[l].piece_bytes;
            wrong[i] = memcmp(piece_at(place, l, blocks[i]), right, length) != 0 ? (int32_t)l : -1;
            right += length;
        }
        wrong_count += wrong[i] >= 0;
    }
    return wrong_count;
}
