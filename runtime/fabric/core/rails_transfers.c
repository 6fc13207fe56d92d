/* runtime/fabric/core/rails_transfers.c - transfers dealt out over rails. */
#include "runtime/fabric/core/rails.h"

#include <inttypes.h>
#include <string.h>

/* What a rail is told as a cookie: which transfer, which life of it, which post. */
static uint64_t cookie_of(const struct rails *rails, const struct rails_transfer *transfer,
                          uint16_t batch)
{
    return (uint64_t)transfer->number << 32 | (uint64_t)batch << 16 |
           (uint64_t)(transfer - rails->transfers);
}

/* ---- which rail ---- */

/* Whether the rail has a key for the piece that works, and has not failed it yet. */
static bool rail_may(const struct rail *rail, const struct rails_transfer *transfer,
                     const struct rails_piece *piece)
{
    const struct rails *rails = rail->rails;
    const struct rails_peer *peer = rails_peer_of(rails, transfer->peer);
    const struct rails_key *key = rails_key_of(rails, piece->want.key);
    uint16_t bit = (uint16_t)(1u << rail->index);
    return rail->fabric != NULL && peer != NULL && key != NULL && (key->there & bit) != 0 &&
           (piece->tried & bit) == 0 &&
           (!key->dies || key->lives[rail->index] == peer->lives[rail->index]);
}

static enum sl_fabric_link link_of(const struct rail *rail, const struct rails_transfer *transfer)
{
    const struct rails_peer *peer = rails_peer_of(rail->rails, transfer->peer);
    return peer == NULL ? SL_FABRIC_DOWN
                        : sl_fabric_peer_link(rail->fabric, peer->sub[rail->index]);
}

/* Whether the piece wants this rail, and that can be now. */
static bool rail_is_wanted(const struct rail *rail, const struct rails_transfer *transfer,
                           const struct rails_piece *piece)
{
    return piece->want.rail == rail->index + 1 && rail_may(rail, transfer, piece) &&
           link_of(rail, transfer) == SL_FABRIC_UP;
}

/* The rail that the piece wants, else the least busy one that is up; with `patient` one that connects or is
 * down where none is.
 * RAILS_MAX: there is none. The turn decides between equals, so that small transfers alternate. */
static uint32_t rail_choose(const struct rails *rails, const struct rails_transfer *transfer,
                            const struct rails_piece *piece, bool patient)
{
    static const uint8_t rank_of[] = {
        [SL_FABRIC_UP] = 0, [SL_FABRIC_CONNECTING] = 1, [SL_FABRIC_DOWN] = 2};
    uint32_t best = RAILS_MAX, best_rank = patient ? 3 : 1;
    for (uint32_t n = 0; n < rails->count; n++) {
        const struct rail *rail = &rails->at[(rails->turn + n) % rails->count];
        if (!rail_may(rail, transfer, piece)) {
            continue;
        }
        if (rail_is_wanted(rail, transfer, piece)) {
            return rail->index;
        }
        uint32_t rank = rank_of[link_of(rail, transfer)];
        if (rank < best_rank || (rank == best_rank && best != RAILS_MAX &&
                                 rail->out_bytes < rails->at[best].out_bytes)) {
            best = rail->index;
            best_rank = rank;
        }
    }
    return best;
}

/* ---- posting ---- */

