/* ipc/shm/index_reader.c - lookups in a mapping that another process writes and that is not
 * trusted.
 *
 * Every reference, length and count is bounded before it is used: a torn or hostile index can only
 * cause wrong answers, never a fault or an endless loop. index_layout.h describes the orders. */
#include "ipc/shm/index_internal.h"

#include <string.h>

/* Number of times that a closed lease is read again: meanwhile the registrar unlinks a bundle of
 * hundreds. */
#define SHUT_TRIES_MAX 4096u
#define BATCH_WIDTH \
    32u /* keys in flight: enough to hide the latency of memory, few enough to stay in L1 */

struct wanted {
    const char *key;
    uint32_t key_length;
    bool object, group; /* kinds that match */
    uint64_t hash;
};

struct found {
    uint64_t words[RECORD_KEY];
    uint64_t terms[TERMS_WORDS];
    sl_ref ref;
    index_word *slot;
};

bool index_key_is(index_word *record, enum sl_record_kind kind, const char *key,
                  uint32_t key_length)
{
    index_word *words = record + record_key_word(kind);
    uint32_t whole = key_length / 8;
    uint64_t differs = 0;
    for (uint32_t i = 0; i < whole; i++) {
        uint64_t part;
        memcpy(&part, key + i * 8, 8);
        differs |= part ^ word_get(&words[i]);
    }
    if (key_length % 8 != 0) {
        uint64_t part = 0; /* the record is padded with zeros */
        memcpy(&part, key + whole * 8, key_length % 8);
        differs |= part ^ word_get(&words[whole]);
    }
    return differs == 0;
}

void index_terms_copy(const struct sl_index_view *view, sl_ref ref, uint64_t what,
                      uint64_t terms[TERMS_WORDS])
{
    bool there = (what & WHAT_TERMS) != 0 && ref_in_bounds(view, ref, record_units_of(what));
    for (uint32_t i = 0; i < TERMS_WORDS; i++) {
        terms[i] =
            there ? word_get(&record_at(
                        view, ref)[record_terms_word(what_kind(what), what_key_length(what)) + i])
                  : 0;
    }
}

void index_parse(const struct sl_index_view *view, sl_ref ref, const uint64_t words[RECORD_KEY],
                 const uint64_t terms[TERMS_WORDS], struct sl_entry *out)
{
    enum sl_record_kind kind = what_kind(words[RECORD_WHAT]);
    *out = (struct sl_entry){
        .ref = ref,
        .kind = (uint32_t)kind,
        .version = words[RECORD_VERSION],
        .hash = words[RECORD_HASH],
        .owner = {.start_time = words[RECORD_OWNER_START], .pid = (uint32_t)words[RECORD_PIDS]},
        .writer = {.start_time = words[RECORD_WRITER_START],
                   .pid = (uint32_t)(words[RECORD_PIDS] >> 32)},
        .deadline_ns = words[RECORD_DEADLINE],
        .op_id = words[RECORD_OP],
        .key_length = (uint16_t)what_key_length(words[RECORD_WHAT]),
        .key = (const char *)(const void *)(record_at(view, ref) + record_key_word(kind)),
    };
    if (kind == SL_RECORD_GROUP || kind == SL_RECORD_BLOB) {
        return; /* the other words have another meaning there */
    }
    out->extent = (struct sl_extent){.generation = words[RECORD_GENERATION],
                                     .offset_bytes = words[RECORD_OFFSET],
                                     .length_bytes = words[RECORD_LENGTH],
                                     .arena = (uint32_t)(words[RECORD_GROUP] >> 48)};
    out->digest =
        (struct sl_digest){.low = words[RECORD_DIGEST_LOW], .high = words[RECORD_DIGEST_HIGH]};
    out->disk = (struct sl_disk_place){.offset_bytes = words[RECORD_DISK_OFFSET],
                                       .segment = (uint32_t)words[RECORD_DISK],
                                       .disk = (uint16_t)(words[RECORD_DISK] >> 32),
                                       .valid = (uint16_t)(words[RECORD_DISK] >> 48)};
    out->group = (sl_ref)words[RECORD_GROUP];
    out->part_index = (uint16_t)(words[RECORD_GROUP] >> 32);
    out->hard_pin = (words[RECORD_WHAT] & WHAT_HARD_PIN) != 0;
    out->replace = kind == SL_RECORD_RESERVED && (words[RECORD_WHAT] & WHAT_REPLACER) != 0;
    out->pinned = (words[RECORD_WHAT] & WHAT_PINNED) != 0;
    out->soft_pin_ns = terms[TERMS_SOFT_PIN];
    /* A commit may have been interrupted after it. */
    out->soft_pin_end_ns = kind == SL_RECORD_RESERVED ? 0 : terms[TERMS_SOFT_PIN_END];
    out->bundle = terms[TERMS_BUNDLE];
    out->contribution = (uint32_t)terms[TERMS_CONTRIBUTION];
}

