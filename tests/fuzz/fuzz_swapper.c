/* tests/fuzz/fuzz_swapper.c - a swapper with hostile coordinators and engines: it copies between
 * registered memory and extents of the arena, or it refuses; every COPY ends. */
#include "actors/swapper/swapper.h"
#include "tests/fuzz/hostile_node.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

static const uint32_t requests[] = {
    SL_MSG_COPY,        SL_MSG_COPY, SL_MSG_COPY,      SL_MSG_FENCE,     SL_MSG_ENGINE_END,
    SL_MSG_HELLO_REPLY, SL_MSG_PING, SL_MSG_POOL_MAKE, SL_MSG_POOL_DROP, SL_MSG_ENGINE_OVER,
};

static void prepare(struct hostile *hostile)
{
    struct hostile_node *node = malloc(sizeof(*node));
    HOSTILE_MUST(node != NULL);
    hostile_node_make(node, hostile->fake.paths.shm_dir);
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

static void answered(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply)
{
    if (request->type == SL_MSG_ENGINE_GET) {
        hostile_node_engine(hostile->own, &reply->body.engine_get_reply);
        reply->body.engine_get_reply.engine_id = request->body.engine_get.engine_id;
    }
}

static const char *const settings[] = {
    "memory", "1MiB",        "ranks", "2",           "rank", "0", "swap_staging",
    "64KiB",  "engines_max", "2",     "clients_max", "8",    NULL};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static const struct hostile_target target = {
        .actor = &sl_swapper_actor,
        .settings = settings,
        .requests = requests,
        .request_count = SL_COUNT(requests),
        .restarts = true,
        .prepare = prepare,
        .world = world,
        .answered = answered,
        .finish = finish,
    };
    hostile_run(&target, bytes, length_bytes);
    return 0;
}