/* Posts the pieces of one batch to its rail. On an error they carry its code. */
static sl_err batch_post(struct rails *rails, struct rails_transfer *transfer, uint16_t batch,
                         struct sl_error *why)
{
    const struct rails_peer *peer = rails_peer_of(rails, transfer->peer);
    struct rail *rail = NULL;
    uint32_t count = 0, place_count = 0;
    uint64_t bytes = 0;
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = rails->pieces[i].next) {
        const struct rails_piece *piece = &rails->pieces[i];
        if (piece->batch == batch) {
            rail = &rails->at[piece->rail];
            struct sl_fabric_piece *out = &rails->scratch[count++];
            *out = piece->want;
            if (piece->places == NULL) {
                out->memory = rails_memory_of(rails, piece->want.memory)->sub[rail->index];
            } else {
                out->places = &rails->place_scratch[place_count];
                out->place_count =
                    rails_places_on(rail, piece->places, &rails->place_scratch[place_count]);
                place_count += out->place_count;
            }
            out->key = rails_key_of(rails, piece->want.key)->sub[rail->index];
            out->digest = piece->check_digest ? &piece->digest : NULL;
            bytes += piece->want.length_bytes;
        }
    }
    if (rail == NULL || peer == NULL) {
        return sl_fail(why, SL_ERR_INTERNAL, "batch %u of a transfer has no pieces", batch);
    }
    const struct sl_fabric_transfer post = {
        .peer = peer->sub[rail->index],
        .pieces = rails->scratch,
        .piece_count = count,
        .deadline_ns = transfer->deadline_ns,
        .cookie = cookie_of(rails, transfer, batch),
    };
    sl_err err = sl_fabric_post(rail->fabric, &post, why);
    if (err == SL_OK) {
        transfer->batches_out++;
        rail->out_bytes += bytes;
    }
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE && err != SL_OK;
         i = rails->pieces[i].next) {
        if (rails->pieces[i].batch == batch) {
            rails->pieces[i].code = (uint8_t)err;
        }
    }
    return err;
}

/* Gives the piece to a rail, in the batch that this round has for it. */
static bool piece_deal(struct rails_transfer *transfer, struct rails_piece *piece, uint32_t rail,
                       uint16_t batches[RAILS_MAX])
{
    if (rail == RAILS_MAX || transfer->batch_count == RAILS_BATCHES_MAX) {
        return false;
    }
    if (batches[rail] == 0) {
        batches[rail] = ++transfer->batch_count; /* from 1 on */
    }
    piece->rail = (uint8_t)rail;
    piece->batch = batches[rail];
    piece->tried |= (uint16_t)(1u << rail);
    return true;
}

static void transfer_free(struct rails *rails, struct rails_transfer *transfer)
{
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE;) {
        struct rails_piece *piece = &rails->pieces[i];
        uint32_t next = piece->next;
        rails_memories_leave(rails, piece->want.memory, piece->places);
        piece->places = NULL;
        piece->next = rails->free_piece;
        rails->free_piece = i;
        i = next;
    }
    uint32_t index = (uint32_t)(transfer - rails->transfers);
    *transfer = (struct rails_transfer){.next = rails->free_transfer};
    rails->free_transfer = index;
}

/* The memories are there. */
static sl_err digest_check(const struct rails *rails, const struct sl_fabric_piece *piece,
                           struct sl_error *why)
{
    uint32_t count = SL_MAX(piece->place_count, 1u);
    for (uint32_t i = 0; piece->digest != NULL && i < count; i++) {
        uint32_t memory = piece->places != NULL ? piece->places[i].memory : piece->memory;
        if (rails_memory_of(rails, memory)->by_dmabuf) {
            return sl_fail(why, SL_ERR_INVALID, "a digest of bytes in a dmabuf");
        }
    }
    return SL_OK;
}

static sl_err post_check(struct rails *rails, const struct sl_fabric_transfer *want,
                         struct sl_error *why)
{
    if (rails_peer_of(rails, want->peer) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    if (want->piece_count == 0 || want->piece_count > SL_FABRIC_PIECES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "a transfer reads 1..%u pieces, not %u",
                       SL_FABRIC_PIECES_MAX, want->piece_count);
    }
    uint64_t place_count = 0;
    for (uint32_t i = 0; i < want->piece_count; i++) {
        const struct sl_fabric_piece *piece = &want->pieces[i];
        const struct rails_key *key = rails_key_of(rails, piece->key);
        sl_err err =
            fabric_places_count_check(piece->places, piece->place_count, piece->length_bytes, why);
        if (err == SL_OK) {
            err =
                rails_memories_check(rails, piece->memory, piece->places, piece->place_count, why);
        }
        if (err == SL_OK) {
            err = digest_check(rails, piece, why);
        }
        if (err != SL_OK) {
            return err;
        }
        place_count += piece->place_count;
        if (key == NULL) {
            return sl_fail(why, SL_ERR_NOT_FOUND, "no such key");
        }
        if (key->peer != want->peer) {
            return sl_fail(why, SL_ERR_INVALID, "the key is for another peer");
        }
    }
    if (place_count > fabric_places_room(&rails->places)) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for %" PRIu64 " more places", place_count);
    }
    uint32_t room = 0;
    for (uint32_t i = rails->free_piece; i != FABRIC_NONE && room < want->piece_count;
         i = rails->pieces[i].next) {
        room++;
    }
    return rails->free_transfer == FABRIC_NONE || room < want->piece_count
               ? sl_fail(why, SL_ERR_LIMIT, "no room for %u more pieces", want->piece_count)
               : SL_OK;
}

