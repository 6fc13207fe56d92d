/* ipc/shm/index_leases.c - the words of leases: their file, and the registrar's side.
 *
 * Lookups that lease are in index_reader.c. Orders: a word is only changed by compare-and-exchange
 * (acq_rel), so that of a reader's lease and the registrar's closing one is first and the other
 * sees it. A slot that gets a new key has its word cleared (relaxed) before the slot's release
 * store. A reader that leased reads slot and version again: partner of the slot's stores. */
#include "ipc/shm/index_internal.h"

#include "runtime/base/sl_clock.h"

#include <inttypes.h>
#include <stdlib.h>

#define LEASES_FILE "leases"
/* A lease is renewed when it is shorter than a new one by more than this share, so that frequent
 * lookups rarely write. A bundle's lease, which is renewed for all members, is renewed when half
 * is over. */
#define RENEW_SHARE        64u
#define RENEW_BUNDLE_SHARE 2u
/* The registrar's time is that of the start of its step: a reader's may be later by this. */
#define CLOCK_SLACK_NS SL_NS_PER_S

/* The part of the header page for leases. */
struct leases_header {
    uint64_t seed; /* of the index to which they belong */
    uint64_t bucket_count;
};

static_assert(LEASE_BUCKET_WORDS * 8 == sizeof(struct index_bucket), "laid out as the table");

static struct sl_shm_file_want want_of(const char *shm_dir, uint64_t bucket_count)
{
    uint64_t data_bytes = (bucket_count * LEASE_BUCKET_WORDS + SL_LEASE_BUNDLES) * 8;
    return (struct sl_shm_file_want){.directory = shm_dir,
                                     .name = LEASES_FILE,
                                     .kind = SL_SHM_FILE_LEASES,
                                     .data_bytes = sl_align_up(data_bytes, SL_PAGE_BYTES)};
}

static void leases_map(struct index_leases *leases, struct sl_shm_file segment,
                       uint64_t bucket_count)
{
    leases->segment = segment;
    leases->bundles = (index_word *)(void *)segment.data;
    leases->slots = leases->bundles + SL_LEASE_BUNDLES;
    leases->bucket_count = bucket_count;
}

static sl_err leases_open(const char *shm_dir, const struct sl_index_view *view,
                          struct index_leases *leases, struct sl_error *why)
{
    struct sl_shm_file segment;
    const struct sl_shm_file_want want = want_of(shm_dir, view->bucket_count);
    sl_err err = sl_shm_file_open(&want, true, &segment, why);
    if (err != SL_OK) {
        return err;
    }
    const struct leases_header *header = sl_shm_file_own(&segment);
    if (header->seed != view->seed || header->bucket_count != view->bucket_count) {
        sl_shm_file_close(&segment);
        return sl_fail(why, SL_ERR_STALE, "the leases in %s are of another index", shm_dir);
    }
    leases_map(leases, segment, view->bucket_count);
    return SL_OK;
}

/* ---- readers ---- */

uint64_t sl_index_view_lease_ttl(const struct sl_index_view *view)
{
    return word_get(&view->header->lease_ttl_ns);
}

uint64_t sl_index_view_lease_blocks(const struct sl_index_view *view)
{
    return word_get(&view->header->lease_block_ns);
}

sl_err sl_leases_open(const char *shm_dir, const struct sl_index_view *view, struct sl_leases **out,
                      struct sl_error *why)
{
    struct sl_leases *leases = calloc(1, sizeof(*leases));
    if (leases == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "leases");
    }
    sl_err err = leases_open(shm_dir, view, &leases->map, why);
    if (err != SL_OK) {
        free(leases);
        return err;
    }
    leases->view = view;
    *out = leases;
    return SL_OK;
}

void sl_leases_close(struct sl_leases **leases)
{
    if (leases == NULL || *leases == NULL) {
        return;
    }
    sl_shm_file_close(&(*leases)->map.segment);
    free(*leases);
    *leases = NULL;
}

bool sl_leases_is_cut(const struct sl_leases *leases)
{
    return sl_shm_file_is_cut(&leases->map.segment);
}

sl_err sl_leases_current(const struct sl_leases *leases, const char *shm_dir)
{
    return sl_shm_file_current(&leases->map.segment, shm_dir, LEASES_FILE);
}

