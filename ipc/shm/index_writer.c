/* ipc/shm/index_writer.c - the registrar's side: a record is complete before one store makes it
 * count.
 *
 * The process may be killed after any store. index_recover.c repairs what each sequence here may
 * leave; the kill-point tests stop after every store. */
#include "ipc/shm/index_internal.h"

#include "runtime/base/sl_clock.h"

#include <inttypes.h>
#include <string.h>

void index_count(index_word *counter, int64_t amount)
{
    /* There is one writer, so no read-modify-write is needed. Statistics only; recovery counts
     * again. */
    atomic_store_explicit(counter, word_get(counter) + (uint64_t)amount, memory_order_relaxed);
}

/* ---- slots ---- */

/* The first slot with this word on the hash's path. */
static bool place_find(const struct sl_index_view *view, uint64_t hash, uint64_t word,
                       struct index_place *place)
{
    uint64_t at = hash_bucket(view, hash);
    uint64_t bucket_count_max = SL_MIN(view->bucket_count, SL_INDEX_PROBE_MAX);
    for (uint64_t n = 0; n < bucket_count_max; n++) {
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            if (word_get(&view->buckets[at].slots[i]) == word) {
                *place = (struct index_place){at, i};
                return true;
            }
        }
        at = bucket_after(view, at);
    }
    return false;
}

bool index_place_free(const struct sl_index *index, uint64_t hash, struct index_place *place)
{
    return place_find(&index->view, hash, 0, place);
}

bool index_place_of(const struct sl_index *index, uint64_t hash, sl_ref ref,
                    struct index_place *place)
{
    return place_find(&index->view, hash, slot_make(hash, ref), place);
}

static void slot_set(struct sl_index *index, struct index_place place, uint64_t word)
{
    index_region_store(&index->view.regions, place.bucket,
                       &index->view.buckets[place.bucket].slots[place.slot], word);
}

void index_link(struct sl_index *index, uint64_t hash, struct index_place place, sl_ref ref)
{
    struct sl_index_view *view = &index->view;
    for (uint64_t at = hash_bucket(view, hash); at != place.bucket; at = bucket_after(view, at)) {
        word_publish(&view->buckets[at].overflow, word_get(&view->buckets[at].overflow) + 1);
    }
    if (index->leases.slots != NULL) {
        word_set(lease_at(&index->leases, place), 0); /* of the slot's previous key */
    }
    slot_set(index, place, slot_make(hash, ref));
}

static void index_unlink(struct sl_index *index, uint64_t hash, sl_ref ref)
{
    struct sl_index_view *view = &index->view;
    struct index_place place;
    bool found = index_place_of(index, hash, ref, &place);
    SL_ASSERT(found);
    slot_set(index, place, 0);
    for (uint64_t at = hash_bucket(view, hash); at != place.bucket; at = bucket_after(view, at)) {
        uint64_t overflow = word_get(&view->buckets[at].overflow);
        SL_ASSERT(overflow > 0);
        word_publish(&view->buckets[at].overflow, overflow - 1);
    }
}

/* ---- records ---- */

static index_word *live_record(const struct sl_index *index, sl_ref ref)
{
    SL_ASSERT(index_record_live(index, ref));
    return record_at(&index->view, ref);
}

static enum sl_record_kind record_kind(index_word *record)
{
    return what_kind(word_get(&record[RECORD_WHAT]));
}

static index_word *counter_of(struct sl_index *index, enum sl_record_kind kind)
{
    return kind == SL_RECORD_GROUP ? &index->view.header->group_count
                                   : &index->view.header->key_count;
}

/* Writes the bytes of a key, followed by zeros. */
static void key_write(index_word *record, const char *key, uint32_t key_length)
{
    uint32_t at = 0;
    uint64_t part;
    for (; at + 8 <= key_length; at += 8) {
        memcpy(&part, key + at, 8);
        word_set(&record[at / 8], part);
    }
    if (at < key_length) {
        part = 0;
        memcpy(&part, key + at, key_length - at);
        word_set(&record[at / 8], part);
    }
}

/* Fills a free record, its version last. `count` words are given, the key's bytes follow, then the
 * words of terms if the record has them. */
