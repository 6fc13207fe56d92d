/* runtime/fabric/verbs/grant.c - who may touch our memory.
 *
 * Reading: the regions' keys, for whoever has them. Writing: for each lane and region of each range
 * a memory window of type 2, which works on that lane's queue pair alone; the ticket ends when all
 * are invalidated. A device without windows registers the ranges for the ticket alone, lets the
 * peer's queue pairs take writes only while it has a ticket, and ends the ticket by deregistering.
 * In both cases the device says so only when nothing lands any more. */
#include "runtime/fabric/core/wire.h"
#include "runtime/fabric/verbs/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAGIC   UINT32_C(0x57544c53) /* "SLTW" */
#define KEY_VERSION 1u
#define KEY_HEAD    16u
#define KEY_REGION  24u /* offset, length, address; then a key, or one a lane */

/* ---- keys ---- */

static uint32_t key_bytes_of(uint32_t regions, uint32_t rkeys)
{
    return KEY_HEAD + regions * (KEY_REGION + 4 * rkeys);
}

static void key_head(unsigned char *out, enum sl_fabric_verb verb, uint32_t regions, uint32_t rkeys)
{
    memset(out, 0, KEY_HEAD);
    sl_wire_put(out, KEY_MAGIC, 4);
    sl_wire_put(out + 4, KEY_VERSION, 1);
    sl_wire_put(out + 5, verb, 1);
    sl_wire_put(out + 6, rkeys, 2);
    sl_wire_put(out + 8, regions, 4);
}

static unsigned char *key_region(unsigned char *out, const struct fabric_region *region)
{
    sl_wire_put(out, region->offset_bytes, 8);
    sl_wire_put(out + 8, region->length_bytes, 8);
    sl_wire_put(out + 16, region->addr, 8);
    return out + KEY_REGION;
}

static sl_err key_region_read(const unsigned char *at, uint32_t rkeys, uint32_t index,
                              struct fabric_key *key, struct sl_error *why)
{
    struct fabric_region region = {
        .offset_bytes = sl_wire_get(at, 8),
        .length_bytes = sl_wire_get(at + 8, 8),
        .addr = sl_wire_get(at + 16, 8),
        .rkey = (uint32_t)sl_wire_get(at + KEY_REGION, 4),
    };
    const struct fabric_region *before = index == 0 ? NULL : &key->regions[index - 1];
    if (region.length_bytes == 0 || region.offset_bytes > UINT64_MAX - region.length_bytes ||
        (before != NULL && region.offset_bytes < before->offset_bytes + before->length_bytes)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs key: region %u is %" PRIu64 "+%" PRIu64, index,
                       region.offset_bytes, region.length_bytes);
    }
    key->regions[index] = region;
    for (uint32_t i = 0; key->lane_rkeys != NULL && i < rkeys; i++) {
        key->lane_rkeys[(size_t)index * rkeys + i] =
            (uint32_t)sl_wire_get(at + KEY_REGION + 4 * i, 4);
    }
    return SL_OK;
}

sl_err verbs_key_parse(struct sl_fabric *fabric, const void *blob, uint32_t length_bytes,
                       struct fabric_key *key, struct sl_error *why)
{
    const unsigned char *bytes = blob;
    if (length_bytes < KEY_HEAD || sl_wire_get(bytes, 4) != KEY_MAGIC) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs key: %u bytes that are none", length_bytes);
    }
    if (bytes[4] != KEY_VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "verbs key: version %u", bytes[4]);
    }
    uint32_t rkeys = (uint32_t)sl_wire_get(bytes + 6, 2);
    uint32_t count = (uint32_t)sl_wire_get(bytes + 8, 4);
    bool reads = bytes[5] == SL_FABRIC_READ;
    if ((!reads && bytes[5] != SL_FABRIC_WRITE) || rkeys != (reads ? 1 : fabric->options.lanes) ||
        count == 0 || count > SL_FABRIC_BLOB_MAX / KEY_REGION ||
        length_bytes != key_bytes_of(count, rkeys)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs key: %u regions, %u lanes, %u bytes", count,
                       rkeys, length_bytes);
    }
    key->verb = reads ? SL_FABRIC_READ : SL_FABRIC_WRITE;
    key->regions = calloc(count, sizeof(*key->regions));
    key->lane_rkeys = reads ? NULL : calloc((size_t)count * rkeys, sizeof(*key->lane_rkeys));
    if (key->regions == NULL || (!reads && key->lane_rkeys == NULL)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a key of %u regions", count);
    }
    key->region_count = count;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        err = key_region_read(bytes + key_bytes_of(i, rkeys), rkeys, i, key, why);
    }
    return err;
}

