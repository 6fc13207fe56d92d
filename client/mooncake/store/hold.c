/* client/mooncake/store/hold.c - buffers of values: pinned, or copies when no pins are left. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sl_store_buffer {
    struct store_base *base;
    struct sl_view view; /* of a copy: without a pin */
    void *copy;
    uint64_t local_bytes; /* of the copy */
};

struct sl_store_buffer *store_buffer_new(struct store_base *base, const struct sl_view *view)
{
    struct sl_store_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer != NULL) {
        buffer->base = base;
        buffer->view = *view;
        store_hold(base);
    }
    return buffer;
}

void sl_store_buffer_release(struct sl_store_buffer **buffer)
{
    struct sl_store_buffer *gone = *buffer;
    *buffer = NULL;
    if (gone == NULL) {
        return;
    }
    if (gone->copy != NULL) {
        store_local_give(gone->base, gone->local_bytes);
        free(gone->copy);
    } else if (gone->base->pid == getpid()) { /* else the pin belongs to the parent */
        sl_view_release(gone->base->client, &gone->view);
    }
    store_leave(gone->base);
    free(gone);
}

const void *sl_store_buffer_at(const struct sl_store_buffer *buffer)
{
    return buffer->view.at;
}

uint64_t sl_store_buffer_length(const struct sl_store_buffer *buffer)
{
    return buffer->view.length_bytes;
}

bool sl_store_buffer_is_copy(const struct sl_store_buffer *buffer)
{
    return buffer->copy != NULL;
}

/* ---- copies, within the local buffer ---- */

#define COPY_TRIES_MAX 16 /* for a value that is replaced by a larger one during each read */

static int hold_copy(struct sl_store *store, struct store_base *base, struct sl_object_key key,
                     struct sl_store_buffer **out)
{
    void *copy = NULL;
    uint64_t local_bytes = 0, length_bytes = 0;
    int64_t result = SL_STORE_NOT_READY;
    for (int tries = 0; tries < COPY_TRIES_MAX; tries++) {
        const struct sl_iov piece = {.at = copy, .length_bytes = local_bytes};
        struct sl_iov_list item = {.key = key, .at = &piece, .count = copy == NULL ? 0 : 1};
        sl_store_read(store, &item, 1, SL_STORE_SIZED, &result, &length_bytes);
        if (result != SL_STORE_INVALID || length_bytes <= local_bytes) {
            break;
        }
        store_local_give(base, local_bytes);
        free(copy);
        bool room = store_local_take(base, length_bytes);
        local_bytes = room ? length_bytes : 0;
        copy = room ? malloc(length_bytes) : NULL;
        if (copy == NULL) {
            result = SL_STORE_NO_BUFFER;
            break;
        }
    }
    const struct sl_view view = {.at = copy, .length_bytes = (uint64_t)result};
    *out = result < 0 ? NULL : store_buffer_new(base, &view);
    if (*out == NULL) {
        store_local_give(base, local_bytes);
        free(copy);
        return result < 0 ? (int)result : SL_STORE_NO_BUFFER;
    }
    (*out)->copy = copy;
    (*out)->local_bytes = local_bytes;
    return SL_STORE_OK;
}

/* ---- pins ---- */

static int hold_pinned(struct store_base *base, struct sl_view *view, struct sl_store_buffer **out)
{
    *out = store_buffer_new(base, view);
    if (*out == NULL) {
        sl_view_release(base->client, view);
    }
    return *out == NULL ? SL_STORE_NO_BUFFER : SL_STORE_OK;
}

/* A batch from disk may take longer than the timeout of a call. Continues while values still
 * arrive; the last wait begins before the ceiling. */
static void hold_retry(struct store_base *base, const struct sl_object_key *mapped, uint32_t count,
                       uint64_t ceiling_ns, struct sl_view *views, sl_err *errs)
{
    bool any = false;
    for (uint32_t i = 0; i < count && !any; i++) {
        any = errs[i] == SL_OK;
    }
    for (uint32_t i = 0; any && i < count; i++) {
        if (errs[i] == SL_ERR_TIMEOUT) {
            errs[i] = sl_get_pinned(base->client, mapped[i], &views[i], 0, NULL);
            any = store_answered(errs[i]) && sl_clock_monotonic_ns() < ceiling_ns;
        }
    }
}

/* keys: as the tenant names them; mapped: their names on the node. */
static void hold_batch(struct sl_store *store, struct store_base *base,
                       const struct sl_object_key *keys, const struct sl_object_key *mapped,
                       uint32_t count, struct sl_view *views, sl_err *errs,
                       struct sl_store_buffer **buffers, int *codes)
{
    uint64_t ceiling_ns = store_ceiling_ns(base, 0);
    store_errs_open(errs, count);
    sl_err err = sl_get_pinned_batch(base->client, mapped, views, count, errs, 0, NULL);
    hold_retry(base, mapped, count, ceiling_ns, views, errs);
    store_errs_close(errs, count, err);
    for (uint32_t i = 0; i < count; i++) {
        if (mapped[i].length != 0 &&
            errs[i] != SL_ERR_LIMIT) { /* hold_copy's read notes it itself */
            store_doubt_note(base, mapped[i], errs[i]);
        }
        if (mapped[i].length == 0) {
            codes[i] = store_key_absent(mapped[i]);
        } else if (errs[i] == SL_OK) {
            codes[i] = hold_pinned(base, &views[i], &buffers[i]);
        } else if (errs[i] == SL_ERR_LIMIT) {
            codes[i] = hold_copy(store, base, keys[i], &buffers[i]);
        } else {
            codes[i] = sl_store_code_of(errs[i]);
        }
    }
}

void sl_store_hold(struct sl_store *store, const struct sl_object_key *keys, uint32_t count,
                   struct sl_store_buffer **buffers, int *codes)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free) struct sl_object_key *mapped = store_calloc(count, sizeof *mapped);
    SL_AUTO(free) struct sl_view *views = store_calloc(count, sizeof *views);
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    memset(buffers, 0, count * sizeof(void *));
    store_codes_fill(codes, count, base == NULL ? SL_STORE_INVALID : SL_STORE_NO_BUFFER);
    if (base == NULL || mapped == NULL || views == NULL || errs == NULL) {
        return;
    }
    memcpy(mapped, keys, count * sizeof *mapped);
    if (store_keys_map(base, mapped, count, sizeof *mapped, &names)) {
        hold_batch(store, base, keys, mapped, count, views, errs, buffers, codes);
    }
}
