/* actors/transporter/fabric.c - tables, cutting, order and ends, the same for every back end. */
#include "actors/transporter/backoff.h"
#include "actors/transporter/fabric_internal.h"
#include "actors/transporter/movers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A handle is a slot and the number of its life, so a stale one finds nothing. */
static uint32_t handle_make(uint16_t generation, uint32_t index)
{
    return (uint32_t)generation << 16 | index;
}

static uint16_t generation_next(uint16_t generation)
{
    return generation == UINT16_MAX ? 1 : (uint16_t)(generation + 1);
}

struct fabric_memory *fabric_memory_of(struct sl_fabric *fabric, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= fabric->options.memories_max) {
        return NULL;
    }
    struct fabric_memory *memory = &fabric->memories[index];
    return memory->state != MEMORY_FREE && memory->generation == handle >> 16 ? memory : NULL;
}

struct fabric_peer *fabric_peer_of(const struct sl_fabric *fabric, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= fabric->options.peers_max) {
        return NULL;
    }
    struct fabric_peer *peer = &fabric->peers[index];
    bool there = peer->state != PEER_FREE && !peer->removed;
    return there && peer->generation == handle >> 16 ? peer : NULL;
}

uint32_t fabric_peer_handle(const struct fabric_peer *peer)
{
    return handle_make(peer->generation, peer->index);
}

static struct fabric_grant *grant_of(const struct sl_fabric *fabric, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= fabric->options.grants_max) {
        return NULL;
    }
    struct fabric_grant *grant = &fabric->grants[index];
    return grant->state == GRANT_LIVE && grant->slot_generation == handle >> 16 ? grant : NULL;
}

static struct fabric_key *key_of(const struct sl_fabric *fabric, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= fabric->options.keys_max) {
        return NULL;
    }
    struct fabric_key *key = &fabric->keys[index];
    return key->used && !key->closing && key->generation == handle >> 16 ? key : NULL;
}

/* ---- small tools ---- */

uint64_t fabric_random(struct sl_fabric *fabric)
{
    uint64_t x = fabric->random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

sl_err fabric_secret(void *out, size_t length_bytes, struct sl_error *why)
{
    size_t got = 0;
    while (got < length_bytes) {
        ssize_t more = getrandom((unsigned char *)out + got, length_bytes - got, 0);
        if (more < 0) {
            return sl_fail(why, SL_ERR_OS, "the system gives no random bytes");
        }
        got += (size_t)more;
    }
    return SL_OK;
}

bool sl_fabric_same_bytes(const void *a, const void *b, size_t length_bytes)
{
    const volatile unsigned char *one = a, *other = b;
    unsigned char difference = 0;
    for (size_t i = 0; i < length_bytes; i++) {
        difference = (unsigned char)(difference | (one[i] ^ other[i]));
    }
    return difference == 0;
}

const struct fabric_region *fabric_region_at(const struct fabric_region *regions, uint32_t count,
                                             uint64_t offset_bytes)
{
    uint32_t low = 0, high = count; /* regions are sorted */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct fabric_region *region = &regions[middle];
        if (offset_bytes < region->offset_bytes) {
            high = middle;
        } else if (offset_bytes - region->offset_bytes >= region->length_bytes) {
            low = middle + 1;
        } else {
            return region;
        }
    }
    return NULL;
}

/* True when the regions cover [offset, +length) without a gap. */
static bool regions_cover(const struct fabric_region *regions, uint32_t count,
                          uint64_t offset_bytes, uint64_t length_bytes)
{
    while (length_bytes > 0) {
        const struct fabric_region *region = fabric_region_at(regions, count, offset_bytes);
        if (region == NULL) {
            return false;
        }
        uint64_t here =
            SL_MIN(region->length_bytes - (offset_bytes - region->offset_bytes), length_bytes);
        offset_bytes += here;
        length_bytes -= here;
    }
    return true;
}

static void key_free(struct fabric_key *key)
{
    free(key->regions);
    free(key->lane_rkeys);
    *key = (struct fabric_key){.generation = key->generation};
}

/* ---- ends ---- */

static void transfer_ended(struct sl_fabric *fabric, struct fabric_transfer *transfer)
{
    uint32_t index = (uint32_t)(transfer - fabric->transfers);
    transfer->next = FABRIC_NONE;
    if (fabric->ended_head == FABRIC_NONE) {
        fabric->ended_head = index;
    } else {
        fabric->transfers[fabric->ended_tail].next = index;
    }
    fabric->ended_tail = index;
    fabric->work_due = true;
}

static void piece_end(struct sl_fabric *fabric, struct fabric_piece *piece)
{
    struct fabric_transfer *transfer = &fabric->transfers[piece->transfer];
    SL_ASSERT(!piece->ended && !piece->waiting && piece->units_out == 0);
    piece->ended = true;
    if (piece->lane != NULL) {
        piece->lane->piece = FABRIC_NONE;
        piece->lane = NULL;
    }
    fabric->memories[piece->memory_index].users--;
    struct fabric_key *key = &fabric->keys[piece->key_index];
    key->users--;
    if (key->closing && key->users == 0) {
        key_free(key);
    }
    if (piece->code == SL_OK) {
        transfer->moved_bytes += piece->want.length_bytes;
        if (transfer->verb == SL_FABRIC_READ) {
            fabric->stats.read_bytes += piece->want.length_bytes;
        } else {
            fabric->stats.written_bytes += piece->want.length_bytes;
        }
    }
    if (--transfer->pieces_left == 0) {
        transfer_ended(fabric, transfer);
    }
}

static void piece_unqueue(struct fabric_peer *peer, struct fabric_piece *piece)
{
    struct fabric_piece *pieces = peer->fabric->pieces;
    if (piece->before == FABRIC_NONE) {
        peer->waiting_head = piece->next;
    } else {
        pieces[piece->before].next = piece->next;
    }
    if (piece->next == FABRIC_NONE) {
        peer->waiting_tail = piece->before;
    } else {
        pieces[piece->next].before = piece->before;
    }
    piece->waiting = false;
}

