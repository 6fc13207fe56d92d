/* ipc/shm/index_records.c - memory of records: slabs of one size class each, and which records are
 * live.
 *
 * Whether a record is live is stored in it (version); the lists and masks here are private and
 * rebuilt by recovery. A slab whose records are all free returns to the free slabs and may take
 * another class: otherwise the space of keys of one length would be lost to keys of another length
 * after everything was evicted. */
#include "ipc/shm/index_internal.h"

#include <string.h>

static index_word *slab_head(const struct sl_index *index, uint32_t slab)
{
    return record_at(&index->view, slab * INDEX_SLAB_UNITS);
}

static void slab_link_partial(struct sl_index *index, uint32_t at)
{
    struct index_slab *slab = &index->slabs[at];
    uint32_t *head = &index->partial[slab->units];
    slab->prev = INDEX_NONE;
    slab->next = *head;
    if (*head != INDEX_NONE) {
        index->slabs[*head].prev = at;
    }
    *head = at;
}

static void slab_unlink_partial(struct sl_index *index, uint32_t at)
{
    struct index_slab *slab = &index->slabs[at];
    if (slab->prev != INDEX_NONE) {
        index->slabs[slab->prev].next = slab->next;
    } else {
        index->partial[slab->units] = slab->next;
    }
    if (slab->next != INDEX_NONE) {
        index->slabs[slab->next].prev = slab->prev;
    }
}

static void slab_push_free(struct sl_index *index, uint32_t at, bool clean)
{
    index->slabs[at] = (struct index_slab){.clean = clean, .next = index->free_slab};
    index->free_slab = at;
    index->free_slab_count++;
}

/* Populates more slabs. Readers see them only when accesses no longer fault. */
static sl_err slabs_grow(struct sl_index *index)
{
    uint64_t left = index->view.slab_count_max - index->slab_count;
    uint32_t share = SL_MAX(index->slab_count / INDEX_GROW_SHARE, 1u);
    uint32_t count = (uint32_t)SL_MIN(left, SL_MIN(share, INDEX_GROW_SLABS));
    if (count == 0) {
        return SL_ERR_NO_SPACE;
    }
    uint64_t base_bytes =
        (uint64_t)((unsigned char *)index->view.records - index->view.segment.data);
    sl_err err = sl_shm_file_populate(&index->view.segment,
                                      base_bytes + (uint64_t)index->slab_count * INDEX_SLAB_BYTES,
                                      (uint64_t)count * INDEX_SLAB_BYTES, NULL);
    index->starved = err != SL_OK;
    if (err != SL_OK) {
        return SL_ERR_NO_SPACE;
    }
    /* From the last to the first, so that the list gives them in rising order. They are surely zero
     * only in a file that we created: only slabs below the published count were ever written, but
     * an index that was opened may have lost that count. */
    for (uint32_t i = count; i > 0; i--) {
        slab_push_free(index, index->slab_count + i - 1, index->made);
    }
    index->slab_count += count;
    word_publish(&index->view.header->slab_count, index->slab_count);
    return SL_OK;
}

void index_live(struct sl_index *index)
{
    if (index->slab_count == 0) {
        (void)slabs_grow(index); /* otherwise with the first record that finds room */
    }
}

struct index_slab index_slab_of(uint32_t units)
{
    uint16_t capacity = (uint16_t)((INDEX_SLAB_UNITS - 1) / units);
    return (struct index_slab){
        .units = (uint16_t)units, .capacity = capacity, .free_count = capacity};
}

/* Gives a free slab a class. Its old contents must not look like records of the new class, so it is
 * zeroed first. */
static sl_err slab_open(struct sl_index *index, uint32_t units)
{
    if (index->free_slab == INDEX_NONE) {
        sl_err err = slabs_grow(index);
        if (err != SL_OK) {
            return err;
        }
    }
    uint32_t at = index->free_slab;
    struct index_slab *slab = &index->slabs[at];
    index_word *head = slab_head(index, at);
    index->free_slab = slab->next;
    index->free_slab_count--;
    if (!slab->clean) {
        /* Partner of the readers' fence: a reader that sees a zero also sees that the version
         * before it has ended. */
        atomic_thread_fence(memory_order_release);
        for (uint32_t i = 0; i < INDEX_SLAB_BYTES / sizeof(*head); i++) {
            atomic_store_explicit(&head[i], 0, memory_order_relaxed);
        }
        INDEX_STEP();
    }
    *slab = index_slab_of(units);
    word_publish(head, units);
    slab_link_partial(index, at);
    index->free_records[units] += slab->capacity;
    return SL_OK;
}

/* INDEX_NONE: no free one. */
static uint32_t slab_first_free(const struct index_slab *slab)
{
    for (uint32_t i = 0; i < INDEX_SLAB_MASK_WORDS; i++) {
        if (slab->live[i] != UINT64_MAX) {
            return i * 64 + (uint32_t)__builtin_ctzll(~slab->live[i]);
        }
    }
    return INDEX_NONE;
}

