/* ipc/shm/index_recover.c - repairs the index after a registrar was killed, while readers continue.
 *
 * The walk covers every slab, so it costs as much as reading the index once or twice. Each step
 * leaves the index valid for readers and can be repeated: a registrar that is killed here starts
 * here again. */
#include "ipc/shm/index_internal.h"
#include "runtime/base/sl_array.h"

#include <stdlib.h>
#include <string.h>

#define RECOVER_AHEAD 12u /* in records */

typedef void (*walk_fn)(struct sl_index *index, sl_ref ref, index_word *record, void *context);

/* Reports progress: a large index takes longer than the caller may be silent. */
static void goes_on(const struct sl_index *index)
{
    if (index->goes_on.call != NULL) {
        index->goes_on.call(index->goes_on.context);
    }
}

/* Calls each() for every live record. each() may free the one it is given. */
static void walk(struct sl_index *index, walk_fn each, void *context)
{
    for (uint32_t at = 0; at < index->slab_count; at++) {
        uint32_t units = index->slabs[at].units;
        goes_on(index);
        for (uint32_t number = 0; units != 0 && number < (INDEX_SLAB_UNITS - 1) / units; number++) {
            const struct index_slab *slab = &index->slabs[at];
            if (slab->units != units) {
                break; /* its last record was freed */
            }
            if ((slab->live[number / 64] >> (number % 64) & 1) != 0) {
                sl_ref ref = at * INDEX_SLAB_UNITS + 1 + number * units;
                sl_index_fetch(index, ref + RECOVER_AHEAD * units); /* or memory after the slab */
                each(index, ref, record_at(&index->view, ref), context);
            }
        }
    }
}

/* ---- 1: find the live records ---- */

static bool record_sane(index_word *record, uint32_t class)
{
    uint64_t what = word_get(&record[RECORD_WHAT]);
    enum sl_record_kind kind = what_kind(what);
    uint32_t key_length = what_key_length(what);
    if (kind < SL_RECORD_RESERVED || kind > SL_RECORD_BLOB || what_units(what) != class ||
        record_units_of(what) > class) {
        return false;
    }
    if ((what & WHAT_TERMS) != 0 && (kind == SL_RECORD_GROUP || kind == SL_RECORD_BLOB)) {
        return false;
    }
    if (kind == SL_RECORD_BLOB) {
        return key_length <= SL_BLOB_BYTES_MAX;
    }
    if (key_length == 0 || key_length > SL_KEY_BYTES_MAX) {
        return false;
    }
    uint64_t state = word_get(&record[GROUP_STATE]);
    uint64_t parts = word_get(&record[GROUP_PARTS]);
    return kind != SL_RECORD_GROUP || (state >= SL_GROUP_PENDING && state <= SL_GROUP_DROPPED &&
                                       parts >= 1 && parts <= SL_GROUP_PARTS_MAX);
}

struct claim {
    uint64_t generation;
    sl_ref ref;
    uint32_t rank; /* of several claims of one extent the lowest keeps it */
    bool lost;     /* a record in the table has the extent */
};

/* Results that decide which of the walks below are needed. */
struct contents {
    uint64_t live_units;
    uint64_t in_table; /* records that should have a slot */
    uint64_t pending, parts, reserved;
    struct claim *claims; /* records outside the table, initially including doubtful ones */
    uint64_t claim_count, claim_capacity;
    bool failed; /* there was no memory for them */
    void (*each)(void *context, const struct sl_entry *entry);
    void *context;
};

static void claim_note(struct contents *contents, sl_ref ref)
{
    if (SL_ARRAY_ROOM(contents->claims, contents->claim_capacity, contents->claim_count + 1)) {
        contents->claims[contents->claim_count++] = (struct claim){.ref = ref};
    } else {
        contents->failed = true;
    }
}

static void contents_count(struct contents *contents, sl_ref ref, index_word *record)
{
    enum sl_record_kind kind = what_kind(word_get(&record[RECORD_WHAT]));
    if (kind == SL_RECORD_GROUP) {
        contents->in_table++;
        contents->pending += word_get(&record[GROUP_STATE]) == SL_GROUP_PENDING;
    } else if (kind != SL_RECORD_BLOB) {
        contents->in_table += kind == SL_RECORD_COMMITTED;
        contents->reserved += kind == SL_RECORD_RESERVED;
        contents->parts += (sl_ref)word_get(&record[RECORD_GROUP]) != 0;
        if (kind != SL_RECORD_COMMITTED) {
            claim_note(contents, ref);
        }
    }
}

/* ---- 2: find those that have a slot ---- */

