/* runtime/fabric/core/rails.c - rails open, turn and close; a peer with a link on every rail. */
#include "runtime/fabric/core/rails.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- peers ---- */

struct rails_peer *rails_peer_of(const struct rails *rails, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= rails->fabric->options.peers_max) {
        return NULL;
    }
    struct rails_peer *peer = &rails->peers[index];
    return peer->used && peer->generation == handle >> 16 ? peer : NULL;
}

static uint32_t handle_of(const struct rails *rails, const struct rails_peer *peer)
{
    return fabric_handle_make(peer->generation, (uint32_t)(peer - rails->peers));
}

/* By the rail's handle; NULL: it has been removed. */
static struct rails_peer *peer_by_sub(const struct rail *rail, uint32_t sub)
{
    const struct rails *rails = rail->rails;
    for (uint32_t i = 0; i < rails->fabric->options.peers_max; i++) {
        if (rails->peers[i].used && rails->peers[i].sub[rail->index] == sub) {
            return &rails->peers[i];
        }
    }
    return NULL;
}

static void peer_free(struct rails *rails, struct rails_peer *peer)
{
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric != NULL && peer->sub[i] != FABRIC_NONE) {
            sl_fabric_peer_remove(rails->at[i].fabric, peer->sub[i]);
        }
        free(peer->blobs[i]);
    }
    *peer = (struct rails_peer){.generation = peer->generation};
}

static sl_err rails_peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    uint32_t index = 0;
    while (index < fabric->options.peers_max && rails->peers[index].used) {
        index++;
    }
    if (index == fabric->options.peers_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u peers", index);
    }
    struct rails_peer *peer = &rails->peers[index];
    *peer = (struct rails_peer){.used = true,
                                .generation = fabric_generation_next(peer->generation),
                                .told = SL_FABRIC_CONNECTING};
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < rails->count; i++) {
        peer->sub[i] = FABRIC_NONE;
    }
    for (uint32_t i = 0; i < rails->count && err == SL_OK; i++) {
        if (rails->at[i].fabric != NULL) {
            err = sl_fabric_peer_add(rails->at[i].fabric, &peer->sub[i], why);
        }
    }
    if (err != SL_OK) {
        peer_free(rails, peer);
        return err;
    }
    *out = handle_of(rails, peer);
    return SL_OK;
}

static void rails_peer_remove(struct sl_fabric *fabric, uint32_t handle)
{
    struct rails *rails = fabric->rails;
    struct rails_peer *peer = rails_peer_of(rails, handle);
    if (peer != NULL) {
        rails_keys_drop(rails, handle);
        peer_free(rails, peer);
    }
}

static sl_err fail_with(const struct sl_error *reason, struct sl_error *why)
{
    if (why != NULL) {
        *why = *reason;
    }
    return reason->code;
}

/* Refused when no rail can use it. */
static sl_err rails_peer_address(struct sl_fabric *fabric, uint32_t handle, const void *blob,
                                 uint32_t length_bytes, struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    const struct rails_peer *peer = rails_peer_of(rails, handle);
    struct rails_blob read = {0};
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    sl_err err = rails_blob_read(blob, length_bytes, &read, why);
    struct sl_error unlike = {0};
    bool taken = false;
    for (uint32_t i = 0; i < rails->count && err == SL_OK; i++) {
        struct sl_error reason = {0};
        if (rails->at[i].fabric == NULL || read.lengths[i] == 0) {
            continue;
        }
        sl_err one = sl_fabric_peer_address(rails->at[i].fabric, peer->sub[i], read.parts[i],
                                            read.lengths[i], &reason);
        taken |= one == SL_OK;
        if (one == SL_ERR_UNSUPPORTED) { /* a NIC of another kind: the rail carries nothing */
            unlike = reason;
        } else if (one != SL_OK) {
            err = fail_with(&reason, why);
        }
    }
    return err == SL_OK && !taken && unlike.code != SL_OK ? fail_with(&unlike, why) : err;
}

/* All that is known of our addresses by now; the others come behind. */
static void rails_on_address(void *context, uint32_t sub, const void *blob, uint32_t length_bytes)
{
    struct rail *rail = context;
    struct rails *rails = rail->rails;
    struct rails_peer *peer = peer_by_sub(rail, sub);
    void *kept = peer != NULL ? realloc(peer->blobs[rail->index], length_bytes) : NULL;
    if (kept == NULL) {
        return;
    }
    memcpy(kept, blob, length_bytes);
    peer->blobs[rail->index] = kept;
    peer->blob_bytes[rail->index] = length_bytes;
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    uint32_t length = rails_blob_write(rails, false, (const void *const *)peer->blobs,
                                       peer->blob_bytes, rails->blob);
    if (length > 0 && events->address != NULL) {
        events->address(events->context, handle_of(rails, peer), rails->blob, length);
    }
}