static void piece_queue(struct fabric_peer *peer, struct fabric_piece *piece)
{
    struct fabric_piece *pieces = peer->fabric->pieces;
    uint32_t index = (uint32_t)(piece - pieces);
    piece->next = FABRIC_NONE;
    piece->before = peer->waiting_tail;
    if (peer->waiting_tail == FABRIC_NONE) {
        peer->waiting_head = index;
    } else {
        pieces[peer->waiting_tail].next = index;
    }
    peer->waiting_tail = index;
    piece->waiting = true;
}

/* Nothing more of the piece is started; it ends when nothing of it is under way. */
static void piece_stop(struct sl_fabric *fabric, struct fabric_piece *piece, sl_err code)
{
    if (piece->ended) {
        return;
    }
    if (piece->code == SL_OK) {
        piece->code = (uint8_t)code;
    }
    if (piece->waiting) {
        piece_unqueue(&fabric->peers[fabric->transfers[piece->transfer].peer_index], piece);
    }
    piece->cut_off = true;
    if (piece->lane != NULL) {
        piece->lane->piece = FABRIC_NONE;
        piece->lane = NULL;
    }
    if (piece->units_out == 0) {
        piece_end(fabric, piece);
    }
}

struct fabric_unit *fabric_lane_unit(const struct fabric_lane *lane, uint64_t number)
{
    return &lane->units[number % lane->peer->fabric->options.depth];
}

bool fabric_unit_given_up(const struct fabric_lane *lane, const struct fabric_unit *unit)
{
    const struct sl_fabric *fabric = lane->peer->fabric;
    return unit->piece != FABRIC_NONE &&
           fabric->transfers[fabric->pieces[unit->piece].transfer].give_up != SL_OK;
}

void fabric_unit_release(struct fabric_lane *lane, struct fabric_unit *unit, sl_err code)
{
    struct sl_fabric *fabric = lane->peer->fabric;
    if (unit->piece == FABRIC_NONE) {
        return;
    }
    struct fabric_piece *piece = &fabric->pieces[unit->piece];
    unit->piece = FABRIC_NONE;
    unit->local = NULL;
    SL_ASSERT(piece->units_out > 0);
    piece->units_out--;
    if (code != SL_OK) {
        piece_stop(fabric, piece, code);
    } else if (piece->units_out == 0 &&
               (piece->cut_off || piece->cut_bytes == piece->want.length_bytes)) {
        piece_end(fabric, piece);
    }
}

bool fabric_unit_checked(const struct fabric_lane *lane, const struct fabric_unit *unit)
{
    return unit->piece != FABRIC_NONE && lane->peer->fabric->pieces[unit->piece].check_digest;
}

struct sl_digest_stream *fabric_unit_digest(struct fabric_lane *lane)
{
    const struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
    if (!fabric_unit_checked(lane, unit)) {
        return NULL;
    }
    if (unit->first && lane->arrived_bytes == 0) {
        sl_digest_start(&lane->digest);
    }
    return &lane->digest;
}

void fabric_unit_arrived(struct fabric_lane *lane, uint64_t length_bytes)
{
    lane->arrived_bytes += length_bytes;
}

void fabric_unit_end(struct fabric_lane *lane, sl_err code)
{
    struct sl_fabric *fabric = lane->peer->fabric;
    SL_ASSERT(lane->head != lane->tail);
    struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
    if (code == SL_OK && unit->piece != FABRIC_NONE && unit->last) {
        const struct fabric_piece *piece = &fabric->pieces[unit->piece];
        if (piece->check_digest && piece->code == SL_OK &&
            !sl_digest_equal(sl_digest_finish(&lane->digest), piece->digest)) {
            fabric->stats.digests_bad++;
            code = SL_ERR_CORRUPT;
        }
    }
    fabric_unit_release(lane, unit, code);
    lane->head++;
    lane->sent = SL_MAX(lane->sent, lane->head);
    lane->arrived_bytes = 0;
    fabric->work_due = true; /* there is room on the lane */
}

static void transfer_give_up(struct sl_fabric *fabric, struct fabric_transfer *transfer,
                             sl_err code)
{
    if (transfer->give_up != SL_OK || transfer->pieces_left == 0) {
        return;
    }
    transfer->give_up = code;
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = fabric->pieces[i].sibling) {
        piece_stop(fabric, &fabric->pieces[i], code);
    }
    struct fabric_peer *peer = &fabric->peers[transfer->peer_index];
    for (uint32_t i = 0; transfer->pieces_left > 0 && i < fabric->options.lanes; i++) {
        fabric->ops->lane_cancel(&peer->lanes[i]);
    }
}

/* ---- cutting ---- */

static struct fabric_piece *lane_piece(struct fabric_lane *lane)
{
    struct fabric_peer *peer = lane->peer;
    if (lane->piece == FABRIC_NONE && peer->waiting_head != FABRIC_NONE) {
        struct fabric_piece *piece = &peer->fabric->pieces[peer->waiting_head];
        lane->piece = peer->waiting_head;
        piece->lane = lane;
        piece_unqueue(peer, piece);
    }
    return lane->piece == FABRIC_NONE ? NULL : &peer->fabric->pieces[lane->piece];
}

