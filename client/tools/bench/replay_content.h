/* client/tools/bench/replay_content.h - tokens, KV bytes and layers of a replay: fixed functions,
 * the same in every run.
 *
 * Bytes depend on the chain (all tokens up to the end of the block), rank, pool and position, so a
 * block that is served under another key, rank, pool or position is detected. */
#ifndef SL_CLIENT_BENCH_REPLAY_CONTENT_H
#define SL_CLIENT_BENCH_REPLAY_CONTENT_H

#include "client/include/sluice.h"

/* Token j of the block with this hash id in the trace. */
uint32_t replay_token(uint64_t hash_id, uint32_t j);
/* Fills tokens[0 .. hash_count * block_tokens) up to token_count. */
void replay_tokens(const uint32_t *hash_ids, uint32_t hash_count, uint32_t block_tokens,
                   uint32_t token_count, uint32_t *tokens);
/* Chain of a block from that of the block before it (0: none) and its own tokens. */
uint64_t replay_chain(uint64_t parent, const uint32_t *tokens, uint32_t count);
/* Writes the part's bytes: [0, length_bytes) of (chain, rank, pool). part is 8-byte aligned and has
 * room for whole words: align_up(length_bytes, 8). */
void replay_part(uint64_t chain, uint32_t rank, uint32_t pool, uint64_t *part,
                 uint64_t length_bytes);
/* Fills layers[0 .. layer_count), which together have block_bytes for each block and follow each
 * other with the alignment of device tensors. Gives the total size in bytes. */
uint64_t replay_layers(uint64_t layer_count, uint64_t block_bytes, uint64_t block_count,
                       struct sl_engine_layer *layers);

/* ---- for replay.py, by ctypes (libreplay.so): one request at a time ---- */

/* Fills tokens[0 .. token_count) and the chain of each of the chain_count first blocks. */
void replay_prepare(const uint32_t *hash_ids, uint32_t hash_count, uint32_t block_tokens,
                    uint32_t token_count, uint32_t *tokens, uint64_t *chains, uint32_t chain_count);
/* Memory of a rank's pool, and a buffer for one part (replay_part). */
struct replay_place {
    unsigned char *memory;
    const struct sl_engine_layer *layers;
    uint64_t layer_count, block_bytes;
    uint32_t rank, pool;
    uint64_t *part;
};
/* "Computes" device blocks: writes their right bytes in every layer. */
void replay_compute(const struct replay_place *place, const uint32_t *blocks,
                    const uint64_t *chains, uint32_t count);
/* Overwrites device blocks, so that stale bytes fail the check. */
void replay_poison(const struct replay_place *place, const uint32_t *blocks, uint32_t count);
/* Compares every byte. wrong[i]: the block's first layer with wrong bytes, or -1. Gives the number
 * of wrong blocks. */
uint32_t replay_check(const struct replay_place *place, const uint32_t *blocks,
                      const uint64_t *chains, uint32_t count, int32_t *wrong);

/* ---- replay_pages.c, also by ctypes ---- */

/* Gives shm_dir (1,024 bytes) of a client with that settings file and those arguments
 * ("--name=value", from argv[1] on). */
sl_err replay_shm_dir(const char *config_file, int argc, char **argv, char *shm_dir,
                      struct sl_error *why);
/* Gives the values of `count` names on a metrics page; 0 for a name that it lacks. */
sl_err replay_counters(const char *page, const char *const *names, uint32_t count, uint64_t *values,
                       struct sl_error *why);

#endif
