/* ipc/shm/sl_arena.h - the segment that holds values, and the allocator of its extents.
 *
 * The data is cut into chunks of chunk_bytes (at most 1 GiB, the last may be shorter); no extent
 * crosses a chunk edge. Data starts 2 MiB-aligned. Space is handed out only from the populated
 * prefix, which grows while the node already serves. Generations are unique for all time: one
 * 64-bit counter in the header, which jumps by 2^32 whenever a registrar opens the arena for
 * writing. */
#ifndef SL_ARENA_H
#define SL_ARENA_H

#include "ipc/shm/sl_segment.h"

struct sl_extent {
    uint64_t generation;   /* 0: none */
    uint64_t offset_bytes; /* in the arena's data */
    uint64_t length_bytes; /* of the value; the space is sl_extent_space(length) */
    uint32_t arena;
    uint32_t reserved;
};
/* Space an extent of length takes: from 4 KiB up whole pages, below in classes of 64 bytes. */
uint64_t sl_extent_space(uint64_t length_bytes);

struct sl_arena; /* opaque; mapping of one arena file */
struct sl_arena_options {
    const char *directory;
    uint32_t id; /* file arena.ID */
    uint64_t data_bytes;
    uint64_t chunk_bytes;
};
/* Registrar: opens a matching arena or creates one; *created says which. Starts a new life of
 * generations. Sizes are rounded down to whole pages; a chunk is at most 1 GiB and at most the
 * data. The first generation of an arena made anew follows from the wall clock (seconds x 2^32), so
 * it lies above those of an arena that is gone. Errors: those of segments; SL_ERR_CONFIG when an
 * existing arena has another size or chunk plan. */
sl_err sl_arena_open_owner(const struct sl_arena_options *options, bool *created,
                           struct sl_arena **out, struct sl_error *why);
/* Whether an arena that is there has the size and chunk plan of these; asked before a start.
 * Errors: SL_ERR_CONFIG. */
sl_err sl_arena_fits(const struct sl_arena_options *options, struct sl_error *why);
/* Everyone else. */
sl_err sl_arena_attach(const char *directory, uint32_t id, bool writable, struct sl_arena **out,
                       struct sl_error *why);
void sl_arena_close(struct sl_arena **arena);
/* As sl_segment_is_cut and sl_segment_is_short. */
bool sl_arena_is_cut(const struct sl_arena *arena);
bool sl_arena_is_short(const struct sl_arena *arena);
/* Whether it still is the arena of this number in the directory: as sl_segment_followed. */
sl_err sl_arena_current(struct sl_arena *arena, const char *directory);
/* Address of [offset, +length): NULL when it is not within one chunk of the data (bounds come from
 * outside). */
void *sl_arena_at(const struct sl_arena *arena, uint64_t offset_bytes, uint64_t length_bytes);
/* The same for a caller that will touch all of it. Pages of the mapping around it that have no page
 * table entries yet get them first, in one call to the system for each 256 KiB. Otherwise a first
 * write costs a fault every 4 KiB (1,040 us for 2 MiB instead of 100). Thread-safe; best effort. */
void *sl_arena_map(struct sl_arena *arena, uint64_t offset_bytes, uint64_t length_bytes);
uint64_t sl_arena_data_bytes(const struct sl_arena *arena);
uint64_t sl_arena_chunk_bytes(const struct sl_arena *arena);
uint64_t sl_arena_populated_bytes(const struct sl_arena *arena);
/* What is given back and taken at a time: edges of the populated prefix are multiples of it. */
#define SL_ARENA_SLICE_BYTES (2u * SL_MIB)
/* How many bytes could be populated now in all: those that are or are about to be, and as many
 * 32 MiB as the file system has free. The owner's; thread-safe. */
uint64_t sl_arena_reachable_bytes(struct sl_arena *arena);
uint64_t sl_arena_next_generation(struct sl_arena *arena); /* owner */
/* The one that comes next. One that is the same later says that none was taken meanwhile. */
uint64_t sl_arena_coming_generation(const struct sl_arena *arena);
uint64_t sl_arena_boot_generation(const struct sl_arena *arena); /* first of the owner's life */
uint64_t
sl_arena_birth_generation(const struct sl_arena *arena); /* first of all: names this arena */

