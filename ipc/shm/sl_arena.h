/* ipc/shm/sl_arena.h - the shared memory that holds values, and the allocator of its extents.
 *
 * The data is divided into chunks of chunk_bytes (at most 1 GiB, the last may be shorter); no
 * extent crosses a chunk edge. Data starts 2 MiB-aligned. Only the populated prefix is allocated
 * from; it grows while the node already serves. Generations are never reused: a 64-bit counter in
 * the header jumps by 2^32 whenever a registrar opens the arena for writing. */
#ifndef SL_ARENA_H
#define SL_ARENA_H

#include "ipc/shm/sl_shm_file.h"

struct sl_extent {
    uint64_t generation;   /* 0: none */
    uint64_t offset_bytes; /* in the arena's data */
    uint64_t length_bytes; /* of the value; it occupies sl_extent_space(length) */
    uint32_t arena;
    uint32_t reserved;
};
/* Space of an extent of this length: whole pages from 4 KiB on, classes of 64 bytes below. */
uint64_t sl_extent_space(uint64_t length_bytes);

struct sl_arena; /* opaque; mapping of one arena file */
struct sl_arena_options {
    const char *directory;
    uint32_t id; /* file arena.ID */
    uint64_t data_bytes;
    uint64_t chunk_bytes;
};
/* For the registrar: opens a matching arena or creates one, and sets *created accordingly. Starts a
 * new life of generations. Sizes are rounded down to whole pages; a chunk is at most 1 GiB and at
 * most the data. The first generation of a new arena is derived from the wall clock (seconds x
 * 2^32 + nanoseconds x 4), so it is above those of an earlier arena. Errors: those of
 * sl_shm_file_open and _create; SL_ERR_CONFIG (an existing one has another size or chunk plan). */
sl_err sl_arena_open_owner(const struct sl_arena_options *options, bool *created,
                           struct sl_arena **out, struct sl_error *why);
/* Whether an existing arena has this size and chunk plan; checked before a start. Errors:
 * SL_ERR_CONFIG. */
sl_err sl_arena_fits(const struct sl_arena_options *options, struct sl_error *why);
/* For all other processes. */
sl_err sl_arena_attach(const char *directory, uint32_t id, bool writable, struct sl_arena **out,
                       struct sl_error *why);
void sl_arena_close(struct sl_arena **arena);
/* As sl_shm_file_is_cut and sl_shm_file_is_short. */
bool sl_arena_is_cut(const struct sl_arena *arena);
bool sl_arena_is_short(const struct sl_arena *arena);
/* Whether it still is the arena with this number in the directory; see sl_shm_file_followed. */
sl_err sl_arena_current(struct sl_arena *arena, const char *directory);
/* Address of [offset, +length); NULL if it is not within one chunk of the data (the bounds come
 * from outside). */
void *sl_arena_at(const struct sl_arena *arena, uint64_t offset_bytes, uint64_t length_bytes);
/* As sl_arena_at, for a caller that will touch all of it. Surrounding pages of the mapping that
 * have no page table entries get them first, with one system call per 256 KiB. Otherwise the first
 * write costs a fault every 4 KiB (1,040 us for 2 MiB instead of 100). Thread-safe; best effort. */
void *sl_arena_map(struct sl_arena *arena, uint64_t offset_bytes, uint64_t length_bytes);
uint64_t sl_arena_data_bytes(const struct sl_arena *arena);
uint64_t sl_arena_chunk_bytes(const struct sl_arena *arena);
uint64_t sl_arena_populated_bytes(const struct sl_arena *arena);
/* Memory is freed and populated in slices: edges of the populated prefix are multiples of it. */
#define SL_ARENA_SLICE_BYTES (2u * SL_MIB)
/* Bytes that could be populated in total: those that are or are about to be, and the whole 32 MiB
 * blocks that the file system has free. For the owner; thread-safe. */
uint64_t sl_arena_reachable_bytes(struct sl_arena *arena);
uint64_t sl_arena_next_generation(struct sl_arena *arena); /* for the owner */
/* The next generation. If it is unchanged later, none was taken in between. */
uint64_t sl_arena_coming_generation(const struct sl_arena *arena);
uint64_t sl_arena_boot_generation(const struct sl_arena *arena); /* first of this owner's life */
uint64_t
sl_arena_birth_generation(const struct sl_arena *arena); /* the very first: identifies the arena */