/* ---- ranges ---- */

/* Goes over what a grant covers, in the order of its key. */
struct range_walk {
    const struct sl_fabric *fabric;
    const struct fabric_place *next; /* after the range; NULL: none */
    uint32_t memory_index;
    uint64_t offset_bytes, left_bytes; /* of the range */
    uint64_t key_offset_bytes;
};

static struct range_walk range_begin(const struct sl_fabric *fabric,
                                     const struct fabric_grant *grant)
{
    struct range_walk walk = {.fabric = fabric, .next = grant->places};
    walk.key_offset_bytes = grant->what.offset_bytes;
    if (grant->places == NULL) {
        walk.memory_index = grant->memory_index;
        walk.offset_bytes = grant->what.offset_bytes;
        walk.left_bytes = grant->what.length_bytes;
    }
    return walk;
}

/* Goes to the next range when this one is over; false: there is none. */
static bool range_is_left(struct range_walk *walk)
{
    if (walk->left_bytes == 0 && walk->next != NULL) {
        walk->memory_index = walk->next->memory & 0xffffu;
        walk->offset_bytes = walk->next->offset_bytes;
        walk->left_bytes = walk->next->run.length_bytes;
        walk->next = fabric_place_of(walk->next->run.next);
    }
    return walk->left_bytes > 0;
}

static void range_skip(struct range_walk *walk, uint64_t length_bytes)
{
    walk->offset_bytes += length_bytes;
    walk->key_offset_bytes += length_bytes;
    walk->left_bytes -= length_bytes;
}

/* The next part that lies in one region: that region, shortened to it, by its offset in the key. */
static bool range_cut(struct range_walk *walk, struct fabric_region *out)
{
    if (!range_is_left(walk)) {
        return false;
    }
    const struct fabric_memory *memory = &walk->fabric->memories[walk->memory_index];
    const struct fabric_region *region =
        fabric_region_at(memory->regions, memory->region_count, walk->offset_bytes);
    SL_ASSERT(region != NULL); /* the grant's ranges are within their memories */
    uint64_t into_bytes = walk->offset_bytes - region->offset_bytes;
    *out = *region;
    out->offset_bytes = walk->key_offset_bytes;
    out->length_bytes = SL_MIN(region->length_bytes - into_bytes, walk->left_bytes);
    out->addr = region->addr + into_bytes;
    range_skip(walk, out->length_bytes);
    return true;
}

/* The dmabuf from there on where the next range lies; false: it lies in none. */
static bool range_dmabuf(struct range_walk *walk, struct sl_fabric_dmabuf *out)
{
    if (!range_is_left(walk) || !walk->fabric->memories[walk->memory_index].by_dmabuf) {
        return false;
    }
    *out = walk->fabric->memories[walk->memory_index].dmabuf;
    out->offset_bytes += walk->offset_bytes;
    return true;
}

/* The next whole range, by its offset in the key. */
static bool range_whole(struct range_walk *walk, struct fabric_region *out)
{
    if (!range_is_left(walk)) {
        return false;
    }
    unsigned char *memory = walk->fabric->memories[walk->memory_index].what.at;
    *out = (struct fabric_region){.offset_bytes = walk->key_offset_bytes,
                                  .length_bytes = walk->left_bytes,
                                  .addr = (uintptr_t)(memory + walk->offset_bytes)};
    range_skip(walk, walk->left_bytes);
    return true;
}

static uint32_t range_count(const struct sl_fabric *fabric, const struct fabric_grant *grant,
                            bool (*step)(struct range_walk *, struct fabric_region *))
{
    struct range_walk walk = range_begin(fabric, grant);
    struct fabric_region cut;
    uint32_t count = 0;
    while (step(&walk, &cut)) {
        count++;
    }
    return count;
}

static sl_err grant_reading(const struct sl_fabric *fabric, struct fabric_grant *grant,
                            unsigned char *key)
{
    struct range_walk walk = range_begin(fabric, grant);
    unsigned char *at = key + KEY_HEAD;
    struct fabric_region cut;
    while (range_cut(&walk, &cut)) {
        at = key_region(at, &cut);
        sl_wire_put(at, cut.rkey, 4);
        at += 4;
    }
    grant->ready = true;
    return SL_OK;
}

/* ---- windows ---- */

