/* tests/fuzz/fuzz_coordinator.c - the coordinator with hostile engines, keyers, swappers,
 * transporters and registrars, over an index that changes: every op ends, every pin is released. */
#include "actors/coordinator/coordinator.h"
#include "actors/coordinator/internal.h"
#include "tests/fuzz/hostile_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define ITEMS_MAX 512u

static const uint32_t requests[] = {
    SL_MSG_STORE, SL_MSG_LOAD,   SL_MSG_STORE,           SL_MSG_LOAD,
    SL_MSG_LOAD,  SL_MSG_CANCEL, SL_MSG_OP_FENCED,       SL_MSG_HELLO_REPLY,
    SL_MSG_PING,  SL_MSG_LAYERS, SL_MSG_HANDOVER_NOTIFY, SL_MSG_LAYERS,
};

/* Peers that claim to be the same process are one process, as in the real environment. */
static sl_err watch_once(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie)
{
    struct hostile *hostile =
        (struct hostile *)env; /* the fake begins with its env, this with it */
    return fake_is_watched(&hostile->fake, proc) ? SL_OK : hostile->fake_watch(env, proc, cookie);
}

static void prepare(struct hostile *hostile)
{
    hostile->fake_watch = hostile->ops.watch;
    hostile->ops.watch = watch_once;
    struct hostile_node *node = malloc(sizeof(*node));
    HOSTILE_MUST(node != NULL);
    hostile_node_make(node, hostile->fake.paths.shm_dir);
    sl_index_set_remote(node->index, true);
    hostile->own = node;
}

static void finish(struct hostile *hostile)
{
    hostile_node_end(hostile->own);
    free(hostile->own);
}

static void world(struct hostile *hostile)
{
    hostile_node_change(hostile->own, hostile);
}

/* ---- answers of well-behaved peers ---- */

static void answer_keys(const struct sl_msg *request, struct sl_msg *reply)
{
    static const char *const names[] = {"b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"};
    static struct sl_text keys[SL_COUNT(names)];
    uint64_t count =
        request->body.keys.tokens.length / 4 / SL_MAX(request->body.keys.block_tokens, 1);
    count = SL_MIN(count + request->body.keys.partial, SL_COUNT(names));
    for (uint64_t i = 0; i < count; i++) {
        keys[i] = sl_text_of(names[i]);
    }
    reply->body.keys_reply.keys = (struct sl_texts){keys, count};
}

static void answer_reserve(struct hostile *hostile, const struct sl_msg *request,
                           struct sl_msg *reply)
{
    static struct sl_item_grant grants[ITEMS_MAX];
    uint64_t count = SL_MIN(request->body.reserve.items.count, SL_COUNT(grants));
    for (uint64_t i = 0; i < count; i++) {
        const struct sl_item_want *want = &request->body.reserve.items.at[i];
        struct sl_extent extent = {0};
        uint64_t how = hostile_byte(&hostile->input);
        sl_ref ref = hostile_node_claim(hostile->own, SL_RECORD_RESERVED, want->key.at,
                                        want->length_bytes, &extent);
        grants[i] = (struct sl_item_grant){.code = ref == 0    ? SL_ERR_NO_SPACE
                                                   : how > 240 ? how % 16
                                                               : SL_OK,
                                           .ref = ref,
                                           .generation = extent.generation,
                                           .offset_bytes = extent.offset_bytes,
                                           .busy_ns = how * SL_NS_PER_MS};
    }
    reply->body.reserve_reply.items.at = grants;
    reply->body.reserve_reply.items.count = count;
}

static void answer_copy(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply)
{
    static unsigned char done[ITEMS_MAX / 8];
    static unsigned char digests[ITEMS_MAX * 16];
    static unsigned char chunks[ITEMS_MAX * 8];
    uint64_t whole = 0; /* values are one chunk, complete with their last layer */
    uint64_t count = SL_MIN(request->body.copy.items.count, ITEMS_MAX);
    memset(done, hostile_byte(&hostile->input) < 192 ? 0xff : 0x5b, sizeof(done));
    reply->body.copy_reply.done = (struct sl_bytes){done, (count + 7) / 8};
    for (uint64_t i = 0; i < count; i++) {
        whole += request->body.copy.items.at[i].layer_end == NODE_LAYERS ? 1 : 0;
    }
    if (request->body.copy.chunks) {
        reply->body.copy_reply.chunks = (struct sl_bytes){chunks, whole * 8};
    } else if (request->body.copy.out) {
        reply->body.copy_reply.digests = (struct sl_bytes){digests, count * 16};
    }
}

/* The blocks of other nodes: all, the first ones, or some that have arrived here meanwhile. */
static struct sl_u64s came_codes(struct hostile *hostile, uint64_t item_count)
{
    static uint64_t codes[ITEMS_MAX];
    uint64_t count = SL_MIN(item_count, ITEMS_MAX), how = hostile_byte(&hostile->input);
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = how < 128 || i < how % 8 ? SL_OK
                   : how % 3 == 0           ? SL_ERR_EXISTS
                                            : SL_ERR_NOT_FOUND;
    }
    return (struct sl_u64s){codes, count};
}

static void answered(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply)
{
    switch (request->type) {
    case SL_MSG_BRING:
        reply->body.bring_reply.codes = came_codes(hostile, request->body.bring.keys.count);
        break;
    case SL_MSG_ENGINE_GET:
        hostile_node_engine(hostile->own, &reply->body.engine_get_reply);
        reply->body.engine_get_reply.engine_id = request->body.engine_get.engine_id;
        break;
    case SL_MSG_KEYS:
        answer_keys(request, reply);
        break;
    case SL_MSG_RESERVE:
        answer_reserve(hostile, request, reply);
        break;
    case SL_MSG_COPY:
        answer_copy(hostile, request, reply);
        break;
    default:
        break;
    }
}

/* ---- invariants ---- */

static void check(struct hostile *hostile, bool end)
{
    const struct coordinator *self = hostile->fake.state;
    uint32_t active = 0;
    if (self == NULL) {
        return;
    }
    for (const struct co_op *op = self->active_first; op != NULL; op = op->newer) {
        HOSTILE_MUST(++active <= self->op_max);
    }
    HOSTILE_MUST(active == self->op_active);
    uint32_t used = 0;
    for (uint32_t i = 0; i < self->engine_max; i++) {
        used += self->engines[i].ops;
    }
    HOSTILE_MUST(used <= active);
    if (end) {
        HOSTILE_MUST(active == 0);
        HOSTILE_MUST(self->pins_taken == 0 && sl_pins_pinned_bytes(self->pins) == 0);
    }
}

static const char *const settings[] = {"memory",
                                       "1MiB",
                                       "index_memory",
                                       "1MiB",
                                       "ranks",
                                       "2",
                                       "queue_messages",
                                       "16",
                                       "engines_max",
                                       "2",
                                       "clients_max",
                                       "8",
                                       "client_pins_max",
                                       "16",
                                       "fabric",
                                       "tcp",
                                       "fabric_pools",
                                       "true",
                                       "cache_remote_loads",
                                       "false",
                                       NULL};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static const struct hostile_target target = {
        .actor = &sl_coordinator_actor,
        .settings = settings,
        .requests = requests,
        .request_count = SL_COUNT(requests),
        .restarts = true,
        .prepare = prepare,
        .world = world,
        .answered = answered,
        .check = check,
        .finish = finish,
    };
    hostile_run(&target, bytes, length_bytes);
    return 0;
}
