/* runtime/fabric/core/units.c - pieces are cut into units, and units end. */
#include "runtime/fabric/core/tables.h"

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
    if (piece->places != NULL) {
        fabric_places_leave(fabric, piece->places);
        piece->places = NULL;
    } else {
        fabric->memories[piece->memory_index].users--;
    }
    struct fabric_key *key = &fabric->keys[piece->key_index];
    key->users--;
    if (key->closing && key->users == 0) {
        fabric_key_free(fabric, key);
    }
    if (piece->code == SL_OK) {
        transfer->moved_bytes += piece->want.length_bytes;
        fabric->stats.read_bytes += piece->want.length_bytes;
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

void fabric_piece_queue(struct fabric_peer *peer, struct fabric_piece *piece)
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
void fabric_piece_stop(struct sl_fabric *fabric, struct fabric_piece *piece, sl_err code)
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
    unit->local = (struct sl_runs){0};
    SL_ASSERT(piece->units_out > 0);
    piece->units_out--;
    if (code != SL_OK) {
        fabric_piece_stop(fabric, piece, code);
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

void fabric_transfer_give_up(struct sl_fabric *fabric, struct fabric_transfer *transfer,
                             sl_err code)
{
    if (transfer->give_up != SL_OK || transfer->pieces_left == 0) {
        return;
    }
    transfer->give_up = code;
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = fabric->pieces[i].sibling) {
        fabric_piece_stop(fabric, &fabric->pieces[i], code);
    }
    struct fabric_peer *peer = &fabric->peers[transfer->peer_index];
    for (uint32_t i = 0;
         fabric->ops->lane_cancel != NULL && transfer->pieces_left > 0 && i < fabric->options.lanes;
         i++) {
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

/* How much of the next length_bytes one unit carries from its local side, and the key of the region
 * when that is one run. */
static uint64_t local_cut(const struct sl_fabric *fabric, const struct fabric_piece *piece,
                          uint64_t length_bytes, uint32_t *lkey)
{
    struct fabric_span spans[FABRIC_SPANS_MAX];
    uint32_t count = 0;
    if (piece->places != NULL) {
        return fabric->spans_max == 0
                   ? length_bytes
                   : fabric_runs_cut(fabric, piece->uncut, length_bytes, spans,
                                     SL_MIN(fabric->spans_max, FABRIC_SPANS_MAX), &count);
    }
    const struct fabric_memory *memory = &fabric->memories[piece->memory_index];
    uint64_t at = piece->want.offset_bytes + piece->cut_bytes;
    const struct fabric_region *region =
        fabric_region_at(memory->regions, memory->region_count, at);
    SL_ASSERT(region != NULL);
    *lkey = region->lkey;
    return SL_MIN(length_bytes, region->length_bytes - (at - region->offset_bytes));
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
    const struct fabric_key *key = &fabric->keys[piece->key_index];
    uint32_t lkey = 0;
    uint64_t remote_at = piece->want.remote_offset_bytes + piece->cut_bytes;
    const struct fabric_region *remote =
        fabric_region_at(key->regions, key->region_count, remote_at);
    SL_ASSERT(remote != NULL);
    uint64_t length =
        SL_MIN(piece->want.length_bytes - piece->cut_bytes, fabric->options.unit_bytes);
    length = SL_MIN(length, remote->length_bytes - (remote_at - remote->offset_bytes));
    length = local_cut(fabric, piece, length, &lkey);
    *fabric_lane_unit(lane, lane->tail++) = (struct fabric_unit){
        .local = piece->uncut,
        .remote_offset_bytes = remote_at,
        .remote_addr = remote->addr + (remote_at - remote->offset_bytes),
        .length_bytes = (uint32_t)length,
        .lkey = lkey,
        .rkey = key->lane_rkeys == NULL
                    ? remote->rkey
                    : key->lane_rkeys[(size_t)(remote - key->regions) * fabric->options.lanes +
                                      lane->index],
        .piece = (uint32_t)(piece - fabric->pieces),
        .key = piece->key_index,
        .first = piece->cut_bytes == 0,
        .last = piece->cut_bytes + length == piece->want.length_bytes,
    };
    piece->cut_bytes += length;
    sl_runs_skip(&piece->uncut, length);
    piece->units_out++;
    if (piece->cut_bytes == piece->want.length_bytes) {
        piece->lane = NULL;
        lane->piece = FABRIC_NONE;
    }
    return true;
}

/* One unit a lane and round, so that a batch spreads over the lanes. */
void fabric_peer_pump(struct fabric_peer *peer)
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