/* Called after the words of a record were read: whether they are of this version, in this slot. The
 * slot is checked first: it may have left this record and returned to it since (the record freed
 * and reused), but then its version, which is never reused, differs. In the other order a key that
 * existed throughout could be missed (tests/models/pins.pml). */
static bool record_unchanged(index_word *record, uint64_t version, index_word *slot,
                             uint64_t slot_word)
{
    atomic_thread_fence(memory_order_acquire);
    return word_get_acquire(slot) == slot_word && word_get(&record[RECORD_VERSION]) == version;
}

/* Reads the record of a slot whose word was just loaded (acquire). If INDEX_LOOK_FOUND,
 * found->words holds its first `count` words. The result was true at one moment: version and slot
 * are checked again at the end. */
static enum index_look record_look(const struct sl_index_view *view, const struct wanted *wanted,
                                   index_word *slot, uint64_t slot_word, uint32_t count,
                                   struct found *found)
{
    sl_ref ref = (sl_ref)slot_word;
    if (!ref_in_bounds(view, ref, record_units(SL_RECORD_COMMITTED, wanted->key_length))) {
        return INDEX_LOOK_TORN;
    }
    index_word *record = record_at(view, ref);
    uint64_t version = word_get_acquire(&record[RECORD_VERSION]);
    if (version == 0) {
        return INDEX_LOOK_TORN;
    }
    found->ref = ref;
    found->words[RECORD_VERSION] = version;
    for (uint32_t i = 1; i < count; i++) {
        found->words[i] = word_get(&record[i]);
    }
    uint64_t what = found->words[RECORD_WHAT];
    enum sl_record_kind kind = what_kind(what);
    bool counts =
        kind == SL_RECORD_COMMITTED ? wanted->object : kind == SL_RECORD_GROUP && wanted->group;
    bool same = counts && found->words[RECORD_HASH] == wanted->hash &&
                what_key_length(what) == wanted->key_length &&
                ref_in_bounds(view, ref, record_units(kind, wanted->key_length)) &&
                index_key_is(record, kind, wanted->key, wanted->key_length);
    if (!record_unchanged(record, version, slot, slot_word)) {
        return INDEX_LOOK_TORN;
    }
    return same ? INDEX_LOOK_FOUND : INDEX_LOOK_OTHER;
}

/* One pass over the buckets that may contain the key. */
static enum index_look table_look(const struct sl_index_view *view, const struct wanted *wanted,
                                  uint32_t count, struct found *found)
{
    uint64_t at = hash_bucket(view, wanted->hash);
    uint64_t bucket_count_max = SL_MIN(view->bucket_count, SL_INDEX_PROBE_MAX);
    for (uint64_t n = 0; n < bucket_count_max; n++) {
        struct index_bucket *bucket = &view->buckets[at];
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            uint64_t word = word_get_acquire(&bucket->slots[i]);
            if ((uint32_t)(word >> 32) != hash_tag(wanted->hash) || (sl_ref)word == 0) {
                continue;
            }
            enum index_look look = record_look(view, wanted, &bucket->slots[i], word, count, found);
            if (look != INDEX_LOOK_OTHER) {
                found->slot = &bucket->slots[i];
                return look;
            }
        }
        if (word_get_acquire(&bucket->overflow) == 0) {
            break;
        }
        at = bucket_after(view, at);
    }
    return INDEX_LOOK_OTHER;
}