static struct rails_transfer *transfer_take(struct rails *rails,
                                            const struct sl_fabric_transfer *want)
{
    struct rails_transfer *transfer = &rails->transfers[rails->free_transfer];
    rails->free_transfer = transfer->next;
    *transfer = (struct rails_transfer){.used = true,
                                        .number = ++rails->number,
                                        .peer = want->peer,
                                        .piece_count = want->piece_count,
                                        .piece_first = FABRIC_NONE,
                                        .deadline_ns = want->deadline_ns,
                                        .cookie = want->cookie};
    uint32_t *link = &transfer->piece_first;
    for (uint32_t i = 0; i < want->piece_count; i++) {
        *link = rails->free_piece;
        struct rails_piece *piece = &rails->pieces[*link];
        rails->free_piece = piece->next;
        *piece = (struct rails_piece){.want = want->pieces[i], .next = FABRIC_NONE};
        if (piece->want.digest != NULL) {
            piece->digest = *piece->want.digest;
            piece->check_digest = true;
            piece->want.digest = NULL;
        }
        piece->places = rails_memories_hold(rails, want->pieces[i].memory, want->pieces[i].places,
                                            want->pieces[i].place_count);
        piece->want.places = NULL;
        link = &piece->next;
    }
    return transfer;
}

/* Deals out all pieces: by bytes, or the whole to one rail where there are few. False: a piece has
 * no rail. */
static bool transfer_deal(struct rails *rails, struct rails_transfer *transfer,
                          uint16_t batches[RAILS_MAX])
{
    uint64_t total = 0, dealt[RAILS_MAX] = {0};
    uint32_t last = RAILS_MAX;
    bool all = true;
    rails->turn = (rails->turn + 1) % rails->count;
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = rails->pieces[i].next) {
        const struct rails_piece *piece = &rails->pieces[i];
        total += piece->want.length_bytes;
    }
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE && all; i = rails->pieces[i].next) {
        struct rails_piece *piece = &rails->pieces[i];
        bool same = total < RAILS_SPLIT_BYTES && last != RAILS_MAX && piece->want.rail == 0 &&
                    rail_may(&rails->at[last], transfer, piece);
        uint32_t rail = same ? last : rail_choose(rails, transfer, piece, true);
        all = piece_deal(transfer, piece, rail, batches);
        if (all) { /* counts at once, so that the next piece sees it */
            rails->at[rail].out_bytes += piece->want.length_bytes;
            dealt[rail] += piece->want.length_bytes;
            last = rail;
        }
    }
    for (uint32_t i = 0; i < rails->count; i++) { /* what is posted counts from here on */
        rails->at[i].out_bytes -= dealt[i];
    }
    return all;
}

sl_err fabric_rails_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *want,
                         struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    uint16_t batches[RAILS_MAX] = {0};
    sl_err err = post_check(rails, want, why);
    if (err != SL_OK) {
        return err;
    }
    struct rails_transfer *transfer = transfer_take(rails, want);
    if (!transfer_deal(rails, transfer, batches)) {
        err = sl_fail(why, SL_ERR_UNREACHABLE, "no rail has a key that still works");
    }
    bool refused = err != SL_OK;
    for (uint32_t i = 0; i < rails->count && !refused; i++) {
        struct sl_error reason = {0};
        sl_err one = batches[i] == 0 ? SL_OK : batch_post(rails, transfer, batches[i], &reason);
        refused = one != SL_OK && transfer->batches_out == 0;
        if (refused) { /* nothing of it is on its way */
            err = one;
            if (why != NULL) {
                *why = reason;
            }
        }
    }
    if (refused) {
        transfer_free(rails, transfer);
    }
    return err;
}

