/* actors/tierer/entries.h - what is on the disk, in memory: the place of the value of every key.
 *
 * A hash table over a pool of entries; it grows one bucket at a time (linear hashing), so no
 * insertion pays for all others. Keys are kept as 128-bit hashes under a secret seed; whole keys
 * are in the segments' indexes. Entries of one segment form a list: a segment leaves the table in
 * time proportional to what it holds. */
#ifndef SL_ENTRIES_H
#define SL_ENTRIES_H

#include "runtime/sl_digest.h"
#include "runtime/sl_error.h"

struct sl_key_hash {
    uint64_t low, high;
};

typedef uint32_t sl_entry_ref; /* index + 1; 0: none */

/* Where in the log: order is (segment, offset). */
struct sl_log_place {
    uint32_t segment;
    uint64_t offset_bytes;
};
static inline bool sl_log_place_after(struct sl_log_place a, struct sl_log_place b)
{
    return a.segment != b.segment ? a.segment > b.segment : a.offset_bytes > b.offset_bytes;
}

struct sl_entries; /* opaque; one thread */
struct sl_tier_entry {
    struct sl_key_hash hash;
    struct sl_digest digest;
    uint32_t length_bytes;
    uint32_t segment;
    uint32_t page;        /* offset in the segment, in pages */
    sl_entry_ref chain;   /* bucket; free list */
    sl_entry_ref sibling; /* older entry of the same segment */
    bool live;            /* false: superseded or forgotten; leaves with its segment */
};

/* entry_count_max bounds live and dead entries. */
sl_err sl_entries_create(uint64_t seed, uint64_t entry_count_max, struct sl_entries **out,
                         struct sl_error *why);
void sl_entries_destroy(struct sl_entries **entries);
struct sl_key_hash sl_entries_hash(const struct sl_entries *entries, const char *key,
                                   uint64_t length);
/* About so many will come into a table that is empty still: it need not grow as they do. */
void sl_entries_expect(struct sl_entries *entries, uint64_t count);
/* Brings what finding this key will touch into the caches: the bucket, and when that is there its
 * first entry. Two misses for each of many keys overlap so. */
void sl_entries_prefetch(const struct sl_entries *entries, struct sl_key_hash hash, bool entry);
/* Borrowed until the next change; NULL: none. */
struct sl_tier_entry *sl_entries_find(struct sl_entries *entries, struct sl_key_hash hash);
static inline struct sl_log_place sl_tier_entry_place(const struct sl_tier_entry *entry)
{
    return (struct sl_log_place){entry->segment, (uint64_t)entry->page * SL_PAGE_BYTES};
}
/* Makes *want (hash, digest, length, segment, page) the entry of its key; an older one dies. list:
 * head of the segment's list. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err sl_entries_put(struct sl_entries *entries, const struct sl_tier_entry *want,
                      sl_entry_ref *list);
/* The live entry of this key is dead from now on, if it has one. */
void sl_entries_kill(struct sl_entries *entries, struct sl_key_hash hash);
/* Frees all entries of a segment's list and sets it to 0. */
void sl_entries_drop(struct sl_entries *entries, sl_entry_ref *list);
uint64_t sl_entries_live_count(const struct sl_entries *entries);
uint64_t sl_entries_live_bytes(const struct sl_entries *entries);

#endif
