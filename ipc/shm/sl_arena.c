/* ipc/shm/sl_arena.c - the shared memory that holds values: bounds, generations, populating while
 * serving. */
#include "ipc/shm/sl_arena.h"

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

/* Populated at a time: a huge page, so that a writer that needs it waits a millisecond or two, and
 * so does a thread that maps memory in this process meanwhile. */
#define ARENA_SLICE_BYTES SL_ARENA_SLICE_BYTES
/* Taken from the file system completely or not at all: a smaller rest is left for others (index,
 * pins). */
#define ARENA_GRANULE_BYTES   (32u * SL_MIB)
#define ARENA_ALIGN_BYTES     (2u * SL_MIB)
#define ARENA_GENERATION_JUMP (UINT64_C(1) << 32)
/* Small enough for a fast first touch of a small value (13 us), large enough that the call is
 * cheap. The owner's slices are multiples of it, so memory around an extent exists. */
#define ARENA_MAP_BYTES (256u * SL_KIB)
static_assert(ARENA_SLICE_BYTES % ARENA_MAP_BYTES == 0, "a populated slice is mapped whole");
static_assert(ARENA_GRANULE_BYTES % ARENA_SLICE_BYTES == 0, "no slice lies in two granules");

/* The part of the header page for the arena. */
struct arena_own {
    uint64_t chunk_bytes;
    uint32_t id;
    uint32_t reserved;
    uint64_t birth_generation;
    /* Written only by the owner (relaxed: the number reaches others through records and
     * messages). */
    _Atomic uint64_t next_generation;
    _Atomic uint64_t boot_generation;
    /* Release by the thread that populated the prefix, acquire by all others: memory below it does
     * not fault. */
    _Atomic uint64_t populated_bytes;
    /* A process that registers memory stores kept, then loads giving; the owner, before freeing
     * memory, stores giving, then loads kept (all seq_cst): one of the two sees the other. kept
     * stays set; giving belongs to the owner. */
    _Atomic uint32_t kept, giving;
    /* Number of times memory was freed. The owner increments it (release) before the pages are
     * freed; others (acquire) then forget which pages they have mapped. */
    _Atomic uint64_t given_count;
};
static_assert(sizeof(struct arena_own) == 64, "format of the arena header");
static_assert(sizeof(struct arena_own) <= SL_PAGE_BYTES - SL_SHM_FILE_OWN_OFFSET_BYTES,
              "fits its page");

enum slice_state {
    SLICE_UNTOUCHED,
    SLICE_IN_WORK, /* a thread populates it */
    SLICE_HURRIED, /* the same, and the owner is allocating it */
    SLICE_OWNED,   /* only the owner works on it */
    SLICE_DONE,
};

#define ARENA_NAME_BYTES 32u

struct sl_arena {
    struct sl_shm_file segment;
    struct arena_own *own;
    uint64_t chunk_bytes; /* checked copies of header fields */
    uint32_t id;
    pthread_mutex_t lock;  /* guards the four below */
    unsigned char *slices; /* enum slice_state each; only in the owner */
    uint64_t slice_count;
    uint64_t prefix_count; /* populated slices from the start */
    uint64_t begun_count;  /* no slice from here on was ever begun; only in the owner */
    /* A bit for every ARENA_MAP_BYTES that were mapped; relaxed: setting one twice only costs time.
     * NULL in the owner, which maps by populating. */
    _Atomic uint64_t *mapped;
    _Atomic uint64_t mapped_given; /* given_count at that time */
};

static void arena_name(uint32_t id, char out[ARENA_NAME_BYTES])
{
    (void)snprintf(out, ARENA_NAME_BYTES, "arena.%u", id);
}

static uint64_t arena_slice_bytes(const struct sl_arena *arena, uint64_t index)
{
    return SL_MIN(ARENA_SLICE_BYTES, arena->segment.data_bytes - index * ARENA_SLICE_BYTES);
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
    sl_shm_file_close(&(*arena)->segment);
    pthread_mutex_destroy(&(*arena)->lock);
    free((*arena)->slices);
    free((*arena)->mapped);
    free(*arena);
    *arena = NULL;
}

