/* ipc/index_recover.c - what a killed registrar left behind, made whole while readers go on
 * reading.
 *
 * The walk goes over every slab, so its cost is that of reading the index once or twice. Each step
 * leaves the index good for readers and can be repeated: a registrar killed in here starts here
 * again. */
#include "ipc/index_internal.h"

#include <stdlib.h>
#include <string.h>

#define RECOVER_AHEAD_BUCKETS 8u
#define RECOVER_CLAIMS_SPARE \
    256u /* claims compared at a time when there is no memory for all at once */

typedef void (*walk_fn)(struct sl_index *index, sl_ref ref, index_word *record, void *context);

/* Calls each() for every live record. each() may free the one it is given. */
static void walk(struct sl_index *index, walk_fn each, void *context)
{
    for (uint32_t at = 0; at < index->slab_count; at++) {
        uint32_t units = index->slabs[at].units;
        for (uint32_t number = 0; units != 0 && number < (INDEX_SLAB_UNITS - 1) / units; number++) {
            const struct index_slab *slab = &index->slabs[at];
            if (slab->units != units) {
                break; /* its last record was freed */
            }
            if ((slab->live[number / 64] >> (number % 64) & 1) != 0) {
                sl_ref ref = at * INDEX_SLAB_UNITS + 1 + number * units;
                each(index, ref, record_at(&index->view, ref), context);
            }
        }
    }
}

/* ---- 1: which records are live ---- */

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

/* What there is decides which of the walks below have anything to do. */
struct contents {
    uint64_t live_units;
    uint64_t in_table; /* records that should have a slot */
    uint64_t pending, parts, claims, reserved;
};

static void contents_count(struct contents *contents, index_word *record)
{
    enum sl_record_kind kind = what_kind(word_get(&record[RECORD_WHAT]));
    if (kind == SL_RECORD_GROUP) {
        contents->in_table++;
        contents->pending += word_get(&record[GROUP_STATE]) == SL_GROUP_PENDING;
    } else if (kind != SL_RECORD_BLOB) {
        contents->in_table += kind == SL_RECORD_COMMITTED;
        contents->claims += kind != SL_RECORD_COMMITTED;
        contents->reserved += kind == SL_RECORD_RESERVED;
        contents->parts += (sl_ref)word_get(&record[RECORD_GROUP]) != 0;
    }
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
        index_word *record = record_at(&index->view, at * INDEX_SLAB_UNITS + within);
        if (word_get(&record[RECORD_VERSION]) == 0) {
            continue;
        }
        if (!record_sane(record, (uint32_t) class)) {
            word_publish(&record[RECORD_VERSION], 0);
            continue;
        }
        if (what_kind(word_get(&record[RECORD_WHAT])) == SL_RECORD_RETIRED) {
            /* Its retirement may have been cut off before the version changed: a pin taken from now
             * on must fail. */
            word_publish(&record[RECORD_VERSION], sl_arena_next_generation(index->arena));
        }
        word_set(&record[RECORD_LINKS], 0);
        word_set(&record[RECORD_LINKS + 1], 0);
        slab->live[number / 64] |= UINT64_C(1) << (number % 64);
        slab->starts[within / 64] |= UINT64_C(1) << (within % 64);
        contents->live_units += class;
        contents_count(contents, record);
    }
    index_slab_adopt(index, at);
}

static void recover_slabs(struct sl_index *index, struct contents *contents)
{
    for (uint32_t at = index->slab_count; at > 0; at--) { /* free slabs are listed last first */
        recover_slab(index, at - 1, contents);
    }
    atomic_store_explicit(&index->view.header->record_units_used, contents->live_units,
                          memory_order_relaxed);
}

/* ---- 2: which of them have a slot ---- */

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

static void set_linked(struct sl_index *index, sl_ref ref, uint64_t hash, uint64_t bucket)
{
    uint64_t bit = 0;
    uint64_t *word = linked_word(index, ref, &bit);
    *word |= bit;
    for (uint64_t at = hash_bucket(&index->view, hash); at != bucket;
         at = bucket_after(&index->view, at)) {
        index->recount[at]++;
    }
    bool group = what_kind(word_get(&record_at(&index->view, ref)[RECORD_WHAT])) == SL_RECORD_GROUP;
    index_count(group ? &index->view.header->group_count : &index->view.header->key_count, 1);
}

static bool same_key(const struct sl_index *index, sl_ref a, sl_ref b)
{
    index_word *one = record_at(&index->view, a);
    index_word *other = record_at(&index->view, b);
    uint64_t what_one = word_get(&one[RECORD_WHAT]);
    uint64_t what_other = word_get(&other[RECORD_WHAT]);
    if (what_key_length(what_one) != what_key_length(what_other)) {
        return false;
    }
    const char *key = (const char *)(const void *)&one[record_key_word(what_kind(what_one))];
    return index_key_is(other, what_kind(what_other), key, what_key_length(what_one));
}