/* Cuts the next unit of the lane's piece; false when there is nothing to do or no room. */
static bool lane_cut(struct fabric_lane *lane)
{
    struct sl_fabric *fabric = lane->peer->fabric;
    if (lane->tail - lane->head >= fabric->options.depth) {
        return false;
    }
    struct fabric_piece *piece = lane_piece(lane);
    if (piece == NULL) {
        return false;
    }
    const struct fabric_memory *memory = &fabric->memories[piece->memory_index];
    const struct fabric_key *key = &fabric->keys[piece->key_index];
    uint64_t at = piece->want.offset_bytes + piece->cut_bytes;
    uint64_t remote_at = piece->want.remote_offset_bytes + piece->cut_bytes;
    const struct fabric_region *local = fabric_region_at(memory->regions, memory->region_count, at);
    const struct fabric_region *remote =
        fabric_region_at(key->regions, key->region_count, remote_at);
    SL_ASSERT(local != NULL);
    SL_ASSERT(remote != NULL);
    uint64_t length =
        SL_MIN(piece->want.length_bytes - piece->cut_bytes, fabric->options.unit_bytes);
    length = SL_MIN(length, local->length_bytes - (at - local->offset_bytes));
    length = SL_MIN(length, remote->length_bytes - (remote_at - remote->offset_bytes));
    *fabric_lane_unit(lane, lane->tail++) = (struct fabric_unit){
        .local = (unsigned char *)memory->what.at + at,
        .remote_offset_bytes = remote_at,
        .remote_addr = remote->addr + (remote_at - remote->offset_bytes),
        .length_bytes = (uint32_t)length,
        .lkey = local->lkey,
        .rkey = key->lane_rkeys == NULL
                    ? remote->rkey
                    : key->lane_rkeys[(size_t)(remote - key->regions) * fabric->options.lanes +
                                      lane->index],
        .piece = (uint32_t)(piece - fabric->pieces),
        .key = piece->key_index,
        .verb = (uint8_t)fabric->transfers[piece->transfer].verb,
        .first = piece->cut_bytes == 0,
        .last = piece->cut_bytes + length == piece->want.length_bytes,
    };
    piece->cut_bytes += length;
    piece->units_out++;
    if (piece->cut_bytes == piece->want.length_bytes) {
        piece->lane = NULL;
        lane->piece = FABRIC_NONE;
    }
    return true;
}

/* One unit a lane and round, so that a batch spreads over the lanes. */
static void peer_pump(struct fabric_peer *peer)
{
    uint32_t lane_count = peer->fabric->options.lanes;
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < lane_count; i++) {
            moved |= lane_cut(&peer->lanes[i]);
        }
    }
    for (uint32_t i = 0; i < lane_count && peer->state == PEER_UP; i++) {
        if (peer->lanes[i].sent != peer->lanes[i].tail) {
            peer->fabric->ops->lane_push(&peer->lanes[i]);
        }
    }
}

/* ---- memory ---- */

static void memory_clear(struct sl_fabric *fabric, struct fabric_memory *memory)
{
    for (uint32_t i = memory->region_count; i-- > 0;) {
        fabric->ops->region_remove(fabric, &memory->regions[i]);
        fabric->stats.regions--;
    }
    if (memory->state == MEMORY_REGISTERING) {
        fabric->registering--;
    }
    free(memory->regions);
    *memory = (struct fabric_memory){.generation = memory->generation};
}

static bool memory_cut(const struct sl_fabric *fabric, const struct fabric_memory *memory,
                       uint64_t *at, struct sl_mr_cut *cut)
{
    const struct sl_fabric_memory *what = &memory->what;
    uint64_t limit = fabric->options.region_bytes_max;
    return what->stride_bytes != 0
               ? sl_mr_next_of_pool(what->length_bytes, what->stride_bytes, limit, at, cut)
               : sl_mr_next_of_arena(what->length_bytes, what->chunk_bytes, limit, at, cut);
}

sl_err sl_fabric_memory_add(struct sl_fabric *fabric, const struct sl_fabric_memory *memory,
                            uint32_t *out, struct sl_error *why)
{
    if (memory->at == NULL || memory->length_bytes == 0 ||
        (memory->chunk_bytes == 0) == (memory->stride_bytes == 0)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "memory needs an address, a length, and either a chunk or a stride");
    }
    uint32_t index = 0;
    while (index < fabric->options.memories_max && fabric->memories[index].state != MEMORY_FREE) {
        index++;
    }
    if (index == fabric->options.memories_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u registered memories", index);
    }
    struct fabric_memory fresh = {.what = *memory, .state = MEMORY_REGISTERING};
    struct sl_mr_cut cut;
    uint64_t at = 0;
    while (memory_cut(fabric, &fresh, &at, &cut)) {
        if (++fresh.region_capacity > SL_FABRIC_REGIONS_MAX) {
            return sl_fail(why, SL_ERR_LIMIT, "memory of %llu bytes needs more than %u regions",
                           (unsigned long long)memory->length_bytes, SL_FABRIC_REGIONS_MAX);
        }
    }
    SL_ASSERT(fresh.region_capacity > 0); /* the length is not 0 */
    fresh.regions = calloc(fresh.region_capacity, sizeof(*fresh.regions));
    if (fresh.regions == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u regions", fresh.region_capacity);
    }
    fresh.generation = generation_next(fabric->memories[index].generation);
    fabric->memories[index] = fresh;
    fabric->registering++;
    fabric->work_due = true;
    *out = handle_make(fresh.generation, index);
    return SL_OK;
}

sl_err sl_fabric_memory_remove(struct sl_fabric *fabric, uint32_t handle)
{
    struct fabric_memory *memory = fabric_memory_of(fabric, handle);
    if (memory == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    if (memory->users > 0) {
        return SL_ERR_BUSY;
    }
    memory_clear(fabric, memory);
    return SL_OK;
}

/* The next region of one memory; the rest of the work goes on in between. */
static void memory_step(struct sl_fabric *fabric, uint32_t index)
{
    struct fabric_memory *memory = &fabric->memories[index];
    uint32_t handle = handle_make(memory->generation, index), region_index = memory->region_count;
    struct sl_error why = {0};
    struct sl_mr_cut cut;
    if (!memory_cut(fabric, memory, &memory->cut_at, &cut)) {
        memory->state = MEMORY_READY;
        fabric->registering--;
        why.code = SL_OK;
    } else {
        struct fabric_region *region = &memory->regions[region_index];
        *region = (struct fabric_region){.offset_bytes = cut.offset_bytes,
                                         .length_bytes = cut.length_bytes};
        void *at = (unsigned char *)memory->what.at + cut.offset_bytes;
        if (fabric->ops->region_add(fabric, at, cut.length_bytes, region, &why) == SL_OK) {
            memory->region_count++;
            fabric->stats.regions++;
            return;
        }
        memory_clear(fabric, memory); /* what was registered of it is deregistered */
    }
    if (fabric->options.events.registered != NULL) {
        fabric->options.events.registered(fabric->options.events.context, handle, region_index,
                                          &why);
    }
}

static void memories_step(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->options.memories_max && fabric->registering > 0; i++) {
        if (fabric->memories[i].state == MEMORY_REGISTERING) {
            memory_step(fabric, i);
            break; /* one a step */
        }
    }
    fabric->work_due |= fabric->registering > 0;
}