/* ---- ends ---- */

/* Whether another rail may do better: a rail refuses keys of its peer's earlier life. */
static bool code_is_of_rail(const struct rails_transfer *transfer, uint8_t code)
{
    return code == SL_ERR_PEER_DIED || code == SL_ERR_UNREACHABLE || code == SL_ERR_PERMISSION ||
           (code == SL_ERR_CANCELLED && !transfer->cancelled);
}

/* Pieces that their rail has cost go to others that are up. */
static void retry(struct rails *rails, struct rails_transfer *transfer, uint16_t ended)
{
    uint16_t batches[RAILS_MAX] = {0};
    bool may = !transfer->cancelled && rails->fabric->now_ns < transfer->deadline_ns;
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE && may; i = rails->pieces[i].next) {
        struct rails_piece *piece = &rails->pieces[i];
        if (piece->batch == ended && code_is_of_rail(transfer, piece->code)) {
            uint32_t rail = rail_choose(rails, transfer, piece, false);
            (void)piece_deal(transfer, piece, rail, batches);
        }
    }
    for (uint32_t i = 0; i < rails->count; i++) {
        if (batches[i] != 0) {
            (void)batch_post(rails, transfer, batches[i], NULL);
        }
    }
}

static void transfer_tell(struct rails *rails, struct rails_transfer *transfer)
{
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    struct sl_fabric_done done = {.cookie = transfer->cookie,
                                  .pieces = rails->codes,
                                  .piece_count = transfer->piece_count,
                                  .moved_bytes = transfer->moved_bytes};
    uint32_t order = 0;
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = rails->pieces[i].next) {
        const struct rails_piece *piece = &rails->pieces[i];
        rails->codes[order++] = piece->code;
        done.code = done.code == SL_OK ? (sl_err)piece->code : done.code;
    }
    transfer_free(rails, transfer); /* so that done() may post the next */
    if (events->done != NULL) {
        events->done(events->context, &done);
    }
}

void rails_on_done(void *context, const struct sl_fabric_done *done)
{
    struct rail *rail = context;
    struct rails *rails = rail->rails;
    uint16_t batch = (uint16_t)(done->cookie >> 16);
    uint32_t order = 0;
    struct rails_transfer *transfer = &rails->transfers[done->cookie & 0xffffu];
    SL_ASSERT(transfer->used && transfer->number == done->cookie >> 32);
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = rails->pieces[i].next) {
        struct rails_piece *piece = &rails->pieces[i];
        if (piece->batch == batch) {
            SL_ASSERT(order < done->piece_count);
            piece->code = done->pieces[order++];
            rail->out_bytes -= piece->want.length_bytes;
        }
    }
    transfer->moved_bytes += done->moved_bytes;
    transfer->batches_out--;
    retry(rails, transfer, batch);
    if (transfer->batches_out == 0) {
        transfer_tell(rails, transfer);
    }
}

uint32_t fabric_rails_cancel(struct sl_fabric *fabric, uint64_t cookie)
{
    struct rails *rails = fabric->rails;
    uint32_t count = 0;
    for (uint32_t t = 0; t < fabric->options.transfers_max; t++) {
        struct rails_transfer *transfer = &rails->transfers[t];
        if (!transfer->used || transfer->cancelled || transfer->cookie != cookie) {
            continue;
        }
        transfer->cancelled = true;
        count++;
        for (uint16_t batch = 1; batch <= transfer->batch_count; batch++) {
            for (uint32_t i = 0; i < rails->count; i++) {
                if (rails->at[i].fabric != NULL) {
                    (void)sl_fabric_cancel(rails->at[i].fabric, cookie_of(rails, transfer, batch));
                }
            }
        }
    }
    return count;
}