/* Whether a slot before this one on the key's path holds the same key already. */
static bool key_is_before(struct sl_index *index, uint64_t hash, sl_ref ref,
                          struct index_place place)
{
    const struct sl_index_view *view = &index->view;
    uint64_t at = hash_bucket(view, hash);
    for (;;) {
        uint32_t slot_count = at == place.bucket ? place.slot : INDEX_BUCKET_SLOTS;
        for (uint32_t i = 0; i < slot_count; i++) {
            uint64_t word = word_get(&view->buckets[at].slots[i]);
            sl_ref other = (sl_ref)word;
            if ((uint32_t)(word >> 32) == hash_tag(hash) && index_record_live(index, other) &&
                is_linked(index, other) && same_key(index, ref, other)) {
                return true;
            }
        }
        if (at == place.bucket) {
            return false;
        }
        at = bucket_after(view, at);
    }
}

static bool slot_good(struct sl_index *index, uint64_t word, struct index_place place)
{
    sl_ref ref = (sl_ref)word;
    const struct sl_index_view *view = &index->view;
    if (!index_record_live(index, ref)) {
        return false;
    }
    index_word *record = record_at(view, ref);
    uint64_t hash = word_get(&record[RECORD_HASH]);
    enum sl_record_kind kind = what_kind(word_get(&record[RECORD_WHAT]));
    uint64_t home = hash_bucket(view, hash);
    uint64_t distance =
        place.bucket >= home ? place.bucket - home : place.bucket + view->bucket_count - home;
    return (kind == SL_RECORD_COMMITTED || kind == SL_RECORD_GROUP) &&
           slot_make(hash, ref) == word && distance < SL_INDEX_PROBE_MAX &&
           !is_linked(index, ref) && !key_is_before(index, hash, ref, place);
}

static void prefetch_bucket(const struct sl_index *index, uint64_t at)
{
    if (at >= index->view.bucket_count) {
        return;
    }
    for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
        sl_ref ref = (sl_ref)word_get(&index->view.buckets[at].slots[i]);
        if (ref / INDEX_SLAB_UNITS < index->slab_count) {
            __builtin_prefetch((const void *)record_at(&index->view, ref), 0, 1);
        }
    }
}

static void recover_slots(struct sl_index *index)
{
    struct sl_index_view *view = &index->view;
    atomic_store_explicit(&view->header->key_count, 0, memory_order_relaxed);
    atomic_store_explicit(&view->header->group_count, 0, memory_order_relaxed);
    for (uint64_t at = 0; at < view->bucket_count; at++) {
        prefetch_bucket(index, at + RECOVER_AHEAD_BUCKETS);
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            index_word *slot = &view->buckets[at].slots[i];
            uint64_t word = word_get(slot);
            if (word == 0) {
                continue;
            }
            if (!slot_good(index, word, (struct index_place){at, i})) {
                word_publish(slot, 0);
                continue;
            }
            set_linked(index, (sl_ref)word, word_get(&record_at(view, (sl_ref)word)[RECORD_HASH]),
                       at);
        }
    }
}

/* ---- 3: records that count but have no slot ---- */

/* A commit in place of another record was cut off: it ends here. */
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

/* A commit that was cut off before its slot gets it. A record whose key another one has lost its
 * slot to a switch, or never got it: its extent, if it is its own, may be pinned. */
static void relink(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    uint64_t what = word_get(&record[RECORD_WHAT]);
    enum sl_record_kind kind = what_kind(what);
    bool replaces = kind == SL_RECORD_COMMITTED && (what & WHAT_REPLACES) != 0;
    struct index_place place;
    struct sl_entry winner = {0};
    (void)context;
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
        set_linked(index, ref, hash, place.bucket);
        return;
    }
    if (replaces && err == SL_OK && winner.kind == SL_RECORD_COMMITTED) {
        replace(index, ref, hash, winner.ref);
        return;
    }
    uint64_t generation = word_get(&record[RECORD_GENERATION]);
    if (kind == SL_RECORD_GROUP || generation == 0 || generation == winner.extent.generation) {
        index_record_free(index, ref);
    } else {
        index_record_retire(index, ref);
    }
}

/* Counts that a cut-off link or unlink left too high. They were never too low, so readers missed
 * nothing; those of regions may be, where a release that does not count served meanwhile, and nobody believes them
 * before this is over. */
