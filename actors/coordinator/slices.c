/* actors/coordinator/slices.c - the keys of blocks and parts, and the slice that an op works on. */
#include "actors/coordinator/internal.h"

#include <string.h>

/* ---- keys ---- */

uint32_t co_part_key_write(const struct co_engine *engine, struct sl_key block,
                           const struct co_cut *cut, char *out)
{
    char *at = out;
    size_t model_length = strlen(engine->model);
    memcpy(at, engine->model, model_length);
    at += model_length;
    *at++ = '/';
    memcpy(at, block.at, block.length);
    at += block.length;
    *at++ = '/';
    if (cut->part >= 10) {
        *at++ = (char)('0' + cut->part / 10);
    }
    *at++ = (char)('0' + cut->part % 10);
    *at++ = '/';
    size_t pool_length = strlen(engine->pool_names[cut->pool]);
    memcpy(at, engine->pool_names[cut->pool], pool_length + 1);
    return (uint32_t)(at - out + (ptrdiff_t)pool_length);
}

static size_t part_key_room(const struct co_engine *engine, struct sl_key block)
{
    return strlen(engine->model) + block.length + sizeof("//63/") + sizeof(engine->pool_names[0]);
}

struct sl_key co_part_key(struct co_memory *memory, const struct co_engine *engine,
                          struct sl_key block, const struct co_cut *cut)
{
    char *text = co_memory_take(memory, part_key_room(engine, block), 1);
    return (struct sl_key){
        .at = text, .length = text != NULL ? co_part_key_write(engine, block, cut, text) : 0};
}

uint32_t co_block_key_write(const struct co_engine *engine, const struct sl_key *key, char *out)
{
    uint32_t length = (uint32_t)strlen(engine->model);
    if (length + 1 + key->length > SL_KEY_BYTES_MAX) {
        return 0;
    }
    memcpy(out, engine->model, length);
    out[length] = '/';
    memcpy(out + length + 1, key->at, key->length);
    return length + 1 + key->length;
}

uint64_t co_block_hash(const struct co_engine *engine, const struct sl_key *key)
{
    char text[SL_KEY_BYTES_MAX];
    uint32_t length = co_block_key_write(engine, key, text);
    return length > 0 ? sl_key_hash(text, length) : 0;
}

/* Hash of the block before this one; 0: none or unknown. */
static uint64_t parent_hash(const struct co_op *op, uint32_t block)
{
    if (block == 0) {
        return op->before_hash;
    }
    const struct sl_key *before = &op->blocks[block - 1].key;
    return before->at != NULL ? co_block_hash(op->engine, before) : 0;
}

/* Whether this is the input's incomplete last block. */
static bool is_tail(const struct co_op *op, uint32_t block)
{
    uint64_t end = ((uint64_t)op->first_block + block + 1) * op->engine->block_tokens;
    if (op->keyed) {
        return op->handover != NULL && op->partial && block + 1 == op->block_count;
    }
    return op->handover != NULL && end > op->token_count;
}

struct sl_item_group co_group_of(const struct coordinator *self, const struct co_op *op, uint32_t i,
                                 uint32_t stored_count)
{
    const struct co_engine *engine = op->engine;
    uint32_t block = op->slice[i];
    bool tail = is_tail(op, block);
    /* The keys of its parts begin with MODEL/BLOCK. */
    const struct sl_key *part = &op->part_keys[i * engine->part_count];
    return (struct sl_item_group){
        .key = {.at = part->at, .length = strlen(engine->model) + 1 + op->blocks[block].key.length},
        .part_count = engine->part_count,
        .parent_hash = parent_hash(op, block),
        .stored_count = stored_count,
        .cut = block + 1 == op->block_count,
        .hint = op->said.session,
        .priority = op->said.priority,
        .keep_ns = op->said.keep_ns,
        .transient_ns = tail ? sl_config_u64(self->env->config, SL_SET_handover_partial_ttl) : 0,
    };
}

bool co_slice_make(struct coordinator *self, struct co_op *op, uint32_t count)
{
    const struct co_engine *engine = op->engine;
    uint32_t part_total = count * engine->part_count;
    op->slice_count = count;
    op->slice_total = count;
    op->parts = co_memory_take(&op->work, part_total, sizeof(*op->parts));
    op->part_keys = co_memory_take(&op->work, part_total, sizeof(*op->part_keys));
    bool fits = op->parts != NULL && op->part_keys != NULL;
    for (uint32_t i = 0; fits && i < part_total; i++) {
        struct sl_key block = op->blocks[op->slice[i / engine->part_count]].key;
        op->part_keys[i] = co_part_key(&op->work, engine, block, co_cut_of(op, i));
        fits = op->part_keys[i].at != NULL;
    }
    if (!fits) {
        op->slice_count = 0;
        op->slice_total = 0;
        co_reason(op, "no memory for %u parts", part_total);
        co_op_end(self, op, SL_ERR_NO_MEMORY);
    }
    return fits;
}

uint32_t co_part_writer(const struct co_op *op, uint32_t i)
{
    const struct co_cut *cut = co_cut_of(op, i);
    uint32_t block = op->first_block + op->slice[i / op->engine->part_count];
    uint64_t owners = cut->owners;
    SL_ASSERT(owners != 0);
    for (uint32_t turn = (block + cut->part) % (uint32_t)__builtin_popcountll(owners); turn > 0;
         turn--) {
        owners &= owners - 1;
    }
    return (uint32_t)__builtin_ctzll(owners);
}

uint32_t co_device_block(const struct co_op *op, uint32_t block, uint32_t pool)
{
    return op->pool_blocks != NULL ? op->pool_blocks[pool * op->block_count + block]
                                   : op->blocks[block].device_block;
}