static sl_err window_take(struct verbs *verbs, struct ibv_mw **out, struct sl_error *why)
{
    if (verbs->free_count > 0) {
        *out = verbs->free_windows[--verbs->free_count];
        return SL_OK;
    }
    *out = ibv_alloc_mw(verbs->pd, IBV_MW_TYPE_2);
    return *out != NULL ? SL_OK : sl_fail_os(why, errno, "memory window");
}

static void window_give(struct verbs *verbs, struct ibv_mw *window)
{
    if (verbs->free_count == verbs->free_capacity) {
        uint32_t capacity = SL_MAX(64u, verbs->free_capacity * 2);
        struct ibv_mw **more = realloc(verbs->free_windows, capacity * sizeof(struct ibv_mw *));
        if (more == NULL) {
            (void)ibv_dealloc_mw(window);
            return;
        }
        verbs->free_windows = more;
        verbs->free_capacity = capacity;
    }
    verbs->free_windows[verbs->free_count++] = window;
}

static sl_err control_post(struct fabric_peer *peer, uint32_t lane, struct ibv_send_wr *work)
{
    struct verbs_peer *state = peer->backend;
    struct ibv_send_wr *bad = NULL;
    work->send_flags = IBV_SEND_SIGNALED;
    if (state->control_out[lane] == VERBS_CONTROL_MAX ||
        ibv_post_send(state->qps[lane], work, &bad) != 0) {
        return SL_ERR_LIMIT;
    }
    state->control_out[lane]++;
    return SL_OK;
}

static sl_err window_bind(struct fabric_peer *peer, struct fabric_grant *grant, uint32_t index,
                          uint32_t lane, const struct fabric_region *cut, struct sl_error *why)
{
    struct verbs_grant *held = grant->backend;
    struct verbs_window *window = &held->windows[index];
    SL_ASSERT(window->mw != NULL);
    window->lane = lane;
    struct ibv_send_wr work = {
        .wr_id = verbs_id(VERBS_BIND, held->life, grant->index, index),
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = window->mw,
                    .rkey = ibv_inc_rkey(window->mw->rkey),
                    .bind_info = {.mr = cut->handle,
                                  .addr = cut->addr,
                                  .length = cut->length_bytes,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}},
    };
    if (control_post(peer, lane, &work) != SL_OK) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u windows are being bound",
                       VERBS_CONTROL_MAX);
    }
    window->mw->rkey = work.bind_mw.rkey;
    window->bound = true;
    held->busy_count++;
    return SL_OK;
}

/* Frees the windows at once; what was bound is invalid when this returns. */
static void windows_free(struct verbs_grant *held)
{
    for (uint32_t i = 0; i < held->window_count; i++) {
        if (held->windows[i].mw != NULL) {
            (void)ibv_dealloc_mw(held->windows[i].mw);
            held->windows[i].mw = NULL;
        }
    }
    held->busy_count = 0;
}

static sl_err windows_bind(struct fabric_peer *peer, struct fabric_grant *grant, unsigned char *key,
                           struct sl_error *why)
{
    struct sl_fabric *fabric = peer->fabric;
    struct range_walk walk = range_begin(fabric, grant);
    struct verbs_grant *held = grant->backend;
    unsigned char *at = key + KEY_HEAD;
    struct fabric_region cut;
    uint32_t index = 0;
    for (uint32_t i = 0; i < held->window_count; i++) { /* all are there before one is bound */
        sl_err err = window_take(verbs_of(fabric), &held->windows[i].mw, why);
        if (err != SL_OK) {
            windows_free(held);
            return err;
        }
    }
    while (range_cut(&walk, &cut)) {
        at = key_region(at, &cut);
        for (uint32_t lane = 0; lane < fabric->options.lanes; lane++, index++, at += 4) {
            sl_err err = window_bind(peer, grant, index, lane, &cut, why);
            if (err != SL_OK) {
                windows_free(held);
                return err;
            }
            sl_wire_put(at, held->windows[index].mw->rkey, 4);
        }
    }
    return SL_OK;
}

/* ---- without windows ---- */

static void writers_allow(struct fabric_peer *peer)
{
    struct verbs *verbs = verbs_of(peer->fabric);
    struct verbs_peer *state = peer->backend;
    struct ibv_qp_attr attr = {.qp_access_flags =
                                   IBV_ACCESS_REMOTE_READ |
                                   (state->writers > 0 ? (unsigned)IBV_ACCESS_REMOTE_WRITE : 0u)};
    for (uint32_t i = 0; i < peer->fabric->options.lanes; i++) {
        if (state->qps[i] != NULL) {
            (void)verbs->lib.verbs_modify_qp(state->qps[i], &attr, IBV_QP_ACCESS_FLAGS);
        }
    }
}