static void record_write(struct sl_index *index, sl_ref ref, const uint64_t *words, uint32_t count,
                         const char *key, uint32_t key_length, const uint64_t *terms)
{
    index_word *record = record_at(&index->view, ref);
    SL_ASSERT(word_get(&record[RECORD_VERSION]) == 0);
    /* A reader that still reads the old contents must not see the new words under the old
     * version. */
    atomic_thread_fence(memory_order_release);
    for (uint32_t i = 1; i < count; i++) {
        word_set(&record[i], words[i]);
    }
    key_write(&record[count], key, key_length);
    uint64_t what = words[RECORD_WHAT];
    for (uint32_t i = 0; terms != NULL && (what & WHAT_TERMS) != 0 && i < TERMS_WORDS; i++) {
        word_set(&record[record_terms_word(what_kind(what), key_length) + i], terms[i]);
    }
    word_publish(&record[RECORD_VERSION], words[RECORD_VERSION]);
}

/* A record is no longer a reservation. */
static void reserved_ends(struct sl_index *index, enum sl_record_kind was)
{
    index->reserved_count -= was == SL_RECORD_RESERVED && index->reserved_count > 0;
}

/* Ends a record outside the table and frees its memory. */
void index_record_free(struct sl_index *index, sl_ref ref)
{
    index_word *record = live_record(index, ref);
    uint64_t what = word_get(&record[RECORD_WHAT]);
    reserved_ends(index, what_kind(what));
    word_publish(&record[RECORD_VERSION], 0);
    word_publish(&record[RECORD_WHAT], what_make(SL_RECORD_FREE, what_units(what), 0));
    index_record_give(index, ref);
}

static void record_set_kind(index_word *record, enum sl_record_kind kind)
{
    uint64_t what = word_get(&record[RECORD_WHAT]);
    word_publish(&record[RECORD_WHAT], what_with_kind(what, kind));
}

void index_record_retire(struct sl_index *index, sl_ref ref)
{
    index_word *record = live_record(index, ref);
    record_set_kind(record, SL_RECORD_RETIRED);
    word_publish(&record[RECORD_VERSION], sl_arena_next_generation(index->arena));
}

static sl_err want_check(const struct sl_index *index, const struct sl_entry *want,
                         struct sl_error *why)
{
    if (want->key_length == 0 || want->key_length > SL_KEY_BYTES_MAX || want->key == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "key of %u bytes, expected 1..%u",
                       (unsigned)want->key_length, SL_KEY_BYTES_MAX);
    }
    if (want->extent.arena > UINT16_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "arena %u, at most %u", want->extent.arena, UINT16_MAX);
    }
    if (want->group != 0) {
        index_word *group = live_record(index, want->group);
        SL_ASSERT(record_kind(group) == SL_RECORD_GROUP);
        if (want->part_index >= word_get(&group[GROUP_PARTS])) {
            return sl_fail(why, SL_ERR_INVALID, "part %u of a block of %" PRIu64,
                           (unsigned)want->part_index, word_get(&group[GROUP_PARTS]));
        }
    }
    return SL_OK;
}

static void words_from_entry(struct sl_index *index, const struct sl_entry *want, uint32_t units,
                             uint64_t words[RECORD_KEY])
{
    words[RECORD_VERSION] = sl_arena_next_generation(index->arena);
    words[RECORD_WHAT] = what_make((enum sl_record_kind)want->kind, units, want->key_length);
    words[RECORD_HASH] =
        want->hash != 0 ? want->hash : index_hash(&index->view, want->key, want->key_length);
    words[RECORD_GROUP] =
        want->group | (uint64_t)want->part_index << 32 | (uint64_t)want->extent.arena << 48;
    words[RECORD_GROUP_VERSION] =
        want->group != 0 ? word_get(&record_at(&index->view, want->group)[RECORD_VERSION]) : 0;
    words[RECORD_GENERATION] = want->extent.generation;
    words[RECORD_OFFSET] = want->extent.offset_bytes;
    words[RECORD_LENGTH] = want->extent.length_bytes;
    words[RECORD_DIGEST_LOW] = want->digest.low;
    words[RECORD_DIGEST_HIGH] = want->digest.high;
    words[RECORD_DISK_OFFSET] = want->disk.offset_bytes;
    words[RECORD_DISK] =
        want->disk.segment | (uint64_t)want->disk.disk << 32 | (uint64_t)want->disk.valid << 48;
    words[RECORD_LINKS] = 0;
    words[RECORD_LINKS + 1] = 0;
    words[RECORD_DEADLINE] = want->deadline_ns;
    words[RECORD_OP] = want->op_id;
    words[RECORD_OWNER_START] = want->owner.start_time;
    words[RECORD_WRITER_START] = want->writer.start_time;
    words[RECORD_PIDS] = want->owner.pid | (uint64_t)want->writer.pid << 32;
}

