/* runtime/net/fabric/verbs/ticket.c - tickets: grants of unread memory.
 *
 * A memory window of type 2 is bound for each lane and for each region of each range; it works only
 * on that lane's queue pair. On a device without windows, the ranges are registered for the ticket.
 * A ticket ends when everything is invalidated or deregistered: in both cases the device confirms
 * it only when nothing is read there any more.
 *
 * A ticket is made, bound and ended in slices. Tickets with work get one slice each, in turns. At
 * most VERBS_CONTROL_MAX binds and invalidations are in progress on a queue pair, in slots of their
 * own, so that transfers keep theirs. */
#include "runtime/net/fabric/core/wire.h"
#include "runtime/net/fabric/verbs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void ticket_waits(struct fabric_rail *rail, struct verbs_grant *held, bool waits)
{
    verbs_of(rail)->tickets_waiting += (waits ? 1u : 0u) - (held->waits ? 1u : 0u);
    held->waits = waits;
}

uint32_t verbs_ticket_rkeys(const struct fabric_rail *rail)
{
    return verbs_of(rail)->windows ? rail->options.lanes : 1;
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

static bool lane_has_room(const struct fabric_peer *peer, uint32_t lane)
{
    const struct verbs_peer *state = peer->backend;
    return state->control_out[lane] < VERBS_CONTROL_MAX;
}

static bool lanes_have_room(const struct fabric_peer *peer)
{
    bool room = true;
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        room = room && lane_has_room(peer, i);
    }
    return room;
}

/* Gives 0, or the library's errno. */
static int control_post(struct fabric_peer *peer, uint32_t lane, struct verbs_grant *held,
                        struct ibv_send_wr *work)
{
    struct verbs_peer *state = peer->backend;
    struct ibv_send_wr *bad = NULL;
    work->send_flags = IBV_SEND_SIGNALED;
    int code = ibv_post_send(state->qps[lane], work, &bad);
    if (code == 0) {
        state->control_out[lane]++;
        held->busy_count++;
    }
    return code;
}

static int window_bind(struct fabric_peer *peer, struct verbs_grant *held, uint32_t index,
                       const struct fabric_region *cut)
{
    struct verbs_window *window = &held->windows[index];
    struct ibv_send_wr work = {
        .wr_id = verbs_id(VERBS_BIND, held->life, held->grant_index, index),
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = window->mw,
                    .rkey = ibv_inc_rkey(window->mw->rkey), /* as in the key */
                    .bind_info = {.mr = cut->handle,
                                  .addr = cut->addr,
                                  .length = cut->length_bytes,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_READ}},
    };
    int code = control_post(peer, index % peer->rail->options.lanes, held, &work);
    if (code == 0) {
        window->mw->rkey = work.bind_mw.rkey;
        window->bound = true;
    }
    return code;
}

/* Binds the next range on all lanes. Errors: SL_ERR_OS; posted binds are kept. */
static sl_err range_bind(struct fabric_peer *peer, struct verbs_grant *held, struct sl_error *why)
{
    uint32_t lanes = peer->rail->options.lanes;
    struct fabric_region cut;
    bool there = verbs_walk_cut(&held->bind, &cut);
    SL_ASSERT(there);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        int code = window_bind(peer, held, held->bound * lanes + lane, &cut);
        if (code != 0) {
            return sl_fail_os(why, code, "bind a memory window, %u of %u ranges are bound",
                              held->bound, held->range_count);
        }
    }
    held->bound++;
    return SL_OK;
}

static void window_invalidate(struct fabric_peer *peer, struct verbs_grant *held, uint32_t index)
{
    struct verbs_window *window = &held->windows[index];
    struct ibv_send_wr work = {
        .wr_id = verbs_id(VERBS_INVALIDATE, held->life, held->grant_index, index),
        .opcode = IBV_WR_LOCAL_INV,
        .invalidate_rkey = window->mw->rkey,
    };
    if (control_post(peer, index % peer->rail->options.lanes, held, &work) != 0) {
        (void)ibv_dealloc_mw(window->mw); /* slower, but needs no completion */
        window->mw = NULL;
    }
}

/* ---- one range ---- */