/* Whether the entry that was found still exists unchanged. */
static bool found_unchanged(const struct sl_index_view *view, const struct found *found)
{
    return record_unchanged(record_at(view, found->ref), found->words[RECORD_VERSION], found->slot,
                            slot_make(found->words[RECORD_HASH], found->ref));
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static sl_err table_find(const struct sl_index_view *view, const struct wanted *wanted,
                         uint32_t count, struct found *found)
{
    for (uint32_t i = 0; i < INDEX_TRIES_MAX; i++) {
        enum index_look look = table_look(view, wanted, count, found);
        if (look != INDEX_LOOK_TORN) {
            return look == INDEX_LOOK_FOUND ? SL_OK : SL_ERR_NOT_FOUND;
        }
        relax();
    }
    return SL_ERR_BUSY;
}

/* The state of the group that a record refers to; 0 if the group no longer exists. Its memory may
 * be another record by now, which the version shows. */
static uint64_t group_state(const struct sl_index_view *view, sl_ref ref, uint64_t version)
{
    if (version == 0 || !ref_in_bounds(view, ref, INDEX_UNITS_MIN)) {
        return 0;
    }
    index_word *record = record_at(view, ref);
    if (word_get_acquire(&record[RECORD_VERSION]) != version) {
        return 0;
    }
    uint64_t state = word_get_acquire(&record[GROUP_STATE]);
    atomic_thread_fence(memory_order_acquire);
    return word_get(&record[RECORD_VERSION]) == version ? state : 0;
}

static bool object_visible(const struct sl_index_view *view, const uint64_t *words)
{
    sl_ref group = (sl_ref)words[RECORD_GROUP];
    return group == 0 ||
           group_state(view, group, words[RECORD_GROUP_VERSION]) == SL_GROUP_COMMITTED;
}

/* ---- leases ---- */

/* Adds the words that few records have; false: look again. */
static inline bool found_terms(const struct sl_index_view *view, struct found *found)
{
    if ((found->words[RECORD_WHAT] & WHAT_TERMS) == 0) {
        memset(found->terms, 0, sizeof(found->terms));
        return true;
    }
    index_terms_copy(view, found->ref, found->words[RECORD_WHAT], found->terms);
    return found_unchanged(view, found);
}

/* Leases the entry that was found; false: look again. */
static inline bool found_lease(const struct sl_index_view *view, const struct found *found,
                               struct leasing *leasing)
{
    leasing->end_ns =
        index_lease_take(leasing, (uint64_t)(found->slot - (index_word *)(void *)view->buckets),
                         found->words[RECORD_HASH], found->terms[TERMS_BUNDLE]);
    return leasing->end_ns != 0 && found_unchanged(view, found);
}

static bool key_length_good(uint32_t key_length)
{
    return key_length >= 1 && key_length <= SL_KEY_BYTES_MAX;
}

/* kind: COMMITTED for objects, GROUP for blocks. */
static inline __attribute__((always_inline)) struct wanted
wanted_of(const struct sl_index_view *view, const struct sl_key *key, enum sl_record_kind kind)
{
    bool good = key_length_good(key->length);
    return (struct wanted){.key = key->at,
                           .key_length = key->length,
                           .object = kind == SL_RECORD_COMMITTED,
                           .group = kind == SL_RECORD_GROUP,
                           .hash = good ? index_hash(view, key->at, key->length) : 0};
}

/* leasing may be NULL. */
static inline __attribute__((always_inline)) sl_err object_find(const struct sl_index_view *view,
                                                                const struct wanted *wanted,
                                                                struct sl_entry *out,
                                                                struct leasing *leasing)
{
    struct found found;
    uint32_t count = out != NULL ? RECORD_KEY : RECORD_GROUP_VERSION + 1;
    for (uint32_t i = 0;; i++) {
        sl_err err = table_find(view, wanted, count, &found);
        if (err != SL_OK) {
            return err;
        }
        if (!object_visible(view, found.words)) {
            return SL_ERR_NOT_FOUND;
        }
        /* The last try gives the key without a lease: for instance, a registrar may have been
         * stopped while it closed the lease. */
        bool whole = (out == NULL && leasing == NULL) || found_terms(view, &found);
        if ((whole && (leasing == NULL || found_lease(view, &found, leasing))) ||
            i == SHUT_TRIES_MAX) {
            break;
        }
        relax();
    }
    if (out != NULL) {
        index_parse(view, found.ref, found.words, found.terms, out);
        out->lease_end_ns = leasing != NULL ? leasing->end_ns : 0;
    }
    return SL_OK;
}

sl_err sl_index_find(const struct sl_index_view *view, const char *key, uint32_t key_length,
                     struct sl_entry *out)
{
    if (!key_length_good(key_length)) {
        return SL_ERR_NOT_FOUND;
    }
    const struct sl_key asked = {.at = key, .length = key_length};
    struct wanted wanted = wanted_of(view, &asked, SL_RECORD_COMMITTED);
    return object_find(view, &wanted, out, NULL);
}

sl_err sl_index_find_hashed(const struct sl_index *index, struct sl_key key, uint64_t hash,
                            struct sl_entry *out)
{
    const struct sl_index_view *view = &index->view;
    struct found found;
    if (!key_length_good(key.length)) {
        return SL_ERR_NOT_FOUND;
    }
    struct wanted wanted = {
        .key = key.at, .key_length = key.length, .object = true, .group = true, .hash = hash};
    sl_err err = table_find(view, &wanted, RECORD_KEY, &found);
    if (err == SL_OK && out != NULL) {
        (void)found_terms(view, &found); /* the only writer calls this */
        index_parse(view, found.ref, found.words, found.terms, out);
    }
    return err;
}

/* leasing may be NULL. */
static inline __attribute__((always_inline)) sl_err
group_find(const struct sl_index_view *view, const struct wanted *wanted, struct leasing *leasing)
{
    struct found found;
    found.terms[TERMS_BUNDLE] = 0;
    for (uint32_t i = 0; i < SHUT_TRIES_MAX; i++) {
        sl_err err = table_find(view, wanted, RECORD_HASH + 1, &found);
        if (err != SL_OK) {
            return err;
        }
        switch (group_state(view, found.ref, found.words[RECORD_VERSION])) {
        case SL_GROUP_COMMITTED:
            break;
        case SL_GROUP_PENDING:
            return SL_ERR_BUSY;
        default:
            return SL_ERR_NOT_FOUND;
        }
        if (leasing == NULL || found_lease(view, &found, leasing)) {
            return SL_OK;
        }
        relax();
    }
    return SL_ERR_NOT_FOUND; /* closed throughout: the registrar was stopped while evicting it */
}

sl_err sl_index_find_group(const struct sl_index_view *view, const char *key, uint32_t key_length)
{
    const struct sl_key asked = {.at = key, .length = key_length};
    struct wanted wanted = wanted_of(view, &asked, SL_RECORD_GROUP);
    return key_length_good(key_length) ? group_find(view, &wanted, NULL) : SL_ERR_NOT_FOUND;
}

/* ---- batches: each step prefetches the lines of the next step, for all keys in flight ---- */

static void prefetch(const void *at)
{
    __builtin_prefetch(at, 0, 3);
}

static inline __attribute__((always_inline)) void
batch_fetch_bucket(const struct sl_index_view *view, const struct sl_key *key,
                   enum sl_record_kind kind, const struct leasing *leasing, struct wanted *wanted)
{
    *wanted = wanted_of(view, key, kind);
    if (key_length_good(key->length)) {
        uint64_t bucket = hash_bucket(view, wanted->hash);
        prefetch(&view->buckets[bucket]);
        if (leasing != NULL) {
            const index_word *word = lease_at(leasing->map, (struct index_place){bucket, 0});
            __builtin_prefetch(word, 1, 3);
        }
    }
}

/* Prefetches and returns the record of the first slot with the key's tag. 0: none; a key in a later
 * bucket is also found, but slower. */
static inline __attribute__((always_inline)) sl_ref
batch_fetch_record(const struct sl_index_view *view, const struct wanted *wanted,
                   enum sl_record_kind kind)
{
    if (!key_length_good(wanted->key_length)) {
        return 0;
    }
    struct index_bucket *bucket = &view->buckets[hash_bucket(view, wanted->hash)];
    for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
        uint64_t word = word_get(&bucket->slots[i]);
        sl_ref ref = (sl_ref)word;
        uint32_t units = record_units(kind, wanted->key_length);
        if ((uint32_t)(word >> 32) == hash_tag(wanted->hash) && ref_in_bounds(view, ref, units)) {
            const char *record = (const char *)(const void *)record_at(view, ref);
            uint32_t line = record_key_word(kind) / INDEX_UNIT_WORDS;
            prefetch(record);
            for (; line < units && line < 6; line++) {
                prefetch(record +
                         line *
                             INDEX_UNIT_BYTES); /* longer keys: the hardware prefetcher follows */
            }
            return ref;
        }
    }
    if (word_get(&bucket->overflow) != 0) {
        prefetch(&view->buckets[bucket_after(view, hash_bucket(view, wanted->hash))]);
    }
    return 0;
}