static bool is_in_table(index_word *record)
{
    enum sl_record_kind kind = what_kind(word_get(&record[RECORD_WHAT]));
    return kind == SL_RECORD_COMMITTED || kind == SL_RECORD_GROUP;
}

static uint64_t *linked_word(struct sl_index *index, sl_ref ref, uint64_t *bit)
{
    struct index_slab *slab = &index->slabs[ref / INDEX_SLAB_UNITS];
    uint32_t number = (ref % INDEX_SLAB_UNITS - 1) / slab->units;
    *bit = UINT64_C(1) << (number % 64);
    return &slab->linked[number / 64];
}

static bool is_linked(struct sl_index *index, sl_ref ref)
{
    uint64_t bit = 0;
    const uint64_t *word = linked_word(index, ref, &bit);
    return (*word & bit) != 0;
}

static void set_linked(struct sl_index *index, sl_ref ref, uint64_t hash, struct index_place place)
{
    uint64_t bit = 0;
    uint64_t *word = linked_word(index, ref, &bit);
    *word |= bit;
    index->recount[place.bucket].slots |= 1u << place.slot;
    for (uint64_t at = hash_bucket(&index->view, hash); at != place.bucket;
         at = bucket_after(&index->view, at)) {
        index->recount[at].overflow++;
    }
    bool group = what_kind(word_get(&record_at(&index->view, ref)[RECORD_WHAT])) == SL_RECORD_GROUP;
    index_count(group ? &index->view.header->group_count : &index->view.header->key_count, 1);
}

/* Whether the slot belongs to another record of the same key. */
static bool slot_has_same_key(const struct sl_index *index, uint64_t word, sl_ref ref)
{
    index_word *one = record_at(&index->view, ref);
    index_word *other = record_at(&index->view, (sl_ref)word); /* any, until known live */
    uint64_t what_one = word_get(&one[RECORD_WHAT]);
    if (!index_record_live(index, (sl_ref)word) || !is_in_table(other) ||
        word_get(&other[RECORD_HASH]) != word_get(&one[RECORD_HASH]) ||
        what_key_length(word_get(&other[RECORD_WHAT])) != what_key_length(what_one)) {
        return false;
    }
    const char *key = (const char *)(const void *)&one[record_key_word(what_kind(what_one))];
    return index_key_is(other, what_kind(word_get(&other[RECORD_WHAT])), key,
                        what_key_length(what_one));
}

/* The first slot on its key's path that names the record is its own, unless an earlier one has the
 * same key. That is known only when all records are known; until then a possible rival makes it
 * doubtful, and the result is false. */
static bool slot_find(struct sl_index *index, sl_ref ref, bool all_known)
{
    const struct sl_index_view *view = &index->view;
    uint64_t hash = word_get(&record_at(view, ref)[RECORD_HASH]);
    uint64_t at = hash_bucket(view, hash);
    uint64_t bucket_count_max = SL_MIN(view->bucket_count, SL_INDEX_PROBE_MAX);
    for (uint64_t n = 0; n < bucket_count_max; n++, at = bucket_after(view, at)) {
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            uint64_t word = word_get(&view->buckets[at].slots[i]);
            if (word == slot_make(hash, ref)) {
                set_linked(index, ref, hash, (struct index_place){at, i});
                return true;
            }
            if ((uint32_t)(word >> 32) == hash_tag(hash) &&
                (!all_known || slot_has_same_key(index, word, ref))) {
                return false;
            }
        }
    }
    return false;
}

static void links_clear(index_word *record)
{
    word_set(&record[RECORD_LINKS], 0);
    word_set(&record[RECORD_LINKS + 1], 0);
}

