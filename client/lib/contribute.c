/* client/lib/contribute.c - memory that this process contributes to the node.
 *
 * Requests can be repeated. The client remembers its contributions: a node whose memory was created
 * again does not know them, so they are sent again after the next HELLO. */
#include "client/lib/internal.h"

#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX 255u
#define AGAIN_NS       SL_NS_PER_S /* pause before a refused contribution is requested again */
#define CLOSE_NS       SL_NS_PER_S /* longest time that closing a client waits */

/* ---- the remembered contributions ---- */

/* One thread at a time, so that the list matches what the node was sent last. */
static sl_err contributing_lock(struct sl_client *client, uint64_t deadline_ns,
                                struct sl_error *why)
{
    return sl_turn_take(&client->contributing, deadline_ns)
               ? SL_OK
               : sl_fail(why, SL_ERR_TIMEOUT, "contributions: another thread is changing them");
}

static struct sl_client_contribution *remembered(struct sl_client *client, const char *name)
{
    struct sl_client_contribution *at = client->contributions;
    while (at != NULL && strcmp(at->name, name) != 0) {
        at = at->next;
    }
    return at;
}

/* Takes fresh and adds it to the list. */
static void remember(struct sl_client *client, struct sl_client_contribution *fresh)
{
    struct sl_client_contribution *at = remembered(client, fresh->name);
    if (at != NULL) {
        at->length_bytes = fresh->length_bytes;
        at->lasting = fresh->lasting;
        free(fresh);
        return;
    }
    fresh->next = client->contributions;
    client->contributions = fresh;
}

static void forget(struct sl_client *client, const char *name)
{
    struct sl_client_contribution **at = &client->contributions;
    while (*at != NULL && strcmp((*at)->name, name) != 0) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        struct sl_client_contribution *gone = *at;
        *at = gone->next;
        free(gone);
    }
}

/* ---- requests ---- */

static sl_err name_check(const char *what, const char *name, struct sl_error *why)
{
    size_t length = name == NULL ? 0 : strnlen(name, NAME_BYTES_MAX + 1);
    return length >= 1 && length <= NAME_BYTES_MAX
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "%s: the name must have 1 to %u bytes", what,
                         NAME_BYTES_MAX);
}

static sl_err contribute_ask(struct sl_client *client, const char *name, uint64_t length_bytes,
                             bool lasting, uint64_t deadline_ns, struct sl_error *why)
{
    struct sl_client_call call = {.to = "registrar", .deadline_ns = deadline_ns};
    call.msg.type = SL_MSG_CONTRIBUTE;
    call.msg.body.contribute.name = sl_text_of(name);
    call.msg.body.contribute.length_bytes = length_bytes;
    call.msg.body.contribute.lasting = lasting;
    return sl_client_call(client, &call, why);
}

static sl_err withdraw_ask(struct sl_client *client, const char *name, uint64_t deadline_ns,
                           struct sl_error *why)
{
    struct sl_client_call call = {.to = "registrar", .deadline_ns = deadline_ns};
    call.msg.type = SL_MSG_WITHDRAW;
    call.msg.body.withdraw.name = sl_text_of(name);
    sl_err err = sl_client_call(client, &call, why);
    /* SL_ERR_NOT_FOUND: the first of two requests succeeded, and its answer was lost. */
    return err == SL_ERR_NOT_FOUND && call.sent_again ? SL_OK : err;
}

sl_err sl_segment_mount(struct sl_client *client, const char *name, uint64_t length_bytes,
                        bool lasting, uint64_t timeout_ns, struct sl_error *why)
{
    sl_err err = name_check("contribute", name, why);
    if (err == SL_OK && length_bytes == 0) {
        err = sl_fail(why, SL_ERR_INVALID, "contribute: no bytes");
    }
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    err = err == SL_OK ? sl_client_hello(client, deadline_ns, why) : err;
    if (err != SL_OK) {
        return err;
    }
    struct sl_client_contribution *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "contribute: %zu bytes", sizeof *fresh);
    }
    memcpy(fresh->name, name, strlen(name) + 1);
    fresh->length_bytes = length_bytes;
    fresh->lasting = lasting;
    err = contributing_lock(client, deadline_ns, why);
    if (err != SL_OK) {
        free(fresh);
        return err;
    }
    err = contribute_ask(client, name, length_bytes, lasting, deadline_ns, why);
    if (err == SL_OK) {
        remember(client, fresh);
    } else {
        free(fresh);
    }
    sl_turn_leave(&client->contributing);
    return err;
}