static void recover_counts(struct sl_index *index)
{
    for (uint64_t at = 0; at < index->view.bucket_count; at++) {
        index_word *overflow = &index->view.buckets[at].overflow;
        if (word_get(overflow) != index->recount[at]) {
            word_publish(overflow, index->recount[at]);
        }
        if ((at + 1) % INDEX_REGION_BUCKETS == 0 || at + 1 == index->view.bucket_count) {
            index_region_recount(&index->view,
                                 at / INDEX_REGION_BUCKETS); /* it is in the cache now */
        }
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

/* The group a record points at; NULL when it is gone. */
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

/* A part without its block: never visible again, and its reference to the group means nothing. */
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
        contents->claims++;
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

struct claim {
    uint64_t generation;
    sl_ref ref;
    uint32_t rank; /* of several claims of one extent the lowest stays */
    bool lost;
};

struct claims {
    struct claim *at;
    uint32_t count, capacity;
    uint32_t skip; /* claims that an earlier turn has compared */
    uint32_t seen;
};

/* In the table beats everything; a claim with a writer beats one that only waits for readers. 0: no
 * claim. */
static uint32_t claim_rank(enum sl_record_kind kind)
{
    switch (kind) {
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

static void claim_count(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    struct claims *claims = context;
    (void)index;
    (void)ref;
    claims->seen += claim_rank(what_kind(word_get(&record[RECORD_WHAT]))) > 1;
}

static void claim_collect(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    struct claims *claims = context;
    uint32_t rank = claim_rank(what_kind(word_get(&record[RECORD_WHAT])));
    (void)index;
    if (rank <= 1 || word_get(&record[RECORD_GENERATION]) == 0) {
        return;
    }
    if (claims->seen++ >= claims->skip && claims->count < claims->capacity) {
        claims->at[claims->count++] = (struct claim){
            .generation = word_get(&record[RECORD_GENERATION]), .ref = ref, .rank = rank};
    }
}

static int claim_order(const void *a, const void *b)
{
    uint64_t one = ((const struct claim *)a)->generation;
    uint64_t other = ((const struct claim *)b)->generation;
    return (one > other) - (one < other);
}

static void claim_compare(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    struct claims *claims = context;
    uint32_t rank = claim_rank(what_kind(word_get(&record[RECORD_WHAT])));
    uint64_t generation = word_get(&record[RECORD_GENERATION]);
    uint32_t low = 0;
    uint32_t high = claims->count;
    (void)index;
    if (rank == 0 || generation == 0) {
        return;
    }
    while (low < high) { /* the first claim that is not below */
        uint32_t middle = low + (high - low) / 2;
        if (claims->at[middle].generation < generation) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < claims->count && claims->at[low].generation == generation; low++) {
        struct claim *claim = &claims->at[low];
        claim->lost |= rank < claim->rank || (rank == claim->rank && ref < claim->ref);
    }
}

/* Compares claims with everything, as many at a time as there is memory for. */
static void recover_claims(struct sl_index *index)
{
    struct claim spare[RECOVER_CLAIMS_SPARE];
    struct claims claims = {0};
    walk(index, claim_count, &claims);
    uint32_t total = claims.seen;
    struct claim *memory = total > RECOVER_CLAIMS_SPARE ? malloc(total * sizeof(*memory)) : NULL;
    claims.at = memory != NULL ? memory : spare;
    claims.capacity = memory != NULL ? total : RECOVER_CLAIMS_SPARE;
    while (claims.skip < total) {
        uint32_t lost_count = 0;
        claims.count = 0;
        claims.seen = 0;
        walk(index, claim_collect, &claims);
        if (claims.count == 0) {
            break;
        }
        qsort(claims.at, claims.count, sizeof(*claims.at), claim_order);
        walk(index, claim_compare, &claims);
        for (uint32_t i = 0; i < claims.count; i++) {
            if (claims.at[i].lost) {
                sl_index_set_kind(index, claims.at[i].ref, SL_RECORD_FREE);
                lost_count++;
            }
        }
        claims.skip += claims.count - lost_count; /* those freed are not seen again */
    }
    free(memory);
}

/* ---- all ---- */

struct giving {
    void (*each)(void *context, const struct sl_entry *entry);
    void *context;
};

static void give(struct sl_index *index, sl_ref ref, index_word *record, void *context)
{
    const struct giving *giving = context;
    struct sl_entry entry;
    (void)record;
    sl_index_read(index, ref, &entry);
    giving->each(giving->context, &entry);
}

static void recover_contents(struct sl_index *index)
{
    struct contents contents = {0};
    struct index_header *header = index->view.header;
    recover_slabs(index, &contents);
    index->reserved_count = contents.reserved;
    recover_slots(index);
    if (contents.in_table != word_get(&header->key_count) + word_get(&header->group_count)) {
        walk(index, relink, NULL);
        contents.claims++; /* perhaps */
    }
    recover_counts(index);
    if (contents.pending > 0) {
        walk(index, group_empty, NULL);
    }
    if (contents.parts > 0) {
        walk(index, part_count, &contents);
    }
    if (contents.pending > 0) {
        walk(index, group_flip, NULL);
    }
    if (contents.claims > 0) {
        recover_claims(index);
    }
}

void sl_index_recover(struct sl_index *index,
                      void (*each)(void *context, const struct sl_entry *entry), void *context)
{
    struct giving giving = {each, context};
    if (index->recount != NULL) { /* opened, not made */
        recover_contents(index);
        index_live(index); /* its maker may have died before it did */
        index_leases_recover(index);
        free(index->recount);
        index->recount = NULL;
        index->recovered = true;
        index_regions_own(&index->view, true);
    }
    if (each != NULL) {
        walk(index, give, &giving);
    }
}
