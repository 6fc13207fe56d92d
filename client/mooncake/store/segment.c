/* client/mooncake/store/segment.c - further contributions of a store. */
#include "client/mooncake/store/internal.h"
#include "runtime/sl_array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FURTHER_MARK '#' /* between the host's name and a further segment's number */

size_t store_segment_host_length(const char *name)
{
    const char *mark = strchr(name, FURTHER_MARK);
    return mark == NULL ? strlen(name) : (size_t)(mark - name);
}

/* The file would be mapped; its bytes are a quota here, so it only has to be able to hold them. */
static int file_check(const char *path, uint64_t offset_bytes, uint64_t length_bytes)
{
    struct stat stat;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? SL_STORE_NO_FILE : SL_STORE_FILE_OPEN;
    }
    bool known = fstat(fd, &stat) == 0;
    (void)close(fd);
    if (!known) {
        return SL_STORE_FILE_READ;
    }
    bool regular = S_ISREG(stat.st_mode);
    bool holds = offset_bytes <= (uint64_t)stat.st_size &&
                 length_bytes <= (uint64_t)stat.st_size - offset_bytes;
    return regular && !holds ? SL_STORE_INVALID : SL_STORE_OK;
}

static int segment_code_of(sl_err err)
{
    return err == SL_ERR_EXISTS  ? SL_STORE_SEGMENT_EXISTS
           : err == SL_ERR_LIMIT ? SL_STORE_NO_SPACE
                                 : sl_store_code_of(err);
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

int sl_store_segment_mount(struct sl_store *store, const char *path, uint64_t offset_bytes,
                           uint64_t length_bytes, struct sl_store_segment_id *id)
{
    struct store_base *base = store_enter(store);
    struct store_segment segment = {.id = {.high = store_random(), .low = store_random()}};
    int code = base == NULL || base->dummy || length_bytes == 0 ? SL_STORE_INVALID : SL_STORE_OK;
    if (code == SL_STORE_OK && path != NULL) {
        code = file_check(path, offset_bytes, length_bytes);
    }
    if (code == SL_STORE_OK) {
        (void)snprintf(segment.name, sizeof segment.name, "%.200s%c%016" PRIx64, base->name,
                       FURTHER_MARK, segment.id.low);
        code = segment_code_of(sl_contribute(base->client, segment.name, length_bytes, false,
                                             STORE_CONTRIBUTE_NS, NULL));
    }
    if (code == SL_STORE_OK && !segment_add(store, base, &segment)) {
        (void)sl_withdraw(base->client, segment.name, 0, NULL);
        code = SL_STORE_NO_BUFFER;
    }
    if (code == SL_STORE_OK) {
        *id = segment.id;
    }
    if (base != NULL) {
        store_leave(base);
    }
    return code;
}

static bool segment_take(struct sl_store *store, const struct sl_store_segment_id *id,
                         struct store_segment *out)
{
    bool found = false;
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < store->segment_count && !found; i++) {
        found = store->segments[i].id.high == id->high && store->segments[i].id.low == id->low;
        if (found) {
            *out = store->segments[i];
            store->segments[i] = store->segments[--store->segment_count];
        }
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

int sl_store_segment_unmount(struct sl_store *store, const struct sl_store_segment_id *ids,
                             uint32_t count)
{
    struct store_base *base = store_enter(store);
    int code = base == NULL ? SL_STORE_INVALID : SL_STORE_OK;
    for (uint32_t i = 0; base != NULL && i < count; i++) {
        struct store_segment segment;
        int one = SL_STORE_NO_SEGMENT;
        if (segment_take(store, &ids[i], &segment)) {
            one = sl_store_code_of(sl_withdraw(base->client, segment.name, 0, NULL));
        }
        code = code == SL_STORE_OK ? one : code;
    }
    if (base != NULL) {
        store_leave(base);
    }
    return code;
}