static sl_err range_windows(const struct fabric_rail *rail, struct verbs_grant *held,
                            struct sl_error *why)
{
    uint32_t lanes = rail->options.lanes;
    struct fabric_region cut;
    bool there = verbs_walk_cut(&held->make, &cut);
    SL_ASSERT(there);
    unsigned char *at = verbs_key_region(held->key_next, &cut);
    for (uint32_t lane = 0; lane < lanes; lane++, at += 4) {
        struct verbs_window *window = &held->windows[held->made * lanes + lane];
        sl_err err = window_take(verbs_of(rail), &window->mw, why);
        if (err != SL_OK) {
            return err;
        }
        sl_wire_put(at, ibv_inc_rkey(window->mw->rkey), 4); /* the rkey after binding */
    }
    held->key_next = at;
    return SL_OK;
}

static sl_err range_register(const struct fabric_rail *rail, struct verbs_grant *held,
                             struct sl_error *why)
{
    struct fabric_region range;
    struct sl_fabric_dmabuf dmabuf;
    struct ibv_mr *own = NULL;
    bool by_dmabuf = verbs_walk_dmabuf(&held->make, &dmabuf);
    bool there = verbs_walk_whole(&held->make, &range);
    SL_ASSERT(there);
    sl_err err =
        verbs_register(verbs_of(rail), by_dmabuf ? &dmabuf : NULL, range.addr, range.length_bytes,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, &own, why);
    if (err != SL_OK) {
        return err;
    }
    held->windows[held->made].own = own;
    held->key_next = verbs_key_region(held->key_next, &range);
    sl_wire_put(held->key_next, own->rkey, 4);
    held->key_next += 4;
    return SL_OK;
}

/* Allocates windows or a registration for the next range, and writes its part of the key. */
static sl_err range_make(const struct fabric_rail *rail, struct verbs_grant *held,
                         struct sl_error *why)
{
    sl_err err =
        verbs_of(rail)->windows ? range_windows(rail, held, why) : range_register(rail, held, why);
    held->made += err == SL_OK ? 1 : 0;
    return err;
}

/* ---- slices ---- */

static void grant_gone(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct verbs *verbs = verbs_of(rail);
    struct verbs_grant *held = verbs_ticket_of(rail, grant);
    if (held != NULL) {
        SL_ASSERT(!held->waits && held->busy_count == 0);
        verbs->tickets_taken -= held->window_count;
        free(held->key);
        free(held);
        rail->shares[grant->index].backend = NULL;
    }
    fabric_grant_gone(rail, grant);
}

/* Called when nothing of the ticket works or is in progress. */
static void ticket_over(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct verbs_grant *held = verbs_ticket_of(rail, grant);
    for (uint32_t i = 0; i < held->window_count; i++) {
        if (held->windows[i].mw != NULL) {
            window_give(verbs_of(rail), held->windows[i].mw);
            held->windows[i].mw = NULL;
        }
    }
    held->phase = VERBS_TICKET_OVER;
    if (grant->state == GRANT_ENDING) {
        grant_gone(rail, grant);
    } else if (held->why.code != SL_OK) {
        fabric_grant_failed(rail, grant, &held->why);
    }
}

static void ticket_works(struct fabric_rail *rail, struct fabric_grant *grant)
{
    const struct verbs_grant *held = verbs_ticket_of(rail, grant);
    fabric_grant_ready(rail, grant, held->key, (uint32_t)(held->key_next - held->key));
}

/* The slice functions give the number of device calls. */

static uint32_t slice_make(struct fabric_rail *rail, struct verbs_grant *held, struct sl_error *why)
{
    uint32_t each = held->window_count / held->range_count, calls = 0;
    while (held->made < held->range_count && calls < VERBS_SLICE_CALLS && why->code == SL_OK) {
        (void)range_make(rail, held, why);
        calls += each;
    }
    return calls;
}

static uint32_t slice_bind(struct fabric_peer *peer, struct verbs_grant *held, struct sl_error *why)
{
    uint32_t lanes = peer->rail->options.lanes, calls = 0;
    while (held->bound < held->made && calls < VERBS_SLICE_CALLS && why->code == SL_OK &&
           lanes_have_room(peer)) {
        (void)range_bind(peer, held, why);
        calls += lanes;
    }
    return calls;
}

