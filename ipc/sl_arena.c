/* ipc/sl_arena.c - the segment that holds values: bounds, generations, populating while serving. */
#include "ipc/sl_arena.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>

#define ARENA_GRANULE_BYTES   (32u * SL_MIB)
#define ARENA_ALIGN_BYTES     (2u * SL_MIB)
#define ARENA_GENERATION_JUMP (UINT64_C(1) << 32)
/* Small enough that the first touch of a small value stays short (13 us), large enough that the
 * call itself is nothing. Granules of the owner are whole multiples, so what is around an extent is
 * there already. */
#define ARENA_MAP_BYTES (256u * SL_KIB)
static_assert(ARENA_GRANULE_BYTES % ARENA_MAP_BYTES == 0, "a populated granule is mapped whole");

/* The arena's part of the header page. */
struct arena_own {
    uint64_t chunk_bytes;
    uint32_t id;
    uint32_t reserved;
    uint64_t birth_generation;
    /* Written by the owner alone (relaxed: the number reaches others through records and messages).
     */
    _Atomic uint64_t next_generation;
    _Atomic uint64_t boot_generation;
    /* Release by whoever populated the prefix, acquire by everyone: what lies below does not fault.
     */
    _Atomic uint64_t populated_bytes;
};
static_assert(sizeof(struct arena_own) == 48, "format of the arena header");
static_assert(sizeof(struct arena_own) <= SL_PAGE_BYTES - SL_SEGMENT_OWN_OFFSET_BYTES,
              "fits its page");

enum granule_state { GRANULE_UNTOUCHED, GRANULE_IN_WORK, GRANULE_DONE };

#define ARENA_NAME_BYTES 32u

struct sl_arena {
    struct sl_segment segment;
    struct arena_own *own;
    uint64_t chunk_bytes; /* checked copies of what the header says */
    uint32_t id;
    pthread_mutex_t lock;    /* of the three below */
    unsigned char *granules; /* enum granule_state each; owner only */
    uint64_t granule_count;
    uint64_t prefix_count; /* granules done from the start */
    /* A bit for every ARENA_MAP_BYTES that were mapped; relaxed: setting one twice only costs time.
     * NULL in the owner, whose populating maps. */
    _Atomic uint64_t *mapped;
};

static void arena_name(uint32_t id, char out[ARENA_NAME_BYTES])
{
    (void)snprintf(out, ARENA_NAME_BYTES, "arena.%u", id);
}

static uint64_t arena_granule_bytes(const struct sl_arena *arena, uint64_t index)
{
    return SL_MIN(ARENA_GRANULE_BYTES, arena->segment.data_bytes - index * ARENA_GRANULE_BYTES);
}

/* NULL: out of memory. */
static struct sl_arena *arena_new(void)
{
    struct sl_arena *arena = calloc(1, sizeof(*arena));
    if (arena != NULL) {
        arena->segment.fd = -1;
        pthread_mutex_init(&arena->lock, NULL);
    }
    return arena;
}

void sl_arena_close(struct sl_arena **arena)
{
    if (arena == NULL || *arena == NULL) {
        return;
    }
    sl_segment_close(&(*arena)->segment);
    pthread_mutex_destroy(&(*arena)->lock);
    free((*arena)->granules);
    free((*arena)->mapped);
    free(*arena);
    *arena = NULL;
}

/* Reads the header once and believes nothing that does not fit. */
static sl_err arena_adopt(struct sl_arena *arena, uint32_t id, struct sl_error *why)
{
    arena->own = sl_segment_own(&arena->segment);
    uint64_t chunk_bytes = arena->own->chunk_bytes;
    uint32_t found_id = arena->own->id;
    if (found_id != id) {
        return sl_fail(why, SL_ERR_CORRUPT, "arena.%u says it is arena %u", id, found_id);
    }
    if (chunk_bytes == 0 || chunk_bytes % SL_PAGE_BYTES != 0 || chunk_bytes > SL_GIB ||
        arena->segment.data_bytes % SL_PAGE_BYTES != 0) {
        return sl_fail(why, SL_ERR_CORRUPT,
                       "arena.%u: chunks of %" PRIu64 " bytes in %" PRIu64 " bytes", id,
                       chunk_bytes, arena->segment.data_bytes);
    }
    arena->chunk_bytes = chunk_bytes;
    arena->id = id;
    return SL_OK;
}

