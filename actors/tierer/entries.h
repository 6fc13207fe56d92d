/* actors/tierer/entries.h - the in-memory table of the disk's contents: for each key the place of
 * its value.
 *
 * A hash table over a pool of entries. It grows by one bucket at a time (linear hashing), so no
 * single insertion pays for a rehash. It keeps keys as 128-bit hashes under a secret seed; the log
 * files' indexes have the whole keys. The entries of one log file form a list. When the oldest file
 * is removed, its entries stop counting at once and are freed in slices. */
#ifndef SL_TIERER_ENTRIES_H
#define SL_TIERER_ENTRIES_H

#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_error.h"

struct ti_key_hash {
    uint64_t low, high;
};

typedef uint32_t ti_entry_ref; /* index + 1; 0: none */

/* A place in the log; order is (segment, offset). */
struct ti_place {
    uint32_t segment;
    uint64_t offset_bytes;
};
static inline bool ti_place_after(struct ti_place a, struct ti_place b)
{
    return a.segment != b.segment ? a.segment > b.segment : a.offset_bytes > b.offset_bytes;
}

struct ti_entries; /* opaque; one thread */
struct ti_entry {
    struct ti_key_hash hash;
    struct sl_digest digest;
    uint32_t length_bytes;
    uint32_t segment;
    uint32_t page;        /* offset in the log file, in pages */
    ti_entry_ref chain;   /* next in the bucket or in the free list */
    ti_entry_ref sibling; /* older entry of the same log file */
    bool live;            /* false: replaced or forgotten; freed with its log file */
};

/* entry_count_max bounds live and dead entries. */
sl_err ti_entries_create(uint64_t seed, uint64_t entry_count_max, struct ti_entries **out,
                         struct sl_error *why);
void ti_entries_destroy(struct ti_entries **entries);
struct ti_key_hash ti_entries_hash(const struct ti_entries *entries, const char *key,
                                   uint64_t length);
/* Sizes an empty table for about `count` entries, so that it need not grow as they arrive. */
void ti_entries_expect(struct ti_entries *entries, uint64_t count);
/* Prefetches what finding this key will touch: the bucket, or (entry, when the bucket has arrived)
 * its first entry. The cache misses of many keys then overlap. */
void ti_entries_prefetch(const struct ti_entries *entries, struct ti_key_hash hash, bool entry);
/* Borrowed until the next change; NULL: no live entry. */
struct ti_entry *ti_entries_find(struct ti_entries *entries, struct ti_key_hash hash);
static inline struct ti_place ti_entry_place(const struct ti_entry *entry)
{
    return (struct ti_place){entry->segment, (uint64_t)entry->page * SL_PAGE_BYTES};
}
/* Makes *want (hash, digest, length, segment, page) the entry of its key; an older one is dead
 * then. list: head of the log file's list. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err ti_entries_put(struct ti_entries *entries, const struct ti_entry *want, ti_entry_ref *list);
/* Makes the live entry of this key dead, if there is one. */
void ti_entries_kill(struct ti_entries *entries, struct ti_key_hash hash);
/* Frees at most count_max entries of a log file's list (0: none); none of them counts from now on.
 * True: all are freed and the list is 0. Until then no other list may be dropped. */
bool ti_entries_drop(struct ti_entries *entries, ti_entry_ref *list, uint32_t count_max);
/* Live values of this log file; may include those of a file whose number is far from this one. */
uint32_t ti_entries_live_in(const struct ti_entries *entries, uint32_t segment);
uint64_t ti_entries_live_count(const struct ti_entries *entries);
uint64_t ti_entries_live_bytes(const struct ti_entries *entries);

#endif