static void batch_fetch_group(const struct sl_index_view *view, sl_ref ref)
{
    if (ref != 0) {
        sl_ref group = (sl_ref)word_get(&record_at(view, ref)[RECORD_GROUP]);
        if (group != 0 && ref_in_bounds(view, group, INDEX_UNITS_MIN)) {
            prefetch((const void *)record_at(view, group));
        }
    }
}

/* The words of the record's terms; NULL: none. */
static index_word *batch_terms(const struct sl_index_view *view, sl_ref ref)
{
    index_word *record = record_at(view, ref);
    uint64_t what = ref == 0 ? 0 : word_get(&record[RECORD_WHAT]);
    bool there = (what & WHAT_TERMS) != 0 && ref_in_bounds(view, ref, record_units_of(what));
    return there ? &record[record_terms_word(what_kind(what), what_key_length(what))] : NULL;
}

static void batch_fetch_bundle(const struct sl_index_view *view, const struct leasing *leasing,
                               sl_ref ref)
{
    index_word *terms = batch_terms(view, ref);
    if (terms != NULL) {
        uint64_t bundle = word_get(&terms[TERMS_BUNDLE]);
        __builtin_prefetch(lease_of_bundle(leasing->map, bundle), 1, 3);
    }
}

/* Compiled once for each kind of caller, so that the one without leases does not pay for them. */
static inline __attribute__((always_inline)) void
find_batch(const struct sl_index_view *view, const struct sl_key *keys, uint32_t count,
           struct sl_entry *out, struct leasing *leasing, uint64_t *lease_ends, sl_err *codes)
{
    struct wanted wanted[BATCH_WIDTH];
    sl_ref refs[BATCH_WIDTH];
    for (uint32_t from = 0; from < count; from += BATCH_WIDTH) {
        uint32_t width = SL_MIN(count - from, BATCH_WIDTH);
        for (uint32_t i = 0; i < width; i++) {
            batch_fetch_bucket(view, &keys[from + i], SL_RECORD_COMMITTED, leasing, &wanted[i]);
        }
        for (uint32_t i = 0; i < width; i++) {
            refs[i] = batch_fetch_record(view, &wanted[i], SL_RECORD_COMMITTED);
        }
        for (uint32_t i = 0; i < width; i++) {
            batch_fetch_group(view, refs[i]);
            if (leasing != NULL) {
                prefetch(batch_terms(view, refs[i]));
            }
        }
        for (uint32_t i = 0; leasing != NULL && i < width; i++) {
            batch_fetch_bundle(view, leasing, refs[i]);
        }
        for (uint32_t i = 0; i < width; i++) {
            struct sl_entry *entry = out != NULL ? &out[from + i] : NULL;
            if (leasing != NULL) {
                leasing->end_ns = 0;
            }
            codes[from + i] = !key_length_good(wanted[i].key_length)
                                  ? SL_ERR_NOT_FOUND
                                  : object_find(view, &wanted[i], entry, leasing);
            if (leasing != NULL && lease_ends != NULL) {
                lease_ends[from + i] = codes[from + i] == SL_OK ? leasing->end_ns : 0;
            }
        }
    }
}

