/* actors/transporter/rails/remote_front.c - the functions of a fabric for a rail of another process:
 * each notes what is wanted, and tells the process if one is there. */
#include "actors/transporter/rails/handout.h"
#include "actors/transporter/rails/remote_internal.h"

#include "runtime/fabric/core/tables.h"

#include <stdlib.h>
#include <string.h>

static struct tr_remote *of(const struct sl_fabric *fabric)
{
    return fabric->behind;
}

/* Looks for silence even if nothing else happens. */
static void wait_for(struct tr_remote *remote)
{
    remote->env->ops->wake_at(remote->env,
                              remote->env->now_ns + remote->fabric.options.stall_ns / 4);
}

#define FIND(table, count, handle)                                                          \
    (((handle)&0xffffu) < (count) && (table)[(handle)&0xffffu].generation == (handle) >> 16 \
         ? &(table)[(handle)&0xffffu]                                                       \
         : NULL)

struct remote_memory *remote_memory_of(const struct tr_remote *remote, uint32_t handle)
{
    struct remote_memory *memory =
        FIND(remote->memories, remote->fabric.options.memories_max, handle);
    return memory != NULL && memory->used ? memory : NULL;
}

struct remote_peer *remote_peer_of(const struct tr_remote *remote, uint32_t handle)
{
    struct remote_peer *peer = FIND(remote->peers, remote->fabric.options.peers_max, handle);
    return peer != NULL && peer->used ? peer : NULL;
}

struct remote_grant *remote_grant_of(const struct tr_remote *remote, uint32_t handle)
{
    struct remote_grant *grant = FIND(remote->grants, remote->fabric.options.grants_max, handle);
    return grant != NULL && grant->state != REMOTE_GRANT_FREE ? grant : NULL;
}

struct remote_key *remote_key_of(const struct tr_remote *remote, uint32_t handle)
{
    struct remote_key *key = FIND(remote->keys, remote->fabric.options.keys_max, handle);
    return key != NULL && key->used ? key : NULL;
}

/* ---- memory ---- */

void remote_memory_order(struct tr_remote *remote, struct remote_memory *memory)
{
    struct sl_body_rail_order body = {
        .handle = fabric_handle_make(memory->generation, (uint32_t)(memory - remote->memories)),
        .arena = memory->what.arena,
        .birth = memory->what.arena_birth,
        .length_bytes = memory->what.length_bytes,
        .chunk_bytes = memory->what.chunk_bytes,
        .stride_bytes = memory->what.stride_bytes,
        .unread = memory->what.unread,
    };
    if (memory->what.handed != 0) {
        body.handed = memory->what.handed;
        body.handed_bytes = memory->what.handed_bytes;
        body.offset_bytes = memory->what.handed_offset_bytes;
        body.device = memory->device;
        body.pid = tr_handout_pid(remote->all->handout);
        body.socket = tr_handout_socket(remote->all->handout);
    }
    memory->asked = true;
    memory->there = false;
    memory->since_ns = remote->env->now_ns;
    remote->memories_coming++;
    remote_order(remote, RAIL_MEMORY_ADD, &body);
    wait_for(remote);
}

void remote_memory_came(struct tr_remote *remote, const struct remote_memory *memory)
{
    if (memory->used && memory->asked && !memory->there && !memory->leaving) {
        SL_ASSERT(remote->memories_coming > 0);
        remote->memories_coming--;
    }
}

static sl_err memory_add(struct sl_fabric *fabric, const struct sl_fabric_memory *what,
                         uint32_t *out, struct sl_error *why)
{
    struct tr_remote *remote = of(fabric);
    uint32_t index = 0;
    if (what->arena_birth == 0 && (what->handed == 0 || remote->all->handout == NULL)) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "%s cannot get this memory", remote->name);
    }
    while (index < fabric->options.memories_max && remote->memories[index].used) {
        index++;
    }
    if (index == fabric->options.memories_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u registered memories", index);
    }
    struct remote_memory *memory = &remote->memories[index];
    *memory = (struct remote_memory){.used = true,
                                     .device = what->dmabuf != NULL,
                                     .generation = fabric_generation_next(memory->generation),
                                     .what = *what};
    memory->what.dmabuf = NULL; /* the caller's */
    *out = fabric_handle_make(memory->generation, index);
    if (remote_is_there(remote)) {
        remote_memory_order(remote, memory);
    } else {
        remote->memories_due = true;
        remote_due(remote);
    }
    return SL_OK;
}

