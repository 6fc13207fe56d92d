/* client/mooncake/store/read.c - reading: into pieces, of unknown size, and by ranges. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>

#define EXPLAIN_NS (100 * SL_NS_PER_MS) /* a miss stays one when nobody explains it */

static bool pieces_fine(const struct sl_pieces *item)
{
    for (uint32_t i = 0; i < item->count; i++) {
        if (item->at[i].at == NULL && item->at[i].length_bytes != 0) {
            return false;
        }
    }
    return true;
}

/* What the pieces have room for. */
static uint64_t pieces_room(const struct sl_pieces *items, uint32_t count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < items[i].count; j++) {
            total += SL_MIN(items[i].at[j].length_bytes, SL_VALUE_BYTES_MAX);
        }
    }
    return total;
}

/* One call of libsluice. errs[i] is set for all. */
static void get_once(struct store_base *base, const struct sl_pieces *items, uint32_t count,
                     bool whole, uint64_t *lengths, sl_err *errs)
{
    for (uint32_t i = 0; i < count; i++) {
        errs[i] = SL_ERR_COUNT; /* not answered */
        lengths[i] = 0;
    }
    sl_err err = sl_get_pieces(base->client, items, count, whole, lengths, errs,
                               store_call_ns(base, pieces_room(items, count)), NULL);
    for (uint32_t i = 0; i < count; i++) {
        errs[i] = errs[i] == SL_ERR_COUNT ? err : errs[i];
    }
}

/* A batch from a busy disk may take longer than a call may wait. While value after value still
 * comes, somebody answers; the last wait begins before the ceiling. */
static void get_rest(struct store_base *base, const struct sl_pieces *items, uint32_t count,
                     bool whole, uint64_t ceiling_ns, uint64_t *lengths, sl_err *errs)
{
    bool any = false;
    for (uint32_t i = 0; i < count && !any; i++) {
        any = errs[i] == SL_OK;
    }
    for (uint32_t i = 0; any && i < count; i++) {
        if (errs[i] == SL_ERR_TIMEOUT) {
            get_once(base, &items[i], 1, whole, &lengths[i], &errs[i]);
            any = errs[i] != SL_ERR_TIMEOUT && store_now_ns() < ceiling_ns;
        }
    }
}

/* In libsluice's batches. errs[i] is set for all. names: of the items' keys. */
static void get_pieces(struct store_base *base, struct store_names *names, struct sl_pieces *items,
                       uint32_t count, bool whole, uint64_t *lengths, sl_err *errs)
{
    bool fine = store_heads_add(names, items, NULL, count, false);
    for (uint32_t i = 0; !fine && i < count; i++) {
        errs[i] = SL_ERR_NO_MEMORY;
        lengths[i] = 0;
    }
    uint64_t ceiling_ns = store_ceiling_ns(base, pieces_room(items, count));
    for (uint32_t first = 0; fine && first < count; first += STORE_BATCH_MAX) {
        uint32_t share = SL_MIN(count - first, STORE_BATCH_MAX);
        get_once(base, items + first, share, whole, lengths + first, errs + first);
        get_rest(base, items + first, share, whole, ceiling_ns, lengths + first, errs + first);
    }
    store_heads_settle(names, items, count, lengths, errs);
    for (uint32_t i = 0; i < count; i++) {
        store_doubt_note(base, items[i].key, errs[i]);
    }
}

/* Of keys that are not there, which are being written: the registrar knows. Many are not asked for:
 * who reads them has not asked what there is. */
