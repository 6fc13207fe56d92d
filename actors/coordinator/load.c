/* actors/coordinator/load.c - LOAD: looks blocks up and pins them, brings in missing ones (BRING
 * from disks and other nodes), copies them to the ranks. It works slice by slice, in block order,
 * up to the first block that exists nowhere. Slices are bounded in parts and bytes, so a load
 * larger than the pins or memory of the node is a pipeline. */
#include "actors/coordinator/internal.h"
#include "runtime/base/sl_backoff.h"

#include <inttypes.h>
#include <string.h>

#define FETCH_AGAIN_NS (1500 * SL_NS_PER_MS) /* actors restart within a second */
#define FETCH_PAUSE_NS (50 * SL_NS_PER_MS)

/* A load that ends at a missing block is SL_OK: a miss. If blocks exist but could not be brought
 * in, it is SL_ERR_INCOMPLETE, so that they are not taken for lost. Both have the loaded prefix. */
static void load_incomplete(struct co_op *op, uint32_t block, const char *why)
{
    op->last = true;
    op->code = SL_ERR_INCOMPLETE;
    co_reason(op, "block %u: %s", op->first_block + op->at + block, why);
}

static void load_slice(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t limit = SL_MAX(self->load_parts_max / engine->part_count, 1u);
    limit =
        (uint32_t)SL_MIN(limit, SL_MAX(self->load_bytes_max / engine->block_bytes, UINT64_C(1)));
    op->many = op->many || op->slice_total > 0;
    op->slice_count = 0;
    op->rounds = 0;
    op->stale_rounds = 0;
    op->fetched = false;
    op->poll_ns = CO_POLL_NS;
    co_memory_reset(&op->work);
    uint32_t count = 0;
    op->slice = co_memory_take(&op->work, limit, sizeof(*op->slice));
    if (op->slice == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    while (count < limit && op->at + count < op->block_count &&
           op->blocks[op->at + count].key.at != NULL) {
        op->slice[count] = op->at + count;
        count++;
    }
    if (count == 0) {
        co_op_end(self, op, op->code);
        return;
    }
    if (co_slice_make(self, op, count)) {
        co_load_look(self, op);
    }
}

static void look_later(struct coordinator *self, struct co_op *op)
{
    co_wake(self, op, self->env->now_ns + sl_backoff_next(&op->poll_ns, CO_POLL_NS_MAX));
}

static void load_unpin(struct coordinator *self, struct co_op *op, uint32_t from_block)
{
    uint32_t part_count = op->slice_count > 0 ? op->engine->part_count : 0;
    for (uint32_t i = from_block * part_count; i < op->slice_count * part_count; i++) {
        struct co_part *part = &op->parts[i];
        if (part->pin != 0) {
            sl_pins_release(self->pins, part->pin);
            SL_ASSERT(self->pins_taken > 0);
            self->pins_taken--;
        }
        part->pin = 0;
        part->state = part->state == CO_PART_PULLED ? CO_PART_PULLED : CO_PART_OPEN;
    }
    op->slice_count = SL_MIN(op->slice_count, from_block);
}

/* ---- lookup ---- */

struct look { /* a pass over the slice: first block with such a part; slice_count: none */
    uint32_t hole, short_of_pins, waiting;
    bool stale;
};

static void block_tier(struct co_op *op, uint32_t block, enum co_tier tier)
{
    struct co_block *state = &op->blocks[op->slice[block]];
    state->tier = (uint8_t)SL_MAX((enum co_tier)state->tier, tier);
}

/* Keeps the tier as first seen: a part that was read from disk counts as disk, though it is found
 * in memory later. */
static void part_found(struct coordinator *self, struct co_op *op, uint32_t number,
                       const struct sl_entry *entry, struct look *look)
{
    const struct co_engine *engine = op->engine;
    struct co_part *part = &op->parts[number];
    uint32_t block = number / engine->part_count;
    uint64_t want_bytes = co_cut_of(op, number)->length_bytes;
    if (entry->extent.length_bytes != want_bytes) {
        co_count(self, self->metric.length_mismatch_count, 1);
        sl_log_write(self->env->log, SL_LOG_WARN, op->trace_id,
                     "block %u: a part has %" PRIu64 " bytes, the engine's has %" PRIu64 ": a miss",
                     op->first_block + op->slice[block], entry->extent.length_bytes, want_bytes);
        look->hole = SL_MIN(look->hole, block);
        return;
    }
    sl_err err = entry->extent.generation != 0
                     ? sl_pins_take(self->pins, self->view, entry, &part->pin)
                     : SL_ERR_NOT_FOUND;
    if (err == SL_OK) {
        self->pins_taken++;
        part->state = CO_PART_PINNED;
        part->ref = entry->ref;
        part->generation = entry->extent.generation;
        part->digest = entry->digest;
        part->offset_bytes = entry->extent.offset_bytes;
        part->arena = (uint16_t)entry->extent.arena;
        block_tier(op, block, CO_TIER_MEMORY);
    } else if (err == SL_ERR_LIMIT) {
        look->short_of_pins = SL_MIN(look->short_of_pins, block);
    } else if (err == SL_ERR_STALE) {
        look->stale = true;
    } else if (entry->disk.valid != 0) {
        part->state = CO_PART_ON_DISK;
        part->disk = entry->disk.disk;
        block_tier(op, block, CO_TIER_DISK);
        look->waiting = SL_MIN(look->waiting, block);
    } else {
        look->hole = SL_MIN(look->hole, block);
    }
}

static void find_flush(struct coordinator *self, struct co_op *op, uint32_t count,
                       struct look *look)
{
    sl_index_find_batch(self->view, self->find_keys, count, self->find_entries, self->find_codes);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = self->find_parts[i];
        uint32_t block = number / op->engine->part_count;
        if (block >= SL_MIN(look->hole, look->short_of_pins)) {
            continue; /* after the slice's end: pins only what can be used */
        }
        if (self->find_codes[i] == SL_OK) {
            part_found(self, op, number, &self->find_entries[i], look);
        } else if (self->find_codes[i] == SL_ERR_BUSY) {
            op->parts[number].state =
                CO_PART_ON_DISK; /* the registrar's BRING answers for both tiers */
            look->waiting = SL_MIN(look->waiting, block);
        } else {
            look->hole = SL_MIN(look->hole, block);
        }
    }
}