static void memory_free(struct tr_remote *remote, struct remote_memory *memory)
{
    remote->memories_leaving -= memory->leaving ? 1 : 0;
    *memory = (struct remote_memory){.generation = memory->generation};
}

/* The process is told once; without one nothing of it is registered. */
static void memory_go(struct tr_remote *remote, struct remote_memory *memory, uint32_t handle)
{
    if (memory->leaving) {
        return;
    }
    if (memory->asked && remote->state != REMOTE_AWAY) {
        remote_memory_came(remote, memory);
        memory->leaving = true;
        memory->since_ns = remote->env->now_ns;
        remote->memories_leaving++;
        remote_order_of(remote, RAIL_MEMORY_GO, handle);
        wait_for(remote);
    } else {
        memory_free(remote, memory);
    }
}

static sl_err memory_remove(struct sl_fabric *fabric, uint32_t handle)
{
    struct remote_memory *memory = remote_memory_of(of(fabric), handle);
    if (memory == NULL || memory->leaving) {
        return SL_ERR_NOT_FOUND;
    }
    memory_go(of(fabric), memory, handle);
    return SL_OK;
}

static sl_err memory_remove_step(struct sl_fabric *fabric, uint32_t handle, bool *gone)
{
    struct remote_memory *memory = remote_memory_of(of(fabric), handle);
    if (memory != NULL) {
        memory_go(of(fabric), memory, handle);
    }
    *gone = remote_memory_of(of(fabric), handle) == NULL;
    return SL_OK;
}

/* Its registered() does not come. What the process has of it goes with memory_remove. */
static void memory_give_up(struct sl_fabric *fabric, uint32_t handle)
{
    struct remote_memory *memory = remote_memory_of(of(fabric), handle);
    if (memory != NULL) {
        memory->told = true;
    }
}

static uint64_t region_bytes_max(const struct sl_fabric *fabric)
{
    return SL_MIN(fabric->options.region_bytes_max, of(fabric)->region_bytes_max);
}

/* ---- peers ---- */

void remote_peer_order(struct tr_remote *remote, struct remote_peer *peer)
{
    struct sl_body_rail_order body = {
        .handle = fabric_handle_make(peer->generation, (uint32_t)(peer - remote->peers))};
    remote_order(remote, RAIL_PEER_ADD, &body);
    if (peer->blob != NULL) {
        body.blob = (struct sl_bytes){.at = peer->blob, .length = peer->blob_bytes};
        remote_order(remote, RAIL_PEER_TOLD, &body);
    }
}

static sl_err peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why)
{
    struct tr_remote *remote = of(fabric);
    uint32_t index = 0;
    while (index < fabric->options.peers_max && remote->peers[index].used) {
        index++;
    }
    if (index == fabric->options.peers_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u peers", index);
    }
    struct remote_peer *peer = &remote->peers[index];
    *peer = (struct remote_peer){.used = true,
                                 .generation = fabric_generation_next(peer->generation),
                                 .link = SL_FABRIC_DOWN};
    if (remote->state == REMOTE_SERVING) {
        peer->link = SL_FABRIC_CONNECTING;
        remote_peer_order(remote, peer);
    }
    *out = fabric_handle_make(peer->generation, index);
    return SL_OK;
}

