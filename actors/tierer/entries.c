/* actors/tierer/entries.c - the table of the disk's contents: linear hashing over a pool. */
#include "actors/tierer/entries.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ENTRIES_POOL_START    1024u
#define ENTRIES_BUCKETS_START 1024u
#define ENTRIES_SEGMENTS      16384u /* twice their maximum; their numbers are close together */

struct ti_entries {
    struct ti_entry *pool;
    ti_entry_ref *buckets;
    uint64_t seed;
    uint32_t count_max;
    uint32_t leaving; /* log file whose list is being freed; 0: none */
    uint32_t pool_capacity, pool_used;
    uint32_t bucket_capacity;
    uint32_t bucket_round; /* a power of two: buckets at the start of this round of splits */
    uint32_t bucket_split; /* buckets below were split in this round */
    ti_entry_ref free_list;
    uint64_t live_count;
    uint64_t live_bytes;
    uint32_t live_in[ENTRIES_SEGMENTS]; /* by log file number */
};

sl_err ti_entries_create(uint64_t seed, uint64_t entry_count_max, struct ti_entries **out,
                         struct sl_error *why)
{
    struct ti_entries *self = calloc(1, sizeof(*self));
    if (self != NULL) {
        self->seed = seed;
        self->count_max = (uint32_t)SL_MIN(entry_count_max, UINT32_MAX / 2);
        self->bucket_capacity = ENTRIES_BUCKETS_START;
        self->bucket_round = ENTRIES_BUCKETS_START;
        self->buckets = calloc(self->bucket_capacity, sizeof(*self->buckets));
        self->pool_capacity = ENTRIES_POOL_START;
        self->pool = malloc(self->pool_capacity * sizeof(*self->pool));
    }
    if (self == NULL || self->buckets == NULL || self->pool == NULL) {
        ti_entries_destroy(&self);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the table of the disk");
    }
    *out = self;
    return SL_OK;
}

void ti_entries_destroy(struct ti_entries **entries)
{
    if (*entries != NULL) {
        free((*entries)->buckets);
        free((*entries)->pool);
        free(*entries);
        *entries = NULL;
    }
}

struct ti_key_hash ti_entries_hash(const struct ti_entries *entries, const char *key,
                                   uint64_t length)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(key, (size_t)length, entries->seed);
    return (struct ti_key_hash){hash.low64, hash.high64};
}

static uint32_t entries_bucket(const struct ti_entries *self, struct ti_key_hash hash)
{
    uint32_t bucket = (uint32_t)hash.low & (self->bucket_round - 1);
    if (bucket < self->bucket_split) {
        bucket = (uint32_t)hash.low & (self->bucket_round * 2 - 1);
    }
    return bucket;
}

static bool entries_hash_equal(struct ti_key_hash a, struct ti_key_hash b)
{
    return a.low == b.low && a.high == b.high;
}

static ti_entry_ref *entries_link(struct ti_entries *self, struct ti_key_hash hash)
{
    ti_entry_ref *link = &self->buckets[entries_bucket(self, hash)];
    while (*link != 0 && !entries_hash_equal(self->pool[*link - 1].hash, hash)) {
        link = &self->pool[*link - 1].chain;
    }
    return link;
}

void ti_entries_expect(struct ti_entries *entries, uint64_t count)
{
    uint64_t round = entries->bucket_round;
    while (round < count && round < entries->count_max && round < UINT32_MAX / 8) {
        round *= 2;
    }
    if (entries->pool_used != 0 || round == entries->bucket_round) {
        return;
    }
    ti_entry_ref *buckets = calloc(round, sizeof(*buckets));
    if (buckets == NULL) {
        return; /* it grows as it fills */
    }
    free(entries->buckets);
    entries->buckets = buckets;
    entries->bucket_capacity = (uint32_t)round;
    entries->bucket_round = (uint32_t)round;
}

void ti_entries_prefetch(const struct ti_entries *entries, struct ti_key_hash hash, bool entry)
{
    const ti_entry_ref *bucket = &entries->buckets[entries_bucket(entries, hash)];
    if (!entry) {
        __builtin_prefetch(bucket, 1);
    } else if (*bucket != 0) {
        __builtin_prefetch(&entries->pool[*bucket - 1]);
    }
}

struct ti_entry *ti_entries_find(struct ti_entries *entries, struct ti_key_hash hash)
{
    ti_entry_ref ref = *entries_link(entries, hash);
    bool counts = ref != 0 && entries->pool[ref - 1].segment != entries->leaving;
    return counts ? &entries->pool[ref - 1] : NULL;
}