void sl_index_find_batch(const struct sl_index_view *view, const struct sl_key *keys,
                         uint32_t count, struct sl_entry *out, sl_err *codes)
{
    find_batch(view, keys, count, out, NULL, NULL, codes);
}

void sl_leases_find_batch(const struct sl_leases *leases, const struct sl_key *keys, uint32_t count,
                          uint64_t now_ns, struct sl_entry *out, uint64_t *lease_ends,
                          sl_err *codes)
{
    struct leasing leasing;
    if (index_leasing_begin(leases, now_ns, sl_index_view_lease_ttl(leases->view), &leasing)) {
        find_batch(leases->view, keys, count, out, &leasing, lease_ends, codes);
        return;
    }
    sl_index_find_batch(leases->view, keys, count, out, codes);
    for (uint32_t i = 0; lease_ends != NULL && i < count; i++) {
        lease_ends[i] = 0;
    }
}

sl_err sl_leases_find(const struct sl_leases *leases, const struct sl_key *key, uint64_t now_ns,
                      struct sl_entry *out, uint64_t *lease_end_ns)
{
    struct leasing leasing;
    *lease_end_ns = 0;
    if (!key_length_good(key->length)) {
        return SL_ERR_NOT_FOUND;
    }
    struct wanted wanted = wanted_of(leases->view, key, SL_RECORD_COMMITTED);
    uint64_t ttl_ns = sl_index_view_lease_ttl(leases->view);
    bool leased = index_leasing_begin(leases, now_ns, ttl_ns, &leasing);
    sl_err err = object_find(leases->view, &wanted, out, leased ? &leasing : NULL);
    *lease_end_ns = err == SL_OK ? leasing.end_ns : 0;
    return err;
}