/* Reads the header once and checks every field. */
static sl_err arena_adopt(struct sl_arena *arena, uint32_t id, struct sl_error *why)
{
    arena->own = sl_shm_file_own(&arena->segment);
    uint64_t chunk_bytes = arena->own->chunk_bytes;
    uint32_t found_id = arena->own->id;
    if (found_id != id) {
        return sl_fail(why, SL_ERR_CORRUPT, "arena.%u has the header of arena %u", id, found_id);
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

static sl_err arena_create(struct sl_arena *arena, const struct sl_shm_file_want *want,
                           uint64_t chunk_bytes, uint32_t id, struct sl_error *why)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    /* To the nanosecond, so that an extent's name from one node is invalid in the next, even if
     * that is created within the same second. */
    uint64_t birth = (uint64_t)SL_MAX(wall.tv_sec, 1) << 32 | (uint64_t)wall.tv_nsec << 2;
    struct arena_own own = {.chunk_bytes = chunk_bytes, .id = id, .birth_generation = birth};
    struct sl_shm_file_want create = *want;
    atomic_init(&own.next_generation, birth);
    create.own = &own;
    create.own_bytes = sizeof(own);
    return sl_shm_file_create(&create, &arena->segment, why);
}

static sl_err arena_plan_slices(struct sl_arena *arena, struct sl_error *why)
{
    uint64_t populated =
        SL_MIN(atomic_load_explicit(&arena->own->populated_bytes, memory_order_acquire),
               arena->segment.data_bytes);
    arena->slice_count = (arena->segment.data_bytes + ARENA_SLICE_BYTES - 1) / ARENA_SLICE_BYTES;
    arena->slices = calloc(arena->slice_count, 1);
    if (arena->slices == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "populate table of arena.%u", arena->id);
    }
    while (arena->prefix_count < arena->slice_count &&
           arena->prefix_count * ARENA_SLICE_BYTES +
                   arena_slice_bytes(arena, arena->prefix_count) <=
               populated) {
        arena->slices[arena->prefix_count++] = SLICE_DONE;
    }
    arena->begun_count = arena->prefix_count;
    atomic_store_explicit(&arena->own->giving, 0,
                          memory_order_seq_cst); /* of an owner that died meanwhile */
    return SL_OK;
}

static void arena_begin_life(struct sl_arena *arena)
{
    uint64_t boot = atomic_load_explicit(&arena->own->next_generation, memory_order_relaxed) +
                    ARENA_GENERATION_JUMP;
    /* The counter first, so that a death between the two repeats no generation. */
    atomic_store_explicit(&arena->own->next_generation, boot, memory_order_release);
    atomic_store_explicit(&arena->own->boot_generation, boot, memory_order_release);
}

static uint64_t data_bytes_of(const struct sl_arena_options *options)
{
    return options->data_bytes & ~(uint64_t)(SL_PAGE_BYTES - 1);
}

static uint64_t chunk_bytes_of(const struct sl_arena_options *options)
{
    return SL_MIN(SL_MIN(options->chunk_bytes, SL_GIB) & ~(uint64_t)(SL_PAGE_BYTES - 1),
                  data_bytes_of(options));
}

static sl_err arena_check_size(const struct sl_arena *arena, const struct sl_arena_options *options,
                               struct sl_error *why)
{
    if (arena->segment.data_bytes == data_bytes_of(options) &&
        arena->chunk_bytes == chunk_bytes_of(options)) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_CONFIG,
                   "arena.%u of an earlier start has memory = %" PRIu64
                   " in memory_chunk = %" PRIu64 ", not %" PRIu64 " in %" PRIu64
                   "; start with that, " SL_SHM_FILE_WAY_OUT,
                   arena->id, arena->segment.data_bytes, arena->chunk_bytes, data_bytes_of(options),
                   chunk_bytes_of(options));
}

