/* client/mooncake/store/read.c - reads values into pieces. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>

#define EXPLAIN_NS (100 * SL_NS_PER_MS) /* without a reply the key stays a miss */

static bool pieces_valid(const struct sl_iov_list *item)
{
    for (uint32_t i = 0; i < item->count; i++) {
        if (item->at[i].at == NULL && item->at[i].length_bytes != 0) {
            return false;
        }
    }
    return true;
}

/* Total size of the pieces. */
static uint64_t pieces_room(const struct sl_iov_list *items, uint32_t count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < items[i].count; j++) {
            total += SL_MIN(items[i].at[j].length_bytes, SL_VALUE_BYTES_MAX);
        }
    }
    return total;
}

/* One call of libsluice; sets all errs[i]. */
static void get_once(struct store_base *base, const struct sl_iov_list *items, uint32_t count,
                     bool whole, uint64_t *lengths, sl_err *errs)
{
    memset(lengths, 0, count * sizeof *lengths);
    store_errs_open(errs, count);
    sl_err err = sl_getv(base->client, items, count, whole, lengths, errs,
                         store_call_ns(base, pieces_room(items, count)), NULL);
    store_errs_close(errs, count, err);
}

/* A batch from a busy disk may take longer than the timeout of a call. Continues while values still
 * arrive; the last wait begins before the ceiling. */
static void get_retry(struct store_base *base, const struct sl_iov_list *items, uint32_t count,
                      bool whole, uint64_t ceiling_ns, uint64_t *lengths, sl_err *errs)
{
    bool any = false;
    for (uint32_t i = 0; i < count && !any; i++) {
        any = errs[i] == SL_OK;
    }
    for (uint32_t i = 0; any && i < count; i++) {
        if (errs[i] == SL_ERR_TIMEOUT) {
            get_once(base, &items[i], 1, whole, &lengths[i], &errs[i]);
            any = store_answered(errs[i]) && sl_clock_monotonic_ns() < ceiling_ns;
        }
    }
}

void store_get_pieces(struct store_base *base, const struct sl_iov_list *items, uint32_t count,
                      bool whole, uint64_t *lengths, sl_err *errs)
{
    uint64_t ceiling_ns = store_ceiling_ns(base, pieces_room(items, count));
    get_once(base, items, count, whole, lengths, errs);
    get_retry(base, items, count, whole, ceiling_ns, lengths, errs);
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].count > 0) { /* without pieces nothing was read */
            store_doubt_note(base, items[i].key, errs[i]);
        }
    }
}

/* Asks the registrar which missing keys are being written: they become SL_ERR_BUSY. With more
 * misses than one request takes it does not ask: such a reader has not looked its keys up. */
static void misses_explain(struct store_base *base, const struct sl_iov_list *items, uint32_t count,
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
    struct sl_miss_reason *reasons = missing == 0 ? NULL : calloc(missing, sizeof *reasons);
    if (reasons != NULL &&
        sl_explain(base->client, keys, missing, reasons, EXPLAIN_NS, NULL) == SL_OK) {
        for (uint32_t i = 0; i < missing; i++) {
            errs[places[i]] = reasons[i].code == SL_ERR_BUSY ? SL_ERR_BUSY : SL_ERR_NOT_FOUND;
        }
    }
    free(reasons);
}

static void read_batch(struct store_base *base, struct sl_iov_list *items, uint32_t count,
                       enum sl_store_reading how, int64_t *results, uint64_t *lengths, sl_err *errs)
{
    for (uint32_t i = 0; i < count; i++) {
        results[i] = pieces_valid(&items[i]) ? SL_STORE_OK : SL_STORE_INVALID;
        items[i].count = results[i] == SL_STORE_OK ? items[i].count : 0;
    }
    store_get_pieces(base, items, count, how != SL_STORE_PARTS, lengths, errs);
    if (how == SL_STORE_WHOLE) {
        misses_explain(base, items, count, errs);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (how == SL_STORE_WHOLE && errs[i] == SL_ERR_LIMIT && items[i].count > 0) {
            store_doubt_misfit(base, items[i].key); /* e.g. stored with fewer ranks */
        }
        if (items[i].key.length == 0) {
            results[i] = store_key_absent(items[i].key);
        } else if (errs[i] != SL_OK || results[i] == SL_STORE_OK) {
            results[i] = errs[i] == SL_OK ? (int64_t)lengths[i] : sl_store_code_of(errs[i]);
        }
    }
}

void sl_store_read(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                   enum sl_store_reading how, int64_t *results, uint64_t *lengths)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    if (base == NULL || errs == NULL ||
        !store_keys_map(base, &items->key, count, sizeof *items, &names)) {
        store_results_fill(results, count, base == NULL ? SL_STORE_INVALID : SL_STORE_NO_BUFFER);
        return;
    }
    read_batch(base, items, count, how, results, lengths, errs);
}