static sl_err arena_prepare(struct sl_segment *segment, void *context, struct sl_error *why)
{
    (void)why;
    struct arena_own *own = sl_segment_own(segment);
    memcpy(own, context, sizeof(*own));
    return SL_OK;
}

static sl_err arena_create(struct sl_arena *arena, const struct sl_segment_want *want,
                           uint64_t chunk_bytes, uint32_t id, struct sl_error *why)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t birth = (uint64_t)SL_MAX(wall.tv_sec, 1) << 32;
    struct arena_own own = {.chunk_bytes = chunk_bytes, .id = id, .birth_generation = birth};
    struct sl_segment_want create = *want;
    atomic_init(&own.next_generation, birth);
    create.prepare = arena_prepare;
    create.prepare_context = &own;
    return sl_segment_create(&create, &arena->segment, why);
}

static sl_err arena_plan_granules(struct sl_arena *arena, struct sl_error *why)
{
    uint64_t populated =
        SL_MIN(atomic_load_explicit(&arena->own->populated_bytes, memory_order_acquire),
               arena->segment.data_bytes);
    arena->granule_count =
        (arena->segment.data_bytes + ARENA_GRANULE_BYTES - 1) / ARENA_GRANULE_BYTES;
    arena->granules = calloc(arena->granule_count, 1);
    if (arena->granules == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "populate table of arena.%u", arena->id);
    }
    while (arena->prefix_count < arena->granule_count &&
           arena->prefix_count * ARENA_GRANULE_BYTES +
                   arena_granule_bytes(arena, arena->prefix_count) <=
               populated) {
        arena->granules[arena->prefix_count++] = GRANULE_DONE;
    }
    return SL_OK;
}

static void arena_begin_life(struct sl_arena *arena)
{
    uint64_t boot = atomic_load_explicit(&arena->own->next_generation, memory_order_relaxed) +
                    ARENA_GENERATION_JUMP;
    /* The counter first: a death between the two repeats no generation. */
    atomic_store_explicit(&arena->own->next_generation, boot, memory_order_release);
    atomic_store_explicit(&arena->own->boot_generation, boot, memory_order_release);
}

static sl_err arena_open_or_create(struct sl_arena *arena, const struct sl_arena_options *options,
                                   bool *created, struct sl_error *why)
{
    char name[ARENA_NAME_BYTES];
    uint64_t data_bytes = options->data_bytes & ~(uint64_t)(SL_PAGE_BYTES - 1);
    uint64_t chunk_bytes =
        SL_MIN(SL_MIN(options->chunk_bytes, SL_GIB) & ~(uint64_t)(SL_PAGE_BYTES - 1), data_bytes);
    if (chunk_bytes == 0) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "arena of %" PRIu64 " bytes in chunks of %" PRIu64 ": below one page",
                       options->data_bytes, options->chunk_bytes);
    }
    arena_name(options->id, name);
    struct sl_segment_want want = {.directory = options->directory,
                                   .name = name,
                                   .kind = SL_SEGMENT_ARENA,
                                   .data_align_bytes = ARENA_ALIGN_BYTES};
    sl_err err = sl_segment_open(&want, true, &arena->segment, why);
    *created = err == SL_ERR_NOT_FOUND;
    if (err == SL_ERR_NOT_FOUND) {
        want.data_bytes = data_bytes;
        err = arena_create(arena, &want, chunk_bytes, options->id, why);
    }
    if (err != SL_OK) {
        return err;
    }
    err = arena_adopt(arena, options->id, why);
    if (err != SL_OK) {
        return err;
    }
    if (arena->segment.data_bytes != data_bytes || arena->chunk_bytes != chunk_bytes) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "arena.%u exists with %" PRIu64 " bytes in chunks of %" PRIu64
                       ", asked for %" PRIu64 " in chunks of %" PRIu64,
                       options->id, arena->segment.data_bytes, arena->chunk_bytes, data_bytes,
                       chunk_bytes);
    }
    return SL_OK;
}

