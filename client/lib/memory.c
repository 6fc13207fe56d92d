/* client/lib/memory.c - registered memory of this process, and its kind.
 *
 * Registrations are sorted by start. For lookups there are also spans: joined registrations of one
 * kind. No two spans overlap, and those of one kind do not touch. A change rebuilds the spans,
 * since registrations are rare and lookups happen for each piece. */
#include "client/lib/gpu.h"
#include "runtime/base/sl_array.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uintptr_t from, end;
    enum sl_place place;
    int gpu;
    int fd; /* of our own memory: its descriptor */
};

struct ranges {
    struct range *at;
    uint32_t count, room;
};

static struct {
    pthread_rwlock_t lock;
    struct ranges registered; /* by start; equal starts in order of registration */
    struct ranges ours;       /* memory of the allocator, by start; also in registered */
    struct ranges spans;      /* has room for every registration */
} table = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* ---- forks: the child gets whole tables, and a lock that no thread of its parent holds ---- */

static void fork_begins(void)
{
    pthread_rwlock_wrlock(&table.lock);
}

static void fork_ends(void)
{
    pthread_rwlock_unlock(&table.lock);
}

static void fork_ends_in_child(void) /* where the lock's owner has another number */
{
    (void)pthread_rwlock_init(&table.lock, NULL);
}

/* Before handlers of programs: they hold their own locks, and the last handler runs first. */
__attribute__((constructor)) static void forks_watch(void)
{
    (void)pthread_atfork(fork_begins, fork_ends, fork_ends_in_child);
}

/* ---- sorted ranges ---- */

