/* ipc/shm/index_layout.h - the layout of the index file, and access to its words.
 *
 * All words that more than one process accesses are 64-bit atomics. Orders and partners:
 * - slot: release store by the writer (after the record is complete), acquire load by readers;
 * - version (word 0 of a record): release store of the new version after the other words. Readers
 * load it with acquire, copy words (relaxed), fence (acquire), load slot (acquire) and version
 * again in this order: changed means torn. The writer fences (release) between version 0 and the
 * first word it overwrites: partner of the readers' fence;
 * - overflow count: raised (release) before the slot it leads to is stored, lowered after that slot
 * is cleared; loaded (acquire) after the bucket's slots, so counts never hide an existing key;
 * - state word of a group: release store when its last part is in the table, acquire load by
 * readers;
 * - count of a region (index_regions.h): release store after the slot's, acquire load before slots
 * and records of the region are read: a change that a reader missed moves the count later;
 * - occupied slots of a region: raised (release) before a slot is set, lowered after one is
 * cleared; loaded (acquire) before its slots: where it is 0, no key exists that existed before;
 * - slab_count: release store after the slabs are populated, acquire load by readers. Everything
 * else is relaxed: written by one thread, guarded by a version. tests/models/pins.pml checks these
 * orders on a memory as weak as C11 allows, and that it detects the absence of each. */
#ifndef SL_INDEX_LAYOUT_H
#define SL_INDEX_LAYOUT_H

#include "ipc/shm/sl_index.h"

#include <assert.h>
#include <stdatomic.h>

typedef _Atomic uint64_t index_word;

#define INDEX_FILE       "index"
#define INDEX_UNIT_BYTES 64u
#define INDEX_UNIT_WORDS 8u
#define INDEX_SLAB_BYTES 65536u
#define INDEX_SLAB_UNITS \
    1024u /* the first unit is the slab's head: word 0 is the class of its records */
#define INDEX_GROW_SLABS   16u /* most slabs populated at a time: 1 MiB */
#define INDEX_GROW_SHARE   32u /* at most this share of the slabs in use: few keys cost little */
#define INDEX_BUCKET_SLOTS 7u
#define INDEX_TRIES_MAX    64u

/* The index's part of the header page. */
struct index_header {
    uint64_t seed;                 /* of the hash */
    uint64_t arena_birth;          /* names the arena whose generations are the versions */
    uint64_t bucket_count;         /* below 2^31 */
    uint64_t records_offset_bytes; /* in the data; buckets start at 0 */
    uint64_t slab_count_max;
    index_word
        slab_count; /* populated slabs; 0: a dead index, ask the registrar. A live one has some */
    index_word key_count, group_count, record_units_used;
    index_word remote;         /* 1: other nodes may have missing keys; 0 in older indexes */
    index_word lease_ttl_ns;   /* lease of lookups that lease; 0: none; 0 in older indexes */
    index_word lease_block_ns; /* longest hold of a lookup of blocks; 0 likewise */
};
static_assert(sizeof(struct index_header) == 96, "format of the index header");

struct index_bucket {
    index_word overflow;
    index_word slots[INDEX_BUCKET_SLOTS]; /* tag << 32 | ref; 0: empty */
};
static_assert(sizeof(struct index_bucket) == 64, "a bucket is a cache line");

