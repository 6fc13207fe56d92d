/* ipc/shm/index_internal.h - the writer's index, and what its source files share. */
#ifndef SL_INDEX_INTERNAL_H
#define SL_INDEX_INTERNAL_H

#include "ipc/shm/index_layout.h"
#include "ipc/shm/index_leases.h"
#include "ipc/shm/index_regions.h"

#define INDEX_NONE UINT32_MAX

/* So much of a record is fetched from memory ahead of its use: its words, and most of its key. What
 * is behind the last record of a slab is fetched in vain. */
#define INDEX_FETCH_UNITS (INDEX_UNITS_MIN + 1u)

/* Private book-keeping of one slab. */
struct index_slab {
    uint16_t units;    /* class; 0: free slab */
    uint16_t capacity; /* records */
    uint16_t free_count;
    bool clean; /* all zero since it was populated */
    uint32_t next, prev;
    uint64_t live[INDEX_SLAB_MASK_WORDS];
    uint64_t starts[INDEX_SLAB_UNITS / 64]; /* by unit: where a live record begins */
    uint64_t linked[INDEX_SLAB_MASK_WORDS]; /* recovery: has its slot */
};

struct index_recount {
    uint32_t overflow;
    uint32_t slots; /* a bit for each that is a record's */
};

struct sl_index {
    struct sl_index_view view;
    struct sl_arena *arena;
    struct index_slab *slabs;
    uint32_t slab_count; /* populated */
    uint32_t free_slab;  /* list of slabs without class; INDEX_NONE: empty */
    uint32_t free_slab_count;
    uint32_t partial[INDEX_SLAB_UNITS];      /* by class: slabs with a free record */
    uint32_t free_records[INDEX_SLAB_UNITS]; /* by class, in its slabs */
    uint64_t reserved_count;                 /* RESERVED records: each will want a slot */
    struct index_recount *recount; /* during recovery, of each bucket; NULL: nothing to recover */
    uint64_t now_ns;               /* 0: ask the clock */
    bool recovered, starved;       /* starved: the system had no memory for the last growth */
    bool made;                     /* in this life, not opened */
    struct index_leases leases;
    struct sl_lease_times lease_times;
    bool contributed; /* every object's record has the words of its terms */
    struct sl_goes_on goes_on;
};

/* Nine of ten slots may be taken: beyond that probes grow long, and a key may find no slot at all.
 */
#define INDEX_LOAD_MAX    9u
#define INDEX_LOAD_MAX_OF 10u
/* Slabs kept from what comes new, so that a switch finds its record: keys take 16 classes. */
#define INDEX_SPARE_SLABS_MAX 16u

/* Views (sl_index.c, index_reader.c). */
uint64_t index_hash(const struct sl_index_view *view, const char *key, uint32_t key_length);
/* What a view needs, from a mapped segment; checks the header. */
sl_err index_view_adopt(struct sl_index_view *view, struct sl_error *why);

/* Copies the words of a record's terms; zeros when it has none, or they would leave its slab. */
void index_terms_copy(const struct sl_index_view *view, sl_ref ref, uint64_t what,
                      uint64_t terms[TERMS_WORDS]);
/* Parses a copy of a record's words up to its key, and of its terms; key points into the mapping.
 */
void index_parse(const struct sl_index_view *view, sl_ref ref, const uint64_t words[RECORD_KEY],
                 const uint64_t terms[TERMS_WORDS], struct sl_entry *out);
/* Whether the record's key is this one; the caller checked bounds and length. */
bool index_key_is(index_word *record, enum sl_record_kind kind, const char *key,
                  uint32_t key_length);

/* What a look at one slot's record said. */
enum index_look { INDEX_LOOK_OTHER, INDEX_LOOK_FOUND, INDEX_LOOK_TORN };
/* An object as a slot names it; all but the word is set when it was FOUND. */
struct index_slot {
    uint64_t word; /* of the slot */
    uint64_t hash;
    uint32_t key_length;
    bool visible;          /* false: its block is not committed */
    bool memory, disk;     /* where its value is */
    uint32_t block_length; /* of its block's key; 0: it is in none, or the block went this moment */
    uint64_t parent_hash;  /* as in struct sl_unit_note */
    uint64_t committed_ns; /* its block */
};
/* slot_number: bucket x INDEX_BUCKET_SLOTS + slot. OTHER: empty, or a block. key_out needs
 * SL_KEY_BYTES_MAX bytes. */
enum index_look index_slot_look(const struct sl_index_view *view, uint64_t slot_number,
                                struct index_slot *out, char *key_out);

/* Whether a live record begins there; ref may be any number. Each use of a record asks it. */
static inline bool index_record_live(const struct sl_index *index, sl_ref ref)
{
    uint32_t at = ref / INDEX_SLAB_UNITS;
    uint32_t within = ref % INDEX_SLAB_UNITS;
    return at < index->slab_count &&
           (index->slabs[at].starts[within / 64] >> (within % 64) & 1) != 0;
}

/* Records (index_records.c). admits: whether a key that comes new may have a record of this class
 * and, later, a slot. It leaves behind what is needed to change the records that are there: a full
 * index whose records cannot be switched to their place on disk could never be emptied again. take:
 * SL_ERR_NO_SPACE; the record is version 0 and free. */
bool index_admits(const struct sl_index *index, uint32_t units);
sl_err index_record_take(struct sl_index *index, uint32_t units, sl_ref *ref);
void index_record_give(struct sl_index *index, sl_ref ref); /* version is 0 already */
/* A slab without records of this class. */
struct index_slab index_slab_of(uint32_t units);
/* Populates the first slabs, where there are none: readers take an index without for dead. */
void index_live(struct sl_index *index);
void index_slab_adopt(struct sl_index *index,
                      uint32_t slab); /* recovery: lists it by its live mask */
void index_slab_forget(struct sl_index *index, uint32_t slab); /* recovery: it holds nothing */

/* Slots (index_writer.c). */
bool index_place_free(const struct sl_index *index, uint64_t hash, struct index_place *place);
bool index_place_of(const struct sl_index *index, uint64_t hash, sl_ref ref,
                    struct index_place *place);
void index_link(struct sl_index *index, uint64_t hash, struct index_place place, sl_ref ref);
void index_count(index_word *counter, int64_t amount);
void index_leases_recover(struct sl_index *index); /* index_leases.c */
/* Ends a record that is in no slot, and gives its memory back. */
void index_record_free(struct sl_index *index, sl_ref ref);
/* ref has the slot that old had: old leaves, and ref is as any other. */
void index_replaced(struct sl_index *index, sl_ref ref, sl_ref old);
/* Whether a pending block has all its parts: it is committed then. */
bool index_group_complete(struct sl_index *index, index_word *group);
/* Makes a COMMITTED record that is in no slot RETIRED, under a new version. */
void index_record_retire(struct sl_index *index, sl_ref ref);

#endif