/* ---- peers ---- */

static enum sl_fabric_link peer_link(const struct fabric_peer *peer)
{
    switch ((enum fabric_peer_state)peer->state) {
    case PEER_UP:
        return SL_FABRIC_UP;
    case PEER_STARTING:
        return SL_FABRIC_CONNECTING;
    default:
        return SL_FABRIC_DOWN;
    }
}

sl_err sl_fabric_peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why)
{
    uint32_t index = 0;
    while (index < fabric->options.peers_max && fabric->peers[index].state != PEER_FREE) {
        index++;
    }
    if (index == fabric->options.peers_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u peers", index);
    }
    struct fabric_peer *peer = &fabric->peers[index];
    *peer = (struct fabric_peer){
        .fabric = fabric,
        .index = index,
        .generation = generation_next(peer->generation),
        .state = PEER_WAITING,
        .told = SL_FABRIC_CONNECTING,
        .waiting_head = FABRIC_NONE,
        .waiting_tail = FABRIC_NONE,
        .lanes = &fabric->lanes[(size_t)index * fabric->options.lanes],
    };
    for (uint32_t i = 0; i < fabric->options.lanes; i++) {
        struct fabric_lane *lane = &peer->lanes[i];
        size_t first = ((size_t)index * fabric->options.lanes + i) * fabric->options.depth;
        void *backend = lane->backend; /* belongs to the place, not to the peer */
        memset(lane, 0, sizeof(*lane));
        lane->backend = backend;
        lane->peer = peer;
        lane->index = i;
        lane->piece = FABRIC_NONE;
        lane->units = &fabric->units[first];
    }
    fabric->work_due = true;
    *out = fabric_peer_handle(peer);
    return SL_OK;
}

enum sl_fabric_link sl_fabric_peer_link(const struct sl_fabric *fabric, uint32_t handle)
{
    const struct fabric_peer *peer = fabric_peer_of(fabric, handle);
    return peer == NULL ? SL_FABRIC_DOWN : peer_link(peer);
}

sl_err sl_fabric_peer_address(struct sl_fabric *fabric, uint32_t handle, const void *blob,
                              uint32_t length_bytes, struct sl_error *why)
{
    struct fabric_peer *peer = fabric_peer_of(fabric, handle);
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    fabric->work_due = true;
    return fabric->ops->peer_address(peer, blob, length_bytes, why);
}

/* Pieces that no lane has begun end at once. */
static void peer_drop_waiting(struct fabric_peer *peer, sl_err code)
{
    while (peer->waiting_head != FABRIC_NONE) {
        piece_stop(peer->fabric, &peer->fabric->pieces[peer->waiting_head], code);
    }
}

static void peer_start(struct fabric_peer *peer)
{
    struct sl_fabric *fabric = peer->fabric;
    struct sl_error why = {0};
    peer->state = PEER_STARTING;
    peer->due_ns = sl_deadline_ns(fabric->now_ns, fabric->options.connect_ns);
    if (fabric->ops->peer_start(peer, &why) != SL_OK) {
        fabric_peer_fail(peer, &why);
    }
}

void fabric_peer_up(struct fabric_peer *peer)
{
    SL_ASSERT(peer->state == PEER_STARTING);
    peer->state = PEER_UP;
    peer->due_ns = SL_NEVER_NS;
    peer->failures = 0;
    peer->why = (struct sl_error){0};
    peer->fabric->stats.links_built++;
    peer->fabric->work_due = true;
}

void fabric_peer_fail(struct fabric_peer *peer, const struct sl_error *why)
{
    if (peer->state != PEER_STARTING && peer->state != PEER_UP) {
        return; /* the first reason counts */
    }
    bool was_up = peer->state == PEER_UP;
    peer->why = *why;
    peer->state = PEER_STOPPING;
    peer->due_ns = SL_NEVER_NS;
    if (was_up) {
        peer->fabric->stats.links_lost++;
    }
    peer->fabric->work_due = true;
    peer_drop_waiting(peer, was_up ? SL_ERR_PEER_DIED : SL_ERR_UNREACHABLE);
    peer->fabric->ops->peer_stop(peer, false);
}

void fabric_peer_stopped(struct fabric_peer *peer)
{
    struct sl_fabric *fabric = peer->fabric;
    SL_ASSERT(peer->state == PEER_STOPPING);
    peer_drop_waiting(peer, SL_ERR_PEER_DIED);
    for (uint32_t i = 0; i < fabric->options.lanes; i++) {
        struct fabric_lane *lane = &peer->lanes[i];
        while (lane->head != lane->tail) {
            fabric_unit_end(lane, SL_ERR_PEER_DIED);
        }
        if (lane->piece != FABRIC_NONE) {
            piece_stop(fabric, &fabric->pieces[lane->piece], SL_ERR_PEER_DIED);
        }
        lane->head = lane->sent = lane->tail = 0;
    }
    if (peer->removed) {
        *peer = (struct fabric_peer){.generation = peer->generation};
        return;
    }
    peer->state = PEER_WAITING;
    peer->due_ns =
        sl_deadline_ns(fabric->now_ns,
                       sl_backoff_ns(fabric->options.backoff_min_ns, fabric->options.backoff_max_ns,
                                     peer->failures, fabric_random(fabric)));
    peer->failures += peer->failures < 64;
    fabric->work_due = true;
}

void sl_fabric_peer_remove(struct sl_fabric *fabric, uint32_t handle)
{
    struct fabric_peer *peer = fabric_peer_of(fabric, handle);
    if (peer == NULL) {
        return;
    }
    for (uint32_t i = 0; i < fabric->options.keys_max; i++) {
        const struct fabric_key *key = &fabric->keys[i];
        if (key->used && !key->closing && key->peer_index == peer->index) {
            sl_fabric_key_close(fabric, handle_make(key->generation, i));
        }
    }
    peer->removed = true;
    if (peer->state == PEER_WAITING) {
        peer->state = PEER_STOPPING;
        fabric->ops->peer_stop(peer, true);
    } else if (peer->state != PEER_STOPPING) {
        peer->state = PEER_STOPPING;
        fabric->ops->peer_stop(peer, true);
    }
}