static enum sl_fabric_link link_of_all(const struct rails *rails, const struct rails_peer *peer)
{
    enum sl_fabric_link link = SL_FABRIC_DOWN;
    for (uint32_t i = 0; i < rails->count && link != SL_FABRIC_UP; i++) {
        enum sl_fabric_link one = rails->at[i].fabric != NULL
                                      ? sl_fabric_peer_link(rails->at[i].fabric, peer->sub[i])
                                      : SL_FABRIC_DOWN;
        link = one == SL_FABRIC_DOWN ? link : one;
    }
    return link;
}

static enum sl_fabric_link rails_peer_link(const struct sl_fabric *fabric, uint32_t handle)
{
    const struct rails_peer *peer = rails_peer_of(fabric->rails, handle);
    return peer == NULL ? SL_FABRIC_DOWN : link_of_all(fabric->rails, peer);
}

/* True: the peer is there still. */
static bool link_tell(struct rails *rails, uint32_t handle, enum sl_fabric_link link,
                      const struct sl_error *why)
{
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    struct rails_peer *peer = rails_peer_of(rails, handle);
    if (peer != NULL && peer->told != link) {
        peer->told = (uint8_t)link;
        if (events->link != NULL) {
            events->link(events->context, handle, link, why);
        }
    }
    return rails_peer_of(rails, handle) != NULL;
}

/* The first link that is up makes the peer up; the last that goes takes it down, whatever state the
 * others are in: who hears of it counts on what was granted being gone. */
static void rails_on_link(void *context, uint32_t sub, enum sl_fabric_link link,
                          const struct sl_error *why)
{
    struct rail *rail = context;
    struct rails *rails = rail->rails;
    struct rails_peer *peer = peer_by_sub(rail, sub);
    if (peer == NULL) {
        return;
    }
    uint32_t handle = handle_of(rails, peer);
    if (link != SL_FABRIC_UP) {
        peer->lives[rail->index]++;
        rails_grants_lost(rail, handle);
    }
    enum sl_fabric_link all = link_of_all(rails, peer);
    bool lost = peer->told == SL_FABRIC_UP && all != SL_FABRIC_UP;
    if (!lost || link_tell(rails, handle, SL_FABRIC_DOWN, why)) {
        (void)link_tell(rails, handle, all, why);
    }
}

/* ---- life ---- */

/* tcp has addresses, everything else NICs. */
static const char *list_of(const struct sl_fabric_options *options, bool *by_nic)
{
    *by_nic = strcmp(options->kind, "tcp") != 0;
    const char *list = *by_nic ? options->nic : options->address;
    return list == NULL ? "" : list;
}

static uint32_t entries_count(const char *list)
{
    uint32_t count = 1;
    for (const char *at = list; *at != '\0'; at++) {
        count += *at == ',';
    }
    return count;
}

static sl_err tables_make(struct rails *rails, struct sl_error *why)
{
    const struct sl_fabric_options *options = &rails->fabric->options;
    bool there = true;
    sl_err err = fabric_places_open(&rails->places, options->places_max, why);
    if (err != SL_OK) {
        return err;
    }
    rails->place_scratch = calloc(SL_MAX(options->places_max, 1u), sizeof(*rails->place_scratch));
    rails->memories = calloc(options->memories_max, sizeof(*rails->memories));
    rails->peers = calloc(options->peers_max, sizeof(*rails->peers));
    rails->grants = calloc(options->grants_max, sizeof(*rails->grants));
    rails->keys = calloc(options->keys_max, sizeof(*rails->keys));
    rails->transfers = calloc(options->transfers_max, sizeof(*rails->transfers));
    rails->pieces = calloc(options->pieces_max, sizeof(*rails->pieces));
    for (uint32_t i = 0; i < rails->count; i++) {
        rails->at[i].grant_of = calloc(options->grants_max, sizeof(uint16_t));
        there = there && rails->at[i].grant_of != NULL;
    }
    if (!there || rails->memories == NULL || rails->peers == NULL || rails->grants == NULL ||
        rails->keys == NULL || rails->transfers == NULL || rails->pieces == NULL ||
        rails->place_scratch == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tables of %u rails", rails->count);
    }
    for (uint32_t i = 0; i < options->transfers_max; i++) {
        rails->transfers[i].next = i + 1 < options->transfers_max ? i + 1 : FABRIC_NONE;
    }
    for (uint32_t i = 0; i < options->pieces_max; i++) {
        rails->pieces[i].next = i + 1 < options->pieces_max ? i + 1 : FABRIC_NONE;
    }
    return SL_OK;
}