static bool want_has_terms(const struct sl_index *index, const struct sl_entry *want)
{
    return index->contributed || want->soft_pin_ns != 0 || want->soft_pin_end_ns != 0 ||
           want->bundle != 0 || want->contribution != 0;
}

static uint32_t want_units(const struct sl_index *index, const struct sl_entry *want)
{
    enum sl_record_kind kind = (enum sl_record_kind)want->kind;
    return want_has_terms(index, want) ? record_units_with_terms(kind, want->key_length)
                                       : record_units(kind, want->key_length);
}

static uint64_t soft_pin_end(const struct sl_index *index, uint64_t soft_pin_ns)
{
    uint64_t now_ns = index->now_ns != 0 ? index->now_ns : sl_clock_monotonic_ns();
    return soft_pin_ns == 0 ? 0 : sl_deadline_ns(now_ns, soft_pin_ns);
}

static void terms_from_entry(const struct sl_index *index, const struct sl_entry *want,
                             uint64_t terms[TERMS_WORDS])
{
    bool committed = want->kind == SL_RECORD_COMMITTED;
    terms[TERMS_SOFT_PIN] = want->soft_pin_ns;
    terms[TERMS_SOFT_PIN_END] = want->soft_pin_end_ns != 0 ? want->soft_pin_end_ns
                                : committed                ? soft_pin_end(index, want->soft_pin_ns)
                                                           : 0;
    terms[TERMS_BUNDLE] = want->bundle;
    terms[TERMS_CONTRIBUTION] = want->contribution;
}

static sl_err record_make(struct sl_index *index, const struct sl_entry *want, sl_ref *ref,
                          struct sl_error *why)
{
    uint64_t words[RECORD_KEY];
    uint64_t terms[TERMS_WORDS];
    uint32_t units = want_units(index, want);
    sl_ref fresh = 0;
    if (index_record_take(index, units, &fresh) != SL_OK) {
        return sl_fail(why, SL_ERR_NO_SPACE, "index full: no record of %u bytes",
                       units * INDEX_UNIT_BYTES);
    }
    words_from_entry(index, want, units, words);
    words[RECORD_WHAT] |= (want->hard_pin ? WHAT_HARD_PIN : 0) |
                          (want->replace ? WHAT_REPLACER : 0) | (want->pinned ? WHAT_PINNED : 0) |
                          (want_has_terms(index, want) ? WHAT_TERMS : 0);
    terms_from_entry(index, want, terms);
    record_write(index, fresh, words, RECORD_KEY, want->key, want->key_length, terms);
    *ref = fresh;
    return SL_OK;
}

void sl_index_read(const struct sl_index *index, sl_ref ref, struct sl_entry *out)
{
    uint64_t terms[TERMS_WORDS] = {0};
    index_word *record = live_record(index, ref);
    uint64_t what = word_get(&record[RECORD_WHAT]);
    if ((what & WHAT_TERMS) != 0) {
        index_terms_copy(&index->view, ref, what, terms);
    }
    /* There is no other writer, so no copy is needed. */
    index_parse(&index->view, ref, (const uint64_t *)(const void *)record, terms, out);
}

void sl_index_set_contributed(struct sl_index *index, bool contributed)
{
    index->contributed = contributed;
}

bool sl_index_set_contribution(struct sl_index *index, sl_ref ref, uint32_t contribution)
{
    index_word *record = live_record(index, ref);
    uint64_t what = word_get(&record[RECORD_WHAT]);
    if ((what & WHAT_TERMS) == 0) {
        return contribution == 0;
    }
    word_set(
        &record[record_terms_word(what_kind(what), what_key_length(what)) + TERMS_CONTRIBUTION],
        contribution);
    return true;
}