/* Words of a record. */
enum {
    RECORD_VERSION = 0,
    RECORD_WHAT = 1, /* kind, WHAT_ flags, units << 32, key length << 48 */
    RECORD_HASH = 2,
    RECORD_GROUP = 3, /* ref, part index << 32, arena << 48 */
    RECORD_GROUP_VERSION = 4,
    RECORD_GENERATION = 5,
    RECORD_OFFSET = 6,
    RECORD_LENGTH = 7,
    RECORD_DIGEST_LOW = 8,
    RECORD_DIGEST_HIGH = 9,
    RECORD_DISK_OFFSET = 10,
    RECORD_DISK = 11,     /* log file, disk << 32, valid << 48 */
    RECORD_LINKS = 12,    /* struct sl_links, two words, used only by the writer */
    RECORD_DEADLINE = 14, /* of a committed object: its number, as GROUP_NUMBER */
    RECORD_OP = 15,       /* a BLOB's tag */
    RECORD_OWNER_START = 16,
    RECORD_WRITER_START = 17,
    RECORD_PIDS = 18, /* owner, writer << 32 */
    RECORD_KEY = 19,
    /* GROUP: the same words except for these */
    GROUP_STATE = 3,
    GROUP_PARTS = 4,
    GROUP_TRANSIENT = 5,
    GROUP_COMMITTED = 6,
    GROUP_NOTE = 7,    /* struct sl_unit_note, three words, used only by the writer */
    GROUP_NUMBER = 10, /* sl_index_unit_number, used only by the writer */
    GROUP_FILLED = 19, /* eight words */
    GROUP_KEY = 27,
};
static_assert(sizeof(struct sl_links) == 16, "links take two words");
static_assert(sizeof(struct sl_unit_note) == 24, "a note takes three words");
/* Flags of an object's RECORD_WHAT. */
#define WHAT_TERMS    (UINT64_C(1) << 8) /* the words of its terms follow its key */
#define WHAT_HARD_PIN (UINT64_C(1) << 9)
#define WHAT_REPLACES (UINT64_C(1) << 10) /* its key's slot is being switched to it */
#define WHAT_REPLACER (UINT64_C(1) << 11) /* a reservation that may do so */
#define WHAT_PINNED   (UINT64_C(1) << 12) /* a claim whose writer pins it whenever it writes */
/* Words that only few values need. They follow the key, so that other records are no larger. */
enum {
    TERMS_SOFT_PIN = 0,     /* duration, counted from the commit */
    TERMS_SOFT_PIN_END = 1, /* 0 before the commit */
    TERMS_BUNDLE = 2,
    TERMS_CONTRIBUTION = 3,
    TERMS_WORDS = 4,
};
/* A record's words up to its key, padded to full units. They stay inside any slab even without a
 * key. */
#define INDEX_UNITS_MIN        ((RECORD_KEY * 8u + 8u + INDEX_UNIT_BYTES - 1u) / INDEX_UNIT_BYTES)
#define INDEX_SLAB_RECORDS_MAX ((INDEX_SLAB_UNITS - 1u) / INDEX_UNITS_MIN)
#define INDEX_SLAB_MASK_WORDS  ((INDEX_SLAB_RECORDS_MAX + 63u) / 64u)

/* Words beside the table (index_regions.h). */
struct regions_header;
struct index_regions {
    struct sl_shm_file segment;
    struct regions_header *header;
    bool owned;           /* this process is the one that counts */
    index_word *counts;   /* [region]; NULL: no counts. 0: no slot of it was ever set */
    index_word *occupied; /* [region]: number of slots that are set; after a crash maybe higher,
                             never lower */
};

struct sl_index_view {
    struct sl_shm_file segment;
    struct index_regions regions; /* of a reader: as they were when it opened the view */
    struct index_header
        *header; /* read-only memory in a reader; only its atomics are read after opening */
    struct index_bucket *buckets;
    index_word *records;
    uint64_t seed; /* checked copies of the header's constants */
    uint64_t bucket_count;
    uint64_t slab_count_max;
};

struct index_place {
    uint64_t bucket;
    uint32_t slot;
};

/* Kill points: builds with SL_INDEX_KILL_POINTS call the first after every store that another
 * process can see, and the second before every load of shared words. */
#ifdef SL_INDEX_KILL_POINTS
extern void (*sl_index_kill_point)(void);
extern void (*sl_index_load_point)(void);
#define INDEX_LOAD()                       \
    do {                                   \
        if (sl_index_load_point != NULL) { \
            sl_index_load_point();         \
        }                                  \
    } while (0)