bool index_leasing_begin(const struct sl_leases *leases, uint64_t now_ns, uint64_t ttl_ns,
                         struct leasing *out)
{
    *out = (struct leasing){
        .map = &leases->map,
        .want = lease_units(sl_deadline_ns(now_ns, ttl_ns)),
        .enough = lease_units(sl_deadline_ns(now_ns, ttl_ns - ttl_ns / RENEW_SHARE)),
        .enough_of_bundle =
            lease_units(sl_deadline_ns(now_ns, ttl_ns - ttl_ns / RENEW_BUNDLE_SHARE)),
    };
    return ttl_ns != 0;
}

/* Raises the word to at least `enough`; a write sets `want`. Returns the end in ns; 0: closed. */
static uint64_t word_raise(index_word *word, uint64_t tag, uint64_t enough, uint64_t want)
{
    uint64_t found = word_get_acquire(word);
    for (uint32_t i = 0; i < INDEX_TRIES_MAX && found != LEASE_CLOSED; i++) {
        uint64_t end = found & LEASE_END_MASK;
        if ((found & ~LEASE_END_MASK) == tag && end >= enough) {
            return lease_ns(SL_MIN(end, want)); /* the registrar limits ends to this */
        }
        if (atomic_compare_exchange_weak_explicit(word, &found, tag | want, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            return lease_ns(want);
        }
    }
    return 0;
}

uint64_t index_lease_take(const struct leasing *leasing, uint64_t slot, uint64_t hash,
                          uint64_t bundle)
{
    return bundle != 0 ? word_raise(lease_of_bundle(leasing->map, bundle), 0,
                                    leasing->enough_of_bundle, leasing->want)
                       : word_raise(&leasing->map->slots[slot], lease_tag(hash), leasing->enough,
                                    leasing->want);
}

/* ---- the registrar ---- */

static sl_err leases_create(const char *shm_dir, struct leases_header header,
                            struct sl_progress_callback goes_on, struct index_leases *leases,
                            struct sl_error *why)
{
    struct sl_shm_file segment;
    struct sl_shm_file_want want = want_of(shm_dir, header.bucket_count);
    want.own = &header;
    want.own_bytes = sizeof(header);
    /* Readers write at random positions: all is allocated now, so that none fails on a full
     * system. */
    want.populate_bytes = want.data_bytes;
    want.goes_on = goes_on;
    sl_err err = sl_shm_file_renew(&want, &segment, why);
    if (err == SL_OK) {
        leases_map(leases, segment, header.bucket_count);
    }
    return err;
}

sl_err index_leases_make(const char *shm_dir, const struct index_header *index,
                         struct sl_progress_callback goes_on, struct sl_error *why)
{
    const struct leases_header header = {.seed = index->seed, .bucket_count = index->bucket_count};
    struct index_leases leases;
    sl_err err = leases_create(shm_dir, header, goes_on, &leases, why);
    if (err == SL_OK) {
        sl_shm_file_close(&leases.segment);
    }
    return err;
}

sl_err sl_index_leases_open(struct sl_index *index, const char *shm_dir,
                            struct sl_lease_times times, struct sl_error *why)
{
    if (times.object_ns == 0 && times.block_ns == 0) {
        word_set(&index->view.header->lease_ttl_ns, 0);
        word_set(&index->view.header->lease_block_ns, 0);
        return SL_OK;
    }
    sl_err err = leases_open(shm_dir, &index->view, &index->leases, why);
    if (err != SL_OK && err != SL_ERR_OS && err != SL_ERR_VERSION) { /* another's or damaged */
        const struct leases_header header = {.seed = index->view.seed,
                                             .bucket_count = index->view.bucket_count};
        err = leases_create(shm_dir, header, index->goes_on, &index->leases, why);
    }
    if (err != SL_OK) {
        return err;
    }
    index->lease_times = times;
    word_publish(&index->view.header->lease_ttl_ns, times.object_ns);
    word_publish(&index->view.header->lease_block_ns, times.block_ns);
    return SL_OK;
}

/* NULL: no leases, or the record is in no slot. */
static index_word *lease_of(const struct sl_index *index, sl_ref ref, uint64_t *tag)
{
    struct index_place place;
    if (index->leases.slots == NULL || !index_record_live(index, ref)) {
        return NULL;
    }
    uint64_t hash = word_get(&record_at(&index->view, ref)[RECORD_HASH]);
    *tag = lease_tag(hash);
    return index_place_of(index, hash, ref, &place) ? lease_at(&index->leases, place) : NULL;
}

static bool word_counts(uint64_t found, uint64_t tag)
{
    return found != LEASE_CLOSED && (found & ~LEASE_END_MASK) == tag;
}

/* Returns the end of the word's lease, whatever it contains: an end later than that of a lease
 * taken now is cut to that. */
static uint64_t word_end(const struct sl_index *index, index_word *word, uint64_t tag,
                         uint64_t now_ns)
{
    uint64_t ttl_ns = SL_MAX(index->lease_times.object_ns, index->lease_times.block_ns);
    uint64_t longest_ns = sl_deadline_ns(now_ns, ttl_ns);
    uint64_t limit = lease_units(sl_deadline_ns(longest_ns, CLOCK_SLACK_NS));
    uint64_t found = word == NULL ? 0 : word_get_acquire(word);
    if (word_counts(found, tag) && (found & LEASE_END_MASK) > limit) {
        uint64_t cut = tag | lease_units(longest_ns);
        /* Failure: a reader has leased it meanwhile. */
        (void)atomic_compare_exchange_strong_explicit(word, &found, cut, memory_order_acq_rel,
                                                      memory_order_acquire);
        found = cut;
    }
    uint64_t end_ns = word_counts(found, tag) ? lease_ns(found & LEASE_END_MASK) : 0;
    return end_ns > now_ns ? end_ns : 0;
}

static bool word_close(const struct sl_index *index, index_word *word, uint64_t tag,
                       uint64_t now_ns)
{
    for (uint32_t i = 0; word != NULL && i < INDEX_TRIES_MAX; i++) {
        if (word_end(index, word, tag, now_ns) != 0) {
            return false;
        }
        uint64_t found = word_get(word);
        if ((!word_counts(found, tag) || lease_ns(found & LEASE_END_MASK) <= now_ns) &&
            atomic_compare_exchange_strong_explicit(word, &found, LEASE_CLOSED,
                                                    memory_order_acq_rel, memory_order_acquire)) {
            INDEX_STEP();
            return true;
        }
    }
    return word == NULL; /* otherwise it kept changing, so readers want it */
}

static void word_reopen(index_word *word)
{
    uint64_t closed = LEASE_CLOSED;
    if (word != NULL) {
        (void)atomic_compare_exchange_strong_explicit(word, &closed, 0, memory_order_acq_rel,
                                                      memory_order_acquire);
        INDEX_STEP();
    }
}

static index_word *bundle_lease_of(const struct sl_index *index, uint64_t bundle)
{
    return index->leases.slots == NULL || bundle == 0 ? NULL
                                                      : lease_of_bundle(&index->leases, bundle);
}

uint64_t sl_index_lease_end(struct sl_index *index, sl_ref ref, uint64_t now_ns)
{
    uint64_t tag = 0;
    index_word *word = lease_of(index, ref, &tag);
    return word_end(index, word, tag, now_ns);
}

uint64_t sl_index_bundle_lease_end(struct sl_index *index, uint64_t bundle, uint64_t now_ns)
{
    return word_end(index, bundle_lease_of(index, bundle), 0, now_ns);
}

bool sl_index_lease_close(struct sl_index *index, sl_ref ref, uint64_t now_ns)
{
    uint64_t tag = 0;
    index_word *word = lease_of(index, ref, &tag);
    return word_close(index, word, tag, now_ns);
}

bool sl_index_bundle_lease_close(struct sl_index *index, uint64_t bundle, uint64_t now_ns)
{
    return word_close(index, bundle_lease_of(index, bundle), 0, now_ns);
}

void sl_index_lease_reopen(struct sl_index *index, sl_ref ref)
{
    uint64_t tag = 0;
    word_reopen(lease_of(index, ref, &tag));
}

void sl_index_bundle_lease_reopen(struct sl_index *index, uint64_t bundle)
{
    word_reopen(bundle_lease_of(index, bundle));
}

/* Reopens words for a registrar that was killed between closing a word and removing its key. */
void index_leases_recover(struct sl_index *index)
{
    const struct sl_index_view *view = &index->view;
    for (uint32_t i = 0; index->leases.slots != NULL && i < SL_LEASE_BUNDLES; i++) {
        if (word_get(&index->leases.bundles[i]) == LEASE_CLOSED) {
            word_reopen(&index->leases.bundles[i]);
        }
    }
    for (uint64_t at = 0; index->leases.slots != NULL && at < view->bucket_count; at++) {
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            index_word *word = lease_at(&index->leases, (struct index_place){at, i});
            if (word_get(&view->buckets[at].slots[i]) != 0 && word_get(word) == LEASE_CLOSED) {
                word_reopen(word);
            }
        }
    }
}