struct sl_key sl_index_key(const struct sl_index *index, sl_ref ref)
{
    index_word *record = live_record(index, ref);
    uint64_t what = word_get(&record[RECORD_WHAT]);
    return (struct sl_key){
        .at = (const char *)(const void *)&record[record_key_word(what_kind(what))],
        .length = what_key_length(what)};
}

struct sl_unit_note *sl_index_unit_note(struct sl_index *index, sl_ref unit)
{
    index_word *record = live_record(index, unit);
    return record_kind(record) == SL_RECORD_GROUP
               ? (struct sl_unit_note *)(void *)&record[GROUP_NOTE]
               : NULL;
}

static uint32_t number_word_of(enum sl_record_kind kind)
{
    return kind == SL_RECORD_GROUP ? GROUP_NUMBER : RECORD_DEADLINE;
}

uint32_t sl_index_unit_number(const struct sl_index *index, sl_ref unit)
{
    index_word *record = live_record(index, unit);
    return (uint32_t)word_get(&record[number_word_of(record_kind(record))]);
}

void sl_index_set_unit_number(struct sl_index *index, sl_ref unit, uint32_t number)
{
    index_word *record = live_record(index, unit);
    enum sl_record_kind kind = record_kind(record);
    SL_ASSERT(kind == SL_RECORD_COMMITTED || kind == SL_RECORD_GROUP);
    word_set(&record[number_word_of(kind)], number);
}

struct sl_links *sl_index_links(struct sl_index *index, sl_ref ref)
{
    return (struct sl_links *)(void *)&live_record(index, ref)[RECORD_LINKS];
}

/* ---- objects ---- */

static sl_err admit(const struct sl_index *index, uint32_t units, struct sl_error *why)
{
    return index_admits(index, units)
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_SPACE, "index full: no record of %u bytes, or no slot",
                         units * INDEX_UNIT_BYTES);
}

sl_err sl_index_claim(struct sl_index *index, const struct sl_entry *want, sl_ref *ref,
                      struct sl_error *why)
{
    if (want->kind != SL_RECORD_RESERVED && want->kind != SL_RECORD_PROMOTING &&
        want->kind != SL_RECORD_RETIRED && want->kind != SL_RECORD_QUARANTINED) {
        return sl_fail(why, SL_ERR_INVALID, "record kind %u is not a claim", want->kind);
    }
    sl_err err = want_check(index, want, why);
    bool fresh = want->kind == SL_RECORD_RESERVED || want->kind == SL_RECORD_PROMOTING;
    if (err == SL_OK && fresh) {
        err = admit(index, want_units(index, want), why);
    }
    err = err == SL_OK ? record_make(index, want, ref, why) : err;
    index->reserved_count += err == SL_OK && want->kind == SL_RECORD_RESERVED;
    return err;
}

/* RESERVED -> COMMITTED: from here on recovery would link it. */
static void reservation_counts(struct sl_index *index, index_word *record, struct sl_digest digest,
                               uint64_t flags)
{
    uint64_t what = word_get(&record[RECORD_WHAT]);
    /* No reader uses these words of a reservation, so they are written in place. */
    word_set(&record[RECORD_DIGEST_LOW], digest.low);
    word_set(&record[RECORD_DIGEST_HIGH], digest.high);
    if ((what & WHAT_TERMS) != 0) {
        index_word *terms = &record[record_terms_word(what_kind(what), what_key_length(what))];
        word_set(&terms[TERMS_SOFT_PIN_END], soft_pin_end(index, word_get(&terms[TERMS_SOFT_PIN])));
    }
    word_publish(&record[RECORD_WHAT], what_with_kind(what, SL_RECORD_COMMITTED) | flags);
    reserved_ends(index, SL_RECORD_RESERVED);
}

sl_err sl_index_commit(struct sl_index *index, sl_ref ref, struct sl_digest digest)
{
    index_word *record = live_record(index, ref);
    uint64_t hash = word_get(&record[RECORD_HASH]);
    struct index_place place;
    SL_ASSERT(record_kind(record) == SL_RECORD_RESERVED);
    if (!index_place_free(index, hash, &place)) {
        return SL_ERR_NO_SPACE;
    }
    reservation_counts(index, record, digest, 0);
    index_link(index, hash, place, ref);
    index_count(counter_of(index, SL_RECORD_COMMITTED), 1);
    return SL_OK;
}

