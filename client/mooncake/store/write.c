/* client/mooncake/store/write.c - puts and their terms. */
#include "client/mooncake/store/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STORE_BUNDLE_BYTES_MAX 255u

/* ---- terms ---- */

static bool groups_valid(const struct sl_store_terms *terms, uint32_t count)
{
    if (terms->groups == NULL) {
        return true;
    }
    if (terms->group_count != count) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (terms->groups[i].length > STORE_BUNDLE_BYTES_MAX) {
            return false;
        }
    }
    return true;
}

/* Takes the first STORE_SEGMENTS_MAX names that can be a segment's. */
static void segments_take(const struct sl_store_terms *from, struct store_terms *out)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < from->segment_count && used < STORE_SEGMENTS_MAX; i++) {
        size_t length = strlen(from->segments[i]);
        if (length > 0 && length < SL_STORE_NAME_BYTES) {
            out->names[used++] = from->segments[i];
        }
    }
    out->terms.contributions = out->names;
    out->terms.contribution_count = used;
}

int store_terms_make(const struct sl_store_terms *from, unsigned kind, uint32_t count,
                     struct store_terms *out)
{
    *out = (struct store_terms){
        .terms = {.replace = (kind & SL_STORE_REPLACING) != 0, .no_wait = true},
        .preserve_soft_pin = from == NULL || from->soft_pin == SL_STORE_PIN_PRESERVE};
    if (from == NULL) {
        return SL_STORE_OK;
    }
    bool enable = from->soft_pin == SL_STORE_PIN_ENABLE;
    if (from->same_node &&
        ((kind & SL_STORE_SAME_NODE) == 0 || from->copies != 1 || from->nof_copies != 0)) {
        return SL_STORE_INVALID;
    }
    if (from->soft_pin_ttl_given && (!enable || from->soft_pin_ttl_ms > STORE_SOFT_PIN_MS_MAX)) {
        return SL_STORE_INVALID;
    }
    if (!groups_valid(from, count)) {
        return SL_STORE_INVALID;
    }
    if (from->copies == 0) { /* replicas of other kinds do not exist here */
        return from->nof_copies == 0 && from->dfs_copies == 0 ? SL_STORE_INVALID
                                                              : SL_STORE_NO_SPACE;
    }
    out->terms.hard_pin = from->hard_pin;
    if (enable) {
        out->terms.soft_pin_ns =
            from->soft_pin_ttl_given ? from->soft_pin_ttl_ms * STORE_NS_PER_MS : STORE_SOFT_PIN_NS;
    }
    segments_take(from, out);
    return SL_STORE_OK;
}

/* ---- the local buffer ---- */

