/* tests/fuzz/fuzz_small_actors.c - keyer and transporter with hostile peers: both answer within the
 * handler, so every request is answered at once. */
#include "actors/keyer/keyer.h"
#include "actors/transporter/transporter.h"
#include "tests/fuzz/hostile_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

static const uint32_t keyer_requests[] = {SL_MSG_KEYS, SL_MSG_KEYS, SL_MSG_KEYS, SL_MSG_PING};
static const uint32_t transporter_requests[] = {SL_MSG_NODES, SL_MSG_HELLO_REPLY, SL_MSG_PING,
                                                SL_MSG_FENCE};

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

static void check(struct hostile *hostile, bool end)
{
    (void)end;
    for (uint32_t i = 0; i < hostile->given_count; i++) {
        const struct hostile_request_in *given = &hostile->given[i];
        HOSTILE_MUST(given->answered == given->given || hostile->lossy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    struct hostile_target target = {
        .actor = &sl_keyer_actor,
        .requests = keyer_requests,
        .request_count = SL_COUNT(keyer_requests),
        .restarts = true,
        .check = check,
    };
    if (length_bytes > 0 && (bytes[0] & 7) == 7) {
        target.actor = &sl_transporter_actor;
        target.requests = transporter_requests;
        target.request_count = SL_COUNT(transporter_requests);
        target.prepare = prepare;
        target.finish = finish;
    }
    hostile_run(&target, bytes, length_bytes);
    return 0;
}