/* What is wrong with an address the process finds out; then its link stays down. */
static sl_err peer_address(struct sl_fabric *fabric, uint32_t handle, const void *blob,
                           uint32_t length_bytes, struct sl_error *why)
{
    struct tr_remote *remote = of(fabric);
    struct remote_peer *peer = remote_peer_of(remote, handle);
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    if (peer->blob != NULL && peer->blob_bytes == length_bytes &&
        memcmp(peer->blob, blob, length_bytes) == 0) {
        return SL_OK; /* it is said with every greeting */
    }
    void *copy = malloc(SL_MAX(length_bytes, 1u));
    if (copy == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for an address");
    }
    memcpy(copy, blob, length_bytes);
    free(peer->blob);
    peer->blob = copy;
    peer->blob_bytes = length_bytes;
    if (remote->state == REMOTE_SERVING) {
        struct sl_body_rail_order body = {.handle = handle,
                                          .blob = {.at = copy, .length = length_bytes}};
        remote_order(remote, RAIL_PEER_TOLD, &body);
    }
    return SL_OK;
}

static void peer_remove(struct sl_fabric *fabric, uint32_t handle)
{
    struct tr_remote *remote = of(fabric);
    struct remote_peer *peer = remote_peer_of(remote, handle);
    if (peer == NULL) {
        return;
    }
    free(peer->blob);
    *peer = (struct remote_peer){.generation = peer->generation};
    if (remote->state == REMOTE_SERVING) {
        remote_order_of(remote, RAIL_PEER_REMOVE, handle);
    }
}

static enum sl_fabric_link peer_link(const struct sl_fabric *fabric, uint32_t handle)
{
    const struct remote_peer *peer = remote_peer_of(of(fabric), handle);
    return peer != NULL ? (enum sl_fabric_link)peer->link : SL_FABRIC_DOWN;
}

/* ---- grants ---- */

/* Behind the count that the message has already. */
static void places_fill(struct tr_remote *remote, uint32_t at, const struct sl_fabric_place *places,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        remote->places[at + i] =
            (struct sl_item_rail_place){.memory = places[i].memory,
                                        .offset_bytes = places[i].offset_bytes,
                                        .length_bytes = places[i].length_bytes};
    }
}

void remote_grant_free(struct remote_grant *grant)
{
    free((void *)grant->what.places);
    *grant = (struct remote_grant){.generation = grant->generation};
}

static void shut_fill(struct tr_remote *remote, const struct sl_fabric_place *shut, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        remote->shut[i] = (struct sl_item_rail_place){.memory = shut[i].memory,
                                                      .offset_bytes = shut[i].offset_bytes,
                                                      .length_bytes = shut[i].length_bytes};
    }
}

void remote_grant_order(struct tr_remote *remote, struct remote_grant *grant,
                        const struct sl_fabric_place *shut, uint32_t shut_count)
{
    struct sl_body_rail_order body = {
        .handle = fabric_handle_make(grant->generation, (uint32_t)(grant - remote->grants)),
        .verb = grant->what.verb,
        .memory = grant->what.memory,
        .peer = grant->what.peer,
        .offset_bytes = grant->what.offset_bytes,
        .length_bytes = grant->what.length_bytes,
        .places = {.at = remote->places, .count = grant->what.place_count},
        .shut = {.at = remote->shut, .count = shut_count},
    };
    places_fill(remote, 0, grant->what.places, grant->what.place_count);
    shut_fill(remote, shut, shut_count);
    remote->grants_due -= grant->tell ? 1 : 0;
    grant->tell = false;
    grant->state = REMOTE_GRANT_ASKED;
    remote_order(remote, RAIL_GRANT_ADD, &body);
}

static sl_err range_check(const struct tr_remote *remote, const struct sl_fabric_place *range,
                          struct sl_error *why)
{
    const struct remote_memory *memory = remote_memory_of(remote, range->memory);
    if (memory == NULL || memory->leaving) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such memory");
    }
    if (range->length_bytes == 0 || range->offset_bytes > memory->what.length_bytes ||
        range->length_bytes > memory->what.length_bytes - range->offset_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "the range is not within its memory");
    }
    return SL_OK;
}

