/* ipc/shm/index_fetch.c - prefetches what the registrar is about to use of the index, so that cache
 * misses overlap; short paths for frequent reads. */
#include "ipc/shm/index_internal.h"

void sl_index_fetch(const struct sl_index *index, sl_ref ref)
{
    const index_word *record = record_at(&index->view, ref);
    for (uint32_t unit = 0; unit < INDEX_FETCH_UNITS; unit++) {
        __builtin_prefetch((const void *)&record[unit * INDEX_UNIT_WORDS], 1);
    }
}

void sl_index_fetch_links(const struct sl_index *index, sl_ref ref)
{
    __builtin_prefetch((const void *)&record_at(&index->view, ref)[RECORD_LINKS], 1);
}

static void place_fetch(const struct sl_index *index, uint64_t hash)
{
    struct index_place first = {.bucket = hash_bucket(&index->view, hash)}; /* mostly there */
    __builtin_prefetch((const void *)&index->view.buckets[first.bucket], 1);
    if (index->leases.slots != NULL) {
        __builtin_prefetch((const void *)lease_at(&index->leases, first), 1);
    }
}

void sl_index_fetch_place(const struct sl_index *index, sl_ref ref)
{
    SL_ASSERT(index_record_live(index, ref));
    place_fetch(index, word_get(&record_at(&index->view, ref)[RECORD_HASH]));
}

uint64_t sl_index_fetch_key(const struct sl_index *index, struct sl_key key)
{
    uint64_t hash = index_hash(&index->view, key.at, key.length);
    place_fetch(index, hash);
    return hash;
}

enum sl_record_kind sl_index_kind(const struct sl_index *index, sl_ref ref)
{
    SL_ASSERT(index_record_live(index, ref));
    return what_kind(word_get(&record_at(&index->view, ref)[RECORD_WHAT]));
}

uint64_t sl_index_version(const struct sl_index *index, sl_ref ref)
{
    SL_ASSERT(index_record_live(index, ref));
    return word_get(&record_at(&index->view, ref)[RECORD_VERSION]);
}

void sl_index_extent(const struct sl_index *index, sl_ref ref, struct sl_extent *out)
{
    SL_ASSERT(index_record_live(index, ref));
    index_word *record = record_at(&index->view, ref);
    SL_ASSERT(what_kind(word_get(&record[RECORD_WHAT])) != SL_RECORD_GROUP);
    *out = (struct sl_extent){.generation = word_get(&record[RECORD_GENERATION]),
                              .offset_bytes = word_get(&record[RECORD_OFFSET]),
                              .length_bytes = word_get(&record[RECORD_LENGTH]),
                              .arena = (uint32_t)(word_get(&record[RECORD_GROUP]) >> 48)};
}

void sl_index_stay(const struct sl_index *index, sl_ref ref, struct sl_stay *out)
{
    SL_ASSERT(index_record_live(index, ref));
    uint64_t what = word_get(&record_at(&index->view, ref)[RECORD_WHAT]);
    uint64_t terms[TERMS_WORDS] = {0};
    if ((what & WHAT_TERMS) != 0) {
        index_terms_copy(&index->view, ref, what, terms);
    }
    bool commits = what_kind(what) != SL_RECORD_RESERVED; /* a commit may have been interrupted */
    *out = (struct sl_stay){.soft_pin_end_ns = commits ? terms[TERMS_SOFT_PIN_END] : 0,
                            .bundle = terms[TERMS_BUNDLE],
                            .hard_pin = (what & WHAT_HARD_PIN) != 0};
}

sl_err sl_index_find_any(const struct sl_index *index, const char *key, uint32_t key_length,
                         struct sl_entry *out)
{
    return sl_index_find_hashed(index, (struct sl_key){.at = key, .length = key_length},
                                index_hash(&index->view, key, key_length), out);
}