sl_err sl_arena_open_owner(const struct sl_arena_options *options, bool *created,
                           struct sl_arena **out, struct sl_error *why)
{
    struct sl_arena *arena = arena_new();
    bool fresh = false;
    if (arena == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "arena handle");
    }
    sl_err err = arena_open_or_create(arena, options, &fresh, why);
    if (err == SL_OK) {
        err = arena_plan_granules(arena, why);
    }
    if (err != SL_OK) {
        sl_arena_close(&arena);
        return err;
    }
    arena_begin_life(arena);
    *created = fresh;
    *out = arena;
    return SL_OK;
}

sl_err sl_arena_attach(const char *directory, uint32_t id, bool writable, struct sl_arena **out,
                       struct sl_error *why)
{
    char name[ARENA_NAME_BYTES];
    struct sl_arena *arena = arena_new();
    if (arena == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "arena handle");
    }
    arena_name(id, name);
    struct sl_segment_want want = {.directory = directory, .name = name, .kind = SL_SEGMENT_ARENA};
    sl_err err = sl_segment_open(&want, writable, &arena->segment, why);
    if (err == SL_OK) {
        err = arena_adopt(arena, id, why);
    }
    if (err == SL_OK) {
        uint64_t words = arena->segment.data_bytes / ARENA_MAP_BYTES / 64 + 1;
        arena->mapped = calloc(words, sizeof(*arena->mapped));
        if (arena->mapped == NULL) {
            err = sl_fail(why, SL_ERR_NO_MEMORY, "map of arena.%u", id);
        }
    }
    if (err != SL_OK) {
        sl_arena_close(&arena);
        return err;
    }
    *out = arena;
    return SL_OK;
}

sl_err sl_arena_current(const struct sl_arena *arena, const char *directory)
{
    char name[ARENA_NAME_BYTES];
    arena_name(arena->id, name);
    return sl_segment_current(&arena->segment, directory, name);
}

sl_err sl_arena_follow(const char *directory, uint32_t id, struct sl_arena **arena,
                       struct sl_error *why)
{
    sl_err err = *arena == NULL ? SL_ERR_STALE : sl_arena_current(*arena, directory);
    if (err != SL_ERR_STALE) {
        return err == SL_OK ? SL_OK : sl_fail(why, err, "no arena.%u in %s", id, directory);
    }
    sl_arena_close(arena);
    return sl_arena_attach(directory, id, true, arena, why);
}

void *sl_arena_at(const struct sl_arena *arena, uint64_t offset_bytes, uint64_t length_bytes)
{
    uint64_t data_bytes = arena->segment.data_bytes;
    if (length_bytes == 0 || offset_bytes >= data_bytes ||
        length_bytes > data_bytes - offset_bytes ||
        length_bytes > arena->chunk_bytes - offset_bytes % arena->chunk_bytes) {
        return NULL;
    }
    return arena->segment.data + offset_bytes;
}

static void arena_map_piece(struct sl_arena *arena, uint64_t piece)
{
    uint64_t bit = UINT64_C(1) << (piece % 64);
    _Atomic uint64_t *word = &arena->mapped[piece / 64];
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) != 0) {
        return;
    }
    /* Reading is enough: the pages exist, and in a shared mapping of memory entries made for a read
     * are made for writing too, 16 at a time, where a write makes each for itself. When the system
     * cannot (before Linux 5.14), pages are mapped when they are touched. */
    uint64_t at = piece * ARENA_MAP_BYTES;
    uint64_t length = SL_MIN(ARENA_MAP_BYTES, arena->segment.data_bytes - at);
    (void)madvise(arena->segment.data + at, length, MADV_POPULATE_READ);
    atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
}

void *sl_arena_map(struct sl_arena *arena, uint64_t offset_bytes, uint64_t length_bytes)
{
    void *at = sl_arena_at(arena, offset_bytes, length_bytes);
    if (at != NULL && arena->mapped != NULL) {
        uint64_t last = (offset_bytes + length_bytes - 1) / ARENA_MAP_BYTES;
        for (uint64_t piece = offset_bytes / ARENA_MAP_BYTES; piece <= last; piece++) {
            arena_map_piece(arena, piece);
        }
    }
    return at;
}

uint64_t sl_arena_data_bytes(const struct sl_arena *arena)
{
    return arena->segment.data_bytes;
}

uint64_t sl_arena_chunk_bytes(const struct sl_arena *arena)
{
    return arena->chunk_bytes;
}

uint32_t sl_arena_id(const struct sl_arena *arena)
{
    return arena->id;
}

