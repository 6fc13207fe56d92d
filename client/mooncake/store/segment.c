/* client/mooncake/store/segment.c - further contributions of a store. */
#include "client/mooncake/store/internal.h"
#include "runtime/base/sl_array.h"

#include <string.h>

#define FURTHER_MARK '#' /* between the host's name and a further segment's number */

size_t segment_host_length(const char *name)
{
    const char *mark = strchr(name, FURTHER_MARK);
    return mark == NULL ? strlen(name) : (size_t)(mark - name);
}

static bool segment_add(struct sl_store *store, const struct store_base *base,
                        const struct store_segment *segment)
{
    pthread_mutex_lock(&store->lock);
    bool fine = store->base == base &&
                SL_ARRAY_ROOM(store->segments, store->segment_room, store->segment_count + 1);
    if (fine) {
        store->segments[store->segment_count++] = *segment;
    }
    pthread_mutex_unlock(&store->lock);
    return fine;
}

int sl_store_contribute(struct sl_store *store, const char *name, uint64_t length_bytes)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    struct store_segment segment;
    int code = base == NULL || base->dummy || length_bytes == 0 ? SL_STORE_INVALID : SL_STORE_OK;
    (void)snprintf(segment.name, sizeof segment.name, "%s", name);
    if (code == SL_STORE_OK) {
        sl_err err = sl_segment_mount(base->client, segment.name, length_bytes, false,
                                      STORE_CONTRIBUTE_NS, NULL);
        code = err == SL_ERR_EXISTS  ? SL_STORE_SEGMENT_EXISTS
               : err == SL_ERR_LIMIT ? SL_STORE_NO_SPACE
                                     : sl_store_code_of(err);
    }
    if (code == SL_STORE_OK && !segment_add(store, base, &segment)) {
        (void)sl_segment_unmount(base->client, segment.name, 0, NULL);
        code = SL_STORE_NO_BUFFER;
    }
    return code;
}

static bool segment_take(struct sl_store *store, const char *name)
{
    bool found = false;
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < store->segment_count && !found; i++) {
        found = strcmp(store->segments[i].name, name) == 0;
        if (found) {
            store->segments[i] = store->segments[--store->segment_count];
        }
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

int sl_store_withdraw(struct sl_store *store, const char *name)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    if (base == NULL) {
        return SL_STORE_INVALID;
    }
    return segment_take(store, name)
               ? sl_store_code_of(sl_segment_unmount(base->client, name, 0, NULL))
               : SL_STORE_NO_SEGMENT;
}

void store_segments_end(struct sl_store *store, struct sl_client *client)
{
    pthread_mutex_lock(&store->lock);
    SL_AUTO(free) struct store_segment *segments = SL_TAKE(store->segments);
    uint32_t count = store->segment_count;
    store->segment_count = store->segment_room = 0;
    pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; client != NULL && i < count; i++) {
        (void)sl_segment_unmount(client, segments[i].name, STORE_WITHDRAW_NS, NULL);
    }
}