static void recover_slab(struct sl_index *index, uint32_t at, struct contents *contents)
{
    struct index_slab *slab = &index->slabs[at];
    uint64_t class = word_get(record_at(&index->view, at * INDEX_SLAB_UNITS));
    *slab = (struct index_slab){0};
    if (class < INDEX_UNITS_MIN || class >= INDEX_SLAB_UNITS) {
        index_slab_forget(index, at);
        return;
    }
    *slab = index_slab_of((uint32_t) class);
    for (uint32_t number = 0; number < slab->capacity; number++) {
        uint32_t within = 1 + number * (uint32_t) class;
        sl_ref ref = at * INDEX_SLAB_UNITS + within;
        index_word *record = record_at(&index->view, ref);
        if (number + RECOVER_AHEAD < slab->capacity) { /* any word is valid for prefetching */
            uint64_t hash =
                word_get(&record[RECOVER_AHEAD * class * INDEX_UNIT_WORDS + RECORD_HASH]);
            __builtin_prefetch((const void *)&index->view.buckets[hash_bucket(&index->view, hash)]);
            __builtin_prefetch(&index->recount[hash_bucket(&index->view, hash)], 1);
        }
        if (word_get(&record[RECORD_VERSION]) == 0) {
            continue;
        }
        if (!record_sane(record, (uint32_t) class)) {
            word_publish(&record[RECORD_VERSION], 0);
            continue;
        }
        if (what_kind(word_get(&record[RECORD_WHAT])) == SL_RECORD_RETIRED) {
            /* Its retirement may have been interrupted before the version changed: a pin taken from
             * now on must fail. */
            word_publish(&record[RECORD_VERSION], sl_arena_next_generation(index->arena));
        }
        if (what_kind(word_get(&record[RECORD_WHAT])) == SL_RECORD_GROUP) {
            links_clear(record); /* before its parts go to each() */
        }
        slab->live[number / 64] |= UINT64_C(1) << (number % 64);
        slab->starts[within / 64] |= UINT64_C(1) << (within % 64);
        contents->live_units += class;
        contents_count(contents, ref, record);
        if (is_in_table(record) && !slot_find(index, ref, false)) {
            claim_note(contents, ref);
        }
    }
    index_slab_adopt(index, at);
}

static void recover_slabs(struct sl_index *index, struct contents *contents)
{
    atomic_store_explicit(&index->view.header->key_count, 0, memory_order_relaxed);
    atomic_store_explicit(&index->view.header->group_count, 0, memory_order_relaxed);
    for (uint32_t at = index->slab_count; at > 0; at--) { /* free slabs are listed in reverse */
        recover_slab(index, at - 1, contents);
        goes_on(index);
    }
    atomic_store_explicit(&index->view.header->record_units_used, contents->live_units,
                          memory_order_relaxed);
    uint64_t noted = contents->claim_count;
    contents->claim_count = 0;
    for (uint64_t i = 0; i < noted; i++) {
        sl_ref ref = contents->claims[i].ref;
        if (is_in_table(record_at(&index->view, ref))) {
            (void)slot_find(index, ref, true);
        } else {
            contents->claims[contents->claim_count++].ref = ref;
        }
    }
}

/* Clears slots without a record, and corrects counts that an interrupted link or unlink left too
 * high. They are never too low, so readers missed nothing. Those of regions may be too low after a
 * release that does not count, but they are not used before this has ended. */
static void recover_table(struct sl_index *index)
{
    for (uint64_t at = 0; at < index->view.bucket_count; at++) {
        struct index_bucket *bucket = &index->view.buckets[at];
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            if ((index->recount[at].slots >> i & 1) == 0 && word_get(&bucket->slots[i]) != 0) {
                word_publish(&bucket->slots[i], 0);
            }
        }
        if (word_get(&bucket->overflow) != index->recount[at].overflow) {
            word_publish(&bucket->overflow, index->recount[at].overflow);
        }
        if ((at + 1) % INDEX_REGION_BUCKETS == 0 || at + 1 == index->view.bucket_count) {
            index_region_recount(&index->view,
                                 at / INDEX_REGION_BUCKETS); /* its line is in the cache now */
        }
    }
}

/* ---- 3: records that count but have no slot ---- */

/* Completes an interrupted commit in place of another record. */
static void replace(struct sl_index *index, sl_ref ref, uint64_t hash, sl_ref old)
{
    struct index_place place;
    uint64_t bit = 0;
    uint64_t *word = NULL;
    bool found = index_place_of(index, hash, old, &place);
    SL_ASSERT(found);
    word_publish(&index->view.buckets[place.bucket].slots[place.slot], slot_make(hash, ref));
    word = linked_word(index, old, &bit);
    *word &= ~bit;
    word = linked_word(index, ref, &bit);
    *word |= bit;
    index_replaced(index, ref, old);
}

/* Completes a commit that was interrupted before its slot was set. If another record has its key,
 * this one lost its slot in a switch or never got it: its extent, if it has its own, may be
 * pinned. */