static void peers_step(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->options.peers_max; i++) {
        struct fabric_peer *peer = &fabric->peers[i];
        if (peer->state == PEER_WAITING && peer->due_ns <= fabric->now_ns) {
            peer_start(peer);
        } else if (peer->state == PEER_STARTING && peer->due_ns <= fabric->now_ns) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_UNREACHABLE, "no link within %llu ms",
                          (unsigned long long)(fabric->options.connect_ns / SL_NS_PER_MS));
            fabric_peer_fail(peer, &why);
        }
        if (peer->state == PEER_UP) {
            peer_pump(peer);
        }
    }
}

static void links_tell(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->options.peers_max; i++) {
        struct fabric_peer *peer = &fabric->peers[i];
        if (peer->state == PEER_FREE || peer->removed || peer->told == peer_link(peer)) {
            continue;
        }
        if (peer->state == PEER_WAITING && peer->due_ns == 0) {
            continue; /* not started yet: that is no loss */
        }
        peer->told = (uint8_t)peer_link(peer);
        if (fabric->options.events.link != NULL) {
            struct sl_error why = peer->why;
            fabric->options.events.link(fabric->options.events.context, fabric_peer_handle(peer),
                                        peer_link(peer), &why);
        }
    }
}

/* ---- grants ---- */

static sl_err grant_check(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                          struct sl_error *why)
{
    const struct fabric_memory *memory = fabric_memory_of(fabric, grant->memory);
    if (memory == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such memory");
    }
    if (memory->state != MEMORY_READY) {
        return sl_fail(why, SL_ERR_BUSY, "the memory is not registered yet");
    }
    if (grant->verb != SL_FABRIC_READ && grant->verb != SL_FABRIC_WRITE) {
        return sl_fail(why, SL_ERR_INVALID, "a grant is for reading or for writing");
    }
    if (grant->length_bytes == 0 || grant->offset_bytes > memory->what.length_bytes ||
        grant->length_bytes > memory->what.length_bytes - grant->offset_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "range %llu+%llu is not within %llu bytes",
                       (unsigned long long)grant->offset_bytes,
                       (unsigned long long)grant->length_bytes,
                       (unsigned long long)memory->what.length_bytes);
    }
    if (fabric_peer_of(fabric, grant->peer) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    return SL_OK;
}

sl_err sl_fabric_grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                           uint32_t *out, void *key, uint32_t *key_bytes, struct sl_error *why)
{
    sl_err err = grant_check(fabric, grant, why);
    if (err != SL_OK) {
        return err;
    }
    uint32_t index = 0;
    while (index < fabric->options.grants_max && fabric->grants[index].state != GRANT_FREE) {
        index++;
    }
    if (index == fabric->options.grants_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u grants", index);
    }
    struct fabric_grant fresh = {
        .what = *grant,
        .index = index,
        .memory_index = grant->memory & 0xffffu,
        .peer_index = grant->peer & 0xffffu,
        .slot_generation = generation_next(fabric->grants[index].slot_generation),
        .state = GRANT_LIVE,
        .generation = ++fabric->next_generation,
    };
    err = fabric_secret(fresh.token, sizeof(fresh.token), why);
    if (err == SL_OK) {
        err = fabric->ops->grant_add(fabric, &fresh, key, key_bytes, why);
    }
    if (err != SL_OK) {
        return err;
    }
    fabric->grants[index] = fresh;
    fabric->grants_ready |= fresh.ready;
    fabric->work_due |= fresh.ready;
    fabric->memories[fresh.memory_index].users++;
    *out = handle_make(fresh.slot_generation, index);
    return SL_OK;
}

