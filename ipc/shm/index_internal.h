/* ipc/shm/index_internal.h - the writer's index, and what its source files share. */
#ifndef SL_INDEX_INTERNAL_H
#define SL_INDEX_INTERNAL_H

#include "ipc/shm/index_layout.h"
#include "ipc/shm/index_leases.h"
#include "ipc/shm/index_regions.h"

#define INDEX_NONE UINT32_MAX

/* The part of a record that is prefetched: its words and most of its key. After the last record of
 * a slab some of it is prefetched without use. */
#define INDEX_FETCH_UNITS (INDEX_UNITS_MIN + 1u)

/* Private state of one slab. */
struct index_slab {
    uint16_t units;    /* class; 0: free slab */
    uint16_t capacity; /* records */
    uint16_t free_count;
    bool clean; /* all zero since it was populated */
    uint32_t next, prev;
    uint64_t live[INDEX_SLAB_MASK_WORDS];
    uint64_t starts[INDEX_SLAB_UNITS / 64]; /* one bit per unit: a live record begins there */
    uint64_t linked[INDEX_SLAB_MASK_WORDS]; /* recovery: one bit per record that has its slot */
};

struct index_recount {
    uint32_t overflow;
    uint32_t slots; /* one bit per slot that names a record */
};

struct sl_index {
    struct sl_index_view view;
    struct sl_arena *arena;
    struct index_slab *slabs;
    uint32_t slab_count; /* populated */
    uint32_t free_slab;  /* head of the list of slabs without a class; INDEX_NONE: empty */
    uint32_t free_slab_count;
    uint32_t partial[INDEX_SLAB_UNITS];      /* by class: slabs with a free record */
    uint32_t free_records[INDEX_SLAB_UNITS]; /* by class, in all its slabs */
    uint64_t reserved_count;                 /* RESERVED records, each of which will need a slot */
    struct index_recount *recount; /* during recovery, one per bucket; NULL: nothing to recover */
    uint64_t now_ns;               /* 0: read the clock */
    bool recovered, starved;       /* starved: the system had no memory for the last growth */
    bool made;                     /* created in this life, not opened */
    struct index_leases leases;
    struct sl_lease_times lease_times;
    bool contributed; /* every object's record has the words for terms */
    struct sl_progress_callback goes_on;
};

/* Up to nine of ten slots may be used: above that probes get long, and a key may find no slot. */
#define INDEX_LOAD_MAX    9u
#define INDEX_LOAD_MAX_OF 10u
/* Slabs that are kept from new keys, so that a switch finds a record: keys take 16 classes. */
#define INDEX_SPARE_SLABS_MAX 16u

/* Views (sl_index.c, index_reader.c). */
uint64_t index_hash(const struct sl_index_view *view, const char *key, uint32_t key_length);
/* Sets up a view from a mapped shm file; checks the header. */
sl_err index_view_adopt(struct sl_index_view *view, struct sl_error *why);

/* Copies the words of a record's terms; zeros if it has none, or if they would exceed its slab. */
void index_terms_copy(const struct sl_index_view *view, sl_ref ref, uint64_t what,
                      uint64_t terms[TERMS_WORDS]);
/* Parses a copy of a record's words up to its key, and of its terms. key points into the
 * mapping. */
void index_parse(const struct sl_index_view *view, sl_ref ref, const uint64_t words[RECORD_KEY],
                 const uint64_t terms[TERMS_WORDS], struct sl_entry *out);
/* Whether the record's key is this one; the caller has checked bounds and length. */
bool index_key_is(index_word *record, enum sl_record_kind kind, const char *key,
                  uint32_t key_length);

/* The result of reading one slot's record. */
enum index_look { INDEX_LOOK_OTHER, INDEX_LOOK_FOUND, INDEX_LOOK_TORN };
/* An object as its slot names it. All fields but the word are set only if it was FOUND. */
struct index_slot {
    uint64_t word; /* of the slot */
    uint64_t hash;
    uint32_t key_length;
    bool visible;          /* false: its block is not committed */
    bool memory, disk;     /* its value is in memory, on disk */
    uint32_t block_length; /* length of its block's key; 0: it has no block, or the block was just
                              removed */
    uint64_t parent_hash;  /* as in struct sl_unit_note */
    uint64_t committed_ns; /* its block */
};
/* Reads a slot and its record. slot_number: bucket x INDEX_BUCKET_SLOTS + slot. OTHER: empty, or a
 * block. key_out needs SL_KEY_BYTES_MAX bytes. */
enum index_look index_slot_look(const struct sl_index_view *view, uint64_t slot_number,
                                struct index_slot *out, char *key_out);

/* Whether a live record begins at ref, which may be any number. Checked at each use of a record. */
static inline bool index_record_live(const struct sl_index *index, sl_ref ref)
{
    uint32_t at = ref / INDEX_SLAB_UNITS;
    uint32_t within = ref % INDEX_SLAB_UNITS;
    return at < index->slab_count &&
           (index->slabs[at].starts[within / 64] >> (within % 64) & 1) != 0;
}

/* Records (index_records.c). admits: whether a new key may take a record of this class and later a
 * slot. It keeps a reserve for changing existing records: a full index whose records cannot be
 * switched to their place on disk could never be emptied again. take: SL_ERR_NO_SPACE; the record's
 * version is 0, and it is free. */
bool index_admits(const struct sl_index *index, uint32_t units);
sl_err index_record_take(struct sl_index *index, uint32_t units, sl_ref *ref);
void index_record_give(struct sl_index *index, sl_ref ref); /* version is 0 already */
/* Returns a slab without records, for this class. */
struct index_slab index_slab_of(uint32_t units);
/* Populates the first slabs if there are none: readers treat an index without slabs as dead. */
void index_live(struct sl_index *index);
void index_slab_adopt(struct sl_index *index,
                      uint32_t slab); /* recovery: lists the slab by its live mask */
void index_slab_forget(struct sl_index *index, uint32_t slab); /* recovery: the slab is empty */

/* Slots (index_writer.c). */
bool index_place_free(const struct sl_index *index, uint64_t hash, struct index_place *place);
bool index_place_of(const struct sl_index *index, uint64_t hash, sl_ref ref,
                    struct index_place *place);
void index_link(struct sl_index *index, uint64_t hash, struct index_place place, sl_ref ref);
void index_count(index_word *counter, int64_t amount);
void index_leases_recover(struct sl_index *index); /* index_leases.c */
/* Ends a record that is in no slot, and frees its memory. */
void index_record_free(struct sl_index *index, sl_ref ref);
/* ref has taken over the slot of old: old leaves, and ref becomes an ordinary record. */
void index_replaced(struct sl_index *index, sl_ref ref, sl_ref old);
/* Whether a pending block has all its parts, and so can be committed. */
bool index_group_complete(struct sl_index *index, index_word *group);
/* Makes a COMMITTED record that is in no slot RETIRED, under a new version. */
void index_record_retire(struct sl_index *index, sl_ref ref);

#endif