static uint32_t slice_undo(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct verbs *verbs = verbs_of(rail);
    struct fabric_peer *peer = &rail->peers[grant->peer_index];
    struct verbs_grant *held = verbs_ticket_of(rail, grant);
    uint32_t calls = 0;
    for (; held->undone < held->window_count && calls < VERBS_SLICE_CALLS; held->undone++) {
        struct verbs_window *window = &held->windows[held->undone];
        if (window->own != NULL) {
            (void)verbs->lib.verbs_dereg_mr(window->own);
            window->own = NULL;
            calls++;
        } else if (window->bound && window->mw != NULL) {
            if (!lane_has_room(peer, held->undone % rail->options.lanes)) {
                break;
            }
            window_invalidate(peer, held, held->undone);
            calls++;
        }
    }
    return calls;
}

/* Starts releasing all resources, in slices. */
static void ticket_undo(struct fabric_rail *rail, struct verbs_grant *held)
{
    held->phase = VERBS_TICKET_UNDOES;
    held->undone = 0;
    ticket_waits(rail, held, true);
    rail->work_due = true;
}

static uint32_t slice_forward(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct verbs_grant *held = verbs_ticket_of(rail, grant);
    struct fabric_peer *peer = &rail->peers[grant->peer_index];
    bool windows = verbs_of(rail)->windows;
    uint32_t calls = slice_make(rail, held, &held->why);
    if (windows && held->why.code == SL_OK) {
        calls += slice_bind(peer, held, &held->why);
    }
    if (held->why.code != SL_OK) {
        ticket_undo(rail, held);
    } else if (windows && held->bound == held->range_count) {
        held->phase = VERBS_TICKET_HOLDS; /* verbs_window_done reports when it works */
    } else if (!windows && held->made == held->range_count) {
        held->phase = VERBS_TICKET_HOLDS;
        ticket_works(rail, grant);
    } else {
        ticket_waits(rail, held, true);
    }
    return calls;
}

static uint32_t ticket_slice(struct fabric_rail *rail, struct verbs_grant *held)
{
    struct fabric_grant *grant = &rail->fabric->grants[held->grant_index];
    ticket_waits(rail, held, false);
    if (held->phase == VERBS_TICKET_MAKES) {
        return slice_forward(rail, grant);
    }
    SL_ASSERT(held->phase == VERBS_TICKET_UNDOES);
    uint32_t calls = slice_undo(rail, grant);
    if (held->undone < held->window_count) {
        ticket_waits(rail, held, true);
    } else if (held->busy_count == 0) {
        ticket_over(rail, grant);
    }
    return calls;
}

void verbs_tickets_step(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    uint32_t grants = rail->options.grants_max, begin = verbs->ticket_turn, calls = 0;
    uint32_t waiting = verbs->tickets_waiting, left = waiting;
    for (uint32_t n = 0; n < grants && left > 0 && calls < VERBS_TURN_CALLS; n++) {
        uint32_t index = (begin + n) % grants;
        struct verbs_grant *held = rail->shares[index].backend;
        if (held != NULL && held->waits) {
            if (left-- == waiting) { /* the next turn starts with another ticket */
                verbs->ticket_turn = index + 1;
            }
            calls += ticket_slice(rail, held);
        }
    }
    /* Tickets without room wait for a completion, which wakes the fabric. */
    rail->work_due |= calls > 0 && verbs->tickets_waiting > 0;
}

/* ---- grants ---- */

static sl_err ticket_check(const struct fabric_rail *rail, const struct fabric_grant *grant,
                           uint32_t ranges, uint32_t windows, struct sl_error *why)
{
    const struct verbs *verbs = verbs_of(rail);
    if (rail->peers[grant->peer_index].state != PEER_UP) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "a ticket needs a link, and this one is not up");
    }
    if (ranges > VERBS_RANGES_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "a ticket of %u ranges, %u at most", ranges,
                       VERBS_RANGES_MAX);
    }
    if (windows > verbs->tickets_room - verbs->tickets_taken) {
        return sl_fail(why, SL_ERR_LIMIT, "a ticket wants %u %s, %u of %u are taken", windows,
                       verbs->windows ? "memory windows" : "registrations", verbs->tickets_taken,
                       verbs->tickets_room);
    }
    return SL_OK;
}