static sl_err arena_open_or_create(struct sl_arena *arena, const struct sl_arena_options *options,
                                   bool *created, struct sl_error *why)
{
    char name[ARENA_NAME_BYTES];
    uint64_t chunk_bytes = chunk_bytes_of(options);
    if (chunk_bytes == 0) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "arena of %" PRIu64 " bytes in chunks of %" PRIu64 ": below one page",
                       options->data_bytes, options->chunk_bytes);
    }
    arena_name(options->id, name);
    struct sl_shm_file_want want = {.directory = options->directory,
                                    .name = name,
                                    .kind = SL_SHM_FILE_ARENA,
                                    .data_align_bytes = ARENA_ALIGN_BYTES};
    sl_err err = sl_shm_file_open(&want, true, &arena->segment, why);
    *created = err == SL_ERR_NOT_FOUND;
    if (err == SL_ERR_NOT_FOUND) {
        want.data_bytes = data_bytes_of(options);
        err = arena_create(arena, &want, chunk_bytes, options->id, why);
    }
    if (err != SL_OK) {
        return err;
    }
    err = arena_adopt(arena, options->id, why);
    if (err != SL_OK) {
        return err;
    }
    return arena_check_size(arena, options, why);
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
        err = arena_plan_slices(arena, why);
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
    struct sl_shm_file_want want = {
        .directory = directory, .name = name, .kind = SL_SHM_FILE_ARENA};
    sl_err err = sl_shm_file_open(&want, writable, &arena->segment, why);
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

sl_err sl_arena_fits(const struct sl_arena_options *options, struct sl_error *why)
{
    struct sl_arena *arena = NULL;
    if (sl_arena_attach(options->directory, options->id, false, &arena, NULL) != SL_OK ||
        arena == NULL) {
        return SL_OK;
    }
    sl_err err = arena_check_size(arena, options, why);
    sl_arena_close(&arena);
    return err;
}

bool sl_arena_is_cut(const struct sl_arena *arena)
{
    return sl_shm_file_is_cut(&arena->segment);
}

bool sl_arena_is_short(const struct sl_arena *arena)
{
    return sl_shm_file_is_short(&arena->segment);
}

sl_err sl_arena_current(struct sl_arena *arena, const char *directory)
{
    char name[ARENA_NAME_BYTES];
    arena_name(arena->id, name);
    return sl_shm_file_followed(&arena->segment, directory, name);
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
    /* Read faults suffice: the pages exist, and in a shared mapping of memory entries that a read
     * creates are also writable, 16 at a time, whereas a write creates them one by one. If the
     * system has no such call (before Linux 5.14), pages are mapped when they are touched. */
    uint64_t at = piece * ARENA_MAP_BYTES;
    uint64_t length = SL_MIN(ARENA_MAP_BYTES, arena->segment.data_bytes - at);
    (void)madvise(arena->segment.data + at, length, MADV_POPULATE_READ);
    atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
}

/* Pages that were freed and populated again are mapped again. A thread that maps concurrently may
 * leave a stale bit, which only costs faults. */