static void relink(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    uint64_t what = word_get(&record[RECORD_WHAT]);
    enum sl_record_kind kind = what_kind(what);
    bool replaces = kind == SL_RECORD_COMMITTED && (what & WHAT_REPLACES) != 0;
    struct index_place place;
    struct sl_entry winner = {0};
    if ((kind != SL_RECORD_COMMITTED && kind != SL_RECORD_GROUP) || is_linked(index, ref)) {
        if (replaces) {
            word_publish(&record[RECORD_WHAT], what & ~WHAT_REPLACES);
        }
        return;
    }
    const char *key = (const char *)(const void *)&record[record_key_word(kind)];
    uint64_t hash = word_get(&record[RECORD_HASH]);
    sl_err err =
        sl_index_find_any(index, key, what_key_length(word_get(&record[RECORD_WHAT])), &winner);
    if (err == SL_ERR_NOT_FOUND && index_place_free(index, hash, &place)) {
        index_link(index, hash, place, ref);
        set_linked(index, ref, hash, place);
        return;
    }
    if (replaces && err == SL_OK && winner.kind == SL_RECORD_COMMITTED) {
        replace(index, ref, hash, winner.ref);
        claim_note(context, winner.ref);
        return;
    }
    uint64_t generation = word_get(&record[RECORD_GENERATION]);
    if (kind == SL_RECORD_GROUP || generation == 0 || generation == winner.extent.generation) {
        index_record_free(index, ref);
    } else {
        index_record_retire(index, ref);
        claim_note(context, ref);
    }
}

/* ---- 4: blocks ---- */

static bool is_pending_group(index_word *record)
{
    return what_kind(word_get(&record[RECORD_WHAT])) == SL_RECORD_GROUP &&
           word_get(&record[GROUP_STATE]) == SL_GROUP_PENDING;
}

static void group_empty(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    (void)index;
    (void)ref;
    (void)context;
    for (uint32_t i = 0; is_pending_group(record) && i < SL_GROUP_PARTS_MAX / 64; i++) {
        word_set(&record[GROUP_FILLED + i], 0);
    }
}

/* The group that a record refers to; NULL if it no longer exists. */
static index_word *group_of(struct sl_index *index, index_word *record)
{
    sl_ref ref = (sl_ref)word_get(&record[RECORD_GROUP]);
    if (!index_record_live(index, ref)) {
        return NULL;
    }
    index_word *group = record_at(&index->view, ref);
    uint64_t part_index = word_get(&record[RECORD_GROUP]) >> 32 & 0xffff;
    bool same = what_kind(word_get(&group[RECORD_WHAT])) == SL_RECORD_GROUP &&
                word_get(&group[RECORD_VERSION]) == word_get(&record[RECORD_GROUP_VERSION]) &&
                part_index < word_get(&group[GROUP_PARTS]);
    return same ? group : NULL;
}

/* A part without its block is never visible again, and its reference to the group is invalid. */
static void part_orphan(struct sl_index *index, sl_ref ref, index_word *record,
                        enum sl_record_kind kind)
{
    if (kind == SL_RECORD_COMMITTED && word_get(&record[RECORD_GENERATION]) == 0) {
        sl_index_unlink(index, ref, SL_RECORD_FREE);
        return;
    }
    if (kind == SL_RECORD_COMMITTED) {
        sl_index_unlink(index, ref, SL_RECORD_RETIRED);
    } else if (kind == SL_RECORD_RESERVED) {
        sl_index_set_kind(index, ref, SL_RECORD_QUARANTINED);
    }
    word_set(&record[RECORD_GROUP], word_get(&record[RECORD_GROUP]) & ~(uint64_t)UINT32_MAX);
}

static void part_count(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    enum sl_record_kind kind = what_kind(word_get(&record[RECORD_WHAT]));
    struct contents *contents = context;
    if (kind == SL_RECORD_GROUP || kind == SL_RECORD_BLOB ||
        (sl_ref)word_get(&record[RECORD_GROUP]) == 0) {
        return;
    }
    index_word *group = group_of(index, record);
    if (group == NULL) {
        part_orphan(index, ref, record, kind);
        if (kind == SL_RECORD_COMMITTED) { /* others are recorded */
            claim_note(contents, ref);
        }
        return;
    }
    if (kind == SL_RECORD_COMMITTED && is_pending_group(group)) {
        uint32_t part_index = (uint32_t)(word_get(&record[RECORD_GROUP]) >> 32) & 0xffff;
        index_word *bits = &group[GROUP_FILLED + part_index / 64];
        word_set(bits, word_get(bits) | UINT64_C(1) << (part_index % 64));
    }
}

static void group_flip(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    (void)ref;
    (void)context;
    if (is_pending_group(record)) {
        (void)index_group_complete(index, record);
    }
}

/* ---- 5: one claim for each extent ---- */

/* A record in the table precedes all; a claim with a writer precedes one that only waits for
 * readers. 0: not a claim. */
