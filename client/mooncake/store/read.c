/* client/mooncake/store/read.c - reading: into pieces, of unknown size, and by ranges. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>

#define WHOLE_TRIES_MAX 16u /* a value that is replaced by a larger one each time it is read */

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

/* Items that were too late, in a row. */
struct late {
    struct sl_pieces *items;
    uint32_t *places;
    uint64_t *lengths;
    sl_err *errs;
    uint32_t count;
};

/* False: nothing came, or nothing is late. */
static bool late_collect(struct late *late, const struct sl_pieces *items, uint32_t count,
                         const sl_err *errs)
{
    bool any = false;
    late->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        any = any || errs[i] == SL_OK;
        if (errs[i] == SL_ERR_TIMEOUT) {
            late->items[late->count] = items[i];
            late->places[late->count++] = i;
        }
    }
    return any && late->count > 0;
}

/* Reads the rest again. Gives whether more came. */
static bool late_read(struct store_base *base, struct late *late, bool whole, uint64_t *lengths,
                      sl_err *errs)
{
    bool any = false;
    get_once(base, late->items, late->count, whole, late->lengths, late->errs);
    uint32_t left = 0;
    for (uint32_t i = 0; i < late->count; i++) {
        uint32_t place = late->places[i];
        lengths[place] = late->lengths[i];
        errs[place] = late->errs[i];
        any = any || late->errs[i] == SL_OK;
        if (late->errs[i] == SL_ERR_TIMEOUT) {
            late->items[left] = late->items[i];
            late->places[left++] = place;
        }
    }
    late->count = left;
    return any;
}

/* A batch from a busy disk may take longer than a call may wait. While value after value still
 * comes, somebody answers; the last wait begins before the ceiling. */
static void get_rest(struct store_base *base, const struct sl_pieces *items, uint32_t count,
                     bool whole, uint64_t ceiling_ns, uint64_t *lengths, sl_err *errs)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < count; i++) {
        missing += errs[i] == SL_ERR_TIMEOUT ? 1 : 0;
    }
    if (missing == 0) {
        return;
    }
    struct late late = {.items = malloc(missing * sizeof *late.items),
                        .places = malloc(missing * sizeof *late.places),
                        .lengths = malloc(missing * sizeof *late.lengths),
                        .errs = malloc(missing * sizeof *late.errs)};
    if (late.items != NULL && late.places != NULL && late.lengths != NULL && late.errs != NULL &&
        late_collect(&late, items, count, errs)) {
        while (store_now_ns() < ceiling_ns && late_read(base, &late, whole, lengths, errs) &&
               late.count > 0) {
        }
    }
    free(late.items);
    free(late.places);
    free(late.lengths);
    free(late.errs);
}