/* Of a grant or a piece: one range, or those of a list. */
static sl_err ranges_check(const struct tr_remote *remote, const struct sl_fabric_place *range,
                           const struct sl_fabric_place *places, uint32_t count,
                           struct sl_error *why)
{
    sl_err err = fabric_places_count_check(places, count, range->length_bytes, why);
    if (err == SL_OK && count == 0) {
        err = range_check(remote, range, why);
    }
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        err = range_check(remote, &places[i], why);
    }
    return err;
}

/* A grant with a copy of its places. NULL: no room. */
static struct remote_grant *grant_new(struct tr_remote *remote, const struct sl_fabric_grant *want)
{
    const struct sl_fabric_options *options = &remote->fabric.options;
    struct sl_fabric_place *places = NULL;
    uint32_t index = 0;
    while (index < options->grants_max && remote->grants[index].state != REMOTE_GRANT_FREE) {
        index++;
    }
    if (index < options->grants_max && want->place_count > 0) {
        places = calloc(want->place_count, sizeof(*places));
    }
    if (index == options->grants_max || (want->place_count > 0 && places == NULL)) {
        return NULL;
    }
    if (places != NULL) {
        memcpy(places, want->places, want->place_count * sizeof(*places));
    }
    struct remote_grant *grant = &remote->grants[index];
    *grant = (struct remote_grant){.state = REMOTE_GRANT_WANTED,
                                   .generation = fabric_generation_next(grant->generation),
                                   .what = *want};
    grant->what.places = places;
    grant->what.shut = NULL; /* the caller's; who writes is granted nothing without its process */
    return grant;
}

static sl_err grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *want, uint32_t *out,
                        void *key, uint32_t *key_bytes, struct sl_error *why)
{
    struct tr_remote *remote = of(fabric);
    const struct sl_fabric_place range = {.memory = want->memory,
                                          .offset_bytes = want->offset_bytes,
                                          .length_bytes = want->length_bytes};
    (void)key; /* granted() brings it */
    if (remote_peer_of(remote, want->peer) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    sl_err err = ranges_check(remote, &range, want->places, want->place_count, why);
    if (err == SL_OK && want->shut_count > SL_FABRIC_SHUT_MAX) {
        err = sl_fail(why, SL_ERR_INVALID, "%u ranges that are shut", want->shut_count);
    }
    if (err != SL_OK) {
        return err;
    }
    bool serving = remote->state == REMOTE_SERVING;
    if (!serving && want->verb == SL_FABRIC_WRITE) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "%s is not there", remote->name);
    }
    struct remote_grant *grant = grant_new(remote, want);
    if (grant == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u grants", fabric->options.grants_max);
    }
    *out = fabric_handle_make(grant->generation, (uint32_t)(grant - remote->grants));
    *key_bytes = 0;
    if (serving) {
        remote_grant_order(remote, grant, want->shut, want->shut_count);
    } else { /* the others need not wait for it */
        grant->tell = true;
        remote->grants_due++;
        remote_due(remote);
    }
    return SL_OK;
}

static sl_err grant_end(struct sl_fabric *fabric, uint32_t handle)
{
    struct tr_remote *remote = of(fabric);
    struct remote_grant *grant = remote_grant_of(remote, handle);
    if (grant == NULL || grant->state >= REMOTE_GRANT_ENDING) {
        return SL_ERR_NOT_FOUND;
    }
    bool there = grant->state == REMOTE_GRANT_ASKED || grant->state == REMOTE_GRANT_LIVE;
    remote->grants_due -= grant->tell ? 1 : 0;
    grant->tell = false;
    grant->state = there ? REMOTE_GRANT_ENDING : REMOTE_GRANT_GONE;
    if (there) { /* also while it dies: only its death ends it then */
        grant->ending_ns = remote->env->now_ns;
        remote->grants_ending++;
        remote_order_of(remote, RAIL_GRANT_END, handle);
        wait_for(remote);
    } else {
        remote->grants_due++;
        remote_due(remote);
    }
    return SL_OK;
}

