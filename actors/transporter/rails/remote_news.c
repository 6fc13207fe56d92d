/* actors/transporter/rails/remote_news.c - what a rail's process says, and what follows from its
 * end: the events of its fabric. */
#include "actors/transporter/rails/remote_internal.h"

#include "runtime/fabric/core/tables.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct sl_fabric_events *events_of(const struct tr_remote *remote)
{
    return &remote->fabric.options.events;
}

static sl_err code_of(uint64_t code)
{
    return code < SL_ERR_COUNT ? (sl_err)code : SL_ERR_PROTOCOL;
}

static void why_set(struct sl_error *why, uint64_t code, const struct sl_text *text)
{
    *why = (struct sl_error){.code = code_of(code)};
    (void)snprintf(why->text, sizeof(why->text), "%s", text->length > 0 ? text->at : "");
}

/* ---- memory ---- */

void remote_serve_if_ready(struct tr_remote *remote)
{
    const struct sl_fabric_options *options = &remote->fabric.options;
    bool ready = remote->state == REMOTE_OPENING;
    for (uint32_t i = 0; ready && i < options->memories_max; i++) {
        const struct remote_memory *memory = &remote->memories[i];
        ready = !memory->used || memory->leaving || memory->there;
    }
    if (!ready) {
        return;
    }
    remote->state = REMOTE_SERVING;
    for (uint32_t i = 0; i < options->peers_max; i++) {
        if (remote->peers[i].used) {
            remote->peers[i].link = SL_FABRIC_CONNECTING;
            remote_peer_order(remote, &remote->peers[i]);
        }
    }
    for (uint32_t i = 0; i < options->keys_max; i++) {
        if (remote->keys[i].used) {
            remote_key_order(remote, &remote->keys[i]);
        }
    }
    for (uint32_t i = 0; i < options->grants_max; i++) {
        if (remote->grants[i].state == REMOTE_GRANT_WANTED) {
            remote_grant_order(remote, &remote->grants[i], NULL, 0);
        }
    }
}

static void memory_tell(struct tr_remote *remote, uint32_t handle, uint64_t region,
                        const struct sl_error *why)
{
    if (events_of(remote)->registered != NULL) {
        events_of(remote)->registered(events_of(remote)->context, handle, (uint32_t)region, why);
    }
}

/* One that was told already is being given to a new process: without it that is of no use. */
static void registered(struct tr_remote *remote, const struct sl_body_rail_news *news)
{
    uint32_t handle = (uint32_t)news->handle;
    struct remote_memory *memory = remote_memory_of(remote, handle);
    struct sl_error why;
    why_set(&why, news->code, &news->text);
    if (memory == NULL || !memory->asked || memory->leaving) {
        return;
    }
    if (why.code != SL_OK && memory->told) {
        bool arena = memory->what.handed == 0;
        sl_log_write(remote->env->log, SL_LOG_ERROR, 0, "%s cannot register %s: %s", remote->name,
                     arena ? "an arena" : "memory of an engine", why.text);
        if (arena) {
            remote_break(remote, "is of no use without it");
            return;
        } /* it refuses what is to go there, and that goes by the others */
    }
    bool tell = !memory->told, refused = tell && why.code != SL_OK;
    remote_memory_came(remote, memory);
    memory->there = memory->told = true;
    if (refused) { /* the rails take it from the others, too */
        *memory = (struct remote_memory){.generation = memory->generation};
    }
    if (tell) {
        memory_tell(remote, handle, news->region, &why);
    }
    remote_serve_if_ready(remote);
}

static void removed(struct tr_remote *remote, uint32_t handle)
{
    struct remote_memory *memory = remote_memory_of(remote, handle);
    if (memory != NULL && memory->leaving) {
        remote->memories_leaving--;
        *memory = (struct remote_memory){.generation = memory->generation};
    }
}

/* ---- links ---- */

static void link_tell(struct tr_remote *remote, uint32_t handle, const struct sl_error *why)
{
    struct remote_peer *peer = remote_peer_of(remote, handle);
    if (peer != NULL && events_of(remote)->link != NULL) {
        peer->tell = false;
        events_of(remote)->link(events_of(remote)->context, handle, (enum sl_fabric_link)peer->link,
                                why);
    }
}

static bool link_news(struct tr_remote *remote, const struct sl_body_rail_news *news)
{
    struct remote_peer *peer = remote_peer_of(remote, (uint32_t)news->handle);
    struct sl_error why;
    why_set(&why, news->code, &news->text);
    if (peer != NULL) {
        peer->link = (uint8_t)news->link;
        link_tell(remote, (uint32_t)news->handle, &why);
    }
    return news->link <= SL_FABRIC_DOWN;
}

