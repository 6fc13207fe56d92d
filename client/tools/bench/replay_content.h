/* client/tools/bench/replay_content.h - what tokens, KV bytes and layers a replay makes: fixed
 * functions, the same in every run.
 *
 * Bytes follow from the chain (all tokens up to and with the block), rank, pool and position, so a
 * block that is served under another key, rank, pool or place is seen. */
#ifndef SL_CLIENT_BENCH_REPLAY_CONTENT_H
#define SL_CLIENT_BENCH_REPLAY_CONTENT_H

#include "client/include/sluice.h"

/* Token j of the block that the trace calls hash_id. */
uint32_t replay_token(uint64_t hash_id, uint32_t j);
/* Fills tokens[0 .. hash_count * block_tokens) up to token_count. */
void replay_tokens(const uint32_t *hash_ids, uint32_t hash_count, uint32_t block_tokens,
                   uint32_t token_count, uint32_t *tokens);
/* Identity of a block from that of the block before (0: none) and its own tokens. */
uint64_t replay_chain(uint64_t parent, const uint32_t *tokens, uint32_t count);
/* Writes the part's bytes: [0, length_bytes) of (chain, rank, pool). part is 8-byte aligned and has
 * room for whole words: align_up(length_bytes, 8). */
void replay_part(uint64_t chain, uint32_t rank, uint32_t pool, uint64_t *part,
                 uint64_t length_bytes);
/* Fills layers[0 .. layer_count) of block_bytes a block in all, one behind the other and aligned as
 * device tensors are. Gives the bytes of the memory. */
uint64_t replay_layers(uint64_t layer_count, uint64_t block_bytes, uint64_t block_count,
                       struct sl_engine_layer *layers);

/* ---- for replay.py, by ctypes (libreplay.so): a request at a time ---- */

/* Fills tokens[0 .. token_count) and the chain of each of the chain_count first blocks. */
void replay_prepare(const uint32_t *hash_ids, uint32_t hash_count, uint32_t block_tokens,
                    uint32_t token_count, uint32_t *tokens, uint64_t *chains, uint32_t chain_count);
/* Memory of a rank and pool, and room for one part (replay_part). */
struct replay_place {
    unsigned char *memory;
    const struct sl_engine_layer *layers;
    uint64_t layer_count, block_bytes;
    uint32_t rank, pool;
    uint64_t *part;
};
/* "Computes" device blocks: their right bytes in every layer. */
void replay_compute(const struct replay_place *place, const uint32_t *blocks,
                    const uint64_t *chains, uint32_t count);
/* What is stale cannot pass. */
void replay_poison(const struct replay_place *place, const uint32_t *blocks, uint32_t count);
/* Compares every byte. wrong[i]: number of the block's first layer with other bytes, or -1. Gives
 * how many blocks are wrong. */
uint32_t replay_check(const struct replay_place *place, const uint32_t *blocks,
                      const uint64_t *chains, uint32_t count, int32_t *wrong);

/* ---- replay_pages.c, likewise ---- */

/* Gives the 1,024 bytes of shm_dir as a client with that file and those arguments ("--name=value"
 * from argv[1] on) has it. */
sl_err replay_shm_dir(const char *config_file, int argc, char **argv, char *shm_dir,
                      struct sl_error *why);
/* Gives the values of that many names on a metrics page, 0 for one that it has not. */
sl_err replay_counters(const char *page, const char *const *names, uint32_t count, uint64_t *values,
                       struct sl_error *why);

#endif
