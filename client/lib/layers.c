/* client/lib/layers.c - stores and loads by layers. */
#include "client/lib/op.h"

#include <stdlib.h>

/* The layers of a pool: those of rank 0, as of all. */
static uint32_t pool_layers(const struct sl_engine *engine, uint32_t pool)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->region_count; i++) {
        count += engine->regions[i].rank == 0 && engine->regions[i].pool == pool ? 1u : 0u;
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
        if (request->layer_ends == NULL && have % layers->count != 0) {
            return sl_fail(why, SL_ERR_INVALID,
                           "op: the %u layers of pool %s do not go evenly into %u: say layer_ends",
                           have, engine->pool_names[pool], layers->count);
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
        return sl_fail(why, SL_ERR_INVALID, "the op is no %s by layers", store ? "store" : "load");
    }
    return layer < op->layers.count
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "layer %u: the op has %u", layer, op->layers.count);
}

/* The end of an op by layers. */
static sl_err layer_op_ended(struct sl_op *op, struct sl_error *why)
{
    sl_op_settle(op);
    if (op->result.code != SL_OK && why != NULL) {
        *why = op->result.why;
    }
    return op->result.code;
}

sl_err sl_op_layer_ready(struct sl_op *op, uint32_t layer, struct sl_error *why)
{
    struct sl_client *client = op->engine->client;
    struct sl_msg ready = {.type = SL_MSG_LAYER_READY};
    sl_err err = layer_check(op, layer, true, why);
    if (err != SL_OK) {
        return err;
    }
    pthread_mutex_lock(&client->lock);
    uint32_t next = op->layers.ready;
    if (layer == next) { /* the STORE says so too, when it comes again */
        op->layers.ready = layer + 1;
        op->call.msg.body.store.layers_ready = layer + 1;
    }
    bool done = op->call.done, sent = op->call.ever_sent;
    pthread_mutex_unlock(&client->lock);
    if (layer != next) {
        return layer < next
                   ? sl_fail(why, SL_ERR_EXISTS, "layer %u was ready before", layer)
                   : sl_fail(why, SL_ERR_INVALID, "layer %u: layer %u comes first", layer, next);
    }
    if (done) {
        return layer_op_ended(op, why);
    }
    ready.op_id = op->result.op_id;
    ready.trace_id = op->result.trace_id;
    ready.body.layer_ready.target_op = op->result.op_id;
    ready.body.layer_ready.layers = layer + 1;
    if (!sent || !sl_client_tell(client, "coordinator", &ready,
                                 sl_budget_ns(sl_clock_monotonic_ns(), op->call.deadline_ns))) {
        pthread_mutex_lock(&client->lock);
        op->call.next_send_ns = 0;
        pthread_mutex_unlock(&client->lock);
        (void)sl_client_call_wait(client, &op->call, 0);
    }
    return SL_OK;
}

/* Under the client's lock. A LOAD that comes again says what was told of it. */
static void layer_wait_answered(void *context, const struct sl_msg *reply)
{
    struct sl_op *op = context;
    const struct sl_body_layer_wait_reply *body = &reply->body.layer_wait_reply;
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
    call.msg.type = SL_MSG_LAYER_WAIT;
    call.msg.op_id = op->result.op_id;
    call.msg.trace_id = op->result.trace_id;
    call.msg.body.layer_wait.target_op = op->result.op_id;
    call.msg.body.layer_wait.layers = layer + 1;
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
            return sl_fail(why, SL_ERR_TIMEOUT, "layer %u is not in", layer);
        }
        err = now_ns < until_ns ? layer_ask(op, layer, until_ns, NULL) : SL_ERR_TIMEOUT;
        /* Not found: a coordinator that was started anew has not seen the LOAD yet. */
        bool again = err == SL_ERR_NOT_FOUND || sl_err_class(err) == SL_CLASS_RETRY;
        if (err != SL_OK && !again) {
            /* The op's end, which comes with its own answer; or a coordinator that does not know
             * layers: they are in when the op ends. */
            (void)sl_client_call_wait(client, &op->call, until_ns);
        } else if (err != SL_OK) {
            (void)sl_client_call_wait(client, &op->call, SL_MIN(until_ns, now_ns + FENCE_PAUSE_NS));
        }
    }
}