bool index_admits(const struct sl_index *index, uint32_t units)
{
    uint64_t slots = index->view.bucket_count * INDEX_BUCKET_SLOTS;
    uint64_t keys = word_get(&index->view.header->key_count) +
                    word_get(&index->view.header->group_count) + index->reserved_count;
    if (keys >= slots * INDEX_LOAD_MAX / INDEX_LOAD_MAX_OF) {
        return false;
    }
    uint64_t spare = SL_MIN(index->view.slab_count_max / 16, INDEX_SPARE_SLABS_MAX);
    uint64_t unpopulated = index->starved ? 0 : index->view.slab_count_max - index->slab_count;
    /* One record of the class stays free for a switch, which in turn frees one. */
    return index->free_records[units] >= 2 || index->free_slab_count + unpopulated > spare;
}

/* Prefetches the record that will be taken next of this class. */
static void next_fetch(const struct sl_index *index, uint32_t units)
{
    uint32_t at = index->partial[units];
    uint32_t number = at != INDEX_NONE ? slab_first_free(&index->slabs[at]) : INDEX_NONE;
    if (number != INDEX_NONE) {
        sl_index_fetch(index, at * INDEX_SLAB_UNITS + 1 + number * units);
    }
}

sl_err index_record_take(struct sl_index *index, uint32_t units, sl_ref *ref)
{
    SL_ASSERT(index->recovered); /* otherwise live records would be overwritten */
    SL_ASSERT(units >= INDEX_UNITS_MIN);
    SL_ASSERT(units < INDEX_SLAB_UNITS);
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; it does not see that SL_ASSERT ends here */
    if (index->partial[units] == INDEX_NONE) {
        sl_err err = slab_open(index, units);
        if (err != SL_OK) {
            return err;
        }
    }
    uint32_t at = index->partial[units];
    struct index_slab *slab = &index->slabs[at];
    uint32_t number = slab_first_free(slab);
    SL_ASSERT(number < slab->capacity);
    uint32_t within = 1 + number * units;
    slab->live[number / 64] |= UINT64_C(1) << (number % 64);
    slab->starts[within / 64] |= UINT64_C(1) << (within % 64);
    index->free_records[units]--;
    if (--slab->free_count == 0) {
        slab_unlink_partial(index, at);
    }
    *ref = at * INDEX_SLAB_UNITS + within;
    next_fetch(index, units);
    index_count(&index->view.header->record_units_used, units);
    return SL_OK;
}

bool sl_index_ref_live(const struct sl_index *index, sl_ref ref)
{
    return index_record_live(index, ref);
}

void index_record_give(struct sl_index *index, sl_ref ref)
{
    uint32_t at = ref / INDEX_SLAB_UNITS;
    uint32_t within = ref % INDEX_SLAB_UNITS;
    struct index_slab *slab = &index->slabs[at];
    SL_ASSERT(index_record_live(index, ref));
    uint32_t number = (within - 1) / slab->units;
    index_count(&index->view.header->record_units_used, -(int64_t)slab->units);
    slab->live[number / 64] &= ~(UINT64_C(1) << (number % 64));
    slab->starts[within / 64] &= ~(UINT64_C(1) << (within % 64));
    index->free_records[slab->units]++;
    if (slab->free_count++ == 0) {
        slab_link_partial(index, at);
    }
    if (slab->free_count == slab->capacity) {
        slab_unlink_partial(index, at);
        index->free_records[slab->units] -= slab->capacity;
        word_publish(slab_head(index, at), 0);
        slab_push_free(index, at, false);
    }
}

void index_slab_forget(struct sl_index *index, uint32_t at)
{
    word_publish(slab_head(index, at), 0);
    slab_push_free(index, at, false);
}

void index_slab_adopt(struct sl_index *index, uint32_t at)
{
    struct index_slab *slab = &index->slabs[at];
    uint32_t live_count = 0;
    for (uint32_t i = 0; i < INDEX_SLAB_MASK_WORDS; i++) {
        live_count += (uint32_t)__builtin_popcountll(slab->live[i]);
    }
    if (live_count == 0) {
        index_slab_forget(index, at);
        return;
    }
    SL_ASSERT(live_count <= slab->capacity);
    slab->free_count = (uint16_t)(slab->capacity - live_count);
    index->free_records[slab->units] += slab->free_count;
    if (slab->free_count > 0) {
        slab_link_partial(index, at);
    }
}

bool sl_index_walk(const struct sl_index *index, uint64_t *cursor, struct sl_entry *out)
{
    uint64_t at = *cursor / INDEX_SLAB_RECORDS_MAX;
    uint32_t number = (uint32_t)(*cursor % INDEX_SLAB_RECORDS_MAX);
    if (at >= index->slab_count) {
        return false;
    }
    const struct index_slab *slab = &index->slabs[at];
    for (; slab->units != 0 && number < slab->capacity; number++) {
        if ((slab->live[number / 64] >> (number % 64) & 1) != 0) {
            *cursor = at * INDEX_SLAB_RECORDS_MAX + number + 1;
            sl_index_read(index, (sl_ref)at * INDEX_SLAB_UNITS + 1 + number * slab->units, out);
            return true;
        }
    }
    *cursor = (at + 1) * INDEX_SLAB_RECORDS_MAX;
    *out = (struct sl_entry){.kind = SL_RECORD_FREE};
    return true;
}