static struct look slice_look(struct coordinator *self, struct co_op *op)
{
    struct look look = {
        .hole = op->slice_count, .short_of_pins = op->slice_count, .waiting = op->slice_count};
    uint32_t part_total = op->slice_count * op->engine->part_count;
    uint32_t count = 0;
    for (uint32_t i = 0; i < part_total; i++) {
        if (op->parts[i].state == CO_PART_PINNED || op->parts[i].state == CO_PART_PULLED) {
            continue;
        }
        if (op->parts[i].state == CO_PART_GONE) { /* according to the registrar */
            look.hole = SL_MIN(look.hole, i / op->engine->part_count);
            break;
        }
        op->parts[i].state = CO_PART_OPEN;
        self->find_keys[count] = op->part_keys[i];
        self->find_parts[count++] = i;
        if (count == CO_FIND_MAX) {
            find_flush(self, op, count, &look);
            count = 0;
            if (look.hole < op->slice_count || look.short_of_pins < op->slice_count) {
                return look;
            }
        }
    }
    find_flush(self, op, count, &look);
    return look;
}

/* After a cut, `last` no longer holds: it was about the longer slice. */
static void slice_cut(struct coordinator *self, struct co_op *op, uint32_t blocks)
{
    if (blocks < op->slice_count) {
        load_unpin(self, op, blocks);
        op->last = false;
    }
}

/* Unpins the slice, and looks at its first `blocks` blocks again later. */
static void load_wait(struct coordinator *self, struct co_op *op, uint32_t blocks)
{
    slice_cut(self, op, blocks);
    load_unpin(self, op, 0);
    op->slice_count = blocks;
    co_op_enter(self, op, CO_LOOK);
}