void remote_links_down(struct tr_remote *remote)
{
    for (uint32_t i = 0; i < remote->fabric.options.peers_max; i++) {
        struct remote_peer *peer = &remote->peers[i];
        if (peer->used && peer->link != SL_FABRIC_DOWN) {
            peer->link = SL_FABRIC_DOWN;
            peer->tell = remote->links_due = true;
        }
    }
    remote_due(remote);
}

/* ---- grants ---- */

static void granted_tell(struct tr_remote *remote, uint32_t handle, const void *key,
                         uint32_t key_bytes, const struct sl_error *why)
{
    if (events_of(remote)->granted != NULL) {
        events_of(remote)->granted(events_of(remote)->context, handle, key, key_bytes, why);
    }
}

static void granted(struct tr_remote *remote, const struct sl_body_rail_news *news)
{
    struct remote_grant *grant = remote_grant_of(remote, (uint32_t)news->handle);
    if (grant == NULL || grant->state != REMOTE_GRANT_ASKED) {
        return;
    }
    bool there = news->code == SL_OK;
    struct sl_error why;
    why_set(&why, news->code, &news->text);
    grant->state = there ? REMOTE_GRANT_LIVE : REMOTE_GRANT_LOST;
    granted_tell(remote, (uint32_t)news->handle,
                 there && news->blob.at != NULL ? news->blob.at : "",
                 there ? (uint32_t)news->blob.length : 0, &why);
}

static void grant_ended(struct tr_remote *remote, uint32_t handle)
{
    struct remote_grant *grant = remote_grant_of(remote, handle);
    if (grant == NULL || grant->state != REMOTE_GRANT_ENDING) {
        return;
    }
    remote->grants_ending--;
    remote_grant_free(grant);
    if (events_of(remote)->grant_ended != NULL) {
        events_of(remote)->grant_ended(events_of(remote)->context, handle);
    }
}

/* ---- news ---- */

static void stats_take(struct tr_remote *remote, const struct sl_u64s *stats)
{
    static_assert(sizeof(remote->fabric.stats) % sizeof(uint64_t) == 0, "numbers of 8 bytes alone");
    if (stats->count == sizeof(remote->fabric.stats) / sizeof(uint64_t)) {
        memcpy(&remote->fabric.stats, stats->at, sizeof(remote->fabric.stats));
    }
}

bool remote_news(struct tr_remote *remote, const struct sl_body_rail_news *news)
{
    uint32_t handle = (uint32_t)news->handle;
    switch ((enum sl_rail_news)news->kind) {
    case RAIL_REGISTERED:
        registered(remote, news);
        return true;
    case RAIL_REMOVED:
        removed(remote, handle);
        return true;
    case RAIL_ADDRESS:
        if (remote_peer_of(remote, handle) != NULL && news->blob.length > 0 &&
            events_of(remote)->address != NULL) {
            events_of(remote)->address(events_of(remote)->context, handle, news->blob.at,
                                       (uint32_t)news->blob.length);
        }
        return true;
    case RAIL_LINK:
        return link_news(remote, news);
    case RAIL_GRANTED:
        granted(remote, news);
        return true;
    case RAIL_GRANT_ENDED:
        grant_ended(remote, handle);
        return true;
    case RAIL_PONG:
        return true;
    case RAIL_STATS:
        stats_take(remote, &news->stats);
        return true;
    case RAIL_SHUT:
        if (handle - remote->shut_done > remote->shut_asked - remote->shut_done) {
            return false;
        }
        remote->shut_done = handle;
        remote->shut_ns = remote->env->now_ns; /* of the next ones */
        return true;
    }
    return false;
}

/* ---- transfers ---- */

static void post_end(struct tr_remote *remote, uint32_t slot, const struct sl_fabric_done *done)
{
    struct remote_post *post = &remote->posts[slot];
    *post = (struct remote_post){.next = remote->free_post};
    remote->free_post = slot;
    if (events_of(remote)->done != NULL) {
        events_of(remote)->done(events_of(remote)->context, done);
    }
}

bool remote_done(struct tr_remote *remote, const struct sl_body_rail_done *body)
{
    if (body->slot >= remote->fabric.options.transfers_max) {
        return false;
    }
    const struct remote_post *post = &remote->posts[body->slot];
    if (!post->used || post->ended != SL_OK || post->cookie != body->cookie ||
        post->piece_count != body->codes.length || body->moved_bytes > post->bytes) {
        return false;
    }
    memcpy(remote->codes, body->codes.at, body->codes.length);
    for (uint32_t i = 0; i < post->piece_count; i++) {
        if (remote->codes[i] >= SL_ERR_COUNT) {
            return false;
        }
    }
    const struct sl_fabric_done done = {.cookie = body->cookie,
                                        .code = code_of(body->code),
                                        .pieces = remote->codes,
                                        .piece_count = post->piece_count,
                                        .moved_bytes = body->moved_bytes};
    remote->posts_out--;
    post_end(remote, (uint32_t)body->slot, &done);
    return true;
}