/* 0 stands for none. */
static uint32_t shut_next(const struct tr_remote *remote)
{
    return remote->shut_asked == UINT32_MAX ? 1 : remote->shut_asked + 1;
}

/* The process cannot ask us before it takes a write, so it is told, and says when nothing lands. */
static void grants_shut(struct sl_fabric *fabric, const struct sl_fabric_place *ranges,
                        uint32_t count)
{
    struct tr_remote *remote = of(fabric);
    struct sl_body_rail_order body = {.handle = shut_next(remote), .shut.at = remote->shut};
    for (uint32_t i = 0; i < count; i++) {
        struct remote_grant *grant = remote_grant_of(remote, ranges[i].memory);
        bool there = grant != NULL &&
                     (grant->state == REMOTE_GRANT_ASKED || grant->state == REMOTE_GRANT_LIVE);
        if (there && body.shut.count < SL_FABRIC_SHUT_MAX) {
            remote->shut[body.shut.count++] =
                (struct sl_item_rail_place){.memory = ranges[i].memory,
                                            .offset_bytes = ranges[i].offset_bytes,
                                            .length_bytes = ranges[i].length_bytes};
            grant->shut = (uint32_t)body.handle;
        }
    }
    if (body.shut.count == 0 || !remote_is_there(remote)) {
        return; /* one that dies is waited for as such */
    }
    remote->shut_ns =
        remote->shut_asked == remote->shut_done ? remote->env->now_ns : remote->shut_ns;
    remote->shut_asked = (uint32_t)body.handle;
    remote_order(remote, RAIL_GRANTS_SHUT, &body);
    wait_for(remote);
}

/* Also while it dies: only its death ends what it may still take. */
static bool grant_recheck(struct sl_fabric *fabric, uint32_t handle)
{
    const struct tr_remote *remote = of(fabric);
    const struct remote_grant *grant = remote_grant_of(remote, handle);
    return grant != NULL &&
           (grant->state == REMOTE_GRANT_ASKED || grant->state == REMOTE_GRANT_LIVE) &&
           grant->shut != 0 && (int32_t)(grant->shut - remote->shut_done) > 0;
}

/* ---- keys ---- */

void remote_key_order(struct tr_remote *remote, struct remote_key *key)
{
    struct sl_body_rail_order body = {
        .handle = fabric_handle_make(key->generation, (uint32_t)(key - remote->keys)),
        .peer = key->peer,
        .blob = {.at = key->blob, .length = key->blob_bytes},
    };
    remote_order(remote, RAIL_KEY_OPEN, &body);
}