static void about_add(struct rails *rails, const char *text)
{
    char *about = rails->fabric->about;
    size_t used = strlen(about), room = sizeof(rails->fabric->about);
    (void)snprintf(about + used, room - used, "%s%.100s", used > 0 ? "; " : "", text);
}

/* Those that did not open come first: the text has no room for all of many rails. */
static const char *rails_about(const struct sl_fabric *fabric)
{
    struct rails *rails = fabric->rails;
    uint32_t open = 0;
    rails->fabric->about[0] = '\0';
    for (uint32_t i = 0; i < rails->count; i++) {
        open += rails->at[i].fabric != NULL ? 1 : 0;
    }
    if (open < rails->count) {
        (void)snprintf(rails->fabric->about, sizeof(rails->fabric->about),
                       "%u of %u rails did not open", rails->count - open, rails->count);
    }
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric == NULL) {
            about_add(rails, rails->at[i].reason);
        }
    }
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric != NULL) {
            about_add(rails, rails->at[i].fabric->about);
        }
    }
    return fabric->about;
}

/* Grants keep their cookies on every rail. */
static bool rail_may_read(void *context, uint64_t cookie, uint64_t offset_bytes,
                          uint64_t length_bytes)
{
    const struct rail *rail = context;
    const struct sl_fabric_events *events = &rail->rails->fabric->options.events;
    return events->may_read(events->context, cookie, offset_bytes, length_bytes);
}

/* Its tables are as large as ours: a rail may have to carry all. */
static sl_err rail_open(struct rail *rail, const struct fabric_backend *ops, struct sl_error *why)
{
    struct rails *rails = rail->rails;
    struct sl_fabric_options options = rails->fabric->options;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = rail->index};
    options.address = rails->by_nic ? options.address : rail->entry;
    options.nic = rails->by_nic ? rail->entry : options.nic;
    options.movers = options.movers == 0 ? 0 : SL_MAX(options.movers / rails->count, 1u);
    options.events = (struct sl_fabric_events){
        .context = rail,
        .done = rails_on_done,
        .registered = rails_on_registered,
        .address = rails_on_address,
        .link = rails_on_link,
        .granted = rails_on_granted,
        .grant_ended = rails_on_grant_ended,
        .may_read = rails->fabric->options.events.may_read != NULL ? rail_may_read : NULL,
    };
    sl_err err = sl_fabric_open_with(ops, &options, &rail->fabric, why);
    if (err == SL_OK && rail->fabric->fd >= 0 &&
        epoll_ctl(rails->fabric->fd, EPOLL_CTL_ADD, rail->fabric->fd, &event) < 0) {
        err = sl_fail_os(why, errno, "watch the descriptor of rail %u", rail->index);
        sl_fabric_close(&rail->fabric);
    }
    return err;
}

bool fabric_rails_wanted(const struct sl_fabric_options *options)
{
    bool by_nic = false;
    return entries_count(list_of(options, &by_nic)) > 1;
}

static void entry_take(const char **list, char out[RAILS_ENTRY_BYTES])
{
    size_t length = strcspn(*list, ",");
    const char *at = *list, *end = at + length;
    while (at < end && *at == ' ') {
        at++;
    }
    while (end > at && end[-1] == ' ') {
        end--;
    }
    (void)snprintf(out, RAILS_ENTRY_BYTES, "%.*s",
                   (int)SL_MIN(end - at, (ptrdiff_t)RAILS_ENTRY_BYTES), at);
    *list += length + ((*list)[length] == ',');
}

static sl_err all_open(struct rails *rails, const struct fabric_backend *ops, const char *list,
                       struct sl_error *why)
{
    struct sl_error first = {0};
    uint32_t open = 0;
    for (uint32_t i = 0; i < rails->count; i++) {
        rails->at[i].rails = rails;
        rails->at[i].index = i;
        entry_take(&list, rails->at[i].entry);
        if (rails->at[i].entry[0] == '\0') {
            return sl_fail(why, SL_ERR_CONFIG, "fabric: entry %u of a list is empty", i);
        }
        struct sl_error reason = {0};
        if (rail_open(&rails->at[i], ops, &reason) == SL_OK) {
            open++;
            continue;
        }
        (void)snprintf(rails->at[i].reason, sizeof(rails->at[i].reason), "%.100s", reason.text);
        first = first.code == SL_OK ? reason : first;
    }
    if (open == 0 && why != NULL) {
        *why = first;
    }
    return open == 0 ? first.code : SL_OK;
}