/* ---- without the process ---- */

static void posts_lost(struct tr_remote *remote)
{
    for (uint32_t i = 0; remote->posts_out > 0 && i < remote->fabric.options.transfers_max; i++) {
        struct remote_post *post = &remote->posts[i];
        if (post->used && post->ended == SL_OK) {
            post->ended = SL_ERR_PEER_DIED;
            remote->posts_out--;
            remote->posts_ended++;
        }
    }
}

static void memories_lost(struct tr_remote *remote)
{
    for (uint32_t i = 0; i < remote->fabric.options.memories_max; i++) {
        struct remote_memory *memory = &remote->memories[i];
        remote_memory_came(remote, memory);
        if (memory->leaving) {
            removed(remote, fabric_handle_make(memory->generation, i));
        }
        memory->asked = memory->there = false;
        remote->memories_due |= memory->used && !memory->told;
    }
}

static void grants_lost(struct tr_remote *remote)
{
    for (uint32_t i = 0; i < remote->fabric.options.grants_max; i++) {
        struct remote_grant *grant = &remote->grants[i];
        bool asked = grant->state == REMOTE_GRANT_ASKED;
        if (grant->state == REMOTE_GRANT_ENDING) {
            grant->state = REMOTE_GRANT_GONE;
            remote->grants_ending--;
            remote->grants_due++;
        } else if (asked || grant->state == REMOTE_GRANT_LIVE) {
            grant->state =
                grant->what.verb == SL_FABRIC_READ ? REMOTE_GRANT_WANTED : REMOTE_GRANT_LOST;
            grant->tell = asked;
            remote->grants_due += asked ? 1 : 0;
        }
    }
}

void remote_over(struct tr_remote *remote)
{
    remote->shut_done = remote->shut_asked;
    remote_links_down(remote);
    posts_lost(remote);
    memories_lost(remote);
    grants_lost(remote);
    remote->fabric.front->stats(&remote->fabric, &remote->earlier);
    remote->fabric.stats = (struct sl_fabric_stats){0};
    remote->state = REMOTE_AWAY;
    remote->proc = (struct sl_proc_id){0};
    remote_about(remote, NULL);
    remote_due(remote);
}

static void memories_events(struct tr_remote *remote)
{
    static const struct sl_error fine = {.code = SL_OK};
    if (!remote->memories_due) {
        return;
    }
    remote->memories_due = false;
    for (uint32_t i = 0; i < remote->fabric.options.memories_max; i++) {
        struct remote_memory *memory = &remote->memories[i];
        if (memory->used && !memory->told && !memory->asked) {
            memory->told = true;
            memory_tell(remote, fabric_handle_make(memory->generation, i), 0, &fine);
        }
    }
}

static void links_events(struct tr_remote *remote)
{
    const struct sl_error why = {.code = SL_ERR_PEER_DIED, .text = "the rail's process is gone"};
    if (!remote->links_due) {
        return;
    }
    remote->links_due = false;
    for (uint32_t i = 0; i < remote->fabric.options.peers_max; i++) {
        if (remote->peers[i].used && remote->peers[i].tell) {
            link_tell(remote, fabric_handle_make(remote->peers[i].generation, i), &why);
        }
    }
}

static void grants_events(struct tr_remote *remote)
{
    for (uint32_t i = 0; remote->grants_due > 0 && i < remote->fabric.options.grants_max; i++) {
        struct remote_grant *grant = &remote->grants[i];
        uint32_t handle = fabric_handle_make(grant->generation, i);
        if (grant->state == REMOTE_GRANT_GONE) {
            remote->grants_due--;
            remote_grant_free(grant);
            if (events_of(remote)->grant_ended != NULL) {
                events_of(remote)->grant_ended(events_of(remote)->context, handle);
            }
        } else if (grant->tell) {
            remote->grants_due--;
            grant->tell = false;
            const struct sl_error none = {0};
            granted_tell(remote, handle, "", 0, &none);
        }
    }
}

static void posts_events(struct tr_remote *remote)
{
    for (uint32_t i = 0; remote->posts_ended > 0 && i < remote->fabric.options.transfers_max; i++) {
        const struct remote_post *post = &remote->posts[i];
        if (!post->used || post->ended == SL_OK) {
            continue;
        }
        const struct sl_fabric_done done = {.cookie = post->cookie,
                                            .code = (sl_err)post->ended,
                                            .pieces = remote->codes,
                                            .piece_count = post->piece_count};
        memset(remote->codes, post->ended, post->piece_count);
        remote->posts_ended--;
        post_end(remote, i, &done);
    }
}

/* Links first: who hears of the end of a transfer looks for another rail. */
void remote_events(struct tr_remote *remote)
{
    links_events(remote);
    memories_events(remote);
    grants_events(remote);
    posts_events(remote);
}
