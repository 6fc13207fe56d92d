/* client/bench/replay_content.h - what tokens, KV bytes and layers a replay makes: fixed functions,
 * the same in every run.
 *
 * Bytes follow from the chain (all tokens up to and with the block), rank, pool and position, so a
 * block that is served under another key, rank, pool or place is seen. */
#ifndef SL_CLIENT_BENCH_REPLAY_CONTENT_H
#define SL_CLIENT_BENCH_REPLAY_CONTENT_H

#include "client/lib/sluice.h"

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

#endif