static uint32_t record_rank(index_word *record)
{
    switch (what_kind(word_get(&record[RECORD_WHAT]))) {
    case SL_RECORD_COMMITTED:
        return 1;
    case SL_RECORD_RESERVED:
    case SL_RECORD_PROMOTING:
        return 2;
    case SL_RECORD_QUARANTINED:
        return 3;
    case SL_RECORD_RETIRED:
        return 4;
    default:
        return 0;
    }
}

static int claim_order(const void *a, const void *b)
{
    const struct claim *one = a;
    const struct claim *other = b;
    if (one->generation != other->generation) {
        return one->generation > other->generation ? 1 : -1;
    }
    uint64_t left = (uint64_t)one->rank << 32 | one->ref;
    uint64_t right = (uint64_t)other->rank << 32 | other->ref;
    return (left > right) - (left < right);
}

/* Sorts the recorded claims in their present state, by claim_order. */
static void claims_sort(struct sl_index *index, struct contents *contents)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < contents->claim_count; i++) {
        sl_ref ref = contents->claims[i].ref;
        index_word *record = record_at(&index->view, ref);
        if (index_record_live(index, ref) && record_rank(record) > 1) {
            contents->claims[count++] =
                (struct claim){.generation = word_get(&record[RECORD_GENERATION]),
                               .ref = ref,
                               .rank = record_rank(record)};
        }
    }
    contents->claim_count = count;
    if (count > 0) {
        qsort(contents->claims, count, sizeof(*contents->claims), claim_order);
    }
}

/* The first claim of the extent loses it to the table; other claims lose it to the first. */
static void claim_lose(struct contents *contents, uint64_t generation)
{
    uint64_t low = 0, high = contents->claim_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (contents->claims[middle].generation < generation) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < contents->claim_count && contents->claims[low].generation == generation) {
        contents->claims[low].lost = true;
    }
}

static void give(struct sl_index *index, sl_ref ref, struct contents *contents)
{
    struct sl_entry entry;
    index_word *record = record_at(&index->view, ref);
    if (what_kind(word_get(&record[RECORD_WHAT])) != SL_RECORD_GROUP) {
        links_clear(record);
    }
    if (contents->each != NULL) {
        sl_index_read(index, ref, &entry);
        contents->each(contents->context, &entry);
    }
}

/* Passes all but claims to each(); claims wait until the owners of their extents are known. */
static void settled_give(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    struct contents *contents = context;
    uint32_t rank = record_rank(record);
    uint64_t generation = rank == 1 ? word_get(&record[RECORD_GENERATION]) : 0;
    if (generation != 0 && contents->claim_count > 0) {
        claim_lose(contents, generation);
    }
    if (rank <= 1) {
        give(index, ref, contents);
    }
}

static void claims_give(struct sl_index *index, struct contents *contents)
{
    uint64_t before = 0; /* generation of the previous claim */
    for (uint64_t i = 0; i < contents->claim_count; i++) {
        const struct claim *claim = &contents->claims[i];
        if (claim->generation != 0 && (claim->lost || claim->generation == before)) {
            sl_index_set_kind(index, claim->ref, SL_RECORD_FREE);
        } else {
            give(index, claim->ref, contents);
        }
        before = claim->generation;
    }
}

/* ---- all ---- */

static void recover_contents(struct sl_index *index, struct contents *contents)
{
    struct index_header *header = index->view.header;
    index->reserved_count = contents->reserved;
    recover_table(index);
    if (contents->in_table != word_get(&header->key_count) + word_get(&header->group_count)) {
        walk(index, relink, contents);
    }
    if (contents->pending > 0) {
        walk(index, group_empty, NULL);
    }
    if (contents->parts > 0) {
        walk(index, part_count, contents);
    }
    if (contents->pending > 0) {
        walk(index, group_flip, NULL);
    }
    claims_sort(index, contents);
}

sl_err sl_index_recover(struct sl_index *index,
                        void (*each)(void *context, const struct sl_entry *entry), void *context)
{
    struct contents contents = {.each = each, .context = context};
    if (index->recount == NULL) { /* created, not opened */
        return SL_OK;
    }
    recover_slabs(index, &contents);
    if (contents.failed) { /* a slot whose record is not known would be cleared */
        free(contents.claims);
        return SL_ERR_NO_MEMORY;
    }
    recover_contents(index, &contents);
    index_live(index); /* its creator may have died before doing so */
    index_leases_recover(index);
    free(index->recount);
    index->recount = NULL;
    index->recovered = true;
    index_regions_own(&index->view, true);
    walk(index, settled_give, &contents);
    claims_give(index, &contents);
    free(contents.claims);
    return contents.failed ? SL_ERR_NO_MEMORY : SL_OK;
}
