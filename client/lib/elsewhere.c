/* client/lib/elsewhere.c - finds and removes objects of other nodes by their keys. */
#include "client/lib/internal.h"

#include <stdlib.h>
#include <string.h>

#define SHARE_KEYS_MAX 4096u /* per message, by the table of messages */

struct seeking {
    struct sl_remote_info *out; /* NULL: only codes */
    sl_err *codes;
    uint32_t count;
};

static void seeking_taken(void *context, const struct sl_msg *reply)
{
    struct seeking *seeking = context;
    const struct sl_body_seek_reply *body = &reply->body.seek_reply;
    if (reply->code != SL_OK || body->items.count != seeking->count) {
        return;
    }
    for (uint32_t i = 0; i < seeking->count; i++) {
        const struct sl_item_seen *item = &body->items.at[i];
        seeking->codes[i] = sl_err_received(item->code);
        if (seeking->out != NULL) {
            struct sl_remote_info *out = &seeking->out[i];
            *out = (struct sl_remote_info){.length_bytes = item->length_bytes,
                                           .in_memory = item->in_memory,
                                           .on_disk = item->on_disk};
            if (item->node > 0 && item->node <= body->nodes.count) {
                sl_client_text_take(out->node, sizeof out->node, &body->nodes.at[item->node - 1]);
            }
        }
    }
}

static sl_err seek_all(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       const struct sl_body_seek *how, struct seeking all, uint64_t timeout_ns,
                       struct sl_error *why)
{
    sl_err err = sl_client_keys_check("keys of other nodes", keys, count, why);
    err = err == SL_OK ? sl_client_check_writable(client, why) : err;
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < count; i++) {
        all.codes[i] = SL_ERR_NOT_FOUND;
    }
    if (count == 0 || !sl_client_has_peers(client)) {
        return SL_OK;
    }
    struct sl_text *texts = malloc(SL_MIN(count, SHARE_KEYS_MAX) * sizeof *texts);
    if (texts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u keys", count);
    }
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    for (uint32_t first = 0; err == SL_OK && first < count;) {
        struct seeking seeking = {.codes = &all.codes[first],
                                  .out = all.out != NULL ? &all.out[first] : NULL};
        seeking.count = sl_client_keys_share(client, &keys[first],
                                             SL_MIN(count - first, SHARE_KEYS_MAX), texts);
        struct sl_client_call call = {.to = "transporter.0",
                                      .deadline_ns = deadline_ns,
                                      .answered = seeking_taken,
                                      .context = &seeking};
        call.msg.type = SL_MSG_SEEK;
        call.msg.body.seek = *how;
        call.msg.body.seek.keys.at = texts;
        call.msg.body.seek.keys.count = seeking.count;
        err = sl_client_call(client, &call, why);
        first += seeking.count;
    }
    free(texts);
    return err;
}

bool sl_client_has_peers(const struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    return !client->read_only && sl_index_view_remote(sl_client_attachment(client)->view);
}

sl_err sl_remote_lookup_batch(struct sl_client *client, const struct sl_object_key *keys,
                              uint32_t count, struct sl_remote_info *out, sl_err *codes,
                              uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_body_seek how = {.lease = true};
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (struct sl_remote_info){0};
    }
    return seek_all(client, keys, count, &how, (struct seeking){.out = out, .codes = codes},
                    timeout_ns, why);
}

sl_err sl_remote_remove_batch(struct sl_client *client, const struct sl_object_key *keys,
                              uint32_t count, bool respect_leases, sl_err *codes,
                              uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_body_seek how = {.remove = true, .respect_leases = respect_leases};
    return seek_all(client, keys, count, &how, (struct seeking){.codes = codes}, timeout_ns, why);
}