uint64_t sl_arena_populated_bytes(const struct sl_arena *arena)
{
    uint64_t populated = atomic_load_explicit(&arena->own->populated_bytes, memory_order_acquire);
    return SL_MIN(populated, arena->segment.data_bytes);
}

uint64_t sl_arena_next_generation(struct sl_arena *arena)
{
    return atomic_fetch_add_explicit(&arena->own->next_generation, 1, memory_order_relaxed);
}

uint64_t sl_arena_boot_generation(const struct sl_arena *arena)
{
    return atomic_load_explicit(&arena->own->boot_generation, memory_order_acquire);
}

uint64_t sl_arena_birth_generation(const struct sl_arena *arena)
{
    return arena->own->birth_generation;
}

uint64_t sl_arena_reachable_bytes(struct sl_arena *arena)
{
    struct statvfs room;
    uint64_t data_bytes = arena->segment.data_bytes;
    if (fstatvfs(arena->segment.fd, &room) != 0 || room.f_blocks == 0) {
        return data_bytes; /* not known, or a tmpfs without a limit */
    }
    uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    uint64_t missing_bytes = 0;
    SL_ASSERT(arena->granules != NULL); /* the owner's alone */
    pthread_mutex_lock(&arena->lock);
    for (uint64_t i = arena->prefix_count; i < arena->granule_count; i++) {
        missing_bytes +=
            arena->granules[i] == GRANULE_UNTOUCHED ? arena_granule_bytes(arena, i) : 0;
    }
    pthread_mutex_unlock(&arena->lock);
    return free_bytes >= missing_bytes ? data_bytes
                                       : data_bytes - missing_bytes +
                                             free_bytes / ARENA_GRANULE_BYTES * ARENA_GRANULE_BYTES;
}

/* The first granule below that nobody has or works at; false when there is none. */
static bool arena_take_granule(struct sl_arena *arena, uint64_t below_bytes, uint64_t *index)
{
    bool found = false;
    pthread_mutex_lock(&arena->lock);
    for (uint64_t i = arena->prefix_count;
         i < arena->granule_count && i * ARENA_GRANULE_BYTES < below_bytes && !found; i++) {
        if (arena->granules[i] == GRANULE_UNTOUCHED) {
            arena->granules[i] = GRANULE_IN_WORK;
            *index = i;
            found = true;
        }
    }
    pthread_mutex_unlock(&arena->lock);
    return found;
}

static void arena_settle_granule(struct sl_arena *arena, uint64_t index, bool populated)
{
    pthread_mutex_lock(&arena->lock);
    SL_ASSERT(arena->granules[index] == GRANULE_IN_WORK);
    arena->granules[index] = populated ? GRANULE_DONE : GRANULE_UNTOUCHED;
    while (arena->prefix_count < arena->granule_count &&
           arena->granules[arena->prefix_count] == GRANULE_DONE) {
        arena->prefix_count++;
    }
    uint64_t prefix_bytes =
        SL_MIN(arena->prefix_count * ARENA_GRANULE_BYTES, arena->segment.data_bytes);
    /* Under the lock, so that the published prefix never shrinks. */
    if (prefix_bytes > atomic_load_explicit(&arena->own->populated_bytes, memory_order_relaxed)) {
        atomic_store_explicit(&arena->own->populated_bytes, prefix_bytes, memory_order_release);
    }
    pthread_mutex_unlock(&arena->lock);
}

sl_err sl_arena_populate_step(struct sl_arena *arena, struct sl_error *why)
{
    return sl_arena_populate_below(arena, UINT64_MAX, why);
}

sl_err sl_arena_populate_below(struct sl_arena *arena, uint64_t below_bytes, struct sl_error *why)
{
    uint64_t index = 0;
    SL_ASSERT(arena->granules != NULL); /* the owner's alone */
    if (!arena_take_granule(arena, below_bytes, &index)) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "nothing left to populate in arena.%u", arena->id);
    }
    uint64_t at = index * ARENA_GRANULE_BYTES;
    uint64_t length = arena_granule_bytes(arena, index);
    sl_err err = sl_segment_populate(&arena->segment, at, length, why);
    if (err != SL_OK) {
        /* A part of the granule would only keep others (index, pins) from the last free memory. */
        sl_segment_unpopulate(&arena->segment, at, length);
    }
    arena_settle_granule(arena, index, err == SL_OK);
    return err;
}