static void misses_explain(struct store_base *base, const struct sl_pieces *items, uint32_t count,
                           sl_err *errs)
{
    struct sl_object_key keys[SL_EXPLAIN_KEYS_MAX];
    uint32_t places[SL_EXPLAIN_KEYS_MAX], missing = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (errs[i] != SL_ERR_NOT_FOUND) {
            continue;
        }
        if (missing == SL_EXPLAIN_KEYS_MAX) {
            return;
        }
        places[missing] = i;
        keys[missing++] = items[i].key;
    }
    struct sl_story *stories = missing == 0 ? NULL : calloc(missing, sizeof *stories);
    if (stories != NULL &&
        sl_explain(base->client, keys, missing, stories, EXPLAIN_NS, NULL) == SL_OK) {
        for (uint32_t i = 0; i < missing; i++) {
            errs[places[i]] = stories[i].code == SL_ERR_BUSY ? SL_ERR_BUSY : SL_ERR_NOT_FOUND;
        }
    }
    free(stories);
}

static void read_batch(struct store_base *base, struct store_names *names, struct sl_pieces *items,
                       uint32_t count, bool explains, int64_t *results, uint64_t *lengths,
                       sl_err *errs)
{
    for (uint32_t i = 0; i < count; i++) {
        results[i] = pieces_fine(&items[i]) ? SL_STORE_OK : SL_STORE_INVALID;
        items[i].count = results[i] == SL_STORE_OK ? items[i].count : 0;
    }
    get_pieces(base, names, items, count, true, lengths, errs);
    if (explains) {
        misses_explain(base, items, count, errs);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (explains && errs[i] == SL_ERR_LIMIT && items[i].count > 0) {
            store_doubt_misfit(base, items[i].key); /* as of an engine with fewer ranks */
        }
        if (items[i].key.length == 0) {
            results[i] = store_key_absent(items[i].key);
        } else if (errs[i] != SL_OK || results[i] == SL_STORE_OK) {
            results[i] = errs[i] == SL_OK ? (int64_t)lengths[i] : sl_store_code_of(errs[i]);
        }
    }
}

void sl_store_read(struct sl_store *store, struct sl_pieces *items, uint32_t count,
                   int64_t *results, uint64_t *lengths)
{
    struct store_base *base = count == 0 ? NULL : store_enter(store);
    if (base == NULL) {
        store_results_fill(results, count, SL_STORE_INVALID);
        return;
    }
    struct store_names names = {.room = NULL};
    uint64_t *own = lengths != NULL ? NULL : malloc(count * sizeof *own);
    sl_err *errs = malloc(count * sizeof *errs);
    if ((lengths == NULL && own == NULL) || errs == NULL ||
        !store_keys_map(base, &items->key, count, sizeof *items, &names)) {
        store_results_fill(results, count, SL_STORE_NO_BUFFER);
    } else {
        read_batch(base, &names, items, count, lengths == NULL, results,
                   lengths != NULL ? lengths : own, errs);
    }
    free(own);
    free(errs);
    store_names_free(&names);
    store_leave(base);
}

/* ---- ranges ---- */

/* Settles what cannot be; the rest becomes pieces. Gives how many. */
static uint32_t fragments_select(const struct sl_store_ranges *item, uint64_t room_bytes,
                                 uint64_t length_bytes, struct sl_piece *pieces)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < item->count; i++) {
        const struct sl_store_fragment *from = &item->at[i];
        bool fine = from->source_bytes <= length_bytes &&
                    from->length_bytes <= length_bytes - from->source_bytes &&
                    from->target_bytes <= room_bytes &&
                    from->length_bytes <= room_bytes - from->target_bytes;
        item->results[i] = fine ? (int64_t)from->length_bytes : SL_STORE_INVALID;
        if (fine && from->length_bytes > 0) {
            pieces[count++] = (struct sl_piece){.at = (char *)item->buffer + from->target_bytes,
                                                .length_bytes = from->length_bytes,
                                                .offset_bytes = from->source_bytes};
        }
    }
    return count;
}

static void fragments_fill(const struct sl_store_ranges *item, int code)
{
    store_results_fill(item->results, item->count, code);
}