bool store_local_take(struct store_base *base, uint64_t bytes)
{
    uint64_t left = atomic_load_explicit(&base->local_free_bytes, memory_order_relaxed);
    do {
        if (left < bytes) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&base->local_free_bytes, &left, left - bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void store_local_give(struct store_base *base, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(&base->local_free_bytes, bytes, memory_order_relaxed);
}

/* ---- a batch ---- */

static int item_check(const struct sl_iov_list *item, uint64_t *length_bytes, struct sl_error *why)
{
    uint64_t total = 0;
    if (item->key.length == 0) {
        return store_key_code(item->key);
    }
    for (uint32_t i = 0; i < item->count; i++) {
        const struct sl_iov *piece = &item->at[i];
        if (piece->at == NULL) {
            return SL_STORE_INVALID;
        }
        total += SL_MIN(piece->length_bytes, UINT64_MAX - total);
    }
    *length_bytes = total;
    return sl_store_code_of(sl_value_check(total, SL_VALUE_BYTES_MAX, why));
}

static int put_code_of(sl_err err, bool replacing)
{
    switch (err) {
    case SL_ERR_EXISTS:
        return SL_STORE_OK;
    case SL_ERR_BUSY: /* another writer will commit the value */
        return replacing ? SL_STORE_REPLICA_BUSY : SL_STORE_OK;
    case SL_ERR_LIMIT: /* a limit of the node: it helps to put less */
        return SL_STORE_NO_SPACE;
    default:
        return sl_store_code_of(err);
    }
}

struct writing {
    struct store_base *base;
    struct store_terms terms;
    unsigned kind;
    struct sl_iov_list *items; /* selected items */
    uint32_t *sources;         /* their indices in the batch */
    sl_err *errs;
    uint32_t count;
    uint64_t bytes;
    struct sl_error *why; /* of the last item that was refused for its size */
};

static void writing_put(struct writing *writing, uint32_t first, uint32_t count,
                        const struct sl_put_options *terms, int *codes)
{
    struct sl_error reason = {.code = SL_OK};
    store_errs_open(writing->errs, count);
    store_errs_close(writing->errs, count,
                     sl_putv(writing->base->client, writing->items + first, count, terms,
                             writing->errs, store_call_ns(writing->base, writing->bytes), &reason));
    for (uint32_t i = 0; i < count; i++) {
        sl_err one = writing->errs[i];
        if (one == SL_ERR_INVALID && reason.code == one) {
            *writing->why = reason;
        }
        codes[writing->sources[first + i]] = put_code_of(one, terms->replace);
    }
}

/* Returns when the soft pin of the current value ends; 0: none. Does not lease it. */
static uint64_t soft_pin_end_ns(struct sl_client *quiet, struct sl_object_key key)
{
    struct sl_stat stat;
    sl_err err = SL_ERR_NOT_FOUND;
    return sl_stat_batch(quiet, &key, 1, &stat, &err) == SL_OK && err == SL_OK
               ? stat.soft_pin_end_ns
               : 0;
}

/* For upserts that preserve soft pins: writes values that have one first, each by itself with the
 * rest of its time. They are few. */
static void writing_keep_pins(struct writing *writing, int *codes)
{
    struct sl_client *quiet = store_quiet_client(writing->base);
    uint32_t kept = 0;
    for (uint32_t i = 0; quiet != NULL && i < writing->count; i++) {
        uint64_t end_ns = soft_pin_end_ns(quiet, writing->items[i].key);
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (end_ns > now_ns) {
            struct sl_put_options terms = writing->terms.terms;
            terms.soft_pin_ns = end_ns - now_ns;
            writing_put(writing, i, 1, &terms, codes);
        } else {
            writing->items[kept] = writing->items[i];
            writing->sources[kept++] = writing->sources[i];
        }
    }
    writing->count = quiet != NULL ? kept : writing->count;
}

/* Selects valid items, of each key the last one. */
static void writing_select(struct writing *writing, const struct sl_iov_list *items, uint32_t count,
                           const uint32_t *later, int *codes)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t length_bytes = 0;
        codes[i] = item_check(&items[i], &length_bytes, writing->why);
        if (codes[i] == SL_STORE_OK && (later == NULL || later[i] == i)) {
            writing->bytes += length_bytes;
            writing->items[writing->count] = items[i];
            writing->sources[writing->count++] = i;
        }
    }
}

/* Writes the selected items, within the local buffer if the call copies. */
static int writing_selected(struct writing *writing, int *codes)
{
    uint64_t local_bytes = (writing->kind & SL_STORE_COPYING) != 0 ? writing->bytes : 0;
    if (!store_local_take(writing->base, local_bytes)) {
        (void)sl_fail(writing->why, SL_ERR_INVALID,
                      "values of %" PRIu64
                      " bytes: the local buffer (local_buffer_size) has %" PRIu64,
                      local_bytes, writing->base->local_bytes);
        return SL_STORE_INVALID;
    }
    if (writing->terms.terms.replace && writing->terms.preserve_soft_pin) {
        writing_keep_pins(writing, codes);
    }
    if (writing->count > 0) {
        writing_put(writing, 0, writing->count, &writing->terms.terms, codes);
    }
    store_local_give(writing->base, local_bytes);
    return SL_STORE_OK;
}

static int write_batch(struct writing *writing, struct sl_iov_list *items, uint32_t count,
                       const struct sl_store_terms *terms, int *codes)
{
    SL_AUTO(batch) struct store_batch batch = {.later = NULL};
    if (!store_batch_map(writing->base, items, count, terms, &batch)) {
        return SL_STORE_NO_BUFFER;
    }
    writing_select(writing, items, count, batch.later, codes);
    int code = writing_selected(writing, codes);
    for (uint32_t i = 0; batch.later != NULL && i < count; i++) {
        codes[i] = codes[i] == SL_STORE_OK ? codes[batch.later[i]] : codes[i];
    }
    return code;
}

void sl_store_write(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                    const struct sl_store_terms *terms, unsigned kind, int *codes,
                    struct sl_error *why)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) struct sl_iov_list *chosen = store_calloc(count, sizeof *chosen);
    SL_AUTO(free) uint32_t *sources = store_calloc(count, sizeof *sources);
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    struct writing writing = {
        .base = base, .kind = kind, .items = chosen, .sources = sources, .errs = errs, .why = why};
    int code =
        base == NULL ? SL_STORE_INVALID : store_terms_make(terms, kind, count, &writing.terms);
    if (code == SL_STORE_OK) {
        code = chosen == NULL || sources == NULL || errs == NULL
                   ? SL_STORE_NO_BUFFER
                   : write_batch(&writing, items, count, terms, codes);
    }
    if (code != SL_STORE_OK) {
        store_codes_fill(codes, count, code);
    }
}
