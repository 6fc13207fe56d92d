/* ipc/shm/index_leases.h - the words of leases, which lie beside the table. */
#ifndef SL_INDEX_LEASES_H
#define SL_INDEX_LEASES_H

#include "ipc/shm/index_layout.h"
#include "ipc/shm/sl_leases.h"

/* Leases. A word: tag << 48 | end in units of 2^16 ns; a bundle's has no tag. They are laid out as
 * the table's slots are: all of a bucket's in one cache line, whose first word is not used. */
#define LEASE_BUCKET_WORDS 8u
#define LEASE_END_MASK     UINT64_C(0xffffffffffff)
#define LEASE_CLOSED       UINT64_MAX
struct index_leases {
    struct sl_segment segment;
    index_word *bundles, *slots; /* NULL: none */
    uint64_t bucket_count;
};
struct sl_leases {
    struct index_leases map;
    const struct sl_index_view *view;
};

/* Tells a key from another that had its slot before. */
static inline uint64_t lease_tag(uint64_t hash)
{
    return hash << 48;
}
static inline uint64_t lease_units(uint64_t ns)
{
    return SL_MIN((ns >> 16) + 1, LEASE_END_MASK - 1);
}
static inline uint64_t lease_ns(uint64_t units)
{
    return units << 16;
}
static inline index_word *lease_at(const struct index_leases *leases, struct index_place place)
{
    return &leases->slots[place.bucket * LEASE_BUCKET_WORDS + 1 + place.slot];
}
static inline index_word *lease_of_bundle(const struct index_leases *leases, uint64_t bundle)
{
    return &leases->bundles[bundle % SL_LEASE_BUNDLES];
}

/* Makes those of an index that is about to be made, so that nobody finds the one without the other.
 */
sl_err index_leases_make(const char *shm_dir, const struct index_header *index,
                         struct sl_goes_on goes_on, struct sl_error *why);
/* Of look-ups that lease what they find, all at one time. */
struct leasing {
    const struct index_leases *map;
    uint64_t want;             /* end of a lease taken now, as in its word */
    uint64_t enough;           /* one that ends then is not renewed */
    uint64_t enough_of_bundle; /* likewise */
    uint64_t end_ns;           /* of the last one taken; 0: it was closed */
};
/* False: ttl_ns is 0, there are no leases. */
bool index_leasing_begin(const struct sl_leases *leases, uint64_t now_ns, uint64_t ttl_ns,
                         struct leasing *out);
/* Leases a key by the place of its slot among the words of the table, or its whole bundle when it
 * has one. Gives until when; 0: it is closed. */
uint64_t index_lease_take(const struct leasing *leasing, uint64_t slot, uint64_t hash,
                          uint64_t bundle);

#endif