/* ---- batches of blocks: a probe reads bucket, record and key, for any number of parts ---- */

/* Returns when the first lease taken ends; 0: none was taken. */
static inline __attribute__((always_inline)) uint64_t
find_group_batch(const struct sl_index_view *view, const struct sl_key *keys, uint32_t count,
                 struct leasing *leasing, sl_err *codes)
{
    struct wanted wanted[BATCH_WIDTH];
    uint64_t end_ns = 0;
    for (uint32_t from = 0; from < count; from += BATCH_WIDTH) {
        uint32_t width = SL_MIN(count - from, BATCH_WIDTH);
        for (uint32_t i = 0; i < width; i++) {
            batch_fetch_bucket(view, &keys[from + i], SL_RECORD_GROUP, leasing, &wanted[i]);
        }
        for (uint32_t i = 0; i < width; i++) {
            (void)batch_fetch_record(view, &wanted[i], SL_RECORD_GROUP);
        }
        for (uint32_t i = 0; i < width; i++) {
            codes[from + i] = key_length_good(wanted[i].key_length)
                                  ? group_find(view, &wanted[i], leasing)
                                  : SL_ERR_NOT_FOUND;
            if (leasing != NULL && codes[from + i] == SL_OK) {
                end_ns = end_ns == 0 ? leasing->end_ns : SL_MIN(end_ns, leasing->end_ns);
            }
        }
    }
    return end_ns;
}

void sl_index_find_group_batch(const struct sl_index_view *view, const struct sl_key *keys,
                               uint32_t count, sl_err *codes)
{
    (void)find_group_batch(view, keys, count, NULL, codes);
}

uint64_t sl_leases_find_group_batch(const struct sl_leases *leases, const struct sl_key *keys,
                                    uint32_t count, uint64_t now_ns, uint64_t hold_ns,
                                    sl_err *codes)
{
    struct leasing leasing;
    uint64_t ttl_ns = SL_MIN(hold_ns, sl_index_view_lease_blocks(leases->view));
    if (!index_leasing_begin(leases, now_ns, ttl_ns, &leasing)) {
        (void)find_group_batch(leases->view, keys, count, NULL, codes);
        return 0;
    }
    return find_group_batch(leases->view, keys, count, &leasing, codes);
}

/* ---- re-checks ---- */

bool sl_index_unchanged(const struct sl_index_view *view, const struct sl_entry *entry)
{
    atomic_thread_fence(memory_order_acquire); /* after the bytes were read */
    return entry->version != 0 && ref_in_bounds(view, entry->ref, INDEX_UNITS_MIN) &&
           word_get(&record_at(view, entry->ref)[RECORD_VERSION]) == entry->version;
}

bool sl_index_claim_exists(const struct sl_index_view *view, sl_ref ref, uint64_t generation)
{
    if (generation == 0 || !ref_in_bounds(view, ref, INDEX_UNITS_MIN)) {
        return false;
    }
    index_word *record = record_at(view, ref);
    uint64_t version = word_get_acquire(&record[RECORD_VERSION]);
    enum sl_record_kind kind = what_kind(word_get_acquire(&record[RECORD_WHAT]));
    uint64_t found = word_get(&record[RECORD_GENERATION]);
    atomic_thread_fence(memory_order_acquire);
    return version != 0 && word_get(&record[RECORD_VERSION]) == version && found == generation &&
           (kind == SL_RECORD_RESERVED || kind == SL_RECORD_PROMOTING);
}