/* Index of the first range that starts after `at`. */
static uint32_t behind(const struct ranges *ranges, uintptr_t at)
{
    uint32_t low = 0;
    for (uint32_t high = ranges->count; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges->at[middle].from <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool ranges_reserve(struct ranges *ranges, uint32_t count)
{
    return SL_ARRAY_ROOM(ranges->at, ranges->room, count);
}

/* The caller has made room. */
static void ranges_insert(struct ranges *ranges, struct range range)
{
    uint32_t at = behind(ranges, range.from);
    memmove(&ranges->at[at + 1], &ranges->at[at], (ranges->count - at) * sizeof *ranges->at);
    ranges->at[at] = range;
    ranges->count++;
}

/* Removes the last one that starts there. */
static bool ranges_take(struct ranges *ranges, uintptr_t from, struct range *out)
{
    uint32_t at = behind(ranges, from);
    if (at == 0 || ranges->at[at - 1].from != from) {
        return false;
    }
    *out = ranges->at[at - 1];
    memmove(&ranges->at[at - 1], &ranges->at[at], (ranges->count - at) * sizeof *ranges->at);
    ranges->count--;
    return true;
}

/* Removes all that start in [from, end). */
static void ranges_drop(struct ranges *ranges, uintptr_t from, uintptr_t end)
{
    uint32_t first = from == 0 ? 0 : behind(ranges, from - 1);
    uint32_t next = behind(ranges, end - 1);
    memmove(&ranges->at[first], &ranges->at[next], (ranges->count - next) * sizeof *ranges->at);
    ranges->count -= next - first;
}

/* ---- spans ---- */

static bool same_place(const struct range *a, const struct range *b)
{
    return a->place == b->place && a->gpu == b->gpu;
}

/* Joins ranges that touch. Where ranges of different kinds overlap, the one that starts first gets
 * the bytes, since the kind is unknown. */
static void spans_make(void)
{
    struct ranges *spans = &table.spans;
    spans->count = 0;
    for (uint32_t i = 0; i < table.registered.count; i++) {
        struct range next = table.registered.at[i];
        struct range *last = spans->count == 0 ? NULL : &spans->at[spans->count - 1];
        if (last != NULL && next.from <= last->end && same_place(last, &next)) {
            last->end = SL_MAX(last->end, next.end);
            continue;
        }
        if (last != NULL && next.from < last->end) {
            next.from = last->end;
        }
        if (next.from < next.end) {
            spans->at[spans->count++] = next;
        }
    }
}

static sl_err registered_add(struct range range)
{
    if (!ranges_reserve(&table.registered, table.registered.count + 1) ||
        !ranges_reserve(&table.spans, table.registered.count + 1)) {
        return SL_ERR_NO_MEMORY;
    }
    ranges_insert(&table.registered, range);
    spans_make();
    return SL_OK;
}

static const struct range *span_of(uintptr_t from, uint64_t length_bytes)
{
    uint32_t at = behind(&table.spans, from);
    const struct range *span = at == 0 ? NULL : &table.spans.at[at - 1];
    return span != NULL && from < span->end && length_bytes <= span->end - from ? span : NULL;
}

/* ---- registering ---- */

sl_err sl_memory_register(const void *at, uint64_t length_bytes, struct sl_error *why)
{
    if (at == NULL || length_bytes == 0 || length_bytes > UINTPTR_MAX - (uintptr_t)at) {
        return sl_fail(why, SL_ERR_INVALID, "memory: %" PRIu64 " bytes at %p are none",
                       length_bytes, at);
    }
    struct range range = {.from = (uintptr_t)at, .end = (uintptr_t)at + length_bytes};
    int last_gpu = 0;
    range.place = sl_gpu_place(at, &range.gpu);
    enum sl_place last = sl_gpu_place((const unsigned char *)at + (length_bytes - 1), &last_gpu);
    bool device = range.place == SL_PLACE_DEVICE || last == SL_PLACE_DEVICE;
    if (device && (last != range.place || last_gpu != range.gpu)) {
        return sl_fail(why, SL_ERR_INVALID, "memory: %" PRIu64 " bytes at %p are not of one device",
                       length_bytes, at);
    }
    pthread_rwlock_wrlock(&table.lock);
    uint32_t ours = behind(&table.ours, range.from);
    if (!device && ours > 0 && range.end <= table.ours.at[ours - 1].end) {
        range.place = SL_PLACE_OURS;
    }
    sl_err err = registered_add(range);
    pthread_rwlock_unlock(&table.lock);
    return err == SL_OK ? SL_OK : sl_fail(why, err, "memory: a table of registrations");
}

sl_err sl_memory_unregister(const void *at, struct sl_error *why)
{
    struct range gone;
    struct range ours = {0};
    pthread_rwlock_wrlock(&table.lock);
    bool found = ranges_take(&table.registered, (uintptr_t)at, &gone);
    uint32_t allocated = behind(&table.ours, (uintptr_t)at);
    if (allocated > 0 && table.ours.at[allocated - 1].from == (uintptr_t)at) {
        ours = table.ours.at[allocated - 1];
    }
    /* The allocator's own registration is the first one and stays until the end. */
    uint32_t before = behind(&table.registered, (uintptr_t)at);
    if (found && ours.from != 0 &&
        (before == 0 || table.registered.at[before - 1].from != (uintptr_t)at)) {
        ranges_insert(&table.registered, gone);
        found = false;
    }
    spans_make();
    pthread_rwlock_unlock(&table.lock);
    return found ? SL_OK
                 : sl_fail(why, SL_ERR_NOT_FOUND, "memory: nothing is registered at %p", at);
}

sl_err sl_memory_find(const void *at, uint64_t length_bytes, struct sl_place_info *out)
{
    pthread_rwlock_rdlock(&table.lock);
    const struct range *span = span_of((uintptr_t)at, length_bytes);
    if (span != NULL) {
        *out = (struct sl_place_info){.place = span->place, .gpu = span->gpu};
    }
    pthread_rwlock_unlock(&table.lock);
    return span != NULL ? SL_OK : SL_ERR_NOT_FOUND;
}

enum sl_place sl_memory_place(const void *at, uint64_t length_bytes, int *gpu)
{
    struct sl_place_info info;
    if (sl_memory_find(at, length_bytes, &info) == SL_OK) {
        *gpu = info.gpu;
        return info.place;
    }
    return sl_gpu_place(at, gpu);
}

/* ---- the allocator's ---- */

sl_err sl_memory_ours_add(void *at, uint64_t length_bytes, int fd)
{
    /* -1 if there are no more descriptors: it just cannot be shared then. */
    struct range range = {.from = (uintptr_t)at,
                          .end = (uintptr_t)at + length_bytes,
                          .place = SL_PLACE_OURS,
                          .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    pthread_rwlock_wrlock(&table.lock);
    sl_err err = ranges_reserve(&table.ours, table.ours.count + 1) ? registered_add(range)
                                                                   : SL_ERR_NO_MEMORY;
    if (err == SL_OK) {
        ranges_insert(&table.ours, range);
    } else {
        sl_auto_close(&range.fd);
    }
    pthread_rwlock_unlock(&table.lock);
    return err;
}

int sl_memory_ours_fd(const void *at, uint64_t length_bytes, uint64_t *offset_bytes)
{
    int fd = -1;
    pthread_rwlock_rdlock(&table.lock);
    uint32_t before = behind(&table.ours, (uintptr_t)at);
    const struct range *ours = before == 0 ? NULL : &table.ours.at[before - 1];
    if (ours != NULL && (uintptr_t)at < ours->end && length_bytes <= ours->end - (uintptr_t)at) {
        fd = ours->fd < 0 ? -1 : fcntl(ours->fd, F_DUPFD_CLOEXEC, 0);
        *offset_bytes = (uintptr_t)at - ours->from;
    }
    pthread_rwlock_unlock(&table.lock);
    return fd;
}

bool sl_memory_ours_take(void *at, uint64_t *length_bytes)
{
    struct range ours;
    pthread_rwlock_wrlock(&table.lock);
    bool found = at != NULL && ranges_take(&table.ours, (uintptr_t)at, &ours);
    if (found) { /* also removes the caller's registrations within it, since the memory ends */
        ranges_drop(&table.registered, ours.from, ours.end);
        spans_make();
        sl_auto_close(&ours.fd);
        *length_bytes = ours.end - ours.from;
    }
    pthread_rwlock_unlock(&table.lock);
    return found;
}