sl_err sl_fabric_grant_end(struct sl_fabric *fabric, uint32_t handle)
{
    struct fabric_grant *grant = grant_of(fabric, handle);
    if (grant == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    grant->state = GRANT_ENDING;
    memset(grant->token, 0, sizeof(grant->token));
    fabric->ops->grant_end(fabric, grant);
    return SL_OK;
}

void fabric_grant_gone(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    SL_ASSERT(grant->state == GRANT_ENDING);
    grant->state = GRANT_GONE;
    fabric->memories[grant->memory_index].users--;
    fabric->grants_gone++;
    fabric->work_due = true;
}

void fabric_grant_ready(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    grant->ready = true;
    fabric->grants_ready = true;
    fabric->work_due = true;
}

static void grants_tell(struct sl_fabric *fabric)
{
    bool ready = fabric->grants_ready;
    fabric->grants_ready = false;
    for (uint32_t i = 0; ready && i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        if (grant->state == GRANT_LIVE && grant->ready && !grant->told) {
            grant->told = true;
            if (fabric->options.events.granted != NULL) {
                fabric->options.events.granted(fabric->options.events.context,
                                               handle_make(grant->slot_generation, i));
            }
        }
    }
    for (uint32_t i = 0; fabric->grants_gone > 0 && i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        if (grant->state != GRANT_GONE) {
            continue;
        }
        uint32_t handle = handle_make(grant->slot_generation, i);
        *grant = (struct fabric_grant){.slot_generation = grant->slot_generation};
        fabric->grants_gone--;
        if (fabric->options.events.grant_ended != NULL) {
            fabric->options.events.grant_ended(fabric->options.events.context, handle);
        }
    }
}

/* ---- keys ---- */

sl_err sl_fabric_key_open(struct sl_fabric *fabric, uint32_t peer_handle, const void *blob,
                          uint32_t length_bytes, uint32_t *out, struct sl_error *why)
{
    const struct fabric_peer *peer = fabric_peer_of(fabric, peer_handle);
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    uint32_t index = 0;
    while (index < fabric->options.keys_max && fabric->keys[index].used) {
        index++;
    }
    if (index == fabric->options.keys_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u keys", index);
    }
    struct fabric_key fresh = {
        .used = true,
        .generation = generation_next(fabric->keys[index].generation),
        .peer_index = peer->index,
    };
    sl_err err = fabric->ops->key_parse(fabric, blob, length_bytes, &fresh, why);
    if (err != SL_OK) {
        free(fresh.regions);
        free(fresh.lane_rkeys);
        return err;
    }
    fabric->keys[index] = fresh;
    *out = handle_make(fresh.generation, index);
    return SL_OK;
}

void sl_fabric_key_close(struct sl_fabric *fabric, uint32_t handle)
{
    struct fabric_key *key = key_of(fabric, handle);
    if (key == NULL) {
        return;
    }
    uint32_t index = handle & 0xffffu;
    key->closing = true;
    for (uint32_t t = 0; key->users > 0 && t < fabric->options.transfers_max; t++) {
        struct fabric_transfer *transfer = &fabric->transfers[t];
        bool uses = false;
        for (uint32_t i = transfer->used ? transfer->piece_first : FABRIC_NONE;
             i != FABRIC_NONE && !uses; i = fabric->pieces[i].sibling) {
            uses = fabric->pieces[i].key_index == index && !fabric->pieces[i].ended;
        }
        if (uses) {
            transfer_give_up(fabric, transfer, SL_ERR_CANCELLED);
        }
    }
    if (key->used && key->closing && key->users == 0) {
        key_free(key);
    }
}

/* ---- transfers ---- */

static sl_err piece_check(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                          const struct sl_fabric_piece *piece, struct sl_error *why)
{
    const struct fabric_memory *memory = fabric_memory_of(fabric, piece->memory);
    const struct fabric_key *key = key_of(fabric, piece->key);
    if (memory == NULL || key == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such %s", memory == NULL ? "memory" : "key");
    }
    if (memory->state != MEMORY_READY) {
        return sl_fail(why, SL_ERR_BUSY, "the memory is not registered yet");
    }
    if (key->peer_index != (transfer->peer & 0xffffu) || key->verb != transfer->verb) {
        return sl_fail(why, SL_ERR_INVALID,
                       "the key is for another peer or for the other direction");
    }
    if (piece->length_bytes == 0 || piece->length_bytes > SL_VALUE_BYTES_MAX ||
        piece->offset_bytes > memory->what.length_bytes ||
        piece->length_bytes > memory->what.length_bytes - piece->offset_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "local range %llu+%llu is not within %llu bytes",
                       (unsigned long long)piece->offset_bytes,
                       (unsigned long long)piece->length_bytes,
                       (unsigned long long)memory->what.length_bytes);
    }
    if (piece->remote_offset_bytes > UINT64_MAX - piece->length_bytes ||
        !regions_cover(key->regions, key->region_count, piece->remote_offset_bytes,
                       piece->length_bytes)) {
        return sl_fail(why, SL_ERR_INVALID, "remote range %llu+%llu is not within the key",
                       (unsigned long long)piece->remote_offset_bytes,
                       (unsigned long long)piece->length_bytes);
    }
    return SL_OK;
}

static uint32_t free_pieces(const struct sl_fabric *fabric, uint32_t wanted)
{
    uint32_t count = 0;
    for (uint32_t i = fabric->free_piece; i != FABRIC_NONE && count < wanted;
         i = fabric->pieces[i].next) {
        count++;
    }
    return count;
}

static sl_err post_check(struct sl_fabric *fabric, const struct sl_fabric_transfer *want,
                         struct sl_error *why)
{
    if (fabric_peer_of(fabric, want->peer) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    if (want->piece_count == 0 || want->piece_count > SL_FABRIC_PIECES_MAX ||
        (want->verb != SL_FABRIC_READ && want->verb != SL_FABRIC_WRITE)) {
        return sl_fail(why, SL_ERR_INVALID, "a transfer reads or writes 1..%u pieces, not %u",
                       SL_FABRIC_PIECES_MAX, want->piece_count);
    }
    for (uint32_t i = 0; i < want->piece_count; i++) {
        sl_err err = piece_check(fabric, want, &want->pieces[i], why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (fabric->free_transfer == FABRIC_NONE ||
        free_pieces(fabric, want->piece_count) < want->piece_count) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for %u more pieces", want->piece_count);
    }
    return SL_OK;
}

static uint32_t piece_take(struct sl_fabric *fabric, const struct sl_fabric_piece *want,
                           uint32_t transfer, uint32_t order)
{
    uint32_t index = fabric->free_piece;
    struct fabric_piece *piece = &fabric->pieces[index];
    fabric->free_piece = piece->next;
    *piece = (struct fabric_piece){
        .want = *want,
        .check_digest = want->digest != NULL,
        .memory_index = want->memory & 0xffffu,
        .key_index = want->key & 0xffffu,
        .transfer = transfer,
        .order = order,
        .sibling = FABRIC_NONE,
    };
    if (want->digest != NULL) {
        piece->digest = *want->digest;
        piece->want.digest = NULL;
    }
    fabric->memories[piece->memory_index].users++;
    fabric->keys[piece->key_index].users++;
    return index;
}

sl_err sl_fabric_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *want,
                      struct sl_error *why)
{
    sl_err err = post_check(fabric, want, why);
    if (err != SL_OK) {
        return err;
    }
    struct fabric_peer *peer = fabric_peer_of(fabric, want->peer);
    uint32_t index = fabric->free_transfer;
    struct fabric_transfer *transfer = &fabric->transfers[index];
    fabric->free_transfer = transfer->next;
    *transfer = (struct fabric_transfer){
        .used = true,
        .verb = want->verb,
        .peer_index = peer->index,
        .piece_count = want->piece_count,
        .pieces_left = want->piece_count,
        .next = FABRIC_NONE,
        .piece_first = FABRIC_NONE,
        .deadline_ns = want->deadline_ns,
        .cookie = want->cookie,
    };
    uint32_t *link = &transfer->piece_first;
    for (uint32_t i = 0; i < want->piece_count; i++) {
        *link = piece_take(fabric, &want->pieces[i], index, i);
        struct fabric_piece *piece = &fabric->pieces[*link];
        piece_queue(peer, piece);
        link = &piece->sibling;
    }
    if (peer->state == PEER_STOPPING || (peer->state == PEER_WAITING && peer->due_ns != 0)) {
        transfer_give_up(fabric, transfer, SL_ERR_UNREACHABLE); /* the link is down: no waiting */
    }
    fabric->deadline_ns = SL_MIN(fabric->deadline_ns, want->deadline_ns);
    fabric->work_due = true;
    return SL_OK;
}

uint32_t sl_fabric_cancel(struct sl_fabric *fabric, uint64_t cookie)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fabric->options.transfers_max; i++) {
        struct fabric_transfer *transfer = &fabric->transfers[i];
        if (transfer->used && transfer->cookie == cookie && transfer->pieces_left > 0 &&
            transfer->give_up == SL_OK) {
            transfer_give_up(fabric, transfer, SL_ERR_CANCELLED);
            count++;
        }
    }
    return count;
}