/* Splits one bucket, so that there are about as many buckets as live entries. */
static sl_err entries_split(struct ti_entries *self)
{
    uint32_t count = self->bucket_round + self->bucket_split;
    if (self->live_count < count || count >= UINT32_MAX / 4) {
        return SL_OK;
    }
    if (count == self->bucket_capacity) {
        ti_entry_ref *grown =
            realloc(self->buckets, (size_t)self->bucket_capacity * 2 * sizeof(*grown));
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        self->buckets = grown;
        self->bucket_capacity *= 2;
    }
    ti_entry_ref moving = self->buckets[self->bucket_split];
    self->buckets[self->bucket_split] = 0;
    self->buckets[count] = 0;
    self->bucket_split++;
    while (moving != 0) {
        struct ti_entry *entry = &self->pool[moving - 1];
        ti_entry_ref next = entry->chain;
        ti_entry_ref *head = &self->buckets[entries_bucket(self, entry->hash)];
        entry->chain = *head;
        *head = moving;
        moving = next;
    }
    if (self->bucket_split == self->bucket_round) {
        self->bucket_round *= 2;
        self->bucket_split = 0;
    }
    return SL_OK;
}

static sl_err entries_take(struct ti_entries *self, ti_entry_ref *ref)
{
    if (self->free_list != 0) {
        *ref = self->free_list;
        self->free_list = self->pool[*ref - 1].chain;
        return SL_OK;
    }
    if (self->pool_used == self->count_max) {
        return SL_ERR_LIMIT;
    }
    if (self->pool_used == self->pool_capacity) {
        uint32_t capacity = (uint32_t)SL_MIN((uint64_t)self->pool_capacity * 2, self->count_max);
        struct ti_entry *grown = realloc(self->pool, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        self->pool = grown;
        self->pool_capacity = capacity;
    }
    *ref = ++self->pool_used;
    return SL_OK;
}

sl_err ti_entries_put(struct ti_entries *entries, const struct ti_entry *want, ti_entry_ref *list)
{
    ti_entry_ref ref = 0;
    sl_err err = entries_take(entries, &ref);
    if (err != SL_OK) {
        return err;
    }
    ti_entries_kill(entries, want->hash);
    /* A table that cannot grow is only slower. */
    (void)entries_split(entries);
    ti_entry_ref *head = &entries->buckets[entries_bucket(entries, want->hash)];
    struct ti_entry *entry = &entries->pool[ref - 1];
    *entry = *want;
    entry->live = true;
    entry->chain = *head;
    entry->sibling = *list;
    *head = ref;
    *list = ref;
    entries->live_count++;
    entries->live_bytes += want->length_bytes;
    entries->live_in[want->segment % ENTRIES_SEGMENTS]++;
    return SL_OK;
}

void ti_entries_kill(struct ti_entries *entries, struct ti_key_hash hash)
{
    ti_entry_ref *link = entries_link(entries, hash);
    if (*link == 0) {
        return;
    }
    struct ti_entry *entry = &entries->pool[*link - 1];
    *link = entry->chain;
    entry->chain = 0;
    entry->live = false;
    entries->live_count--;
    entries->live_bytes -= entry->length_bytes;
    entries->live_in[entry->segment % ENTRIES_SEGMENTS]--;
}

bool ti_entries_drop(struct ti_entries *entries, ti_entry_ref *list, uint32_t count_max)
{
    for (uint32_t i = 0; i < count_max && *list != 0; i++) {
        ti_entry_ref ref = *list;
        struct ti_entry *entry = &entries->pool[ref - 1];
        *list = entry->sibling;
        if (entry->live) {
            ti_entries_kill(entries, entry->hash);
        }
        entry->chain = entries->free_list;
        entries->free_list = ref;
    }
    entries->leaving = *list != 0 ? entries->pool[*list - 1].segment : 0;
    return *list == 0;
}

uint32_t ti_entries_live_in(const struct ti_entries *entries, uint32_t segment)
{
    return entries->live_in[segment % ENTRIES_SEGMENTS];
}

uint64_t ti_entries_live_count(const struct ti_entries *entries)
{
    return entries->live_count;
}

uint64_t ti_entries_live_bytes(const struct ti_entries *entries)
{
    return entries->live_bytes;
}