static void own_free(const struct verbs *verbs, struct verbs_grant *held)
{
    for (uint32_t i = 0; i < held->window_count; i++) {
        if (held->windows[i].own != NULL) {
            (void)verbs->lib.verbs_dereg_mr(held->windows[i].own);
            held->windows[i].own = NULL;
        }
    }
}

static sl_err own_register(struct fabric_peer *peer, struct fabric_grant *grant, unsigned char *key,
                           struct sl_error *why)
{
    struct sl_fabric *fabric = peer->fabric;
    struct verbs *verbs = verbs_of(fabric);
    struct verbs_peer *state = peer->backend;
    struct verbs_grant *held = grant->backend;
    struct range_walk walk = range_begin(fabric, grant);
    struct fabric_region range;
    unsigned char *out = key + KEY_HEAD;
    for (uint32_t i = 0;; i++) {
        struct sl_fabric_dmabuf dmabuf;
        struct ibv_mr *own = NULL;
        bool by_dmabuf = range_dmabuf(&walk, &dmabuf);
        if (!range_whole(&walk, &range)) {
            break;
        }
        sl_err err =
            verbs_register(verbs, by_dmabuf ? &dmabuf : NULL, range.addr, range.length_bytes,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &own, why);
        if (err != SL_OK) {
            own_free(verbs, held);
            return err;
        }
        held->windows[i].own = own;
        out = key_region(out, &range);
        for (uint32_t lane = 0; lane < fabric->options.lanes; lane++, out += 4) {
            sl_wire_put(out, own->rkey, 4);
        }
    }
    held->writes = true;
    if (++state->writers == 1) {
        writers_allow(peer);
    }
    grant->ready = true;
    return SL_OK;
}

static void own_deregister(struct fabric_peer *peer, struct verbs_grant *held)
{
    struct verbs_peer *state = peer->backend;
    if (!held->writes) {
        return;
    }
    own_free(verbs_of(peer->fabric), held);
    held->writes = false;
    if (state != NULL && --state->writers == 0) {
        writers_allow(peer);
    }
}

/* ---- grants ---- */

/* Every lane has to bind all of them, and that at once: more than it has room for is refused, before
 * anything is bound. */
static sl_err windows_check(const struct fabric_peer *peer, uint32_t ranges, struct sl_error *why)
{
    const struct verbs_peer *state = peer->backend;
    uint32_t busy = 0;
    for (uint32_t i = 0; i < peer->fabric->options.lanes; i++) {
        busy = SL_MAX(busy, state->control_out[i]);
    }
    return ranges <= VERBS_CONTROL_MAX - busy
               ? SL_OK
               : sl_fail(why, SL_ERR_LIMIT,
                         "a ticket of %u ranges beside %u windows that are being bound: %u at most",
                         ranges, busy, VERBS_CONTROL_MAX);
}

static sl_err grant_writing(struct sl_fabric *fabric, struct fabric_grant *grant, uint32_t regions,
                            unsigned char *key, struct sl_error *why)
{
    struct verbs *verbs = verbs_of(fabric);
    struct fabric_peer *peer = &fabric->peers[grant->peer_index];
    uint32_t windows = verbs->windows ? regions * fabric->options.lanes : regions;
    if (peer->state != PEER_UP) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "a ticket needs a link, and this one is not up");
    }
    sl_err err = SL_OK;
    if (verbs->windows) {
        err = windows_check(peer, regions, why);
    } else if (regions > VERBS_OWN_MAX) {
        err =
            sl_fail(why, SL_ERR_LIMIT, "a ticket of %u ranges, %u at most", regions, VERBS_OWN_MAX);
    }
    if (err != SL_OK) {
        return err;
    }
    struct verbs_grant *held = calloc(1, sizeof(*held) + windows * sizeof(held->windows[0]));
    if (held == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u windows", windows);
    }
    held->window_count = windows;
    held->life = ((struct verbs_peer *)peer->backend)->life;
    grant->backend = held;
    err =
        verbs->windows ? windows_bind(peer, grant, key, why) : own_register(peer, grant, key, why);
    if (err != SL_OK) {
        free(held);
        grant->backend = NULL;
    }
    return err;
}