void sl_index_commit_over(struct sl_index *index, sl_ref ref, struct sl_digest digest, sl_ref old,
                          bool *retired)
{
    index_word *record = live_record(index, ref);
    index_word *before = live_record(index, old);
    uint64_t hash = word_get(&record[RECORD_HASH]);
    uint64_t generation = word_get(&before[RECORD_GENERATION]);
    struct index_place place;
    SL_ASSERT(record_kind(record) == SL_RECORD_RESERVED);
    SL_ASSERT(record_kind(before) == SL_RECORD_COMMITTED);
    bool found = index_place_of(index, hash, old, &place);
    SL_ASSERT(found);
    /* If killed from here on, two records of one key count, and recovery completes the
     * replacement. */
    reservation_counts(index, record, digest, WHAT_REPLACES);
    slot_set(index, place, slot_make(hash, ref));
    index_replaced(index, ref, old);
    *retired = generation != 0;
}

void index_replaced(struct sl_index *index, sl_ref ref, sl_ref old)
{
    index_word *record = record_at(&index->view, ref);
    word_publish(&record[RECORD_WHAT], word_get(&record[RECORD_WHAT]) & ~WHAT_REPLACES);
    if (word_get(&record_at(&index->view, old)[RECORD_GENERATION]) != 0) {
        index_record_retire(index, old);
    } else {
        index_record_free(index, old);
    }
}

sl_err sl_index_insert(struct sl_index *index, const struct sl_entry *want, sl_ref *ref,
                       struct sl_error *why)
{
    struct sl_entry entry = *want;
    struct index_place place;
    entry.kind = SL_RECORD_COMMITTED;
    sl_err err = want_check(index, want, why);
    if (err != SL_OK) {
        return err;
    }
    err = admit(index, want_units(index, &entry), why);
    if (err != SL_OK) {
        return err;
    }
    if (entry.hash == 0) {
        entry.hash = index_hash(&index->view, want->key, want->key_length);
    }
    if (!index_place_free(index, entry.hash, &place)) {
        return sl_fail(why, SL_ERR_NO_SPACE, "index full: no slot within %u buckets",
                       SL_INDEX_PROBE_MAX);
    }
    err = record_make(index, &entry, ref, why);
    if (err == SL_OK) {
        index_link(index, entry.hash, place, *ref);
        index_count(counter_of(index, SL_RECORD_COMMITTED), 1);
    }
    return err;
}

void sl_index_unlink(struct sl_index *index, sl_ref ref, enum sl_record_kind kind)
{
    index_word *record = live_record(index, ref);
    enum sl_record_kind was = record_kind(record);
    SL_ASSERT(was == SL_RECORD_COMMITTED || was == SL_RECORD_GROUP);
    SL_ASSERT(kind == SL_RECORD_FREE || (kind == SL_RECORD_RETIRED && was == SL_RECORD_COMMITTED));
    index_unlink(index, word_get(&record[RECORD_HASH]), ref);
    index_count(counter_of(index, was), -1);
    if (kind == SL_RECORD_FREE) {
        index_record_free(index, ref);
        return;
    }
    index_record_retire(index, ref);
}

void sl_index_set_kind(struct sl_index *index, sl_ref ref, enum sl_record_kind kind)
{
    index_word *record = live_record(index, ref);
    enum sl_record_kind was = record_kind(record);
    SL_ASSERT(was != SL_RECORD_COMMITTED && was != SL_RECORD_GROUP); /* unlink these */
    SL_ASSERT(kind != SL_RECORD_COMMITTED && kind != SL_RECORD_GROUP && kind != SL_RECORD_BLOB);
    if (kind == SL_RECORD_FREE) {
        index_record_free(index, ref);
    } else {
        SL_ASSERT(was != SL_RECORD_BLOB);
        reserved_ends(index, was);
        index->reserved_count += kind == SL_RECORD_RESERVED;
        record_set_kind(record, kind);
    }
}

void sl_index_set_deadline(struct sl_index *index, sl_ref ref, uint64_t deadline_ns)
{
    word_set(&live_record(index, ref)[RECORD_DEADLINE], deadline_ns);
}

/* ---- switching ---- */

/* Finds the record before old in the ring (or list) of its group's parts, and makes it refer to
 * fresh. */