/* In libsluice's batches. errs[i] is set for all. names and sources: of the items' keys. */
static void get_pieces(struct store_base *base, struct store_names *names, const uint32_t *sources,
                       struct sl_pieces *items, uint32_t count, bool whole, uint64_t *lengths,
                       sl_err *errs)
{
    bool fine = store_heads_add(names, items, sources, count, false);
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
    store_heads_settle(names, items, sources, count, lengths, errs);
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

static int read_batch(struct store_base *base, struct sl_pieces *items, uint32_t count,
                      int64_t *results)
{
    struct store_names names = {.room = NULL};
    uint64_t *lengths = malloc(((size_t)count + 1) * sizeof *lengths);
    sl_err *errs = malloc(((size_t)count + 1) * sizeof *errs);
    int code = SL_STORE_OK;
    if (lengths == NULL || errs == NULL ||
        !store_keys_map(base, &items->key, count, sizeof *items, &names)) {
        code = SL_STORE_NO_BUFFER;
    } else {
        for (uint32_t i = 0; i < count; i++) {
            results[i] = pieces_fine(&items[i]) ? SL_STORE_OK : SL_STORE_INVALID;
            items[i].count = results[i] == SL_STORE_OK ? items[i].count : 0;
        }
        get_pieces(base, &names, NULL, items, count, true, lengths, errs);
        misses_explain(base, items, count, errs);
        for (uint32_t i = 0; i < count; i++) {
            if (errs[i] == SL_ERR_LIMIT && items[i].count > 0) {
                store_doubt_misfit(base, items[i].key); /* as of an engine with fewer ranks */
            }
            if (items[i].key.length == 0) {
                results[i] = store_key_absent(items[i].key);
            } else if (errs[i] != SL_OK || results[i] == SL_STORE_OK) {
                results[i] = errs[i] == SL_OK ? (int64_t)lengths[i] : sl_store_code_of(errs[i]);
            }
        }
    }
    free(lengths);
    free(errs);
    store_names_free(&names);
    return code;
}

void sl_store_read(struct sl_store *store, struct sl_pieces *items, uint32_t count,
                   int64_t *results)
{
    struct store_base *base = count == 0 ? NULL : store_enter(store);
    if (base == NULL) {
        store_results_fill(results, count, SL_STORE_INVALID);
        return;
    }
    int code = read_batch(base, items, count, results);
    if (code != SL_STORE_OK) {
        store_results_fill(results, count, code);
    }
    store_leave(base);
}

/* ---- of whatever size ---- */

struct whole {
    struct store_base *base;
    struct store_names names;
    struct sl_pieces *items; /* those that are asked for, in a row */
    struct sl_piece *pieces; /* one each */
    uint32_t *sources;
    uint64_t *lengths; /* as answered */
    sl_err *errs;
    uint64_t *wanted; /* of all: bytes to be made room for */
    void **places;    /* of all */
};

static bool whole_room(struct whole *whole, uint32_t count)
{
    size_t room = (size_t)count + 1;
    whole->items = calloc(room, sizeof *whole->items);
    whole->pieces = calloc(room, sizeof *whole->pieces);
    whole->sources = malloc(room * sizeof *whole->sources);
    whole->lengths = malloc(room * sizeof *whole->lengths);
    whole->errs = malloc(room * sizeof *whole->errs);
    whole->wanted = calloc(room, sizeof *whole->wanted);
    whole->places = calloc(room, sizeof *whole->places);
    return whole->items != NULL && whole->pieces != NULL && whole->sources != NULL &&
           whole->lengths != NULL && whole->errs != NULL && whole->wanted != NULL &&
           whole->places != NULL;
}

static void whole_free(struct whole *whole)
{
    free(whole->items);
    free(whole->pieces);
    free(whole->sources);
    free(whole->lengths);
    free(whole->errs);
    free(whole->wanted);
    free(whole->places);
    store_names_free(&whole->names);
}

/* Asks once for all that are open; gives how many have to be made room for. */
static uint32_t whole_round(struct whole *whole, const struct sl_object_key *keys, uint32_t count,
                            const bool *open, int64_t *results)
{
    uint32_t asked = 0, growing = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!open[i]) {
            continue;
        }
        whole->pieces[asked] =
            (struct sl_piece){.at = whole->places[i], .length_bytes = whole->wanted[i]};
        whole->items[asked] = (struct sl_pieces){
            .key = keys[i], .at = &whole->pieces[asked], .count = whole->places[i] == NULL ? 0 : 1};
        whole->sources[asked++] = i;
    }
    memset(whole->wanted, 0, count * sizeof *whole->wanted);
    get_pieces(whole->base, &whole->names, whole->sources, whole->items, asked, true,
               whole->lengths, whole->errs);
    for (uint32_t i = 0; i < asked; i++) {
        uint32_t source = whole->sources[i];
        if (whole->errs[i] == SL_ERR_LIMIT && whole->lengths[i] > 0) {
            whole->wanted[source] = whole->lengths[i];
            growing++;
        }
        results[source] =
            whole->errs[i] == SL_OK ? (int64_t)whole->lengths[i] : sl_store_code_of(whole->errs[i]);
    }
    return growing;
}

static int read_whole(struct whole *whole, struct sl_object_key *keys, uint32_t count,
                      sl_store_make_fn *make, void *context, int64_t *results)
{
    bool *open = malloc((size_t)count + 1);
    if (open == NULL || !whole_room(whole, count) ||
        !store_keys_map(whole->base, keys, count, sizeof *keys, &whole->names)) {
        free(open);
        return SL_STORE_NO_BUFFER;
    }
    for (uint32_t i = 0; i < count; i++) {
        open[i] = keys[i].length != 0;
        results[i] = open[i] ? SL_STORE_NOT_READY : store_key_absent(keys[i]);
    }
    for (uint32_t tries = 0; tries < WHOLE_TRIES_MAX; tries++) {
        if (whole_round(whole, keys, count, open, results) == 0 ||
            !make(context, whole->wanted, whole->places, count)) {
            break;
        }
        for (uint32_t i = 0; i < count; i++) {
            open[i] = whole->wanted[i] != 0 && whole->places[i] != NULL;
            results[i] = whole->wanted[i] != 0 && !open[i] ? SL_STORE_NO_BUFFER : results[i];
        }
    }
    free(open);
    return SL_STORE_OK;
}

void sl_store_read_whole(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                         sl_store_make_fn *make, void *context, int64_t *results)
{
    struct whole whole = {.base = count == 0 ? NULL : store_enter(store)};
    if (whole.base == NULL) {
        store_results_fill(results, count, SL_STORE_INVALID);
        return;
    }
    int code = read_whole(&whole, keys, count, make, context, results);
    if (code != SL_STORE_OK) {
        store_results_fill(results, count, code);
    }
    whole_free(&whole);
    store_leave(whole.base);
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
    get_pieces(base, &ranges->names, NULL, ranges->items, count, false, ranges->then, ranges->errs);
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
    get_pieces(base, &ranges->names, NULL, ranges->items, count, false, ranges->now, ranges->errs);
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