/* Populates with several threads while the node serves: each thread calls this until
 * SL_ERR_NOT_FOUND (all done). A step takes the next slice (2 MiB) that begins below below_bytes,
 * populates it, and publishes the longest populated prefix. SL_ERR_NO_SPACE: the system has no
 * memory left, or less than a reserve of 32 MiB for others. The arena then keeps its prefix, the
 * step frees its slice, and a later step tries again. Thread-safe. */
sl_err sl_arena_populate_below(struct sl_arena *arena, uint64_t below_bytes, struct sl_error *why);
/* For a caller that cannot wait for these threads: when it returns, the prefix reaches below_bytes
 * (whole slices). Slices that the threads have not begun are allocated without being touched
 * (sl_shm_file_allocate), or populated with `touch`. One thread at a time beside the populating
 * ones. Errors: SL_ERR_NO_SPACE as above. */
sl_err sl_arena_populate_now(struct sl_arena *arena, uint64_t below_bytes, bool touch,
                             struct sl_error *why);

/* ---- freeing memory ----
 * A page that is freed to the system stays with a device that registered it: a GPU, a NIC, a ring
 * of requests. The device then reads and writes bytes that no process sees. So a process must
 * announce a registration first; from then on none of the arena is freed. */

/* Announces it. False: nothing may be registered now, since some memory is being freed, or the
 * arena was attached read-only. Thread-safe. */
bool sl_arena_forbid_freeing(const struct sl_arena *arena);
/* Whether a process has announced it. */
bool sl_arena_freeing_forbidden(const struct sl_arena *arena);
/* Cuts the populated prefix to to_bytes (whole slices, rounded up) and frees all memory after it to
 * the system, including what earlier owners populated. The caller ensures that nothing there is in
 * use and no thread populates. Late readers read zeros; pages that they touch exist again until the
 * next call. For the owner. Errors: SL_ERR_PERMISSION: sl_arena_forbid_freeing was called; nothing
 * was done. */
sl_err sl_arena_free_after(struct sl_arena *arena, uint64_t to_bytes, struct sl_error *why);

/* ---- allocator: private memory of the registrar, over the populated prefix of one arena ---- */
struct sl_alloc; /* opaque; one thread */
struct sl_alloc_options {
    uint64_t data_bytes;
    uint64_t chunk_bytes;
};
sl_err sl_alloc_create(const struct sl_alloc_options *options, struct sl_alloc **out,
                       struct sl_error *why);
void sl_alloc_destroy(struct sl_alloc **alloc);
/* Reports that the populated prefix grew to populated_bytes. */
void sl_alloc_grow(struct sl_alloc *alloc, uint64_t populated_bytes);
/* Stops allocating from usable_bytes on, or from the end of the extent that crosses it. Extents in
 * use after it stay until they are freed, and count as used. sl_alloc_grow makes the rest usable
 * again; its limit also moves to the end of an extent that crosses it. */
void sl_alloc_shrink(struct sl_alloc *alloc, uint64_t usable_bytes);
/* After this offset nothing is in use or allocated: the memory may be freed to the system. */
uint64_t sl_alloc_end_bytes(struct sl_alloc *alloc);
/* Allocates length_bytes (1..chunk) and gives the offset. O(1). Errors: SL_ERR_NO_SPACE,
 * SL_ERR_INVALID. */
sl_err sl_alloc_take(struct sl_alloc *alloc, uint64_t length_bytes, uint64_t *offset_bytes);
void sl_alloc_free(struct sl_alloc *alloc, uint64_t offset_bytes, uint64_t length_bytes);
/* Prefetches what freeing the extent at this offset will need. */
void sl_alloc_fetch(const struct sl_alloc *alloc, uint64_t offset_bytes);
/* For a rebuild: marks an extent that a record claims. Call it before the first take or free, in
 * any order, before or after grow. The same extent may be claimed more than once; it counts once,
 * so free it once. Errors: SL_ERR_CORRUPT (partly overlaps another extent, out of bounds,
 * misaligned), SL_ERR_INVALID (after the first take or free). */
sl_err sl_alloc_claim(struct sl_alloc *alloc, uint64_t offset_bytes, uint64_t length_bytes);
struct sl_alloc_stats {
    uint64_t usable_bytes; /* populated and not excluded by shrink */
    uint64_t used_bytes;   /* of live extents */
    uint64_t free_bytes;   /* of usable_bytes */
    uint64_t extent_count;
};
void sl_alloc_stats(const struct sl_alloc *alloc, struct sl_alloc_stats *out);

#endif