sl_err verbs_ticket_add(struct fabric_rail *rail, struct fabric_grant *grant, uint32_t ranges,
                        struct sl_error *why)
{
    struct verbs *verbs = verbs_of(rail);
    const struct verbs_peer *peer = rail->peers[grant->peer_index].backend;
    uint32_t rkeys = verbs_ticket_rkeys(rail), windows = ranges * rkeys;
    sl_err err = ticket_check(rail, grant, ranges, windows, why);
    if (err != SL_OK) {
        return err;
    }
    struct verbs_grant *held = calloc(1, sizeof(*held) + windows * sizeof(held->windows[0]));
    unsigned char *key = malloc(verbs_key_bytes(ranges, rkeys));
    if (held == NULL || key == NULL) {
        free(held);
        free(key);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a ticket of %u ranges", ranges);
    }
    memcpy(key, rail->fabric->part, VERBS_KEY_HEAD);
    held->key = key;
    held->key_next = key + VERBS_KEY_HEAD;
    held->grant_index = grant->index;
    held->range_count = ranges;
    held->window_count = windows;
    held->make = held->bind = verbs_walk_begin(rail, grant);
    held->life = peer->life;
    rail->shares[grant->index].backend = held;
    verbs->tickets_taken += windows;
    ticket_waits(rail, held, true);
    rail->work_due = true;
    return SL_OK;
}

void verbs_grant_end(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct verbs_grant *held = verbs_ticket_of(rail, grant);
    if (held == NULL || held->phase == VERBS_TICKET_OVER) {
        grant_gone(rail, grant); /* not a ticket: region keys remain valid */
    } else if (held->phase != VERBS_TICKET_UNDOES) {
        ticket_undo(rail, held);
        (void)ticket_slice(rail, held);
    }
}

void verbs_window_done(struct fabric_rail *rail, const struct ibv_wc *wc)
{
    uint16_t life = (uint16_t)(wc->wr_id >> 40);
    struct fabric_grant *grant = &rail->fabric->grants[(uint16_t)(wc->wr_id >> 24)];
    struct verbs_grant *held = verbs_ticket_of(rail, grant);
    uint32_t index = (uint32_t)(wc->wr_id & 0xffffff);
    if (held == NULL || held->life != life || held->busy_count == 0) {
        return; /* of windows that were freed with their queue pair */
    }
    struct fabric_peer *peer = &rail->peers[grant->peer_index];
    struct verbs_peer *state = peer->backend;
    state->control_out[index % rail->options.lanes]--;
    if (wc->status != IBV_WC_SUCCESS) {
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_PEER_DIED, "memory window: %s",
                      verbs_of(rail)->lib.verbs_wc_status_str(wc->status));
        fabric_peer_fail(peer, &why);
        return;
    }
    if (--held->busy_count > 0) {
        return;
    }
    if (held->phase == VERBS_TICKET_HOLDS) {
        ticket_works(rail, grant);
    } else if (held->phase == VERBS_TICKET_UNDOES && held->undone == held->window_count) {
        ticket_over(rail, grant);
    }
}

/* Frees windows at once: bound ranges are inaccessible on return. Registrations are freed in
 * slices, since no peer reads through these queue pairs any more. */
static void ticket_drop(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct verbs_grant *held = verbs_ticket_of(rail, grant);
    bool windows = verbs_of(rail)->windows;
    ticket_waits(rail, held, false);
    for (uint32_t i = 0; i < held->window_count; i++) {
        if (held->windows[i].mw != NULL) {
            (void)ibv_dealloc_mw(held->windows[i].mw);
            held->windows[i].mw = NULL;
        }
    }
    held->busy_count = 0;
    if (held->phase == VERBS_TICKET_OVER) {
        return;
    }
    if (windows) {
        ticket_over(rail, grant);
    } else if (held->phase != VERBS_TICKET_UNDOES) {
        ticket_undo(rail, held);
    } else {
        ticket_waits(rail, held, true);
    }
}

void verbs_grants_drop(struct fabric_peer *peer)
{
    struct fabric_rail *rail = peer->rail;
    for (uint32_t i = 0; i < rail->options.grants_max; i++) {
        struct fabric_grant *grant = &rail->fabric->grants[i];
        struct verbs_grant *held = verbs_ticket_of(rail, grant);
        if (held == NULL || grant->peer_index != peer->index) {
            continue;
        }
        ticket_drop(rail, grant);
    }
}
