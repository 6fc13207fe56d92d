/* ipc/msg/sl_calls.c - outstanding requests: stored frames, resends, deadlines.
 *
 * Slots are an array. A hash table finds them by sequence number, and a heap orders them by due
 * time (of a resend or the deadline), so the cost depends on the calls that are due and not on
 * all. */
#include "ipc/msg/msg_internal.h"
#include "runtime/base/sl_backoff.h"
#include "runtime/base/sl_heap.h"
#include "runtime/base/sl_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
/* A slot keeps a frame buffer up to this size for its next call. */
#define SLOT_KEEPS_BYTES 4096u
/* Bound of all stored frames together, in frames of maximum size. */
#define KEPT_FRAMES_MAX        4u
#define CALL_RETRY_STANDARD_NS (100 * SL_NS_PER_MS)

struct slot {
    struct sl_call call;
    struct sl_table_node node; /* by sequence number */
    uint64_t trace_id;
    uint64_t deadline_ns;
    uint64_t refused_retry_ns;
    unsigned char *frame;
    uint64_t frame_bytes;
    uint64_t capacity_bytes;
    uint64_t budget_offset_bytes;
    uint32_t free_next;
};

struct sl_calls {
    struct sl_env *env;
    struct slot *slots;
    struct sl_heap due; /* slots, by next resend or deadline */
    struct sl_table by_seq;
    uint64_t kept_bytes;
    uint64_t kept_bytes_max;
    uint64_t retry_ns;
    uint32_t free_head;
    uint32_t count_max;
};

/* ---- slots ---- */

static struct slot *slot_find(const struct sl_calls *calls, uint64_t seq)
{
    return SL_TABLE_FIRST(&calls->by_seq, sl_table_hash(seq), struct slot, node);
}

static void slot_end(struct sl_calls *calls, struct slot *slot)
{
    uint32_t number = (uint32_t)(slot - calls->slots);
    sl_table_remove(&calls->by_seq, &slot->node);
    sl_heap_clear(&calls->due, number);
    calls->kept_bytes -= slot->frame_bytes;
    slot->frame_bytes = 0;
    if (slot->capacity_bytes > SLOT_KEEPS_BYTES) {
        free(slot->frame);
        slot->frame = NULL;
        slot->capacity_bytes = 0;
    }
    slot->free_next = calls->free_head;
    calls->free_head = number;
}

static sl_err slot_keep_frame(struct slot *slot, const struct sl_codec *codec)
{
    if (codec->frame_bytes > slot->capacity_bytes) {
        uint64_t capacity = SL_MAX(codec->frame_bytes, UINT64_C(512));
        unsigned char *grown = realloc(slot->frame, capacity);
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        slot->frame = grown;
        slot->capacity_bytes = capacity;
    }
    memcpy(slot->frame, codec->frame, codec->frame_bytes);
    slot->frame_bytes = codec->frame_bytes;
    slot->budget_offset_bytes = codec->budget_offset_bytes;
    return SL_OK;
}

/* ---- API ---- */

static sl_err calls_allocate(struct sl_calls *calls, uint32_t count_max)
{
    calls->slots = calloc(count_max, sizeof(*calls->slots));
    if (calls->slots == NULL || !sl_table_reserve(&calls->by_seq, count_max) ||
        sl_heap_init(&calls->due, count_max, NULL) != SL_OK) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count_max; i++) {
        calls->slots[i].free_next = i + 1 < count_max ? i + 1 : NONE;
    }
    calls->count_max = count_max;
    return SL_OK;
}

sl_err sl_calls_create(struct sl_env *env, uint32_t count_max, struct sl_calls **out,
                       struct sl_error *why)
{
    if (count_max == 0 || count_max > (1u << 24)) {
        return sl_fail(why, SL_ERR_INVALID, "table of %" PRIu32 " calls is not in 1..2^24",
                       count_max);
    }
    struct sl_calls *calls = calloc(1, sizeof(*calls));
    if (calls == NULL || calls_allocate(calls, count_max) != SL_OK) {
        sl_calls_destroy(&calls);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a table of %" PRIu32 " calls",
                       count_max);
    }
    calls->env = env;
    calls->retry_ns = CALL_RETRY_STANDARD_NS;
    calls->kept_bytes_max = KEPT_FRAMES_MAX * SL_FRAME_BYTES_STANDARD;
    if (env->config != NULL) {
        calls->retry_ns = sl_config_u64(env->config, SL_SET_call_retry);
        calls->kept_bytes_max =
            KEPT_FRAMES_MAX * sl_config_u64(env->config, SL_SET_message_bytes_max);
    }
    *out = calls;
    return SL_OK;
}

void sl_calls_destroy(struct sl_calls **calls)
{
    if (calls == NULL || *calls == NULL) {
        return;
    }
    struct sl_calls *self = *calls;
    for (uint32_t i = 0; self->slots != NULL && i < self->count_max; i++) {
        free(self->slots[i].frame);
    }
    free(self->slots);
    sl_heap_fini(&self->due);
    sl_table_fini(&self->by_seq);
    free(self);
    *calls = NULL;
}