/* ---- scan ---- */

/* Copies an object's key; the caller has checked its bounds. */
static void key_copy(index_word *record, uint32_t key_length, char *key_out)
{
    for (uint32_t i = 0; i < key_length; i += 8) {
        uint64_t part = word_get(&record[RECORD_KEY + i / 8]);
        memcpy(key_out + i, &part, SL_MIN(key_length - i, 8u));
    }
}

/* Copies words and key of a slot's record; INDEX_LOOK_OTHER: no object. */
static enum index_look scan_look(const struct sl_index_view *view, index_word *slot,
                                 struct found *found, char *key_out)
{
    uint64_t slot_word = word_get_acquire(slot);
    sl_ref ref = (sl_ref)slot_word;
    if (ref == 0) {
        return INDEX_LOOK_OTHER;
    }
    if (!ref_in_bounds(view, ref, INDEX_UNITS_MIN)) {
        return INDEX_LOOK_TORN;
    }
    index_word *record = record_at(view, ref);
    found->ref = ref;
    found->words[RECORD_VERSION] = word_get_acquire(&record[RECORD_VERSION]);
    if (found->words[RECORD_VERSION] == 0) {
        return INDEX_LOOK_TORN;
    }
    for (uint32_t i = 1; i < RECORD_KEY; i++) {
        found->words[i] = word_get(&record[i]);
    }
    uint64_t what = found->words[RECORD_WHAT];
    uint32_t key_length = what_key_length(what);
    bool object = what_kind(what) == SL_RECORD_COMMITTED && key_length_good(key_length) &&
                  ref_in_bounds(view, ref, record_units(SL_RECORD_COMMITTED, key_length));
    if (object) {
        key_copy(record, key_length, key_out);
        index_terms_copy(view, ref, what, found->terms);
    }
    if (!record_unchanged(record, found->words[RECORD_VERSION], slot, slot_word)) {
        return INDEX_LOOK_TORN;
    }
    return object ? INDEX_LOOK_FOUND : INDEX_LOOK_OTHER;
}

/* Flag of a cursor: the registrar counted the table's slots when the walk began. */
#define SCAN_COUNTED (UINT64_C(1) << 63)

/* Whether no slot from here to the end of the region is set. Truncated counts are ignored. */
static bool region_empty(const struct sl_index_view *view, uint64_t slot)
{
    return word_get_acquire(&view->regions.occupied[slot / INDEX_REGION_SLOTS]) == 0 &&
           !sl_shm_file_is_cut(&view->regions.segment);
}

bool sl_index_scan(const struct sl_index_view *view, uint64_t *cursor, struct sl_entry *out,
                   char *key_out)
{
    uint64_t slot_count = view->bucket_count * INDEX_BUCKET_SLOTS;
    if (*cursor == 0 && index_regions_life(&view->regions) != 0) {
        *cursor = SCAN_COUNTED;
    }
    uint64_t counted = view->regions.counts != NULL ? *cursor & SCAN_COUNTED : 0;
    for (uint64_t at = *cursor & ~SCAN_COUNTED; at < slot_count; at++) {
        if (at % INDEX_REGION_SLOTS == 0 && counted != 0 && region_empty(view, at)) {
            at += INDEX_REGION_SLOTS - 1;
            continue;
        }
        struct found found;
        enum index_look look = INDEX_LOOK_TORN;
        index_word *slot = &view->buckets[at / INDEX_BUCKET_SLOTS].slots[at % INDEX_BUCKET_SLOTS];
        for (uint32_t i = 0; i < INDEX_TRIES_MAX && look == INDEX_LOOK_TORN; i++) {
            look = scan_look(view, slot, &found, key_out);
        }
        if (look == INDEX_LOOK_FOUND && object_visible(view, found.words)) {
            index_parse(view, found.ref, found.words, found.terms, out);
            key_out[out->key_length] = '\0';
            out->key = key_out;
            *cursor = (at + 1) | counted;
            return true;
        }
    }
    *cursor = UINT64_MAX;
    return false;
}

