/* runtime/net/fabric/core/transfers.c - starts, cancels and reports transfers. */
#include "runtime/net/fabric/core/tables.h"

#include <inttypes.h>
#include <string.h>

static struct fabric_list list_of(const struct sl_fabric_piece *piece)
{
    return (struct fabric_list){.places = piece->places,
                                .count = piece->place_count,
                                .whole = {piece->memory, piece->offset_bytes, piece->length_bytes}};
}

/* Refuses digests of dmabufs, which cannot be read here. */
static sl_err digest_check(struct sl_fabric *fabric, const struct fabric_list *list,
                           struct sl_error *why)
{
    for (uint32_t i = 0; i < SL_MAX(list->count, 1u); i++) {
        if (fabric_memory_of(fabric, fabric_list_at(list, i)->memory)->by_dmabuf) {
            return sl_fail(why, SL_ERR_INVALID, "a digest of bytes in a dmabuf");
        }
    }
    return SL_OK;
}

/* Checks that at least one rail has a valid key for the piece. */
static sl_err key_check(const struct sl_fabric *fabric, const struct fabric_key *key,
                        const struct sl_fabric_piece *piece, struct sl_error *why)
{
    bool covers = false, lives = false;
    for (uint32_t i = 0; i < fabric->rail_count && !lives; i++) {
        const struct fabric_rail *rail = fabric->rails[i];
        bool here = fabric_right_covers(&rail->rights[key - fabric->keys], piece);
        covers |= here;
        lives = here && fabric_rail_key_valid(rail, key);
    }
    if (!covers) {
        return sl_fail(why, SL_ERR_INVALID,
                       "remote range %" PRIu64 "+%" PRIu64 " is not within the key",
                       piece->remote_offset_bytes, piece->length_bytes);
    }
    return lives ? SL_OK : sl_fail(why, SL_ERR_UNREACHABLE, "no rail has a valid key");
}

static sl_err piece_check(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                          const struct sl_fabric_piece *piece, struct sl_error *why)
{
    const struct fabric_key *key = fabric_key_of(fabric, piece->key);
    const struct fabric_list list = list_of(piece);
    if (key == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such key");
    }
    sl_err err = fabric_list_check(fabric, &list, why);
    if (err == SL_OK && piece->digest != NULL) {
        err = digest_check(fabric, &list, why);
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
    return key_check(fabric, key, piece, why);
}

static sl_err post_check(struct sl_fabric *fabric, const struct sl_fabric_transfer *want,
                         struct sl_error *why)
{
    if (fabric_peer_of(fabric->rails[0], want->peer) == NULL) {
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
    if (fabric->free_transfer == FABRIC_NONE || fabric->pieces_free < want->piece_count) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for %u more pieces", want->piece_count);
    }
    return SL_OK;
}

static uint32_t piece_take(struct sl_fabric *fabric, const struct sl_fabric_piece *want,
                           uint32_t transfer, uint32_t order)
{
    uint32_t index = fabric->free_piece;
    struct fabric_piece *piece = &fabric->pieces[index];
    const struct fabric_list list = list_of(want);
    fabric->free_piece = piece->next;
    fabric->pieces_free--;
    *piece = (struct fabric_piece){
        .want = *want,
        .places = fabric_places_hold(fabric, &list),
        .check_digest = want->digest != NULL,
        .key_index = want->key & 0xffffu,
        .transfer = transfer,
        .order = order,
        .sibling = FABRIC_NONE,
    };
    if (want->digest != NULL) {
        piece->digest = *want->digest;
        piece->want.digest = NULL;
    }
    piece->want.places = NULL;
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
    uint32_t index = fabric->free_transfer;
    struct fabric_transfer *transfer = &fabric->transfers[index];
    fabric->free_transfer = transfer->next;
    *transfer = (struct fabric_transfer){
        .used = true,
        .peer_index = want->peer & 0xffffu,
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
        link = &fabric->pieces[*link].sibling;
    }
    fabric_rails_deal(fabric, transfer);
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = fabric->pieces[i].sibling) {
        fabric_piece_begin(fabric, &fabric->pieces[i]);
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

/* Frees everything of the transfer first, so that done() may post the next one. */
static void transfer_report(struct sl_fabric *fabric, struct fabric_transfer *transfer)
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
        fabric->pieces_free++;
        i = next;
    }
    uint32_t index = (uint32_t)(transfer - fabric->transfers);
    *transfer = (struct fabric_transfer){.next = fabric->free_transfer};
    fabric->free_transfer = index;
    if (fabric->options.events.done != NULL) {
        fabric->options.events.done(fabric->options.events.context, &done);
    }
}

void fabric_transfers_report(struct sl_fabric *fabric)
{
    /* Transfers that a callback ends are reported in the next step. */
    uint32_t last = fabric->ended_head == FABRIC_NONE ? FABRIC_NONE : fabric->ended_tail;
    while (fabric->ended_head != FABRIC_NONE) {
        uint32_t index = fabric->ended_head;
        fabric->ended_head = fabric->transfers[index].next;
        transfer_report(fabric, &fabric->transfers[index]);
        if (index == last) {
            break;
        }
    }
}
