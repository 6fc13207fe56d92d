/* actors/coordinator/pull.c - BRING of other nodes' blocks directly into the pools of a load
 * (cache_remote_loads false). The transporter is then one more worker of the op: a request that it
 * has not answered is fenced before the blocks are reused.
 *
 * Loads by layers and loads with events of streams use the arena, since the transporter knows
 * neither. So do engines whose pools the fabric does not have. */
#include "actors/coordinator/internal.h"

#include <string.h>

#define POOL_SLOT_MESSAGE_BYTES 64u         /* of a pool slot in a message, at most */
#define REFUSED_NS              SL_NS_PER_S /* pause for pools that the fabric does not have */
#define SOON_NS                 (20 * SL_NS_PER_MS) /* pause for pools that may be registered soon */

uint32_t co_block_pool_slots(const struct co_engine *engine)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->part_count; i++) {
        count += (uint32_t)__builtin_popcountll(engine->cuts[i].owners);
    }
    return count;
}

uint64_t co_pool_slots_max(const struct coordinator *self)
{
    return SL_MIN(sl_config_u64(self->env->config, SL_SET_message_bytes_max) / 2 /
                      POOL_SLOT_MESSAGE_BYTES,
                  (uint64_t)SL_BATCH_MAX);
}

uint64_t co_pools_again_ns(const struct coordinator *self, sl_err code)
{
    return self->env->now_ns +
           (code == SL_ERR_NOT_FOUND || code == SL_ERR_BUSY ? SOON_NS : REFUSED_NS);
}

uint32_t co_pull_blocks(const struct coordinator *self, const struct co_op *op, uint32_t block)
{
    const struct co_engine *engine = op->engine;
    if (self->keeps || !self->pulls || co_by_layers(op) || op->event_count > 0 || op->pull_barred ||
        (op->unsettled & co_worker_bit(CO_TRANSPORTER)) != 0 ||
        engine->pull_again_ns > self->env->now_ns) {
        return 0;
    }
    return (uint32_t)SL_MIN(co_pool_slots_max(self) / SL_MAX(co_block_pool_slots(engine), 1u),
                            (uint64_t)(op->slice_count - block));
}

/* Each rank that has a part gets it. */
struct sl_item_slot *co_pool_slots_make(struct co_op *op, uint32_t block, uint32_t *count)
{
    const struct co_engine *engine = op->engine;
    uint32_t first = block * engine->part_count;
    uint32_t part_total = op->slice_count * engine->part_count;
    uint32_t room = (op->slice_count - block) * co_block_pool_slots(engine);
    struct sl_item_slot *slots = co_memory_take(&op->work, room, sizeof(*slots));
    *count = 0;
    for (uint32_t i = first; slots != NULL && i < part_total; i++) {
        const struct co_cut *cut = co_cut_of(op, i);
        for (uint64_t owners = cut->owners; owners != 0; owners &= owners - 1) {
            uint32_t rank = (uint32_t)__builtin_ctzll(owners);
            slots[(*count)++] = (struct sl_item_slot){
                .engine_id = engine->members[rank],
                .rank = rank,
                .pool = cut->pool,
                .part = cut->part,
                .device_block = co_device_block(op, op->slice[i / engine->part_count], cut->pool),
                .item = i - first};
        }
    }
    return slots;
}

/* Parts pulled after a missing block are overwritten; they count when they arrive again. */
static void pulled_forget(struct co_op *op, uint32_t block)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    for (uint32_t i = block * op->engine->part_count; i < part_total; i++) {
        if (op->parts[i].state == CO_PART_PULLED) {
            op->parts[i].state = CO_PART_OPEN;
        }
    }
}

void co_pull_asked(struct coordinator *self, struct co_op *op, uint32_t block)
{
    pulled_forget(op, block);
    co_direct_mark_in_use(self, op);
}

/* Pulled parts may be overwritten, or nothing was begun: looks again. */
static void pull_void(struct coordinator *self, struct co_op *op)
{
    op->fetched = false;
    co_load_look(self, op);
}

void co_pull_answered(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    if (reply != NULL && !co_share_is_settled(self, &op->shares[CO_TRANSPORTER])) {
        op->pull_barred = true;
        co_direct_settle(self, op, pull_void);
        return;
    }
    op->direct.device_in_use = false;
    if (reply == NULL) { /* the transporter may still write these blocks */
        op->pull_barred = true;
        op->unsettled |= co_worker_bit(CO_TRANSPORTER);
        co_fence_send(self, op, CO_TRANSPORTER);
        co_load_fetched(self, op, NULL);
    } else if (reply->code != SL_OK) { /* unknown message, or unsuitable pools */
        co_count(self, self->metric.pull_refused_count, 1);
        op->engine->pull_again_ns = co_pools_again_ns(self, reply->code);
        pull_void(self, op);
    } else {
        co_load_fetched(self, op, reply);
    }
}