/* There may be no record at ref, or half of one: it only determines which key is looked up. */
sl_err sl_index_find_ref(const struct sl_index_view *view, sl_ref ref, uint64_t generation,
                         struct sl_entry *out, char *key_out)
{
    struct sl_entry found;
    if (generation == 0 || !ref_in_bounds(view, ref, INDEX_UNITS_MIN)) {
        return SL_ERR_NOT_FOUND;
    }
    uint32_t key_length = what_key_length(word_get(&record_at(view, ref)[RECORD_WHAT]));
    if (!key_length_good(key_length) ||
        !ref_in_bounds(view, ref, record_units(SL_RECORD_COMMITTED, key_length))) {
        return SL_ERR_NOT_FOUND;
    }
    key_copy(record_at(view, ref), key_length, key_out);
    sl_err err = sl_index_find(view, key_out, key_length, &found);
    if (err != SL_OK || found.extent.generation != generation) {
        return err != SL_OK ? err : SL_ERR_NOT_FOUND;
    }
    key_out[key_length] = '\0';
    *out = found;
    out->key = key_out;
    return SL_OK;
}

/* ---- for callers that remember the contents of slots (index_changes.c) ---- */

/* Reads the block of a visible part. False: the block is just being removed, with its part. */
static bool slot_block_read(const struct sl_index_view *view, const uint64_t *words,
                            struct index_slot *out)
{
    sl_ref ref = (sl_ref)words[RECORD_GROUP];
    out->block_length = 0;
    out->parent_hash = out->committed_ns = 0;
    if (!out->visible || ref == 0) {
        return true;
    }
    if (!ref_in_bounds(view, ref, INDEX_UNITS_MIN)) {
        return false;
    }
    index_word *group = record_at(view, ref);
    uint32_t length = what_key_length(word_get(&group[RECORD_WHAT]));
    uint64_t parent_hash = word_get(&group[GROUP_NOTE]);
    uint64_t committed_ns = word_get(&group[GROUP_COMMITTED]);
    atomic_thread_fence(memory_order_acquire);
    bool same = word_get(&group[RECORD_VERSION]) == words[RECORD_GROUP_VERSION];
    if (same && length < out->key_length) {
        out->block_length = length;
        out->parent_hash = parent_hash;
        out->committed_ns = committed_ns;
    }
    return same;
}

/* The slot's record may have left between two reads, and returned after them: then the words read
 * are those of another record that was there meanwhile, or of none. */
static bool slot_look_is_of(const struct sl_index_view *view, enum index_look look, uint64_t word,
                            const struct found *found)
{
    sl_ref ref = (sl_ref)word;
    if (look == INDEX_LOOK_FOUND) {
        return found->ref == ref && hash_tag(found->words[RECORD_HASH]) == (uint32_t)(word >> 32);
    }
    return word == 0 ||
           (ref_in_bounds(view, ref, INDEX_UNITS_MIN) &&
            what_kind(word_get(&record_at(view, ref)[RECORD_WHAT])) == SL_RECORD_GROUP);
}

enum index_look index_slot_look(const struct sl_index_view *view, uint64_t slot_number,
                                struct index_slot *out, char *key_out)
{
    struct found found;
    index_word *slot =
        &view->buckets[slot_number / INDEX_BUCKET_SLOTS].slots[slot_number % INDEX_BUCKET_SLOTS];
    enum index_look look = INDEX_LOOK_TORN;
    out->word = 0;
    for (uint32_t i = 0; i < INDEX_TRIES_MAX && look == INDEX_LOOK_TORN; i++) {
        out->word = word_get_acquire(slot);
        look = scan_look(view, slot, &found, key_out);
        if (!slot_look_is_of(view, look, out->word, &found) ||
            word_get_acquire(slot) != out->word) {
            look = INDEX_LOOK_TORN; /* the words may be of another record */
        }
    }
    if (look == INDEX_LOOK_FOUND) {
        out->hash = found.words[RECORD_HASH];
        out->key_length = what_key_length(found.words[RECORD_WHAT]);
        out->visible = object_visible(view, found.words);
        out->memory = found.words[RECORD_GENERATION] != 0;
        out->disk = found.words[RECORD_DISK] >> 48 != 0;
        out->visible = slot_block_read(view, found.words, out) && out->visible;
    }
    return look;
}