static void ring_replace(struct sl_index *index, sl_ref group, sl_ref old, sl_ref fresh)
{
    struct sl_links *links = sl_index_links(index, fresh);
    sl_ref at = links->next_part;
    if (group != 0 && index_record_live(index, group) &&
        sl_index_links(index, group)->next_part == old) {
        sl_index_links(index, group)->next_part = fresh;
    }
    if (at == old) { /* a ring of one */
        links->next_part = fresh;
        return;
    }
    /* A ring returns to old from its next part; a list is walked from its head. */
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i <= SL_GROUP_PARTS_MAX && at != 0 && index_record_live(index, at);
             i++) {
            struct sl_links *other = sl_index_links(index, at);
            if (other->next_part == old) {
                other->next_part = fresh;
                return;
            }
            at = other->next_part;
        }
        at = group != 0 && index_record_live(index, group) ? sl_index_links(index, group)->next_part
                                                           : 0;
    }
}

static void links_replace(struct sl_index *index, sl_ref old, sl_ref fresh, sl_ref group)
{
    struct sl_links *links = sl_index_links(index, fresh);
    *links = *sl_index_links(index, old);
    if (links->older != 0) {
        sl_index_links(index, links->older)->newer = fresh;
    }
    if (links->newer != 0) {
        sl_index_links(index, links->newer)->older = fresh;
    }
    if (links->next_part != 0 || group != 0) {
        ring_replace(index, group, old, fresh);
    }
    *sl_index_links(index, old) = (struct sl_links){0};
}

static void words_switch(const struct sl_extent *extent, const struct sl_disk_place *disk,
                         uint64_t words[RECORD_KEY])
{
    if (extent != NULL) {
        SL_ASSERT(extent->arena <= UINT16_MAX);
        words[RECORD_GENERATION] = extent->generation;
        words[RECORD_OFFSET] = extent->offset_bytes;
        words[RECORD_GROUP] =
            (words[RECORD_GROUP] & UINT64_C(0xffffffffffff)) | (uint64_t)extent->arena << 48;
    }
    if (disk != NULL) {
        words[RECORD_DISK_OFFSET] = disk->offset_bytes;
        words[RECORD_DISK] =
            disk->segment | (uint64_t)disk->disk << 32 | (uint64_t)disk->valid << 48;
    }
}

/* A record from before the node had contributions gets the words for them. */
static void what_switch(const struct sl_index *index, uint64_t *what)
{
    if (index->contributed && (*what & WHAT_TERMS) == 0) {
        uint32_t key_length = what_key_length(*what);
        uint64_t flags = (*what & WHAT_HARD_PIN) | WHAT_TERMS;
        *what = what_make(what_kind(*what), record_units_with_terms(what_kind(*what), key_length),
                          key_length) |
                flags;
    }
}

static sl_err record_switch(struct sl_index *index, sl_ref ref, const struct sl_extent *extent,
                            const struct sl_disk_place *disk, sl_ref *fresh)
{
    uint64_t words[RECORD_KEY];
    uint64_t terms[TERMS_WORDS];
    char key[SL_KEY_BYTES_MAX + 8];
    struct index_place place;
    index_word *old = live_record(index, ref);
    SL_ASSERT(record_kind(old) == SL_RECORD_COMMITTED);
    for (uint32_t i = 0; i < RECORD_KEY; i++) {
        words[i] = word_get(&old[i]);
    }
    uint32_t key_length = what_key_length(words[RECORD_WHAT]);
    SL_ASSERT(key_length <= SL_KEY_BYTES_MAX);
    for (uint32_t at = 0; at < key_length; at += 8) {
        uint64_t part = word_get(&old[RECORD_KEY + at / 8]);
        memcpy(key + at, &part, 8);
    }
    index_terms_copy(&index->view, ref, words[RECORD_WHAT], terms);
    what_switch(index, &words[RECORD_WHAT]);
    sl_err err = index_record_take(index, what_units(words[RECORD_WHAT]), fresh);
    if (err != SL_OK) {
        return err;
    }
    words[RECORD_VERSION] = sl_arena_next_generation(index->arena);
    words_switch(extent, disk, words);
    record_write(index, *fresh, words, RECORD_KEY, key, key_length, terms);
    links_replace(index, ref, *fresh, (sl_ref)words[RECORD_GROUP]);
    bool found = index_place_of(index, words[RECORD_HASH], ref, &place);
    SL_ASSERT(found);
    slot_set(index, place, slot_make(words[RECORD_HASH], *fresh));
    return SL_OK;
}

