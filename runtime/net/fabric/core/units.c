/* runtime/net/fabric/core/units.c - cuts pieces into units, and ends units. */
#include "runtime/net/fabric/core/tables.h"

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
    if (piece->lane != NULL) {
        piece->lane->piece = FABRIC_NONE;
        piece->lane = NULL;
    }
    piece->rail->out_bytes -= piece->want.length_bytes;
    if (piece->code != SL_OK && fabric_rails_retry(fabric, piece)) {
        fabric_piece_begin(fabric, piece);
        return;
    }
    piece->ended = true;
    fabric_places_leave(fabric, piece->places);
    piece->places = NULL;
    struct fabric_key *key = &fabric->keys[piece->key_index];
    key->users--;
    if (key->closing && key->users == 0) {
        fabric_key_free(fabric, key);
    }
    if (piece->code == SL_OK) {
        transfer->moved_bytes += piece->want.length_bytes;
        piece->rail->stats.read_bytes += piece->want.length_bytes;
    }
    if (--transfer->pieces_left == 0) {
        transfer_ended(fabric, transfer);
    }
}

/* The link of the piece's rail to its peer. */
static struct fabric_peer *link_of(const struct sl_fabric *fabric, const struct fabric_piece *piece)
{
    return &piece->rail->peers[fabric->transfers[piece->transfer].peer_index];
}