/* The first block of the slice got no pin. */
static void load_short_of_pins(struct coordinator *self, struct co_op *op)
{
    uint32_t count = op->slice_count;
    load_unpin(self, op, 0);
    co_count(self, self->metric.pin_limit_count, 1);
    if (self->pins_taken > 0) {
        load_wait(self, op, count); /* other loads have them, and end */
        return;
    }
    load_incomplete(op, 0, "it has more parts than may be pinned at once");
    co_op_end(self, op, op->code);
}

static void load_promote(struct coordinator *self, struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    struct sl_text *keys = co_memory_take(&op->work, part_total, sizeof(*keys));
    op->asked = co_memory_take(&op->work, part_total, sizeof(*op->asked));
    op->asked_count = 0;
    if (keys == NULL || op->asked == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < part_total; i++) {
        if (op->parts[i].state == CO_PART_ON_DISK) {
            keys[op->asked_count] = co_key_text(&op->part_keys[i]);
            op->asked[op->asked_count++] = i;
        }
    }
    struct sl_msg promote = {.type = SL_MSG_BRING};
    promote.body.bring.keys = (struct sl_texts){.at = keys, .count = op->asked_count};
    op->rounds++;
    co_count(self, self->metric.promote_count, op->asked_count);
    co_trace(self, op, "promote", "registrar", op->asked_count);
    (void)co_op_call_until(self, op, "registrar", &promote, co_wait_begins(self, op));
}

/* Makes a BRING to other nodes: all parts of the slice's blocks from `block` on, as a chain, which
 * ends at the first gap. It may take half of the remaining time, so that local blocks can still be
 * copied. False: out of memory. */
