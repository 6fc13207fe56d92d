/* client/lib/prefetch.c - asking for values ahead of their use. */
#include "client/lib/internal.h"

#include <stdlib.h>

struct prefetching {
    sl_err *codes;
    uint32_t count;
};

static void prefetching_taken(void *context, const struct sl_msg *reply)
{
    const struct prefetching *prefetching = context;
    const struct sl_u64s *codes = &reply->body.prefetch_reply.codes;
    if (reply->code != SL_OK || codes->count != prefetching->count) {
        return;
    }
    for (uint32_t i = 0; i < prefetching->count; i++) {
        prefetching->codes[i] = sl_err_received(codes->at[i]);
    }
}

/* Asks for as many of the keys as one message holds; gives how many those are. texts: room for all. */
static uint32_t prefetch_share(struct sl_client *client, const struct sl_object_key *keys,
                               uint32_t count, struct sl_text *texts, sl_err *codes,
                               uint64_t deadline_ns)
{
    struct prefetching prefetching = {.codes = codes,
                                      .count = sl_client_keys_share(client, keys, count, texts)};
    for (uint32_t i = 0; i < prefetching.count; i++) {
        codes[i] = SL_ERR_PROTOCOL;
    }
    struct sl_client_call call = {.to = "registrar",
                                  .deadline_ns = deadline_ns,
                                  .answered = prefetching_taken,
                                  .context = &prefetching};
    call.msg.type = SL_MSG_PREFETCH;
    call.msg.body.prefetch.keys.at = texts;
    call.msg.body.prefetch.keys.count = prefetching.count;
    sl_err err = sl_client_call(client, &call, NULL);
    for (uint32_t i = 0; i < prefetching.count && err != SL_OK; i++) {
        codes[i] = err;
    }
    return prefetching.count;
}

sl_err sl_prefetch_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                         sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    sl_err err = sl_client_keys_check("prefetch", keys, count, why);
    err = err == SL_OK ? sl_client_greet(client, deadline_ns, why) : err;
    if (err != SL_OK || count == 0) {
        return err;
    }
    struct sl_text *texts = malloc(count * sizeof *texts);
    if (texts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "prefetch: %u keys", count);
    }
    for (uint32_t first = 0; first < count;) {
        first +=
            prefetch_share(client, &keys[first], count - first, texts, &codes[first], deadline_ns);
    }
    free(texts);
    return SL_OK;
}
