/* client/lib/layers.c - stores and loads by layers. */
#include "client/lib/op.h"

#include <inttypes.h>
#include <stdlib.h>

/* Time for the first message of a process to the coordinator. */
#define FIRST_REPORT_NS (100 * SL_NS_PER_MS)
/* Time for which an op may be unknown to the coordinator: its request is in flight, or resent to a
 * restarted coordinator. After this the op has ended. */
#define UNKNOWN_NS SL_NS_PER_S

/* The number of layers in each of the pool's parts. 0: no rank of it is in this process. */
static uint32_t pool_layers(const struct sl_engine *engine, uint32_t pool)
{
    const struct sl_item_region *first = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->region_count; i++) {
        const struct sl_item_region *region = &engine->regions[i];
        if (region->pool == pool) {
            first = first == NULL ? region : first;
            count += region->rank == first->rank && region->part == first->part ? 1u : 0u;
        }
    }
    return count;
}

sl_err sl_op_layers_make(struct sl_op *op, const struct sl_op_request *request,
                         struct sl_error *why)
{
    const struct sl_engine *engine = op->engine;
    struct sl_op_layers *layers = &op->layers;
    if (request->layer_count == 0) {
        return SL_OK;
    }
    if (request->layer_count > SL_LAYERS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "op: at most %u layers, not %u", SL_LAYERS_MAX,
                       request->layer_count);
    }
    layers->ends = malloc((size_t)request->layer_count * engine->pool_count * sizeof *layers->ends);
    if (layers->ends == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u layers", request->layer_count);
    }
    layers->count = request->layer_count;
    layers->entry_count = (uint64_t)request->layer_count * engine->pool_count;
    for (uint32_t pool = 0; pool < engine->pool_count; pool++) {
        uint32_t have = pool_layers(engine, pool);
        if (request->layer_ends == NULL && (have == 0 || have % layers->count != 0)) {
            return sl_fail(
                why, SL_ERR_INVALID,
                "op: the %u layers of pool %s do not divide evenly by %u: set layer_ends", have,
                engine->pool_names[pool], layers->count);
        }
        for (uint32_t i = 0; i < layers->count; i++) {
            uint32_t at = i * engine->pool_count + pool;
            layers->ends[at] = request->layer_ends != NULL ? request->layer_ends[at]
                                                           : (i + 1) * (have / layers->count);
        }
    }
    return SL_OK;
}

static sl_err layer_check(const struct sl_op *op, uint32_t layer, bool store, struct sl_error *why)
{
    if (op->layers.count == 0 || op->store != store) {
        return sl_fail(why, SL_ERR_INVALID, "the op is not a %s by layers",
                       store ? "store" : "load");
    }
    return layer < op->layers.count
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "layer %u: the op has %u", layer, op->layers.count);
}

/* Returns the result of an ended op by layers. */
static sl_err layer_op_ended(struct sl_op *op, struct sl_error *why)
{
    sl_op_settle(op);
    if (op->result.code != SL_OK && why != NULL) {
        *why = op->result.why;
    }
    return op->result.code;
}

/* Reports the first `layers` layers as ready; a resent STORE includes them. */
static sl_err layers_report(struct sl_op *op, uint32_t layers, struct sl_error *why)
{
    struct sl_client *client = op->engine->client;
    struct sl_msg ready = {.type = SL_MSG_LAYERS};
    pthread_mutex_lock(&client->lock);
    bool said = layers <= op->layers.ready;
    op->layers.ready = SL_MAX(op->layers.ready, layers);
    op->call.msg.body.store.layers_ready = op->layers.ready;
    bool done = op->call.done, sent = op->call.ever_sent;
    pthread_mutex_unlock(&client->lock);
    if (done) {
        return layer_op_ended(op, why);
    }
    ready.op_id = op->result.op_id;
    ready.trace_id = op->result.trace_id;
    ready.body.layers.target_op = op->result.op_id;
    ready.body.layers.layers = layers;
    if (!said &&
        (!sent || !sl_client_send(client, "coordinator", &ready,
                                  sl_budget_ns(sl_clock_monotonic_ns(), op->call.deadline_ns)))) {
        pthread_mutex_lock(&client->lock);
        op->call.next_send_ns = 0;
        pthread_mutex_unlock(&client->lock);
        (void)sl_client_call_wait(client, &op->call, 0);
    }
    return SL_OK;
}