static void deadlines_step(struct sl_fabric *fabric)
{
    if (fabric->deadline_ns > fabric->now_ns) {
        return;
    }
    fabric->deadline_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < fabric->options.transfers_max; i++) {
        struct fabric_transfer *transfer = &fabric->transfers[i];
        if (!transfer->used || transfer->give_up != SL_OK || transfer->pieces_left == 0) {
            continue;
        }
        if (transfer->deadline_ns <= fabric->now_ns) {
            transfer_give_up(fabric, transfer, SL_ERR_TIMEOUT);
        } else {
            fabric->deadline_ns = SL_MIN(fabric->deadline_ns, transfer->deadline_ns);
        }
    }
}

/* Everything of the transfer is freed before it is told, so that done() may post the next. */
static void transfer_tell(struct sl_fabric *fabric, struct fabric_transfer *transfer)
{
    struct sl_fabric_done done = {
        .cookie = transfer->cookie,
        .code = SL_OK,
        .pieces = fabric->codes,
        .piece_count = transfer->piece_count,
        .moved_bytes = transfer->moved_bytes,
    };
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE;) {
        struct fabric_piece *piece = &fabric->pieces[i];
        uint32_t next = piece->sibling;
        fabric->codes[piece->order] = piece->code;
        if (done.code == SL_OK) {
            done.code = (sl_err)piece->code;
        }
        piece->next = fabric->free_piece;
        fabric->free_piece = i;
        i = next;
    }
    uint32_t index = (uint32_t)(transfer - fabric->transfers);
    *transfer = (struct fabric_transfer){.next = fabric->free_transfer};
    fabric->free_transfer = index;
    if (fabric->options.events.done != NULL) {
        fabric->options.events.done(fabric->options.events.context, &done);
    }
}

static void transfers_tell(struct sl_fabric *fabric)
{
    /* Those that end because of a callback wait for the next step. */
    uint32_t last = fabric->ended_head == FABRIC_NONE ? FABRIC_NONE : fabric->ended_tail;
    while (fabric->ended_head != FABRIC_NONE) {
        uint32_t index = fabric->ended_head;
        fabric->ended_head = fabric->transfers[index].next;
        transfer_tell(fabric, &fabric->transfers[index]);
        if (index == last) {
            break;
        }
    }
}

/* ---- turning ---- */

void sl_fabric_step(struct sl_fabric *fabric, uint64_t now_ns)
{
    fabric->now_ns = now_ns;
    fabric->work_due = false;
    fabric->ops->step(fabric);
    deadlines_step(fabric);
    memories_step(fabric);
    peers_step(fabric);
    links_tell(fabric);
    grants_tell(fabric);
    transfers_tell(fabric);
    fabric->ops->flush(fabric);
}

uint64_t sl_fabric_wake_at(const struct sl_fabric *fabric)
{
    if (fabric->work_due || fabric->ended_head != FABRIC_NONE || fabric->grants_gone > 0) {
        return 0;
    }
    uint64_t at_ns = SL_MIN(fabric->deadline_ns, fabric->ops->wake_at(fabric));
    for (uint32_t i = 0; i < fabric->options.peers_max; i++) {
        const struct fabric_peer *peer = &fabric->peers[i];
        if (peer->state == PEER_STARTING || peer->state == PEER_WAITING) {
            at_ns = SL_MIN(at_ns, peer->due_ns);
        }
    }
    return at_ns;
}

int sl_fabric_fd(const struct sl_fabric *fabric)
{
    return fabric->fd;
}

void sl_fabric_stats(const struct sl_fabric *fabric, struct sl_fabric_stats *out)
{
    *out = fabric->stats;
}

const char *sl_fabric_about(const struct sl_fabric *fabric)
{
    return fabric->about;
}

/* ---- life ---- */

void sl_fabric_options_init(struct sl_fabric_options *options, enum sl_fabric_kind kind)
{
    *options = (struct sl_fabric_options){
        .kind = kind,
        .address = "",
        .nic = "",
        .gid_index = -1,
        .lanes = 4,
        .depth = 16,
        .peers_max = 64,
        .memories_max = 64,
        .grants_max = 4096,
        .keys_max = 4096,
        .transfers_max = 1024,
        .pieces_max = 16384,
        .connections_max = 512,
        .movers = sl_movers_count(4),
        .unit_bytes = SL_MIB,
        .region_bytes_max = SL_MR_BYTES_STANDARD,
        .stall_ns = SL_NS_PER_S,
        .connect_ns = SL_NS_PER_S,
        .backoff_min_ns = 50 * SL_NS_PER_MS,
        .backoff_max_ns = 2 * SL_NS_PER_S,
        .zero_copy = SL_FABRIC_MEASURE,
    };
}

static bool in_range(uint64_t value, uint64_t low, uint64_t high)
{
    return value >= low && value <= high;
}