static void arena_map_forget(struct sl_arena *arena)
{
    uint64_t given = atomic_load_explicit(&arena->own->given_count, memory_order_acquire);
    if (given == atomic_load_explicit(&arena->mapped_given, memory_order_relaxed)) {
        return;
    }
    uint64_t words = arena->segment.data_bytes / ARENA_MAP_BYTES / 64 + 1;
    for (uint64_t i = 0; i < words; i++) {
        atomic_store_explicit(&arena->mapped[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&arena->mapped_given, given, memory_order_relaxed);
}

void *sl_arena_map(struct sl_arena *arena, uint64_t offset_bytes, uint64_t length_bytes)
{
    void *at = sl_arena_at(arena, offset_bytes, length_bytes);
    if (at != NULL && arena->mapped != NULL) {
        arena_map_forget(arena);
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

uint64_t sl_arena_populated_bytes(const struct sl_arena *arena)
{
    uint64_t populated = atomic_load_explicit(&arena->own->populated_bytes, memory_order_acquire);
    return SL_MIN(populated, arena->segment.data_bytes);
}

uint64_t sl_arena_next_generation(struct sl_arena *arena)
{
    return atomic_fetch_add_explicit(&arena->own->next_generation, 1, memory_order_relaxed);
}

uint64_t sl_arena_coming_generation(const struct sl_arena *arena)
{
    return atomic_load_explicit(&arena->own->next_generation, memory_order_acquire);
}

uint64_t sl_arena_boot_generation(const struct sl_arena *arena)
{
    return atomic_load_explicit(&arena->own->boot_generation, memory_order_acquire);
}

uint64_t sl_arena_birth_generation(const struct sl_arena *arena)
{
    return arena->own->birth_generation;
}

/* ---- populating ---- */

/* Free bytes of the file system. UINT64_MAX: not known, or no limit. */
static uint64_t arena_free_bytes(const struct sl_arena *arena)
{
    struct statvfs room;
    return fstatvfs(arena->segment.fd, &room) != 0 || room.f_blocks == 0
               ? UINT64_MAX
               : (uint64_t)room.f_bavail * room.f_frsize;
}

/* End of the granule that contains the last byte below. */
static uint64_t arena_granule_end(const struct sl_arena *arena, uint64_t below_bytes)
{
    return SL_MIN(sl_align_up(below_bytes, ARENA_GRANULE_BYTES), arena->segment.data_bytes);
}

/* Bytes in slices [from, to) that are neither populated nor being populated. The lock is held. */
static uint64_t arena_missing_bytes(const struct sl_arena *arena, uint64_t from, uint64_t to)
{
    uint64_t missing_bytes = 0;
    for (uint64_t i = from; i < to; i++) {
        missing_bytes += arena->slices[i] == SLICE_UNTOUCHED ? arena_slice_bytes(arena, i) : 0;
    }
    return missing_bytes;
}

static uint64_t arena_slices_below(const struct sl_arena *arena, uint64_t below_bytes)
{
    uint64_t bytes = SL_MIN(below_bytes, arena->segment.data_bytes);
    return (bytes + ARENA_SLICE_BYTES - 1) / ARENA_SLICE_BYTES;
}

uint64_t sl_arena_reachable_bytes(struct sl_arena *arena)
{
    uint64_t data_bytes = arena->segment.data_bytes;
    uint64_t free_bytes = arena_free_bytes(arena);
    SL_ASSERT(arena->slices != NULL); /* only for the owner */
    pthread_mutex_lock(&arena->lock);
    uint64_t begun = arena->prefix_count;
    while (begun < arena->slice_count && arena->slices[begun] != SLICE_UNTOUCHED) {
        begun++;
    }
    uint64_t missing_bytes = arena_missing_bytes(arena, begun, arena->slice_count);
    pthread_mutex_unlock(&arena->lock);
    if (free_bytes >= missing_bytes) {
        return data_bytes;
    }
    uint64_t there_bytes = begun * ARENA_SLICE_BYTES;
    uint64_t rest_bytes = arena_granule_end(arena, there_bytes) - there_bytes;
    if (free_bytes < rest_bytes) {
        return there_bytes;
    }
    return there_bytes + rest_bytes +
           (free_bytes - rest_bytes) / ARENA_GRANULE_BYTES * ARENA_GRANULE_BYTES;
}

static sl_err arena_no_room(const struct sl_arena *arena, struct sl_error *why)
{
    return sl_fail(why, SL_ERR_NO_SPACE,
                   "the system has less than %u MiB of shared memory left for arena.%u "
                   "(df -h /dev/shm)",
                   (unsigned)(ARENA_GRANULE_BYTES / SL_MIB), arena->id);
}

/* Bytes that the file system must have free for slices [from, to): includes the rest of the last
 * granule that is not begun. The lock is held. */
static uint64_t arena_wanted_bytes(const struct sl_arena *arena, uint64_t from, uint64_t to)
{
    uint64_t end_bytes = arena_granule_end(arena, to * ARENA_SLICE_BYTES);
    return arena_missing_bytes(arena, from, arena_slices_below(arena, end_bytes));
}

/* Takes the first free slice below; false: there is none. */
static bool arena_take_slice(struct sl_arena *arena, uint64_t below_bytes, uint64_t *index,
                             uint64_t *wanted_bytes)
{
    uint64_t below = arena_slices_below(arena, below_bytes);
    bool found = false;
    pthread_mutex_lock(&arena->lock);
    for (uint64_t i = arena->prefix_count; i < below && !found; i++) {
        if (arena->slices[i] == SLICE_UNTOUCHED) {
            *wanted_bytes = arena_wanted_bytes(arena, i, i + 1);
            arena->slices[i] = SLICE_IN_WORK;
            arena->begun_count = SL_MAX(arena->begun_count, i + 1);
            *index = i;
            found = true;
        }
    }
    pthread_mutex_unlock(&arena->lock);
    return found;
}

/* The lock is held, so that only sl_arena_free_after shrinks the published prefix. */
static void arena_publish(struct sl_arena *arena)
{
    while (arena->prefix_count < arena->slice_count &&
           arena->slices[arena->prefix_count] == SLICE_DONE) {
        arena->prefix_count++;
    }
    uint64_t prefix_bytes =
        SL_MIN(arena->prefix_count * ARENA_SLICE_BYTES, arena->segment.data_bytes);
    if (prefix_bytes > atomic_load_explicit(&arena->own->populated_bytes, memory_order_relaxed)) {
        atomic_store_explicit(&arena->own->populated_bytes, prefix_bytes, memory_order_release);
    }
}

/* Memory left by a failure would only keep others (index, pins) from the last free memory. The lock
 * is held: no thread takes the slice before it is empty. */
static void arena_give_slice(struct sl_arena *arena, uint64_t index)
{
    sl_shm_file_unpopulate(&arena->segment, index * ARENA_SLICE_BYTES,
                           arena_slice_bytes(arena, index));
    arena->slices[index] = SLICE_UNTOUCHED;
}

static void arena_settle_slice(struct sl_arena *arena, uint64_t index, bool populated)
{
    pthread_mutex_lock(&arena->lock);
    switch ((enum slice_state)arena->slices[index]) {
    case SLICE_IN_WORK:
        if (populated) {
            arena->slices[index] = SLICE_DONE;
        } else {
            arena_give_slice(arena, index);
        }
        break;
    case SLICE_HURRIED: /* on failure the owner's own attempt decides */
        arena->slices[index] = populated ? SLICE_DONE : SLICE_OWNED;
        break;
    case SLICE_DONE: /* the owner was faster, and writers may use it */
        break;
    case SLICE_UNTOUCHED:
    case SLICE_OWNED:
        SL_ASSERT(false);
    }
    arena_publish(arena);
    pthread_mutex_unlock(&arena->lock);
}

sl_err sl_arena_populate_below(struct sl_arena *arena, uint64_t below_bytes, struct sl_error *why)
{
    uint64_t index = 0, wanted_bytes = 0;
    SL_ASSERT(arena->slices != NULL); /* only for the owner */
    if (!arena_take_slice(arena, below_bytes, &index, &wanted_bytes)) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "nothing left to populate in arena.%u", arena->id);
    }
    uint64_t at = index * ARENA_SLICE_BYTES;
    uint64_t length = arena_slice_bytes(arena, index);
    sl_err err = arena_free_bytes(arena) < wanted_bytes
                     ? arena_no_room(arena, why)
                     : sl_shm_file_populate(&arena->segment, at, length, why);
    arena_settle_slice(arena, index, err == SL_OK);
    return err;
}

/* Takes over all slices from the prefix up to `to` that are not done. Returns the first of them,
 * and the bytes that must be free (0: all are in progress). */
static uint64_t arena_take_over(struct sl_arena *arena, uint64_t to, uint64_t *wanted_bytes)
{
    pthread_mutex_lock(&arena->lock);
    uint64_t from = arena->prefix_count;
    *wanted_bytes =
        arena_missing_bytes(arena, from, to) == 0 ? 0 : arena_wanted_bytes(arena, from, to);
    for (uint64_t i = from; i < to; i++) {
        if (arena->slices[i] == SLICE_UNTOUCHED) {
            arena->slices[i] = SLICE_OWNED;
        } else if (arena->slices[i] == SLICE_IN_WORK) {
            arena->slices[i] = SLICE_HURRIED;
        }
    }
    arena->begun_count = SL_MAX(arena->begun_count, to);
    pthread_mutex_unlock(&arena->lock);
    return from;
}

static void arena_settle_over(struct sl_arena *arena, uint64_t from, uint64_t to, bool allocated)
{
    pthread_mutex_lock(&arena->lock);
    for (uint64_t i = from; i < to; i++) {
        if (allocated) {
            arena->slices[i] = SLICE_DONE;
        } else if (arena->slices[i] == SLICE_OWNED) {
            arena_give_slice(arena, i);
        } else if (arena->slices[i] == SLICE_HURRIED) {
            arena->slices[i] = SLICE_IN_WORK; /* its thread has not ended yet */
        }
    }
    arena_publish(arena);
    pthread_mutex_unlock(&arena->lock);
}

sl_err sl_arena_populate_now(struct sl_arena *arena, uint64_t below_bytes, bool touch,
                             struct sl_error *why)
{
    SL_ASSERT(arena->slices != NULL); /* only for the owner */
    uint64_t wanted_bytes = 0;
    uint64_t to = arena_slices_below(arena, below_bytes);
    uint64_t from = arena_take_over(arena, to, &wanted_bytes);
    if (from >= to) {
        return SL_OK;
    }
    uint64_t at = from * ARENA_SLICE_BYTES;
    uint64_t length = SL_MIN(to * ARENA_SLICE_BYTES, arena->segment.data_bytes) - at;
    sl_err err = SL_OK;
    if (arena_free_bytes(arena) < wanted_bytes) {
        err = arena_no_room(arena, why);
    } else if (touch) {
        err = sl_shm_file_populate(&arena->segment, at, length, why);
    } else {
        err = sl_shm_file_allocate(&arena->segment, at, length, why);
    }
    arena_settle_over(arena, from, to, err == SL_OK);
    return err;
}

/* ---- freeing memory ---- */

bool sl_arena_forbid_freeing(const struct sl_arena *arena)
{
    if (!arena->segment.writable) {
        return false;
    }
    atomic_store_explicit(&arena->own->kept, 1, memory_order_seq_cst);
    return atomic_load_explicit(&arena->own->giving, memory_order_seq_cst) == 0;
}

bool sl_arena_freeing_forbidden(const struct sl_arena *arena)
{
    return atomic_load_explicit(&arena->own->kept, memory_order_seq_cst) != 0;
}

/* The lock is held. A death in between leaves a shorter prefix, after which no process looks for
 * anything, and pages that the next call frees. */
static void arena_cut(struct sl_arena *arena, uint64_t to)
{
    uint64_t at = to * ARENA_SLICE_BYTES;
    arena->prefix_count = SL_MIN(arena->prefix_count, to);
    if (at < atomic_load_explicit(&arena->own->populated_bytes, memory_order_relaxed)) {
        atomic_store_explicit(&arena->own->populated_bytes, at, memory_order_release);
    }
    (void)atomic_fetch_add_explicit(&arena->own->given_count, 1, memory_order_release);
    sl_shm_file_unpopulate(&arena->segment, at, arena->segment.data_bytes - at);
    for (uint64_t i = to; i < arena->begun_count; i++) {
        SL_ASSERT(arena->slices[i] == SLICE_DONE || arena->slices[i] == SLICE_UNTOUCHED);
        arena->slices[i] = SLICE_UNTOUCHED;
    }
    arena->begun_count = SL_MIN(arena->begun_count, to);
}

sl_err sl_arena_free_after(struct sl_arena *arena, uint64_t to_bytes, struct sl_error *why)
{
    SL_ASSERT(arena->slices != NULL); /* only for the owner */
    uint64_t to = arena_slices_below(arena, to_bytes);
    if (to >= arena->slice_count) {
        return SL_OK;
    }
    atomic_store_explicit(&arena->own->giving, 1, memory_order_seq_cst);
    bool kept = sl_arena_freeing_forbidden(arena);
    if (!kept) {
        pthread_mutex_lock(&arena->lock);
        arena_cut(arena, to);
        pthread_mutex_unlock(&arena->lock);
    }
    atomic_store_explicit(&arena->own->giving, 0, memory_order_seq_cst);
    return kept ? sl_fail(why, SL_ERR_PERMISSION,
                          "a device or a ring of requests keeps pages of arena.%u", arena->id)
                : SL_OK;
}