static bool fetch_make(struct coordinator *self, struct co_op *op, uint32_t block, bool straight,
                       struct sl_msg *bring, uint64_t *until_ns)
{
    const struct co_engine *engine = op->engine;
    uint64_t now_ns = self->env->now_ns;
    uint32_t block_count = op->slice_count - block, part_count = engine->part_count;
    uint32_t first = block * part_count, part_total = block_count * part_count;
    struct sl_text *keys = co_memory_take(&op->work, part_total, sizeof(*keys));
    struct sl_item_group *groups = co_memory_take(&op->work, block_count, sizeof(*groups));
    uint32_t slot_count = 0;
    const struct sl_item_slot *slots = straight ? co_pool_slots_make(op, block, &slot_count) : NULL;
    if (keys == NULL || groups == NULL || (straight && slots == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < part_total; i++) {
        keys[i] = co_key_text(&op->part_keys[first + i]);
    }
    for (uint32_t i = 0; i < block_count; i++) {
        groups[i] = co_group_of(self, op, block + i, block_count);
    }
    *until_ns =
        co_wait_fetch_until(self, op, block, now_ns + sl_budget_ns(now_ns, op->deadline_ns) / 2);
    *bring = (struct sl_msg){.type = SL_MSG_BRING, .op_id = op->id, .trace_id = op->trace_id};
    bring->body.bring.chain = true;
    bring->body.bring.sure = op->handover != NULL; /* prefill has stored them */
    bring->body.bring.keys = (struct sl_texts){.at = keys, .count = part_total};
    bring->body.bring.groups.at = groups;
    bring->body.bring.groups.count = block_count;
    bring->body.bring.slots.at = slots;
    bring->body.bring.slots.count = slot_count;
    op->asked_count = first; /* first part of the answer */
    return true;
}

/* Asks other nodes for the slice's blocks from `block` on, if possible directly into the pools.
 * False: not asked. */
static bool load_fetch(struct coordinator *self, struct co_op *op, uint32_t block)
{
    struct sl_msg fetch;
    uint64_t until_ns = 0;
    if (!co_wait_fetch(self, op, block)) {
        return false;
    }
    uint32_t pulled = co_pull_blocks(self, op, block);
    if (pulled > 0) {
        slice_cut(self, op, block + pulled); /* the next slice has the rest */
    }
    op->fetched = true;
    if (!fetch_make(self, op, block, pulled > 0, &fetch, &until_ns) ||
        sl_calls_send(self->calls, "transporter.0", &fetch, until_ns,
                      co_op_cookie(self, op, CO_CALL_OP, 0), &op->call_seq) != SL_OK) {
        return false;
    }
    if (pulled > 0) {
        co_pull_asked(self, op, block);
    }
    uint32_t count = (uint32_t)fetch.body.bring.keys.count;
    co_op_enter(self, op, pulled > 0 ? CO_PULL : CO_FETCH);
    co_count(self, pulled > 0 ? self->metric.pull_count : self->metric.fetch_count, count);
    co_trace(self, op, pulled > 0 ? "pull" : "fetch", "transporter", count);
    return true;
}

/* For a hand-over: prefill has stored all blocks, but an actor of its node may be restarting. */
static bool fetch_again(const struct coordinator *self, struct co_op *op)
{
    uint64_t now_ns = self->env->now_ns;
    if (op->handover == NULL || !op->fetched) {
        return false;
    }
    if (op->fetch_until_ns == 0) {
        op->fetch_until_ns = sl_deadline_ns(now_ns, FETCH_AGAIN_NS);
    }
    op->fetched = now_ns >= op->fetch_until_ns;
    return !op->fetched;
}

void co_load_fetched(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    bool straight = op->phase == CO_PULL;
    uint32_t part_count = op->engine->part_count, first = op->asked_count;
    uint32_t part_total = op->slice_count * part_count;
    struct co_fetched fetched = {.asked_parts = part_total - first, .late = reply == NULL};
    const struct sl_u64s *codes =
        reply != NULL && reply->code == SL_OK ? &reply->body.bring_reply.codes : NULL;
    for (uint32_t i = first; codes != NULL && i < part_total && i - first < codes->count; i++) {
        uint64_t code = codes->at[i - first];
        struct co_part *part = &op->parts[i];
        if (code == SL_OK) { /* SL_ERR_EXISTS: it was here already, in another tier */
            block_tier(op, i / part_count, CO_TIER_REMOTE);
            fetched.came_parts++;
        }
        fetched.late = fetched.late || code == SL_ERR_TIMEOUT;
        if (code == SL_OK && straight) {
            part->state = CO_PART_PULLED;
        } else if ((code == SL_OK || code == SL_ERR_EXISTS) && part->state == CO_PART_GONE) {
            part->state = CO_PART_OPEN;
        }
    }
    co_wait_fetched(self, op, &fetched);
    if (straight && codes != NULL) {
        co_count(self, self->metric.pulled_count, fetched.came_parts);
        co_count(self, self->metric.pull_copied_bytes, reply->body.bring_reply.copied_bytes);
    }
    co_trace(self, op, straight ? "pulled" : "fetched", "transporter", fetched.came_parts);
    co_load_look(self, op);
}

/* The value's log file is being reclaimed, or too many reads are in flight. That ends by itself,
 * and does not count as a try for space. */
static bool refusal_is_temporary(const struct co_op *op)
{
    return op->refused == SL_ERR_BUSY || op->refused == SL_ERR_LIMIT;
}

/* Continues with the result of a lookup. */
static void load_decide(struct coordinator *self, struct co_op *op, const struct look *look)
{
    if (look->short_of_pins == 0 && look->hole > 0) {
        load_short_of_pins(self, op);
        return;
    }
    uint32_t end = SL_MIN(look->hole, look->short_of_pins), waiting = look->waiting;
    bool ends = look->hole <= look->short_of_pins && look->hole < op->slice_count;
    /* If the engine can compute a block, it is skipped after as many tries as for space. */
    op->wait.over |= waiting == 0 && op->rounds >= CO_PROMOTE_ROUNDS && refusal_is_temporary(op);
    uint32_t cut = waiting < end ? co_wait_plan(self, op, waiting, end, ends) : end;
    if (cut < end) {
        slice_cut(self, op, cut);
        op->last = true;
        ends = false;
        end = cut;
    }
    if (ends && !op->fetched && sl_index_view_remote(self->view) &&
        load_fetch(self, op, look->hole)) {
        return;
    }
    if (ends && fetch_again(self, op)) {
        co_op_enter(self, op, CO_LOOK);
        co_wake(self, op, self->env->now_ns + FETCH_PAUSE_NS);
        return;
    }
    slice_cut(self, op, end);
    op->last |= ends;
    if (look->stale && ++op->stale_rounds < CO_STALE_ROUNDS) {
        co_op_enter(self, op, CO_LOOK);
        return;
    }
    if (waiting < op->slice_count && op->rounds >= CO_PROMOTE_ROUNDS) {
        /* Evicted again and again. The blocks before it are loaded; a slice that begins with it has
         * new tries. */
        co_count(self, self->metric.promote_gave_up_count, 1);
        slice_cut(self, op, waiting);
        if (waiting == 0) {
            bool away = op->refused == SL_ERR_UNREACHABLE;
            load_incomplete(op, 0,
                            away ? "its disk is absent" : "there is no room to read it from disk");
        }
    }
    uint32_t whole = 0;
    while (whole < op->slice_count * op->engine->part_count &&
           (op->parts[whole].state == CO_PART_PINNED || op->parts[whole].state == CO_PART_PULLED)) {
        whole++;
    }
    if (waiting < op->slice_count) {
        co_op_enter(self, op, CO_PROMOTE);
        return;
    }
    if (whole < op->slice_count * op->engine->part_count) { /* an entry keeps changing */
        uint32_t block = whole / op->engine->part_count;
        slice_cut(self, op, block);
        load_incomplete(op, block, "its entry keeps changing");
    }
    if (op->slice_count == 0) {
        co_op_end(self, op, op->code);
        return;
    }
    co_trace(self, op, "pinned", "", op->slice_count);
    if (co_by_layers(op)) {
        co_layers_begin_load(self, op);
    } else {
        co_op_enter(self, op, CO_COPY);
    }
}

void co_load_look(struct coordinator *self, struct co_op *op)
{
    if (!self->pins_known ||
        !sl_index_view_ready(self->env, &self->view)) { /* needs acknowledged pins */
        co_op_enter(self, op, CO_LOOK);
        return;
    }
    struct look look = slice_look(self, op);
    load_decide(self, op, &look);
}

static void load_promoted(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    const struct sl_u64s *codes = &reply->body.bring_reply.codes;
    uint32_t squeezed = op->slice_count;
    bool all = true;
    op->refused = SL_OK;
    for (uint32_t i = 0; i < op->asked_count; i++) {
        uint64_t code =
            reply->code == SL_OK && i < codes->count ? codes->at[i] : (uint64_t)reply->code;
        struct co_part *part = &op->parts[op->asked[i]];
        part->state = CO_PART_OPEN;
        bool here = code == SL_OK || code == SL_ERR_EXISTS;
        all = all && here;
        if (code == SL_ERR_NOT_FOUND || code == SL_ERR_CORRUPT) {
            part->state = CO_PART_GONE;
        } else if (!here && op->refused == SL_OK) {
            squeezed = op->asked[i] / op->engine->part_count;
            op->refused = sl_err_received(code);
        }
    }
    co_wait_answered(self, op, all);
    co_trace(self, op, "promoted", "registrar", op->asked_count);
    op->rounds -= refusal_is_temporary(op) && !co_wait_limited(op) ? 1u : 0u;
    if (squeezed == 0 && op->rounds < CO_PROMOTE_ROUNDS) {
        load_wait(self, op,
                  refusal_is_temporary(op) ? op->slice_count : SL_MAX(op->slice_count / 2, 1u));
        return;
    }
    /* Blocks in memory are loaded first and unpinned: a refusal of a later block ends no load. */
    op->refused = squeezed == 0 ? op->refused : SL_OK;
    slice_cut(self, op, squeezed > 0 ? squeezed : op->slice_count);
    co_load_look(self, op);
}

/* ---- copied ---- */

void co_load_copied(struct coordinator *self, struct co_op *op)
{
    uint32_t part_count = op->engine->part_count;
    uint32_t whole = 0;
    while (whole < op->slice_count * part_count &&
           (op->parts[whole].state == CO_PART_COPIED || op->parts[whole].state == CO_PART_PULLED)) {
        whole++;
    }
    uint32_t loaded = whole / part_count;
    if (loaded < op->slice_count) {
        load_incomplete(op, loaded, "a rank did not copy its part");
    }
    for (uint32_t i = 0; i < loaded; i++) {
        struct co_block *block = &op->blocks[op->slice[i]];
        block->note_ref = op->parts[i * part_count].ref;
        block->note_generation = op->parts[i * part_count].generation;
        block->came_ns = self->env->now_ns;
        op->from_memory += block->tier == CO_TIER_MEMORY ? 1u : 0u;
        op->from_disk += block->tier == CO_TIER_DISK ? 1u : 0u;
        op->from_remote += block->tier == CO_TIER_REMOTE ? 1u : 0u;
        op->bytes += op->engine->block_bytes;
        op->at++;
    }
    bool ended = op->last || op->at == op->block_count;
    load_unpin(self, op, 0);
    if (ended) {
        co_op_end(self, op, op->code);
    } else {
        load_slice(self, op);
    }
}

/* Tails first: when memory is short, heads of chains are worth more. */
void co_load_note(struct coordinator *self, struct co_op *op)
{
    uint64_t how = op->type->kind == CO_STORE ? SL_ACCESS_STORED : 0;
    uint32_t said = sl_packed_hints_pack(&op->said);
    for (uint32_t i = op->block_count; op->blocks != NULL && i-- > 0;) {
        struct co_block *block = &op->blocks[i];
        if (block->note_generation != 0) {
            sl_pins_note_hints(self->pins, block->note_ref, block->note_generation | how, said);
            block->note_generation = 0;
        }
    }
}

/* ---- the type ---- */

void co_load_await(struct coordinator *self, struct co_op *op)
{
    co_op_enter(self, op, CO_AWAIT);
    if (!co_handover_is_committed(op)) {
        return; /* the commit wakes it; otherwise the deadline ends it */
    }
    if (co_handover_matches(self, op)) {
        load_slice(self, op);
    }
}

static void load_go(struct coordinator *self, struct co_op *op)
{
    if (op->handover != NULL) {
        co_load_await(self, op);
    } else {
        load_slice(self, op);
    }
}

static void promote_tick(struct coordinator *self, struct co_op *op)
{
    if (co_wait_is_over(self, op)) {
        co_load_look(self, op);
    }
}

void co_load_done(struct coordinator *self, struct co_op *op)
{
    load_unpin(self, op, 0);
    co_load_note(self, op);
    co_wait_forget(self, op);
}

static const struct co_phase_ops phases[CO_PHASES] = {
    CO_PHASES_OF_ALL,
    [CO_AWAIT] = {.tick = co_load_await},
    [CO_LOOK] = {.enter = look_later, .tick = co_load_look},
    [CO_PROMOTE] = {.enter = load_promote, .reply = load_promoted, .tick = promote_tick},
    [CO_FETCH] = {.reply = co_load_fetched, .unanswered = true},
    [CO_PULL] = {.reply = co_pull_answered, .unanswered = true},
    [CO_COPY] = {.enter = co_copy_start},
    [CO_LAYERS] = {.enter = co_layers_go_load},
};

const struct co_type co_load_type = {
    .kind = CO_LOAD,
    .copied_from = CO_PART_PINNED,
    .go = load_go,
    .copied = co_load_copied,
    .done = co_load_done,
    .phases = phases,
};