/* Populating by several threads while serving: each thread calls this until SL_ERR_NOT_FOUND (all
 * done). A step takes the next slice (2 MiB) that begins below below_bytes, populates it, and
 * publishes the longest populated prefix. SL_ERR_NO_SPACE: the system has no more, or less than the
 * rest of 32 MiB, which others may need. Then the arena stays at its prefix, the step gives back
 * its slice, and a later step tries again. Thread-safe. */
sl_err sl_arena_populate_below(struct sl_arena *arena, uint64_t below_bytes, struct sl_error *why);
/* For a caller that cannot wait for the threads: when it returns, the prefix reaches below_bytes
 * (whole slices), wherever the threads are. Slices that they have not begun are allocated without
 * being touched (sl_segment_allocate), or populated with `touch`. One thread at a time beside them.
 * Errors: SL_ERR_NO_SPACE as above. */
sl_err sl_arena_hurry(struct sl_arena *arena, uint64_t below_bytes, bool touch,
                      struct sl_error *why);

/* ---- giving memory back ----
 * A page that goes back to the system stays with whoever registered it: a GPU, a NIC, a ring of
 * requests. From then on he reads and writes what nobody else sees. So whoever is about to register
 * memory of the arena says so first, and from then on none of it goes back. */

/* Says it. False: nothing may be registered now, since some of it is going back this moment, or the
 * arena was attached for reading alone. Thread-safe. */
bool sl_arena_keep(const struct sl_arena *arena);
/* Whether somebody said so. */
bool sl_arena_is_kept(const struct sl_arena *arena);
/* Cuts the populated prefix to to_bytes (whole slices, rounded up), and gives all behind it back to
 * the system, what others left there too. The caller knows that nobody uses it, and that no thread
 * populates. Readers that come late read zeros; what they touch is there again until it is given
 * back once more. The owner's. Errors: SL_ERR_PERMISSION: it is kept, nothing was done. */
sl_err sl_arena_give_back(struct sl_arena *arena, uint64_t to_bytes, struct sl_error *why);

/* ---- allocator: private memory of the registrar, over the populated prefix of one arena ---- */
struct sl_alloc; /* opaque; one thread */
struct sl_alloc_options {
    uint64_t data_bytes;
    uint64_t chunk_bytes;
};
sl_err sl_alloc_create(const struct sl_alloc_options *options, struct sl_alloc **out,
                       struct sl_error *why);
void sl_alloc_destroy(struct sl_alloc **alloc);
/* The populated prefix grew to populated_bytes. */
void sl_alloc_grow(struct sl_alloc *alloc, uint64_t populated_bytes);
/* Nothing from usable_bytes on is taken any more, or from the end of the extent that lies across
 * it. What is in use behind it stays until it is given, and counts as used; grow opens the rest
 * again, and goes to the end of an extent that lies across its own end. */
void sl_alloc_shrink(struct sl_alloc *alloc, uint64_t usable_bytes);
/* Behind it nothing is in use, and nothing is taken: memory there may go back to the system. */
uint64_t sl_alloc_end_bytes(struct sl_alloc *alloc);
/* Gives the offset of length_bytes (1..chunk). O(1). Errors: SL_ERR_NO_SPACE, SL_ERR_INVALID. */
sl_err sl_alloc_take(struct sl_alloc *alloc, uint64_t length_bytes, uint64_t *offset_bytes);
void sl_alloc_give(struct sl_alloc *alloc, uint64_t offset_bytes, uint64_t length_bytes);
/* The extent that begins there is given soon: what that needs is fetched from memory. */
void sl_alloc_fetch(const struct sl_alloc *alloc, uint64_t offset_bytes);
/* Rebuild: marks what records claim, before the first take or give, in any order, before or after
 * grow; the same extent may be claimed more than once (it counts once, so give it once). Errors:
 * SL_ERR_CORRUPT (overlaps another extent partly, out of bounds, misaligned), SL_ERR_INVALID (after
 * the first take or give). */
sl_err sl_alloc_claim(struct sl_alloc *alloc, uint64_t offset_bytes, uint64_t length_bytes);
struct sl_alloc_stats {
    uint64_t usable_bytes; /* populated, and not given up by shrink */
    uint64_t used_bytes;   /* space of live extents */
    uint64_t free_bytes;   /* of what is usable */
    uint64_t extent_count;
};
void sl_alloc_stats(const struct sl_alloc *alloc, struct sl_alloc_stats *out);

#endif