static sl_err key_open(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                       uint32_t length_bytes, uint32_t *out, struct sl_error *why)
{
    struct tr_remote *remote = of(fabric);
    uint32_t index = 0;
    if (remote_peer_of(remote, peer) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    while (index < fabric->options.keys_max && remote->keys[index].used) {
        index++;
    }
    void *copy = index < fabric->options.keys_max ? malloc(SL_MAX(length_bytes, 1u)) : NULL;
    if (copy == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for one more key among %u", index);
    }
    memcpy(copy, blob, length_bytes);
    struct remote_key *key = &remote->keys[index];
    *key = (struct remote_key){.used = true,
                               .generation = fabric_generation_next(key->generation),
                               .peer = peer,
                               .blob = copy,
                               .blob_bytes = length_bytes};
    if (remote->state == REMOTE_SERVING) {
        remote_key_order(remote, key);
    }
    *out = fabric_handle_make(key->generation, index);
    return SL_OK;
}

static sl_err key_renew(struct sl_fabric *fabric, uint32_t key, const void *blob,
                        uint32_t length_bytes, struct sl_error *why)
{
    (void)fabric;
    (void)key;
    (void)blob;
    (void)length_bytes;
    return sl_fail(why, SL_ERR_UNSUPPORTED, "a key of one rail stays what it is");
}

static void key_close(struct sl_fabric *fabric, uint32_t handle)
{
    struct tr_remote *remote = of(fabric);
    struct remote_key *key = remote_key_of(remote, handle);
    if (key == NULL) {
        return;
    }
    free(key->blob);
    *key = (struct remote_key){.generation = key->generation};
    if (remote->state == REMOTE_SERVING) {
        remote_order_of(remote, RAIL_KEY_CLOSE, handle);
    }
}

/* ---- transfers ---- */

static sl_err post_check(const struct tr_remote *remote, const struct sl_fabric_transfer *want,
                         struct sl_error *why)
{
    if (want->piece_count == 0 || want->piece_count > SL_FABRIC_PIECES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "a transfer has 1..%u pieces, not %u",
                       SL_FABRIC_PIECES_MAX, want->piece_count);
    }
    if (remote_peer_of(remote, want->peer) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < want->piece_count && err == SL_OK; i++) {
        const struct sl_fabric_piece *piece = &want->pieces[i];
        const struct sl_fabric_place range = {.memory = piece->memory,
                                              .offset_bytes = piece->offset_bytes,
                                              .length_bytes = piece->length_bytes};
        err = remote_key_of(remote, piece->key) == NULL
                  ? sl_fail(why, SL_ERR_NOT_FOUND, "no such key")
                  : ranges_check(remote, &range, piece->places, piece->place_count, why);
    }
    if (err != SL_OK) {
        return err;
    }
    return remote->free_post == FABRIC_NONE
               ? sl_fail(why, SL_ERR_LIMIT, "no room for one more transfer")
               : SL_OK;
}

/* The next pieces of a transfer, with their places, as far as they fit a message. */
static uint32_t pieces_fill(struct tr_remote *remote, const struct sl_fabric_transfer *want,
                            uint32_t first, struct sl_body_rail_post *body)
{
    static const struct sl_digest none;
    uint32_t end = first, places = 0;
    while (end < want->piece_count && end - first < REMOTE_PIECES_MAX &&
           places + want->pieces[end].place_count <= SL_FABRIC_PLACES_MAX) {
        const struct sl_fabric_piece *piece = &want->pieces[end];
        const struct sl_digest *digest = piece->digest != NULL ? piece->digest : &none;
        remote->items[end++ - first] = (struct sl_item_rail_piece){
            .memory = piece->place_count == 0 ? piece->memory : 0,
            .key = piece->key,
            .offset_bytes = piece->place_count == 0 ? piece->offset_bytes : 0,
            .remote_offset_bytes = piece->remote_offset_bytes,
            .length_bytes = piece->length_bytes,
            .place_count = piece->place_count,
            .checked = piece->digest != NULL,
            .digest_low = digest->low,
            .digest_high = digest->high,
        };
        places_fill(remote, places, piece->places, piece->place_count);
        places += piece->place_count;
    }
    body->pieces.at = remote->items;
    body->pieces.count = end - first;
    body->places.at = remote->places;
    body->places.count = places;
    return end;
}

/* False: the process does not have it. */
static bool post_send(struct tr_remote *remote, const struct sl_fabric_transfer *want,
                      uint32_t slot)
{
    for (uint32_t at = 0; at < want->piece_count;) {
        struct sl_msg msg = {.type = SL_MSG_RAIL_POST,
                             .budget_ns = sl_budget_ns(remote->env->now_ns, want->deadline_ns)};
        struct sl_body_rail_post *body = &msg.body.rail_post;
        body->slot = slot;
        body->cookie = want->cookie;
        body->verb = want->verb;
        body->peer = want->peer;
        at = pieces_fill(remote, want, at, body);
        body->more = at < want->piece_count;
        if (tr_stream_send(&remote->stream, &msg) != SL_OK) {
            remote_break(remote, "takes no transfers any more");
            return false;
        }
    }
    return true;
}

