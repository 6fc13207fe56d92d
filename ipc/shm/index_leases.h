/* ipc/shm/index_leases.h - the words of leases, stored beside the table. */
#ifndef SL_INDEX_LEASES_H
#define SL_INDEX_LEASES_H

#include "ipc/shm/index_layout.h"
#include "ipc/shm/sl_leases.h"

/* A lease word is tag << 48 | end in units of 2^16 ns; a bundle's word has no tag. Lease words are
 * laid out as the table's slots: those of a bucket share a cache line, whose first word is
 * unused. */
#define LEASE_BUCKET_WORDS 8u
#define LEASE_END_MASK     UINT64_C(0xffffffffffff)
#define LEASE_CLOSED       UINT64_MAX
struct index_leases {
    struct sl_shm_file segment;
    index_word *bundles, *slots; /* NULL: no leases */
    uint64_t bucket_count;
};
struct sl_leases {
    struct index_leases map;
    const struct sl_index_view *view;
};

/* Distinguishes a key from an earlier one in its slot. */
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

/* Creates the words of an index that is about to be created, so that both appear together. */
sl_err index_leases_make(const char *shm_dir, const struct index_header *index,
                         struct sl_progress_callback goes_on, struct sl_error *why);
/* Lookups that lease what they find, all at the same time. */
struct leasing {
    const struct index_leases *map;
    uint64_t want;             /* end of a lease taken now, as stored in a word */
    uint64_t enough;           /* a lease that ends here or later is not renewed */
    uint64_t enough_of_bundle; /* the same for a bundle */
    uint64_t end_ns;           /* of the last lease taken; 0: the word was closed */
};
/* False: there are no leases (ttl_ns is 0). */
bool index_leasing_begin(const struct sl_leases *leases, uint64_t now_ns, uint64_t ttl_ns,
                         struct leasing *out);
/* Leases a key by the position of its slot, or its whole bundle if it has one. Returns the end of
 * the lease; 0: the word is closed. */
uint64_t index_lease_take(const struct leasing *leasing, uint64_t slot, uint64_t hash,
                          uint64_t bundle);

#endif