static sl_err options_check(const struct sl_fabric_options *options, struct sl_error *why)
{
    const struct {
        const char *name;
        uint64_t value, low, high;
    } bounds[] = {
        {"lanes", options->lanes, 1, SL_FABRIC_LANES_MAX},
        {"depth", options->depth, 1, SL_FABRIC_DEPTH_MAX},
        {"peers_max", options->peers_max, 1, SL_FABRIC_SLOTS_MAX},
        {"memories_max", options->memories_max, 1, SL_FABRIC_SLOTS_MAX},
        {"grants_max", options->grants_max, 1, SL_FABRIC_SLOTS_MAX},
        {"keys_max", options->keys_max, 1, SL_FABRIC_SLOTS_MAX},
        {"transfers_max", options->transfers_max, 1, SL_FABRIC_SLOTS_MAX},
        {"pieces_max", options->pieces_max, 1, 1u << 24},
        {"connections_max", options->connections_max, 1, SL_FABRIC_SLOTS_MAX},
        {"movers", options->movers, 0, SL_FABRIC_MOVERS_MAX},
        {"unit_bytes", options->unit_bytes, SL_DIGEST_CHUNK_BYTES, SL_FABRIC_UNIT_MAX},
        {"region_bytes_max", options->region_bytes_max, SL_PAGE_BYTES, UINT64_MAX},
        {"stall_ns", options->stall_ns, 1, 3600 * SL_NS_PER_S},
        {"connect_ns", options->connect_ns, 1, 3600 * SL_NS_PER_S},
        {"backoff_max_ns", options->backoff_max_ns, options->backoff_min_ns, 3600 * SL_NS_PER_S},
    };
    for (size_t i = 0; i < SL_COUNT(bounds); i++) {
        if (!in_range(bounds[i].value, bounds[i].low, bounds[i].high)) {
            return sl_fail(why, SL_ERR_INVALID, "%s %llu is not within %llu..%llu", bounds[i].name,
                           (unsigned long long)bounds[i].value, (unsigned long long)bounds[i].low,
                           (unsigned long long)bounds[i].high);
        }
    }
    if (options->unit_bytes % SL_DIGEST_CHUNK_BYTES != 0) {
        return sl_fail(why, SL_ERR_INVALID, "unit_bytes %llu is no multiple of 16 KiB",
                       (unsigned long long)options->unit_bytes);
    }
    return SL_OK;
}

static sl_err tables_make(struct sl_fabric *fabric, struct sl_error *why)
{
    const struct sl_fabric_options *options = &fabric->options;
    size_t lane_count = (size_t)options->peers_max * options->lanes;
    fabric->memories = calloc(options->memories_max, sizeof(*fabric->memories));
    fabric->peers = calloc(options->peers_max, sizeof(*fabric->peers));
    fabric->lanes = aligned_alloc(64, lane_count * sizeof(*fabric->lanes)); /* digests in it */
    fabric->units = calloc(lane_count * options->depth, sizeof(*fabric->units));
    fabric->grants = calloc(options->grants_max, sizeof(*fabric->grants));
    fabric->keys = calloc(options->keys_max, sizeof(*fabric->keys));
    fabric->transfers = calloc(options->transfers_max, sizeof(*fabric->transfers));
    fabric->pieces = calloc(options->pieces_max, sizeof(*fabric->pieces));
    fabric->codes = calloc(SL_FABRIC_PIECES_MAX, 1);
    if (fabric->memories == NULL || fabric->peers == NULL || fabric->lanes == NULL ||
        fabric->units == NULL || fabric->grants == NULL || fabric->keys == NULL ||
        fabric->transfers == NULL || fabric->pieces == NULL || fabric->codes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tables of a fabric");
    }
    memset(fabric->lanes, 0, lane_count * sizeof(*fabric->lanes));
    for (uint32_t i = 0; i < options->transfers_max; i++) {
        fabric->transfers[i].next = i + 1 < options->transfers_max ? i + 1 : FABRIC_NONE;
    }
    for (uint32_t i = 0; i < options->pieces_max; i++) {
        fabric->pieces[i].next = i + 1 < options->pieces_max ? i + 1 : FABRIC_NONE;
    }
    return SL_OK;
}

sl_err sl_fabric_open(const struct sl_fabric_options *options, struct sl_fabric **out,
                      struct sl_error *why)
{
    sl_err err = options_check(options, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_fabric *fabric = aligned_alloc(64, sl_align_up(sizeof(*fabric), 64));
    if (fabric == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a fabric");
    }
    memset(fabric, 0, sizeof(*fabric));
    fabric->options = *options;
    fabric->ops = options->backend != NULL           ? options->backend
                  : options->kind == SL_FABRIC_VERBS ? &sl_fabric_verbs
                                                     : &sl_fabric_tcp;
    fabric->fd = -1;
    fabric->deadline_ns = SL_NEVER_NS;
    fabric->ended_head = fabric->ended_tail = FABRIC_NONE;
    fabric->random_state = options->seed;
    err = tables_make(fabric, why);
    if (err == SL_OK && options->seed == 0) {
        err = fabric_secret(&fabric->random_state, sizeof(fabric->random_state), why);
    }
    if (err == SL_OK) { /* generations of two lives of one address differ */
        err = fabric_secret(&fabric->next_generation, sizeof(fabric->next_generation), why);
    }
    fabric->next_generation >>= 1;
    if (err == SL_OK) {
        err = fabric->ops->open(fabric, why);
    }
    if (err != SL_OK) {
        sl_fabric_close(&fabric);
        return err;
    }
    *out = fabric;
    return SL_OK;
}

void sl_fabric_close(struct sl_fabric **at)
{
    struct sl_fabric *fabric = *at;
    if (fabric == NULL) {
        return;
    }
    memset(&fabric->options.events, 0, sizeof(fabric->options.events));
    if (fabric->backend != NULL) {
        fabric->ops->quiesce(fabric); /* nobody touches memory from here on */
        for (uint32_t i = 0; i < fabric->options.memories_max; i++) {
            if (fabric->memories[i].state != MEMORY_FREE) {
                memory_clear(fabric, &fabric->memories[i]);
            }
        }
        fabric->ops->close(fabric);
    }
    for (uint32_t i = 0; fabric->keys != NULL && i < fabric->options.keys_max; i++) {
        key_free(&fabric->keys[i]);
    }
    free(fabric->memories);
    free(fabric->peers);
    free(fabric->lanes);
    free(fabric->units);
    free(fabric->grants);
    free(fabric->keys);
    free(fabric->transfers);
    free(fabric->pieces);
    free(fabric->codes);
    free(fabric);
    *at = NULL;
}