/* What was selected was read, or nothing of it counts. */
static void fragments_settle(const struct sl_store_ranges *item, uint64_t length_then, sl_err err,
                             uint64_t length_now)
{
    if (err == SL_OK && length_now == length_then) {
        return;
    }
    int code = err == SL_OK ? SL_STORE_NOT_READY : sl_store_code_of(err); /* replaced meanwhile */
    for (uint32_t i = 0; i < item->count; i++) {
        item->results[i] = item->results[i] >= 0 ? code : item->results[i];
    }
}

struct ranges {
    struct sl_pieces *items;
    struct sl_piece *pieces;
    uint64_t *then, *now;
    sl_err *errs;
    bool *chosen; /* some of its fragments can be read */
    struct store_names names;
};

static void ranges_carry_out(struct sl_store *store, struct store_base *base, struct ranges *ranges,
                             struct sl_store_ranges *items, uint32_t count)
{
    struct sl_piece *next = ranges->pieces;
    for (uint32_t i = 0; i < count; i++) {
        ranges->items[i] = (struct sl_pieces){.key = items[i].key};
    }
    get_pieces(base, &ranges->names, ranges->items, count, false, ranges->then, ranges->errs);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t room_bytes = store_registered_bytes(store, (uint64_t)(uintptr_t)items[i].buffer);
        ranges->items[i].at = NULL; /* what the first look had */
        ranges->items[i].count = 0;
        if (ranges->items[i].key.length == 0) {
            fragments_fill(&items[i], store_key_absent(ranges->items[i].key));
        } else if (ranges->errs[i] != SL_OK || room_bytes == 0) {
            fragments_fill(&items[i], ranges->errs[i] != SL_OK ? sl_store_code_of(ranges->errs[i])
                                                               : SL_STORE_INVALID);
        } else {
            ranges->items[i].at = next;
            ranges->items[i].count = fragments_select(&items[i], room_bytes, ranges->then[i], next);
            next += ranges->items[i].count;
            ranges->chosen[i] = true;
        }
    }
    get_pieces(base, &ranges->names, ranges->items, count, false, ranges->now, ranges->errs);
    for (uint32_t i = 0; i < count; i++) {
        if (ranges->chosen[i]) {
            fragments_settle(&items[i], ranges->then[i], ranges->errs[i], ranges->now[i]);
        }
    }
}

static bool ranges_room(struct ranges *ranges, const struct sl_store_ranges *items, uint32_t count)
{
    size_t pieces = 1, room = (size_t)count + 1;
    for (uint32_t i = 0; i < count; i++) {
        pieces += items[i].count;
    }
    ranges->items = calloc(room, sizeof *ranges->items);
    ranges->pieces = calloc(pieces, sizeof *ranges->pieces);
    ranges->then = malloc(room * sizeof *ranges->then);
    ranges->now = malloc(room * sizeof *ranges->now);
    ranges->errs = malloc(room * sizeof *ranges->errs);
    ranges->chosen = calloc(room, sizeof *ranges->chosen);
    return ranges->items != NULL && ranges->pieces != NULL && ranges->then != NULL &&
           ranges->now != NULL && ranges->errs != NULL && ranges->chosen != NULL;
}

void sl_store_read_ranges(struct sl_store *store, struct sl_store_ranges *items, uint32_t count)
{
    struct store_base *base = count == 0 ? NULL : store_enter(store);
    struct ranges ranges = {0};
    if (base == NULL || !ranges_room(&ranges, items, count) ||
        !store_keys_map(base, &items->key, count, sizeof *items, &ranges.names)) {
        for (uint32_t i = 0; i < count; i++) {
            fragments_fill(&items[i], base == NULL ? SL_STORE_INVALID : SL_STORE_NO_BUFFER);
        }
    } else {
        ranges_carry_out(store, base, &ranges, items, count);
    }
    free(ranges.items);
    free(ranges.pieces);
    free(ranges.then);
    free(ranges.now);
    free(ranges.errs);
    free(ranges.chosen);
    store_names_free(&ranges.names);
    if (base != NULL) {
        store_leave(base);
    }
}