static void rails_close(struct sl_fabric *fabric)
{
    struct rails *rails = fabric->rails;
    for (uint32_t i = 0; i < rails->count; i++) {
        sl_fabric_close(&rails->at[i].fabric);
        free(rails->at[i].grant_of);
    }
    for (uint32_t g = 0; rails->grants != NULL && g < fabric->options.grants_max; g++) {
        rails_grant_free(&rails->grants[g]);
    }
    for (uint32_t p = 0; rails->peers != NULL && p < fabric->options.peers_max; p++) {
        for (uint32_t i = 0; i < rails->count; i++) {
            free(rails->peers[p].blobs[i]);
        }
    }
    if (fabric->fd >= 0) {
        (void)close(fabric->fd);
    }
    free(rails->memories);
    free(rails->peers);
    free(rails->grants);
    free(rails->keys);
    free(rails->transfers);
    free(rails->pieces);
    free(rails->place_scratch);
    fabric_places_close(&rails->places);
    free(rails);
    free(fabric);
}

static void rails_step(struct sl_fabric *fabric, uint64_t now_ns)
{
    struct rails *rails = fabric->rails;
    fabric->now_ns = now_ns;
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric != NULL) {
            sl_fabric_step(rails->at[i].fabric, now_ns);
        }
    }
    rails_grants_tell(rails);
}

static uint64_t rails_wake_at(const struct sl_fabric *fabric)
{
    const struct rails *rails = fabric->rails;
    uint64_t at_ns = rails->grants_gone > 0 ? 0 : SL_NEVER_NS;
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric != NULL) {
            at_ns = SL_MIN(at_ns, sl_fabric_wake_at(rails->at[i].fabric));
        }
    }
    return at_ns;
}

static void rails_stats(const struct sl_fabric *fabric, struct sl_fabric_stats *out)
{
    const struct rails *rails = fabric->rails;
    uint64_t sum[sizeof(*out) / sizeof(uint64_t)] = {0}, one[SL_COUNT(sum)];
    static_assert(sizeof(*out) % sizeof(uint64_t) == 0, "stats are numbers of 8 bytes alone");
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric != NULL) {
            struct sl_fabric_stats stats;
            sl_fabric_stats(rails->at[i].fabric, &stats);
            memcpy(one, &stats, sizeof(one));
            for (size_t k = 0; k < SL_COUNT(sum); k++) {
                sum[k] += one[k];
            }
        }
    }
    memcpy(out, sum, sizeof(*out));
}

static const struct fabric_form form = {
    .close = rails_close,
    .step = rails_step,
    .wake_at = rails_wake_at,
    .stats = rails_stats,
    .about = rails_about,
    .memory_add = fabric_rails_memory_add,
    .memory_remove_step = fabric_rails_memory_remove_step,
    .dmabuf_check = fabric_rails_dmabuf_check,
    .region_bytes_max = fabric_rails_region_bytes_max,
    .peer_add = rails_peer_add,
    .peer_address = rails_peer_address,
    .peer_remove = rails_peer_remove,
    .peer_link = rails_peer_link,
    .grant_add = fabric_rails_grant_add,
    .grant_end = fabric_rails_grant_end,
    .key_open = fabric_rails_key_open,
    .key_close = fabric_rails_key_close,
    .post = fabric_rails_post,
    .cancel = fabric_rails_cancel,
};

sl_err fabric_rails_open(const struct fabric_backend *ops, const struct sl_fabric_options *options,
                         struct sl_fabric **out, struct sl_error *why)
{
    bool by_nic = false;
    const char *list = list_of(options, &by_nic);
    uint32_t count = entries_count(list);
    if (count > RAILS_MAX) {
        return sl_fail(why, SL_ERR_CONFIG, "fabric: a list of %u, at most %u are possible", count,
                       RAILS_MAX);
    }
    struct sl_fabric *fabric = aligned_alloc(64, sl_align_up(sizeof(*fabric), 64));
    struct rails *rails = calloc(1, sizeof(*rails));
    if (fabric == NULL || rails == NULL) {
        free(fabric);
        free(rails);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a fabric of rails");
    }
    memset(fabric, 0, sizeof(*fabric));
    fabric->rails = rails;
    fabric->form = &form;
    fabric->options = *options;
    rails->fabric = fabric;
    rails->count = count;
    rails->by_nic = by_nic;
    rails->keys_die = strcmp(ops->name, "verbs") == 0;
    fabric->fd = epoll_create1(EPOLL_CLOEXEC);
    sl_err err = fabric->fd < 0 ? sl_fail_os(why, errno, "epoll") : tables_make(rails, why);
    if (err == SL_OK) {
        err = all_open(rails, ops, list, why);
    }
    if (err != SL_OK) {
        rails_close(fabric);
        return err;
    }
    *out = fabric;
    return SL_OK;
}