#define INDEX_STEP()                       \
    do {                                   \
        if (sl_index_kill_point != NULL) { \
            sl_index_kill_point();         \
        }                                  \
    } while (0)
#else
#define INDEX_STEP() ((void)0)
#define INDEX_LOAD() ((void)0)
#endif

static inline uint64_t word_get(index_word *word)
{
    INDEX_LOAD();
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline uint64_t word_get_acquire(index_word *word)
{
    INDEX_LOAD();
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void word_set(index_word *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
    INDEX_STEP();
}

static inline void word_publish(index_word *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    INDEX_STEP();
}

static inline enum sl_record_kind what_kind(uint64_t what)
{
    return (enum sl_record_kind)(what & 0xff);
}

static inline uint32_t what_units(uint64_t what)
{
    return (uint32_t)(what >> 32) & 0xffff;
}

static inline uint32_t what_key_length(uint64_t what)
{
    return (uint32_t)(what >> 48);
}

static inline uint64_t what_make(enum sl_record_kind kind, uint32_t units, uint32_t key_length)
{
    return (uint64_t)kind | (uint64_t)units << 32 | (uint64_t)key_length << 48;
}

static inline uint64_t what_with_kind(uint64_t what, enum sl_record_kind kind)
{
    return (what & ~UINT64_C(0xff)) | (uint64_t)kind;
}

static inline uint32_t record_key_word(enum sl_record_kind kind)
{
    return kind == SL_RECORD_GROUP ? GROUP_KEY : RECORD_KEY;
}

static inline uint32_t record_units(enum sl_record_kind kind, uint32_t key_length)
{
    uint32_t bytes = record_key_word(kind) * 8u + (uint32_t)sl_align_up(key_length, 8);
    return SL_MAX((bytes + INDEX_UNIT_BYTES - 1) / INDEX_UNIT_BYTES, INDEX_UNITS_MIN);
}

/* Where the words of a record's terms begin; the record ends after them. */
static inline uint32_t record_terms_word(enum sl_record_kind kind, uint32_t key_length)
{
    return record_key_word(kind) + (uint32_t)sl_align_up(key_length, 8) / 8;
}

static inline uint32_t record_units_with_terms(enum sl_record_kind kind, uint32_t key_length)
{
    uint32_t words = record_terms_word(kind, key_length) + TERMS_WORDS;
    return SL_MAX((words + INDEX_UNIT_WORDS - 1) / INDEX_UNIT_WORDS, INDEX_UNITS_MIN);
}

/* The size of a record, from its WHAT word. */
static inline uint32_t record_units_of(uint64_t what)
{
    return (what & WHAT_TERMS) != 0
               ? record_units_with_terms(what_kind(what), what_key_length(what))
               : record_units(what_kind(what), what_key_length(what));
}

static inline index_word *record_at(const struct sl_index_view *view, sl_ref ref)
{
    return view->records + (uint64_t)ref * INDEX_UNIT_WORDS;
}

/* Whether [ref, +units) is within the records of one populated slab; ref may be any number. */
static inline bool ref_in_bounds(const struct sl_index_view *view, sl_ref ref, uint32_t units)
{
    uint64_t slab_count = SL_MIN(word_get_acquire(&view->header->slab_count), view->slab_count_max);
    uint32_t within = ref % INDEX_SLAB_UNITS;
    return within != 0 && within + units <= INDEX_SLAB_UNITS && ref / INDEX_SLAB_UNITS < slab_count;
}

static inline uint64_t hash_bucket(const struct sl_index_view *view, uint64_t hash)
{
    return (hash >> 32) * view->bucket_count >> 32;
}

static inline uint32_t hash_tag(uint64_t hash)
{
    return (uint32_t)hash;
}

static inline uint64_t slot_make(uint64_t hash, sl_ref ref)
{
    return (uint64_t)hash_tag(hash) << 32 | ref;
}

static inline uint64_t bucket_after(const struct sl_index_view *view, uint64_t bucket)
{
    return bucket + 1 == view->bucket_count ? 0 : bucket + 1;
}

#endif