sl_err verbs_grant_add(struct sl_fabric *fabric, struct fabric_grant *grant, void *key,
                       uint32_t *key_bytes, struct sl_error *why)
{
    bool reads = grant->what.verb == SL_FABRIC_READ;
    bool windows = verbs_of(fabric)->windows;
    uint32_t regions = range_count(fabric, grant, reads || windows ? range_cut : range_whole);
    uint32_t rkeys = reads ? 1 : fabric->options.lanes;
    if (regions > (SL_FABRIC_BLOB_MAX - KEY_HEAD) / (KEY_REGION + 4 * rkeys)) {
        return sl_fail(why, SL_ERR_LIMIT, "a key of %u regions is too long", regions);
    }
    key_head(key, grant->what.verb, regions, rkeys);
    sl_err err =
        reads ? grant_reading(fabric, grant, key) : grant_writing(fabric, grant, regions, key, why);
    if (err == SL_OK) {
        *key_bytes = key_bytes_of(regions, rkeys);
    }
    return err;
}

static void grant_gone(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    struct verbs *verbs = verbs_of(fabric);
    struct verbs_grant *held = grant->backend;
    for (uint32_t i = 0; held != NULL && i < held->window_count; i++) {
        if (held->windows[i].mw != NULL) {
            window_give(verbs, held->windows[i].mw);
        }
    }
    free(held);
    grant->backend = NULL;
    fabric_grant_gone(fabric, grant);
}

static void window_invalidate(struct fabric_peer *peer, struct fabric_grant *grant, uint32_t index)
{
    struct verbs_grant *held = grant->backend;
    struct verbs_window *window = &held->windows[index];
    struct ibv_send_wr work = {
        .wr_id = verbs_id(VERBS_INVALIDATE, held->life, grant->index, index),
        .opcode = IBV_WR_LOCAL_INV,
        .invalidate_rkey = window->mw->rkey,
    };
    if (control_post(peer, window->lane, &work) == SL_OK) {
        held->busy_count++;
        return;
    }
    (void)ibv_dealloc_mw(window->mw); /* slower, but it waits for nobody */
    window->mw = NULL;
}

void verbs_grant_end(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    struct fabric_peer *peer = &fabric->peers[grant->peer_index];
    struct verbs_grant *held = grant->backend;
    const struct verbs_peer *state = peer->backend;
    if (held == NULL) { /* reading: the region's key stays what it is */
        grant_gone(fabric, grant);
        return;
    }
    own_deregister(peer, held);
    bool lives = peer->state == PEER_UP && state != NULL && state->life == held->life;
    for (uint32_t i = 0; lives && i < held->window_count; i++) {
        if (held->windows[i].mw != NULL) {
            window_invalidate(peer, grant, i);
        }
    }
    if (held->busy_count == 0) {
        grant_gone(fabric, grant);
    }
}

void verbs_window_done(struct sl_fabric *fabric, const struct ibv_wc *wc)
{
    uint16_t life = (uint16_t)(wc->wr_id >> 40);
    struct fabric_grant *grant = &fabric->grants[(uint16_t)(wc->wr_id >> 24)];
    struct verbs_grant *held = grant->backend;
    uint32_t index = (uint32_t)(wc->wr_id & 0xffffff);
    if (held == NULL || held->life != life || held->busy_count == 0) {
        return; /* of windows that went with their queue pair */
    }
    struct fabric_peer *peer = &fabric->peers[grant->peer_index];
    struct verbs_peer *state = peer->backend;
    state->control_out[held->windows[index].lane]--;
    if (wc->status != IBV_WC_SUCCESS) {
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_PEER_DIED, "memory window: %s",
                      verbs_of(fabric)->lib.verbs_wc_status_str(wc->status));
        fabric_peer_fail(peer, &why);
        return;
    }
    if (--held->busy_count > 0) {
        return;
    }
    if (grant->state == GRANT_ENDING) {
        grant_gone(fabric, grant);
    } else {
        fabric_grant_ready(fabric, grant);
    }
}

void verbs_grants_drop(struct fabric_peer *peer)
{
    struct sl_fabric *fabric = peer->fabric;
    for (uint32_t i = 0; i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        struct verbs_grant *held = grant->backend;
        if (held == NULL || grant->peer_index != peer->index) {
            continue;
        }
        windows_free(held);
        own_deregister(peer, held);
        if (grant->state == GRANT_ENDING) {
            grant_gone(fabric, grant);
        }
    }
}