sl_err sl_segment_unmount(struct sl_client *client, const char *name, uint64_t timeout_ns,
                          struct sl_error *why)
{
    sl_err err = name_check("withdraw", name, why);
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    err = err == SL_OK ? sl_client_hello(client, deadline_ns, why) : err;
    if (err != SL_OK) {
        return err;
    }
    err = contributing_lock(client, deadline_ns, why);
    if (err != SL_OK) {
        return err;
    }
    err = withdraw_ask(client, name, deadline_ns, why);
    if (err == SL_OK || err == SL_ERR_NOT_FOUND || err == SL_ERR_TIMEOUT) {
        forget(client, name);
    }
    sl_turn_leave(&client->contributing);
    return err;
}

struct contributions_asked {
    struct sl_segment_info *infos;
    uint32_t *count;
};

static void contributions_taken(void *context, const struct sl_msg *reply)
{
    const struct contributions_asked *asked = context;
    const struct sl_body_contributions_reply *body = &reply->body.contributions_reply;
    if (reply->code != SL_OK) {
        return;
    }
    *asked->count = (uint32_t)SL_MIN(body->items.count, (uint64_t)SL_CONTRIBUTIONS_MAX);
    for (uint32_t i = 0; i < *asked->count; i++) {
        const struct sl_item_contribution *item = &body->items.at[i];
        struct sl_segment_info *info = &asked->infos[i];
        *info = (struct sl_segment_info){.number = (uint32_t)item->number,
                                         .length_bytes = item->length_bytes,
                                         .used_bytes = item->used_bytes,
                                         .value_count = item->value_count,
                                         .pid = (uint32_t)item->pid};
        sl_client_text_take(info->name, sizeof info->name, &item->name);
        sl_client_text_take(info->process, sizeof info->process, &item->process);
    }
}

sl_err sl_segments(struct sl_client *client, struct sl_segment_info *infos, uint32_t *count,
                   uint64_t timeout_ns, struct sl_error *why)
{
    struct contributions_asked asked = {.infos = infos, .count = count};
    struct sl_client_call call = {.deadline_ns = sl_client_deadline(client, timeout_ns),
                                  .answered = contributions_taken,
                                  .context = &asked};
    call.msg.type = SL_MSG_CONTRIBUTIONS;
    *count = 0;
    return sl_client_call_registrar(client, &call, why);
}

/* ---- a registrar that may not know of them ---- */

sl_err sl_client_contribute_again(struct sl_client *client, uint64_t deadline_ns,
                                  struct sl_error *why)
{
    bool refused = false;
    sl_err err = contributing_lock(client, deadline_ns, why);
    if (err != SL_OK) {
        return err;
    }
    for (const struct sl_client_contribution *at = client->contributions;
         at != NULL && err == SL_OK; at = at->next) {
        err = contribute_ask(client, at->name, at->length_bytes, at->lasting, deadline_ns, why);
        if (err == SL_ERR_EXISTS || err == SL_ERR_NO_SPACE || err == SL_ERR_LIMIT ||
            err == SL_ERR_UNSUPPORTED) {
            refused = true; /* its name or room is taken: requested again later */
            err = SL_OK;
        }
    }
    client->contribute_again_ns =
        refused ? sl_deadline_ns(sl_clock_monotonic_ns(), AGAIN_NS) : SL_NEVER_NS;
    sl_turn_leave(&client->contributing);
    return err;
}

void sl_client_contributions_end(struct sl_client *client)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), CLOSE_NS);
    bool talks = client->contributions != NULL && sl_client_check_writable(client, NULL) == SL_OK &&
                 sl_client_reattach(client, true, NULL) == SL_OK;
    while (client->contributions != NULL) {
        struct sl_client_contribution *at = client->contributions;
        if (talks && !at->lasting) {
            (void)withdraw_ask(client, at->name, deadline_ns, NULL); /* else at client's end */
        }
        client->contributions = at->next;
        free(at);
    }
}