/* Sends the stored frame with the remaining budget, and returns when it is due again. */
static uint64_t slot_transmit(struct sl_calls *calls, struct slot *slot, uint64_t now_ns)
{
    sl_frame_set_budget(slot->frame, slot->budget_offset_bytes,
                        sl_budget_ns(now_ns, slot->deadline_ns));
    sl_err err =
        calls->env->ops->send(calls->env, slot->call.to, slot->frame, slot->frame_bytes, false);
    uint64_t retry_ns = calls->retry_ns;
    if (err != SL_OK) {
        retry_ns = sl_backoff_next(&slot->refused_retry_ns, calls->retry_ns);
    } else {
        slot->refused_retry_ns = SL_RESEND_REFUSED_NS;
        const struct sl_msg shown = {.type = slot->call.type, .trace_id = slot->trace_id};
        sl_msg_trace(calls->env, &shown, true, slot->call.to);
    }
    return SL_MIN(sl_deadline_ns(now_ns, retry_ns), slot->deadline_ns);
}

static void calls_wish_wake_up(struct sl_calls *calls)
{
    uint64_t next_ns = sl_heap_next_ns(&calls->due);
    if (next_ns != SL_NEVER_NS) {
        calls->env->ops->wake_at(calls->env, next_ns);
    }
}

static sl_err calls_encode(struct sl_calls *calls, const struct sl_msg *filled,
                           struct sl_codec **codec)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    struct sl_error why = {0};
    sl_err err = sl_thread_codec(calls->env, codec, &why);
    if (err == SL_OK) {
        err = sl_codec_encode(*codec, filled, &frame, &length_bytes, &why);
    }
    if (err != SL_OK) {
        sl_log_write(calls->env->log, SL_LOG_ERROR, filled->trace_id, "request not encoded: %s",
                     why.text);
    }
    return err;
}

sl_err sl_calls_send(struct sl_calls *calls, const char *to, const struct sl_msg *msg,
                     uint64_t deadline_ns, uint64_t cookie, uint64_t *seq)
{
    uint64_t now_ns = calls->env->now_ns;
    uint32_t number = calls->free_head;
    size_t to_length = strlen(to);
    if (to_length > SL_NAME_BYTES_MAX || SL_MSG_IS_REPLY(msg->type)) {
        return SL_ERR_INVALID;
    }
    if (number == NONE) {
        return SL_ERR_LIMIT;
    }
    struct sl_msg filled = *msg;
    filled.sender = sl_text_of(calls->env->name);
    filled.seq = sl_env_next_seq(calls->env);
    filled.budget_ns = sl_budget_ns(now_ns, deadline_ns);
    struct sl_codec *codec = NULL;
    sl_err err = calls_encode(calls, &filled, &codec);
    if (err != SL_OK) {
        return err;
    }
    if (calls->kept_bytes + codec->frame_bytes > calls->kept_bytes_max) {
        return SL_ERR_LIMIT;
    }
    struct slot *slot = &calls->slots[number];
    err = slot_keep_frame(slot, codec);
    if (err != SL_OK) {
        return err;
    }
    calls->free_head = slot->free_next;
    slot->call = (struct sl_call){.cookie = cookie, .op_id = msg->op_id, .type = msg->type};
    memcpy(slot->call.to, to, to_length + 1);
    slot->trace_id = msg->trace_id;
    slot->deadline_ns = deadline_ns;
    slot->refused_retry_ns = SL_RESEND_REFUSED_NS;
    uint64_t due_ns = deadline_ns > now_ns ? slot_transmit(calls, slot, now_ns) : deadline_ns;
    calls->kept_bytes += slot->frame_bytes;
    sl_table_add(&calls->by_seq, &slot->node, sl_table_hash(filled.seq));
    sl_heap_set(&calls->due, number, due_ns);
    calls_wish_wake_up(calls);
    if (seq != NULL) {
        *seq = filled.seq;
    }
    return SL_OK;
}

bool sl_calls_match(struct sl_calls *calls, const struct sl_msg *reply, struct sl_call *out)
{
    struct slot *slot = slot_find(calls, reply->reply_to);
    if (slot == NULL) {
        return false;
    }
    const struct sl_call *call = &slot->call;
    size_t to_length = strlen(call->to);
    if (reply->type != call->type + 1 || reply->sender.length != to_length ||
        memcmp(reply->sender.at, call->to, to_length) != 0) {
        return false;
    }
    if (reply->code == SL_ERR_DRAINING) { /* it did nothing and will exit: ask its successor */
        uint64_t due_ns = sl_deadline_ns(calls->env->now_ns, SL_RESEND_DRAINING_NS);
        sl_heap_set(&calls->due, (uint32_t)(slot - calls->slots),
                    SL_MIN(due_ns, slot->deadline_ns));
        calls_wish_wake_up(calls);
        return false;
    }
    *out = *call;
    slot_end(calls, slot);
    return true;
}

bool sl_calls_expired(struct sl_calls *calls, uint64_t now_ns, struct sl_call *out)
{
    while (calls->due.count > 0 && calls->due.items[0].at_ns <= now_ns) {
        uint32_t number = calls->due.items[0].id;
        struct slot *slot = &calls->slots[number];
        if (slot->deadline_ns <= now_ns) {
            *out = slot->call;
            slot_end(calls, slot);
            return true;
        }
        sl_heap_set(&calls->due, number, slot_transmit(calls, slot, now_ns));
    }
    calls_wish_wake_up(calls);
    return false;
}

void sl_calls_drop(struct sl_calls *calls, uint64_t seq)
{
    struct slot *slot = slot_find(calls, seq);
    if (slot != NULL) {
        slot_end(calls, slot);
    }
}

uint32_t sl_calls_count(const struct sl_calls *calls)
{
    return calls->by_seq.count;
}