static void piece_unqueue(struct fabric_peer *peer, struct fabric_piece *piece)
{
    struct fabric_piece *pieces = peer->rail->fabric->pieces;
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

void fabric_piece_begin(struct sl_fabric *fabric, struct fabric_piece *piece)
{
    struct fabric_piece *pieces = fabric->pieces;
    struct fabric_peer *peer = link_of(fabric, piece);
    uint32_t index = (uint32_t)(piece - pieces);
    piece->code = SL_OK;
    piece->cut_off = false;
    piece->cut_bytes = 0;
    piece->uncut = sl_runs_from(&piece->places->run);
    piece->next = FABRIC_NONE;
    piece->before = peer->waiting_tail;
    if (peer->waiting_tail == FABRIC_NONE) {
        peer->waiting_head = index;
    } else {
        pieces[peer->waiting_tail].next = index;
    }
    peer->waiting_tail = index;
    piece->waiting = true;
    fabric->work_due = true;
    if (peer->state == PEER_STOPPING || (peer->state == PEER_WAITING && peer->due_ns != 0)) {
        fabric_piece_stop(fabric, piece, SL_ERR_UNREACHABLE); /* fail at once: the link is down */
    }
}

void fabric_piece_stop(struct sl_fabric *fabric, struct fabric_piece *piece, sl_err code)
{
    if (piece->ended) {
        return;
    }
    if (piece->code == SL_OK) {
        piece->code = (uint8_t)code;
    }
    if (piece->waiting) {
        piece_unqueue(link_of(fabric, piece), piece);
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
    return &lane->units[number % lane->peer->rail->options.depth];
}

bool fabric_unit_given_up(const struct fabric_lane *lane, const struct fabric_unit *unit)
{
    const struct sl_fabric *fabric = lane->peer->rail->fabric;
    return unit->piece != FABRIC_NONE &&
           fabric->transfers[fabric->pieces[unit->piece].transfer].give_up != SL_OK;
}

void fabric_unit_release(struct fabric_lane *lane, struct fabric_unit *unit, sl_err code)
{
    struct sl_fabric *fabric = lane->peer->rail->fabric;
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
    return unit->piece != FABRIC_NONE && lane->peer->rail->fabric->pieces[unit->piece].check_digest;
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
    struct sl_fabric *fabric = lane->peer->rail->fabric;
    SL_ASSERT(lane->head != lane->tail);
    struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
    if (code == SL_OK && unit->piece != FABRIC_NONE && unit->last) {
        const struct fabric_piece *piece = &fabric->pieces[unit->piece];
        if (piece->check_digest && piece->code == SL_OK &&
            !sl_digest_equal(sl_digest_finish(&lane->digest), piece->digest)) {
            lane->peer->rail->stats.digests_bad++;
            code = SL_ERR_CORRUPT;
        }
    }
    fabric_unit_release(lane, unit, code);
    lane->head++;
    lane->sent = SL_MAX(lane->sent, lane->head);
    lane->arrived_bytes = 0;
    fabric->work_due = true; /* the lane has a free slot */
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
    for (uint32_t i = 0; fabric->ops->lane_cancel != NULL && i < fabric->rail_count; i++) {
        const struct fabric_peer *peer = &fabric->rails[i]->peers[transfer->peer_index];
        bool linked = peer->state == PEER_UP || peer->state == PEER_STOPPING;
        for (uint32_t k = 0; linked && transfer->pieces_left > 0 && k < fabric->options.lanes;
             k++) {
            fabric->ops->lane_cancel(&peer->lanes[k]);
        }
    }
}

/* ---- cutting ---- */

static struct fabric_piece *lane_piece(struct fabric_lane *lane)
{
    struct fabric_peer *peer = lane->peer;
    struct fabric_piece *pieces = peer->rail->fabric->pieces;
    if (lane->piece == FABRIC_NONE && peer->waiting_head != FABRIC_NONE) {
        struct fabric_piece *piece = &pieces[peer->waiting_head];
        lane->piece = peer->waiting_head;
        piece->lane = lane;
        piece_unqueue(peer, piece);
    }
    return lane->piece == FABRIC_NONE ? NULL : &pieces[lane->piece];
}

/* Number of bytes of the next length_bytes that fit in one unit on the local side. */
static uint64_t local_cut(const struct fabric_rail *rail, const struct fabric_piece *piece,
                          uint64_t length_bytes)
{
    struct fabric_span spans[FABRIC_SPANS_MAX];
    uint32_t count = 0;
    return rail->spans_max == 0
               ? length_bytes
               : fabric_runs_cut(rail, piece->uncut, length_bytes, spans,
                                 SL_MIN(rail->spans_max, FABRIC_SPANS_MAX), &count);
}

/* Cuts the next unit of the lane's piece; false: no piece, or no free slot. */
static bool lane_cut(struct fabric_lane *lane)
{
    const struct fabric_rail *rail = lane->peer->rail;
    if (lane->tail - lane->head >= rail->options.depth) {
        return false;
    }
    struct fabric_piece *piece = lane_piece(lane);
    if (piece == NULL) {
        return false;
    }
    const struct fabric_right *right = &rail->rights[piece->key_index];
    uint64_t remote_at = piece->want.remote_offset_bytes + piece->cut_bytes;
    const struct fabric_region *remote =
        fabric_region_at(right->regions, right->region_count, remote_at);
    SL_ASSERT(remote != NULL);
    uint64_t length = SL_MIN(piece->want.length_bytes - piece->cut_bytes, rail->options.unit_bytes);
    length = SL_MIN(length, remote->length_bytes - (remote_at - remote->offset_bytes));
    length = local_cut(rail, piece, length);
    *fabric_lane_unit(lane, lane->tail++) = (struct fabric_unit){
        .local = piece->uncut,
        .remote_offset_bytes = remote_at,
        .remote_addr = remote->addr + (remote_at - remote->offset_bytes),
        .length_bytes = (uint32_t)length,
        .rkey = right->lane_rkeys == NULL
                    ? remote->rkey
                    : right->lane_rkeys[(size_t)(remote - right->regions) * rail->options.lanes +
                                        lane->index],
        .piece = (uint32_t)(piece - rail->fabric->pieces),
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

/* Cuts one unit for each lane in turn, so that a batch spreads over the lanes. */
void fabric_peer_pump(struct fabric_peer *peer)
{
    uint32_t lane_count = peer->rail->options.lanes;
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < lane_count; i++) {
            moved |= lane_cut(&peer->lanes[i]);
        }
    }
    for (uint32_t i = 0; i < lane_count && peer->state == PEER_UP; i++) {
        if (peer->lanes[i].sent != peer->lanes[i].tail) {
            peer->rail->fabric->ops->lane_push(&peer->lanes[i]);
        }
    }
}