sl_err sl_op_layer_ready(struct sl_op *op, uint32_t layer, struct sl_error *why)
{
    struct sl_client *client = op->engine->client;
    sl_err err = layer_check(op, layer, true, why);
    if (err != SL_OK) {
        return err;
    }
    pthread_mutex_lock(&client->lock);
    uint32_t next = op->layers.ready;
    pthread_mutex_unlock(&client->lock);
    if (layer != next) {
        return layer < next
                   ? sl_fail(why, SL_ERR_EXISTS, "layer %u was reported before", layer)
                   : sl_fail(why, SL_ERR_INVALID, "layer %u: report layer %u first", layer, next);
    }
    return layers_report(op, layer + 1, why);
}

sl_err sl_op_layers_ready(struct sl_op *op, uint32_t layers, struct sl_error *why)
{
    sl_err err = layers == 0 ? SL_OK : layer_check(op, layers - 1, true, why);
    return err != SL_OK || layers == 0 ? err : layers_report(op, layers, why);
}

uint64_t sl_op_number(struct sl_op *op)
{
    struct sl_client *client = op->engine->client;
    uint64_t now_ns = sl_clock_monotonic_ns(), until_ns = sl_deadline_ns(now_ns, FIRST_REPORT_NS);
    for (bool unsent = true; unsent && now_ns < until_ns; now_ns = sl_clock_monotonic_ns()) {
        pthread_mutex_lock(&client->lock);
        unsent = !op->call.done && !op->call.ever_sent;
        pthread_mutex_unlock(&client->lock);
        if (unsent) {
            (void)sl_client_call_wait(client, &op->call, now_ns + SL_NS_PER_MS);
        }
    }
    return op->result.op_id;
}

/* Under the client's lock. A resent LOAD includes the layers that were reported. */
static void layer_wait_answered(void *context, const struct sl_msg *reply)
{
    struct sl_op *op = context;
    const struct sl_body_layers_reply *body = &reply->body.layers_reply;
    if (reply->code != SL_OK || body->layers <= op->layers.in || body->layers > op->layers.count ||
        body->block_count > op->block_count) {
        return;
    }
    op->layers.in = (uint32_t)body->layers;
    op->layers.in_blocks = (uint32_t)body->block_count;
    op->call.msg.body.load.layers_in = body->layers;
    op->call.msg.body.load.layer_blocks = body->block_count;
}

static sl_err layer_ask(struct sl_op *op, uint32_t layer, uint64_t deadline_ns,
                        struct sl_error *why)
{
    struct sl_client_call call = {.to = "coordinator",
                                  .deadline_ns = deadline_ns,
                                  .answered = layer_wait_answered,
                                  .context = op};
    call.msg.type = SL_MSG_LAYERS;
    call.msg.op_id = op->result.op_id;
    call.msg.trace_id = op->result.trace_id;
    call.msg.body.layers =
        (struct sl_body_layers){.target_op = op->result.op_id, .layers = layer + 1, .wait = true};
    return sl_client_call(op->engine->client, &call, why);
}

sl_err sl_op_layer_wait(struct sl_op *op, uint32_t layer, uint64_t timeout_ns,
                        uint32_t *block_count, struct sl_error *why)
{
    struct sl_client *client = op->engine->client;
    uint64_t until_ns = SL_MIN(sl_client_deadline(client, timeout_ns), op->call.deadline_ns);
    sl_err err = layer_check(op, layer, false, why);
    if (err != SL_OK) {
        return err;
    }
    for (;;) {
        if (sl_client_call_wait(client, &op->call, 0)) {
            err = layer_op_ended(op, why);
            *block_count = err == SL_OK ? op->result.block_count : *block_count;
            return err;
        }
        pthread_mutex_lock(&client->lock);
        bool in = layer < op->layers.in;
        uint32_t blocks = op->layers.in_blocks;
        pthread_mutex_unlock(&client->lock);
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (in) {
            *block_count = blocks;
            return SL_OK;
        }
        if (now_ns >= until_ns && until_ns < op->call.deadline_ns) {
            return sl_fail(why, SL_ERR_TIMEOUT, "layer %u is not loaded yet", layer);
        }
        err = now_ns < until_ns ? layer_ask(op, layer, until_ns, NULL) : SL_ERR_TIMEOUT;
        /* Not found: a restarted coordinator has not seen the LOAD yet. */
        bool again = err == SL_ERR_NOT_FOUND || sl_err_class(err) == SL_CLASS_RETRY;
        if (err != SL_OK && !again) {
            /* The op has ended, and its own answer is about to arrive; or the coordinator has no
             * layers: they are complete when the op ends. */
            (void)sl_client_call_wait(client, &op->call, until_ns);
        } else if (err != SL_OK) {
            (void)sl_client_call_wait(client, &op->call, SL_MIN(until_ns, now_ns + FENCE_PAUSE_NS));
        }
    }
}

/* ---- layers of an op that another process started ---- */