sl_err sl_index_switch(struct sl_index *index, sl_ref ref, const struct sl_extent *extent,
                       const struct sl_disk_place *disk, sl_ref *fresh)
{
    sl_ref next = 0;
    sl_err err = record_switch(index, ref, extent, disk, &next);
    if (err == SL_OK) {
        index_record_free(index, ref);
        *fresh = next;
    }
    return err;
}

sl_err sl_index_switch_retire(struct sl_index *index, sl_ref ref, const struct sl_extent *extent,
                              const struct sl_disk_place *disk, sl_ref *fresh, bool *retired)
{
    index_word *old = live_record(index, ref);
    uint64_t generation = word_get(&old[RECORD_GENERATION]);
    *retired = extent != NULL && generation != 0 && extent->generation != generation;
    if (!*retired) {
        return sl_index_switch(index, ref, extent, disk, fresh);
    }
    sl_ref next = 0;
    sl_err err = record_switch(index, ref, extent, disk, &next);
    if (err == SL_OK) {
        index_record_retire(index, ref);
        *fresh = next;
    }
    return err;
}

/* ---- blocks ---- */

static void words_from_group(struct sl_index *index, const struct sl_group_want *want,
                             uint32_t units, uint64_t hash, uint64_t words[GROUP_KEY])
{
    memset(words, 0, GROUP_KEY * sizeof(words[0]));
    words[RECORD_VERSION] = sl_arena_next_generation(index->arena);
    words[RECORD_WHAT] = what_make(SL_RECORD_GROUP, units, want->key.length);
    words[RECORD_HASH] = hash;
    words[GROUP_STATE] = SL_GROUP_PENDING;
    words[GROUP_PARTS] = want->part_count;
    words[GROUP_TRANSIENT] = want->transient_ns;
    words[RECORD_DEADLINE] = want->deadline_ns;
    words[RECORD_OP] = want->op_id;
    words[RECORD_OWNER_START] = want->owner.start_time;
    words[RECORD_PIDS] = want->owner.pid;
}

sl_err sl_index_group_create(struct sl_index *index, const struct sl_group_want *want, sl_ref *ref,
                             struct sl_error *why)
{
    uint64_t words[GROUP_KEY];
    struct index_place place;
    uint32_t key_length = want->key.length;
    if (key_length == 0 || key_length > SL_KEY_BYTES_MAX || want->part_count == 0 ||
        want->part_count > SL_GROUP_PARTS_MAX) {
        return sl_fail(why, SL_ERR_INVALID,
                       "block of %u parts under a key of %u bytes, expected 1..%u and 1..%u",
                       want->part_count, key_length, SL_GROUP_PARTS_MAX, SL_KEY_BYTES_MAX);
    }
    uint64_t hash =
        want->hash != 0 ? want->hash : index_hash(&index->view, want->key.at, key_length);
    sl_err err = sl_index_find_hashed(index, want->key, hash, NULL);
    if (err != SL_ERR_NOT_FOUND) {
        return sl_fail(why, err == SL_OK ? SL_ERR_EXISTS : SL_ERR_INTERNAL,
                       "the key of block %016" PRIx64 " is in the table", hash);
    }
    err = admit(index, record_units(SL_RECORD_GROUP, key_length), why);
    if (err != SL_OK) {
        return err;
    }
    if (!index_place_free(index, hash, &place)) {
        return sl_fail(why, SL_ERR_NO_SPACE, "index full: no slot within %u buckets",
                       SL_INDEX_PROBE_MAX);
    }
    uint32_t units = record_units(SL_RECORD_GROUP, key_length);
    sl_ref fresh = 0;
    if (index_record_take(index, units, &fresh) != SL_OK) {
        return sl_fail(why, SL_ERR_NO_SPACE, "index full: no record of %u bytes",
                       units * INDEX_UNIT_BYTES);
    }
    words_from_group(index, want, units, hash, words);
    record_write(index, fresh, words, GROUP_KEY, want->key.at, key_length, NULL);
    index_link(index, hash, place, fresh);
    index_count(counter_of(index, SL_RECORD_GROUP), 1);
    *ref = fresh;
    return SL_OK;
}

