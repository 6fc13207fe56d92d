/* runtime/fabric/core/transfers.c - transfers: posted, given up, told when all of their pieces have
 * ended. */
#include "runtime/fabric/core/tables.h"

#include <inttypes.h>
#include <string.h>

/* Nothing here can read the bytes. */
static sl_err digest_check(struct sl_fabric *fabric, const struct sl_fabric_piece *piece,
                           struct sl_error *why)
{
    uint32_t count = SL_MAX(piece->place_count, 1u);
    for (uint32_t i = 0; piece->digest != NULL && i < count; i++) {
        uint32_t memory = piece->places != NULL ? piece->places[i].memory : piece->memory;
        if (fabric_memory_of(fabric, memory)->by_dmabuf) {
            return sl_fail(why, SL_ERR_INVALID, "a digest of bytes in a dmabuf");
        }
    }
    return SL_OK;
}

static sl_err piece_check(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                          const struct sl_fabric_piece *piece, struct sl_error *why)
{
    const struct fabric_key *key = fabric_key_of(fabric, piece->key);
    const struct sl_fabric_place whole = {.memory = piece->memory,
                                          .offset_bytes = piece->offset_bytes,
                                          .length_bytes = piece->length_bytes};
    if (key == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such key");
    }
    sl_err err =
        fabric_places_check(fabric, piece->places, piece->place_count, piece->length_bytes, why);
    if (err == SL_OK && piece->places == NULL) {
        err = fabric_range_check(fabric, &whole, why);
    }
    if (err == SL_OK) {
        err = digest_check(fabric, piece, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (key->peer_index != (transfer->peer & 0xffffu)) {
        return sl_fail(why, SL_ERR_INVALID, "the key is for another peer");
    }
    if (piece->length_bytes > SL_VALUE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "a piece of %" PRIu64 " bytes", piece->length_bytes);
    }
    if (piece->remote_offset_bytes > UINT64_MAX - piece->length_bytes ||
        !fabric_regions_cover(key->regions, key->region_count, piece->remote_offset_bytes,
                              piece->length_bytes)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "remote range %" PRIu64 "+%" PRIu64 " is not within the key",
                       piece->remote_offset_bytes, piece->length_bytes);
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
    if (want->piece_count == 0 || want->piece_count > SL_FABRIC_PIECES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "a transfer reads 1..%u pieces, not %u",
                       SL_FABRIC_PIECES_MAX, want->piece_count);
    }
    uint64_t place_count = 0;
    for (uint32_t i = 0; i < want->piece_count; i++) {
        sl_err err = piece_check(fabric, want, &want->pieces[i], why);
        if (err != SL_OK) {
            return err;
        }
        place_count += want->pieces[i].place_count;
    }
    if (place_count > fabric_places_room(&fabric->places)) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for %" PRIu64 " more places", place_count);
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
    if (want->places != NULL) {
        piece->places = fabric_places_hold(fabric, want->places, want->place_count);
        piece->uncut = sl_runs_from(&piece->places->run);
        piece->want.places = NULL;
    } else {
        struct fabric_memory *memory = &fabric->memories[piece->memory_index];
        piece->uncut =
            sl_runs_of((unsigned char *)memory->what.at + want->offset_bytes, want->length_bytes);
        memory->users++;
    }
    fabric->keys[piece->key_index].users++;
    return index;
}

sl_err sl_fabric_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *want,
                      struct sl_error *why)
{
    if (fabric->form != NULL) {
        return fabric->form->post(fabric, want, why);
    }
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
        fabric_piece_queue(peer, piece);
        link = &piece->sibling;
    }
    if (peer->state == PEER_STOPPING || (peer->state == PEER_WAITING && peer->due_ns != 0)) {
        fabric_transfer_give_up(fabric, transfer,
                                SL_ERR_UNREACHABLE); /* the link is down: no waiting */
    }
    fabric->deadline_ns = SL_MIN(fabric->deadline_ns, want->deadline_ns);
    fabric->work_due = true;
    return SL_OK;
}

uint32_t sl_fabric_cancel(struct sl_fabric *fabric, uint64_t cookie)
{
    if (fabric->form != NULL) {
        return fabric->form->cancel(fabric, cookie);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < fabric->options.transfers_max; i++) {
        struct fabric_transfer *transfer = &fabric->transfers[i];
        if (transfer->used && transfer->cookie == cookie && transfer->pieces_left > 0 &&
            transfer->give_up == SL_OK) {
            fabric_transfer_give_up(fabric, transfer, SL_ERR_CANCELLED);
            count++;
        }
    }
    return count;
}

void fabric_deadlines_step(struct sl_fabric *fabric)
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
            fabric_transfer_give_up(fabric, transfer, SL_ERR_TIMEOUT);
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

void fabric_transfers_tell(struct sl_fabric *fabric)
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