static sl_err post(struct sl_fabric *fabric, const struct sl_fabric_transfer *want,
                   struct sl_error *why)
{
    struct tr_remote *remote = of(fabric);
    sl_err err = post_check(remote, want, why);
    if (err != SL_OK) {
        return err;
    }
    uint32_t slot = remote->free_post;
    struct remote_post *at = &remote->posts[slot];
    bool sent = remote->state == REMOTE_SERVING && post_send(remote, want, slot);
    remote->free_post = at->next;
    *at = (struct remote_post){.used = true,
                               .ended = sent ? SL_OK : SL_ERR_UNREACHABLE,
                               .piece_count = want->piece_count,
                               .cookie = want->cookie,
                               .deadline_ns = want->deadline_ns};
    for (uint32_t i = 0; i < want->piece_count; i++) {
        at->bytes += want->pieces[i].length_bytes;
    }
    if (sent) {
        remote->posts_out++;
        wait_for(remote);
    } else {
        remote->posts_ended++;
        remote_due(remote);
    }
    return SL_OK;
}

static uint32_t cancel(struct sl_fabric *fabric, uint64_t cookie)
{
    struct tr_remote *remote = of(fabric);
    uint32_t count = 0;
    for (uint32_t i = 0; remote->posts_out > 0 && i < fabric->options.transfers_max; i++) {
        struct remote_post *at = &remote->posts[i];
        if (at->used && at->ended == SL_OK && at->cookie == cookie) {
            struct sl_body_rail_order body = {.handle = i, .cookie = cookie};
            remote_order(remote, RAIL_CANCEL, &body);
            at->deadline_ns = SL_MIN(at->deadline_ns, remote->env->now_ns);
            count++;
        }
    }
    return count;
}

/* ---- life ---- */

/* Of all lives: what the earlier ones did, and what this one told last. */
static void stats(const struct sl_fabric *fabric, struct sl_fabric_stats *out)
{
    uint64_t sum[sizeof(*out) / sizeof(uint64_t)], now[SL_COUNT(sum)];
    memcpy(sum, &of(fabric)->earlier, sizeof(sum));
    memcpy(now, &fabric->stats, sizeof(now));
    for (size_t i = 0; i < SL_COUNT(sum); i++) {
        sum[i] += now[i];
    }
    memcpy(out, sum, sizeof(*out));
    out->regions = fabric->stats.regions;
}

/* The process lives on, and lets go when it hears of our end: this one ends, or never had it. */
static void front_close(struct sl_fabric *fabric)
{
    struct tr_remote *remote = of(fabric);
    if (remote->all->at[remote->index] == remote) {
        remote->all->at[remote->index] = NULL;
    }
    if (remote->state != REMOTE_AWAY) {
        remote->env->ops->unwatch(remote->env, remote->proc);
    }
    for (uint32_t i = 0; remote->peers != NULL && i < fabric->options.peers_max; i++) {
        free(remote->peers[i].blob);
    }
    for (uint32_t i = 0; remote->keys != NULL && i < fabric->options.keys_max; i++) {
        free(remote->keys[i].blob);
    }
    for (uint32_t i = 0; remote->grants != NULL && i < fabric->options.grants_max; i++) {
        remote_grant_free(&remote->grants[i]);
    }
    tr_stream_fini(&remote->stream);
    free(remote->memories);
    free(remote->peers);
    free(remote->grants);
    free(remote->keys);
    free(remote->posts);
    free(remote);
}

const struct fabric_front tr_remote_front = {
    .close = front_close,
    .step = remote_turn,
    .wake_at = remote_due_at,
    .stats = stats,
    .memory_add = memory_add,
    .memory_remove = memory_remove,
    .memory_remove_step = memory_remove_step,
    .memory_give_up = memory_give_up,
    .region_bytes_max = region_bytes_max,
    .peer_add = peer_add,
    .peer_address = peer_address,
    .peer_remove = peer_remove,
    .peer_link = peer_link,
    .grant_add = grant_add,
    .grant_end = grant_end,
    .grants_shut = grants_shut,
    .grant_recheck = grant_recheck,
    .key_open = key_open,
    .key_renew = key_renew,
    .key_close = key_close,
    .post = post,
    .cancel = cancel,
};