static sl_err rank_check(const struct sl_engine *engine, const struct sl_rank_layers *what,
                         struct sl_error *why)
{
    if (what->op_number == 0 || what->layers == 0 || what->layers > SL_LAYERS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "the first %u layers of op %016" PRIx64, what->layers,
                       what->op_number);
    }
    return what->rank >= engine->first_rank && what->rank - engine->first_rank < engine->rank_count
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "rank %u is not in this process: ranks %u to %u are",
                         what->rank, engine->first_rank, engine->first_rank + engine->rank_count);
}

static struct sl_msg rank_message(const struct sl_engine *engine, bool wait,
                                  const struct sl_rank_layers *what)
{
    struct sl_msg msg = {.type = SL_MSG_LAYERS, .op_id = what->op_number};
    msg.body.layers = (struct sl_body_layers){
        .target_op = what->op_number,
        .rank_layers = what->layers,
        .rank = what->rank,
        .member = atomic_load_explicit(&engine->registration, memory_order_acquire),
        .wait = wait};
    return msg;
}

/* Under the client's lock. */
static void rank_answered(void *context, const struct sl_msg *reply)
{
    struct sl_layers_in *out = context;
    if (reply->code == SL_OK && out != NULL) {
        out->layers = (uint32_t)reply->body.layers_reply.layers;
        out->block_count = (uint32_t)reply->body.layers_reply.block_count;
    }
}

/* Repeats the request until it is answered. */
static sl_err rank_ask(struct sl_engine *engine, bool wait, const struct sl_rank_layers *what,
                       uint64_t deadline_ns, struct sl_layers_in *out, struct sl_error *why)
{
    struct sl_client *client = engine->client;
    struct sl_error refused = {0}; /* the last refusal, more informative than a timeout */
    uint64_t unknown_until_ns = 0;
    for (;;) {
        struct sl_error reason = {0};
        struct sl_client_call call = {.to = "coordinator",
                                      .deadline_ns = deadline_ns,
                                      .answered = rank_answered,
                                      .context = out,
                                      .msg = rank_message(engine, wait, what)};
        sl_err err = sl_client_call(client, &call, &reason);
        bool again = err == SL_ERR_NOT_FOUND || err == SL_ERR_LIMIT || err == SL_ERR_BUSY;
        uint64_t now_ns = sl_clock_monotonic_ns();
        refused = again ? reason : refused;
        if (err == SL_ERR_NOT_FOUND && unknown_until_ns == 0) {
            unknown_until_ns = sl_deadline_ns(now_ns, UNKNOWN_NS);
        }
        if (!again || now_ns + FENCE_PAUSE_NS >= deadline_ns ||
            (err == SL_ERR_NOT_FOUND && now_ns >= unknown_until_ns)) {
            bool over = err == SL_ERR_TIMEOUT && refused.code != SL_OK;
            return err == SL_OK ? SL_OK
                                : sl_fail(why, over ? refused.code : err, "%s",
                                          over ? refused.text : reason.text);
        }
        sl_client_sleep(FENCE_PAUSE_NS);
    }
}

sl_err sl_layers_ready(struct sl_engine *engine, const struct sl_rank_layers *what,
                       uint64_t timeout_ns, struct sl_error *why)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    uint64_t until_ns = sl_deadline_ns(now_ns, timeout_ns != 0 ? timeout_ns : FIRST_REPORT_NS);
    sl_err err = rank_check(engine, what, why);
    if (err == SL_OK) {
        err = sl_engine_ready(engine, until_ns, why);
    }
    if (err != SL_OK) {
        return err;
    }
    struct sl_msg ready = rank_message(engine, false, what);
    if (timeout_ns == 0 && sl_client_send(engine->client, "coordinator", &ready, FIRST_REPORT_NS)) {
        return SL_OK;
    }
    return rank_ask(engine, false, what, until_ns, NULL, why);
}

sl_err sl_layers_wait(struct sl_engine *engine, const struct sl_rank_layers *what,
                      uint64_t timeout_ns, struct sl_layers_in *out, struct sl_error *why)
{
    uint64_t until_ns = sl_client_deadline(engine->client, timeout_ns);
    struct sl_layers_in in = {0};
    sl_err err = rank_check(engine, what, why);
    if (err == SL_OK) {
        err = sl_engine_ready(engine, until_ns, why);
    }
    if (err == SL_OK) {
        err = rank_ask(engine, true, what, until_ns, &in, why);
    }
    if (err == SL_OK && in.layers < what->layers) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "%u layers are loaded, %u were awaited", in.layers,
                      what->layers);
    }
    if (err == SL_OK) {
        *out = in;
    }
    return err;
}
