/* actors/tierer/entries.h - what is on the disk, in memory: the place of the value of every key.
 *
 * A hash table over a pool of entries; it grows one bucket at a time (linear hashing), so no
 * insertion pays for all others. Keys are kept as 128-bit hashes under a secret seed; whole keys
 * are in the segments' indexes. Entries of one segment form a list: the oldest segment leaves at
 * once, and its entries are freed in slices. */
#ifndef SL_TIERER_ENTRIES_H
#define SL_TIERER_ENTRIES_H

#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_error.h"

struct ti_key_hash {
    uint64_t low, high;
};

typedef uint32_t ti_entry_ref; /* index + 1; 0: none */

/* Where in the log: order is (segment, offset). */
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
    uint32_t page;        /* offset in the segment, in pages */
    ti_entry_ref chain;   /* bucket; free list */
    ti_entry_ref sibling; /* older entry of the same segment */
    bool live;            /* false: superseded or forgotten; leaves with its segment */
};

/* entry_count_max bounds live and dead entries. */
sl_err ti_entries_create(uint64_t seed, uint64_t entry_count_max, struct ti_entries **out,
                         struct sl_error *why);
void ti_entries_destroy(struct ti_entries **entries);
struct ti_key_hash ti_entries_hash(const struct ti_entries *entries, const char *key,
                                   uint64_t length);
/* About so many will come into a table that is empty still: it need not grow as they do. */
void ti_entries_expect(struct ti_entries *entries, uint64_t count);
/* Brings what finding this key will touch into the caches: the bucket, and when that is there its
 * first entry. Two misses for each of many keys overlap so. */
void ti_entries_prefetch(const struct ti_entries *entries, struct ti_key_hash hash, bool entry);
/* Borrowed until the next change; NULL: none that counts. */
struct ti_entry *ti_entries_find(struct ti_entries *entries, struct ti_key_hash hash);
static inline struct ti_place ti_entry_place(const struct ti_entry *entry)
{
    return (struct ti_place){entry->segment, (uint64_t)entry->page * SL_PAGE_BYTES};
}
/* Makes *want (hash, digest, length, segment, page) the entry of its key; an older one dies. list:
 * head of the segment's list. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err ti_entries_put(struct ti_entries *entries, const struct ti_entry *want, ti_entry_ref *list);
/* The live entry of this key is dead from now on, if it has one. */
void ti_entries_kill(struct ti_entries *entries, struct ti_key_hash hash);
/* Frees entries of a segment's list, so many at most (0: they only stop counting). True: none is
 * left, and the list is 0; before that none of them counts, and no other list is begun. */
bool ti_entries_drop(struct ti_entries *entries, ti_entry_ref *list, uint32_t count_max);
/* Of the segment with this number; may count those of one that is far away from it in number, too.
 */
uint32_t ti_entries_live_in(const struct ti_entries *entries, uint32_t segment);
uint64_t ti_entries_live_count(const struct ti_entries *entries);
uint64_t ti_entries_live_bytes(const struct ti_entries *entries);

#endif