static index_word *live_group(const struct sl_index *index, sl_ref ref)
{
    index_word *record = live_record(index, ref);
    SL_ASSERT(record_kind(record) == SL_RECORD_GROUP);
    return record;
}

bool index_group_complete(struct sl_index *index, index_word *group)
{
    uint64_t part_count = word_get(&group[GROUP_PARTS]), count = 0;
    for (uint32_t i = 0; i < SL_GROUP_PARTS_MAX / 64 && i * 64 < part_count; i++) {
        count += (uint64_t)__builtin_popcountll(word_get(&group[GROUP_FILLED + i]));
    }
    if (word_get(&group[GROUP_STATE]) != SL_GROUP_PENDING || count != part_count) {
        return false;
    }
    word_set(&group[GROUP_COMMITTED], index->now_ns != 0 ? index->now_ns : sl_clock_monotonic_ns());
    word_publish(&group[GROUP_STATE], SL_GROUP_COMMITTED);
    return true;
}

void sl_index_set_now(struct sl_index *index, uint64_t now_ns)
{
    index->now_ns = now_ns;
}

bool sl_index_group_fill(struct sl_index *index, sl_ref ref, uint32_t part_index)
{
    index_word *group = live_group(index, ref);
    index_word *bits = &group[GROUP_FILLED + part_index / 64 % (SL_GROUP_PARTS_MAX / 64)];
    SL_ASSERT(part_index < word_get(&group[GROUP_PARTS]));
    word_set(bits, word_get(bits) | UINT64_C(1) << (part_index % 64));
    return index_group_complete(index, group);
}

void sl_index_group_info(const struct sl_index *index, sl_ref ref, struct sl_group_info *out)
{
    index_word *group = live_group(index, ref);
    *out = (struct sl_group_info){
        .state = (enum sl_group_state)word_get(&group[GROUP_STATE]),
        .part_count = (uint32_t)word_get(&group[GROUP_PARTS]),
        .deadline_ns = word_get(&group[RECORD_DEADLINE]),
        .op_id = word_get(&group[RECORD_OP]),
        .transient_ns = word_get(&group[GROUP_TRANSIENT]),
        .committed_ns = word_get(&group[GROUP_COMMITTED]),
        .owner = {.start_time = word_get(&group[RECORD_OWNER_START]),
                  .pid = (uint32_t)word_get(&group[RECORD_PIDS])},
    };
}

void sl_index_group_drop(struct sl_index *index, sl_ref ref)
{
    word_publish(&live_group(index, ref)[GROUP_STATE], SL_GROUP_DROPPED);
}

/* ---- notes ---- */

sl_err sl_index_blob_put(struct sl_index *index, const void *bytes, uint32_t length_bytes,
                         uint32_t tag, sl_ref *ref, struct sl_error *why)
{
    uint64_t words[RECORD_KEY] = {0};
    uint32_t units = record_units(SL_RECORD_BLOB, SL_MIN(length_bytes, SL_BLOB_BYTES_MAX));
    sl_ref fresh = 0;
    if (length_bytes > SL_BLOB_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "note of %u bytes, at most %u", length_bytes,
                       SL_BLOB_BYTES_MAX);
    }
    if (index_record_take(index, units, &fresh) != SL_OK) {
        return sl_fail(why, SL_ERR_NO_SPACE, "index full: no record of %u bytes",
                       units * INDEX_UNIT_BYTES);
    }
    words[RECORD_VERSION] = sl_arena_next_generation(index->arena);
    words[RECORD_WHAT] = what_make(SL_RECORD_BLOB, units, length_bytes);
    words[RECORD_OP] = tag;
    record_write(index, fresh, words, RECORD_KEY, bytes, length_bytes, NULL);
    *ref = fresh;
    return SL_OK;
}

const void *sl_index_blob_at(const struct sl_index *index, sl_ref ref, uint32_t *length_bytes,
                             uint32_t *tag)
{
    index_word *record = live_record(index, ref);
    uint64_t what = word_get(&record[RECORD_WHAT]);
    SL_ASSERT(what_kind(what) == SL_RECORD_BLOB);
    if (length_bytes != NULL) {
        *length_bytes = what_key_length(what);
    }
    if (tag != NULL) {
        *tag = (uint32_t)word_get(&record[RECORD_OP]);
    }
    return (const void *)&record[RECORD_KEY];
}
