/* client/lib/remove.c - removes objects, and waits for the disk. */
#include "client/lib/internal.h"

#include <stdlib.h>
#include <string.h>

struct removal {
    sl_err *codes;
    uint32_t count;
    const struct sl_remove_options *options;
};

static void removal_taken(void *context, const struct sl_msg *reply)
{
    struct removal *removal = context;
    if (reply->code != SL_OK || reply->body.remove_reply.codes.count != removal->count) {
        return;
    }
    for (uint32_t i = 0; i < removal->count; i++) {
        uint64_t code = reply->body.remove_reply.codes.at[i];
        removal->codes[i] = sl_err_received(code);
    }
}

static sl_err remove_share(struct sl_client *client, const struct sl_text *keys,
                           struct removal *removal, uint64_t deadline_ns, struct sl_error *why)
{
    for (uint32_t i = 0; i < removal->count; i++) {
        removal->codes[i] = SL_ERR_PROTOCOL;
    }
    struct sl_client_call call = {
        .deadline_ns = deadline_ns, .answered = removal_taken, .context = removal};
    call.msg.type = SL_MSG_REMOVE;
    call.msg.body.remove.keys.at = keys;
    call.msg.body.remove.keys.count = removal->count;
    call.msg.body.remove.respect_leases = removal->options->respect_leases;
    call.msg.body.remove.report_busy = removal->options->report_busy;
    sl_err err = sl_client_call_registrar(client, &call, why);
    for (uint32_t i = 0; i < removal->count && err != SL_OK; i++) {
        removal->codes[i] = err;
    }
    return err;
}

sl_err sl_remove_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       const struct sl_remove_options *options, sl_err *codes, uint64_t timeout_ns,
                       struct sl_error *why)
{
    sl_err err = sl_client_keys_check("remove", keys, count, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = SL_ERR_UNREACHABLE;
    }
    static const struct sl_remove_options none;
    options = options != NULL ? options : &none;
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    err = sl_client_hello(client, deadline_ns, why);
    if (err != SL_OK || count == 0) {
        return err;
    }
    struct sl_text *texts = malloc(count * sizeof *texts);
    if (texts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "remove: %u keys", count);
    }
    for (uint32_t first = 0; err == SL_OK && first < count;) {
        struct removal removal = {.codes = &codes[first], .options = options};
        removal.count = sl_client_keys_share(client, &keys[first], count - first, texts);
        err = remove_share(client, texts, &removal, deadline_ns, why);
        first += removal.count;
    }
    free(texts);
    return err;
}

sl_err sl_remove(struct sl_client *client, struct sl_object_key key, uint64_t timeout_ns,
                 struct sl_error *why)
{
    sl_err code = SL_OK;
    sl_err err = sl_remove_batch(client, &key, 1, NULL, &code, timeout_ns, why);
    if (err == SL_OK && code == SL_ERR_DISK_AWAY) {
        return sl_fail(why, code,
                       "removed from memory; an absent disk applies it when it returns "
                       "(sluicectl tiers)");
    }
    if (err == SL_OK && code == SL_ERR_NO_SPACE) {
        return sl_fail(why, code,
                       "remove: no room to record it: the file system of a disk is full (sluicectl "
                       "tiers), or the index is; repeat it when there is room");
    }
    return err != SL_OK || code == SL_OK ? err
                                         : sl_fail(why, code, "remove: %s", sl_err_text(code));
}

sl_err sl_remove_all(struct sl_client *client, uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_client_call call = {.msg.type = SL_MSG_REMOVE,
                                  .deadline_ns = sl_client_deadline(client, timeout_ns)};
    call.msg.body.remove.all = true;
    return sl_client_call_registrar(client, &call, why);
}

sl_err sl_flush(struct sl_client *client, uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_client_call call = {.msg.type = SL_MSG_FLUSH,
                                  .deadline_ns = sl_client_deadline(client, timeout_ns)};
    return sl_client_call_registrar(client, &call, why);
}
