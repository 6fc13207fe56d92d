/* ipc/shm/sl_index.c - the index file as a whole: its plan, opening and closing, statistics. */
#include "ipc/shm/index_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Buckets are made for 3/4 of their slots in use at key_count keys. */
#define INDEX_LOAD_KEYS_OF    4u
#define INDEX_LOAD_KEYS       3u
#define INDEX_BYTES_A_KEY     320u
#define INDEX_HUGE_FROM_BYTES (64u * SL_MIB) /* smaller ones do not gain from huge pages */
#define INDEX_BUCKETS_MAX     (UINT64_C(1) << 31)
#define INDEX_UNITS_LIMIT     (UINT64_C(1) << 32) /* a reference has 32 bits */

uint64_t index_hash(const struct sl_index_view *view, const char *key, uint32_t key_length)
{
    return XXH3_64bits_withSeed(key, key_length, view->seed);
}

sl_err index_view_adopt(struct sl_index_view *view, struct sl_error *why)
{
    uint64_t data_bytes = view->segment.data_bytes;
    view->header = sl_shm_file_own(&view->segment);
    uint64_t bucket_count = view->header->bucket_count;
    uint64_t offset_bytes = view->header->records_offset_bytes;
    uint64_t slab_count_max = view->header->slab_count_max;
    if (bucket_count == 0 || bucket_count >= INDEX_BUCKETS_MAX || offset_bytes > data_bytes ||
        offset_bytes % INDEX_UNIT_BYTES != 0 ||
        bucket_count * sizeof(struct index_bucket) > offset_bytes || slab_count_max == 0 ||
        slab_count_max > INDEX_UNITS_LIMIT / INDEX_SLAB_UNITS ||
        slab_count_max > (data_bytes - offset_bytes) / INDEX_SLAB_BYTES) {
        return sl_fail(why, SL_ERR_CORRUPT,
                       "index: %" PRIu64 " buckets and %" PRIu64 " slabs at %" PRIu64 " in %" PRIu64
                       " bytes",
                       bucket_count, slab_count_max, offset_bytes, data_bytes);
    }
    view->buckets = (struct index_bucket *)(void *)view->segment.data;
    view->records = (index_word *)(void *)(view->segment.data + offset_bytes);
    view->seed = view->header->seed;
    view->bucket_count = bucket_count;
    view->slab_count_max = slab_count_max;
    return SL_OK;
}

sl_err sl_index_view_open(const char *shm_dir, struct sl_index_view **out, struct sl_error *why)
{
    struct sl_shm_file_want want = {
        .directory = shm_dir, .name = INDEX_FILE, .kind = SL_SHM_FILE_INDEX};
    struct sl_index_view *view = calloc(1, sizeof(*view));
    if (view == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "index view");
    }
    sl_err err = sl_shm_file_open(&want, false, &view->segment, why);
    if (err != SL_OK) {
        free(view);
        return err;
    }
    view->regions.segment.fd = -1;
    err = index_view_adopt(view, why);
    if (err != SL_OK) {
        sl_index_view_close(&view);
        return err;
    }
    (void)index_regions_attach(shm_dir, view,
                               &view->regions); /* without them a walk covers the whole table */
    *out = view;
    return SL_OK;
}

void sl_index_view_close(struct sl_index_view **view)
{
    if (view == NULL || *view == NULL) {
        return;
    }
    index_regions_close(&(*view)->regions);
    sl_shm_file_close(&(*view)->segment);
    free(*view);
    *view = NULL;
}

bool sl_index_view_is_cut(const struct sl_index_view *view)
{
    return sl_shm_file_is_cut(&view->segment);
}

bool sl_index_is_short(const struct sl_index *index)
{
    return sl_shm_file_is_short(&index->view.segment) ||
           (index->leases.slots != NULL && sl_shm_file_is_short(&index->leases.segment));
}

bool sl_index_changes_renew(struct sl_index *index, const char *shm_dir)
{
    return index_regions_renew(shm_dir, &index->view);
}

sl_err sl_index_view_current(const struct sl_index_view *view, const char *shm_dir)
{
    return sl_shm_file_current(&view->segment, shm_dir, INDEX_FILE);
}

bool sl_index_view_linked(const struct sl_index_view *view)
{
    return sl_shm_file_linked(&view->segment);
}

sl_err sl_index_view_follow(const char *shm_dir, struct sl_index_view **view, struct sl_error *why)
{
    sl_err err =
        *view == NULL ? SL_ERR_STALE : sl_shm_file_followed(&(*view)->segment, shm_dir, INDEX_FILE);
    if (err != SL_ERR_STALE) {
        return err == SL_OK ? SL_OK : sl_fail(why, err, "no index in %s", shm_dir);
    }
    /* Before the old one is closed, so that callers that compare them never get the same
     * address. */
    struct sl_index_view *next = NULL;
    err = sl_index_view_open(shm_dir, &next, why);
    sl_index_view_close(view);
    *view = next;
    return err;
}

bool sl_index_view_ready(struct sl_env *env, struct sl_index_view **view)
{
    struct sl_error why = {0};
    sl_err err = sl_index_view_follow(env->paths->shm_dir, view, &why);
    if (err != SL_OK && err != SL_ERR_NOT_FOUND) {
        sl_log_write(env->log, SL_LOG_WARN, 0, "index not opened, trying again: %s", why.text);
    }
    return err == SL_OK;
}

bool sl_index_view_remote(const struct sl_index_view *view)
{
    return word_get(&view->header->remote) != 0;
}

void sl_index_set_remote(struct sl_index *index, bool remote)
{
    word_set(&index->view.header->remote, remote ? 1 : 0);
}

void sl_index_view_stats(const struct sl_index_view *view, struct sl_index_stats *out)
{
    uint64_t slab_count = SL_MIN(word_get_acquire(&view->header->slab_count), view->slab_count_max);
    uint64_t table_bytes =
        (uint64_t)((unsigned char *)view->records - (unsigned char *)view->buckets);
    *out = (struct sl_index_stats){
        .bucket_count = view->bucket_count,
        .key_count = word_get(&view->header->key_count),
        .group_count = word_get(&view->header->group_count),
        .record_bytes_used = word_get(&view->header->record_units_used) * INDEX_UNIT_BYTES,
        .record_bytes_max = view->slab_count_max * INDEX_SLAB_BYTES,
        .mapped_bytes = table_bytes + slab_count * INDEX_SLAB_BYTES,
    };
}

/* ---- creating ---- */

static sl_err index_plan(const struct sl_index_options *options, struct index_header *plan,
                         uint64_t *align_bytes, uint64_t *data_bytes, struct sl_error *why)
{
    uint64_t total_bytes = options->index_bytes_max;
    uint64_t key_count =
        options->key_count != 0 ? options->key_count : total_bytes / INDEX_BYTES_A_KEY;
    if (key_count > INDEX_BUCKETS_MAX) { /* keeps the products below in range */
        return sl_fail(why, SL_ERR_CONFIG, "index for %" PRIu64 " keys: at most %" PRIu64,
                       key_count, INDEX_BUCKETS_MAX);
    }
    uint64_t slots = key_count * INDEX_LOAD_KEYS_OF / INDEX_LOAD_KEYS + 1;
    plan->bucket_count = (slots + INDEX_BUCKET_SLOTS - 1) / INDEX_BUCKET_SLOTS;
    plan->records_offset_bytes =
        sl_align_up(plan->bucket_count * sizeof(struct index_bucket), INDEX_SLAB_BYTES);
    *align_bytes = total_bytes >= INDEX_HUGE_FROM_BYTES ? 2 * SL_MIB : SL_PAGE_BYTES;
    /* The header page counts as well: the whole stays below its ceiling. */
    uint64_t fixed_bytes = plan->records_offset_bytes + SL_PAGE_BYTES;
    uint64_t slabs = total_bytes > fixed_bytes ? (total_bytes - fixed_bytes) / INDEX_SLAB_BYTES : 0;
    slabs = SL_MIN(slabs, INDEX_UNITS_LIMIT / INDEX_SLAB_UNITS);
    if (slabs < 2 || slabs * INDEX_SLAB_BYTES < plan->records_offset_bytes) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "index of %" PRIu64 " bytes is too small for %" PRIu64
                       " keys: just their table takes %" PRIu64,
                       total_bytes, key_count, plan->records_offset_bytes);
    }
    plan->slab_count_max = slabs;
    *data_bytes = plan->records_offset_bytes + slabs * INDEX_SLAB_BYTES;
    return SL_OK;
}

static sl_err index_create(const struct sl_index_options *options, struct index_header *plan,
                           struct sl_shm_file_want want, struct sl_shm_file *segment,
                           struct sl_error *why)
{
    if (getrandom(&plan->seed, sizeof(plan->seed), 0) != (ssize_t)sizeof(plan->seed)) {
        return sl_fail(why, SL_ERR_OS, "no random seed for the index");
    }
    plan->arena_birth = sl_arena_birth_generation(options->arena);
    if (options->leases.object_ns != 0 || options->leases.block_ns != 0) {
        sl_err err = index_leases_make(options->shm_dir, plan, options->goes_on, why);
        if (err != SL_OK) {
            return err;
        }
        plan->lease_ttl_ns = options->leases.object_ns;
        plan->lease_block_ns = options->leases.block_ns;
    }
    /* Without them readers walk the whole table. */
    (void)index_regions_make(options->shm_dir, plan, options->goes_on, NULL);
    want.own = plan;
    want.own_bytes = sizeof(*plan);
    /* The table is accessed at random: all is allocated now, so that no access fails on a full
     * system. */
    want.populate_bytes = plan->records_offset_bytes;
    want.goes_on = options->goes_on;
    return sl_shm_file_create(&want, segment, why);
}

/* An index of another arena: its remaining readers find no record in bounds and ask the
 * registrar. */
static sl_err index_replace(const struct sl_index_options *options, struct sl_index *index,
                            struct sl_error *why)
{
    word_publish(&index->view.header->slab_count, 0);
    sl_shm_file_close(&index->view.segment);
    return sl_shm_file_remove(options->shm_dir, INDEX_FILE, why);
}

static sl_err index_check_size(const struct sl_index_options *options,
                               const struct index_header *plan, uint64_t data_bytes,
                               const struct sl_index_view *view, struct sl_error *why)
{
    if (options->derived ||
        (view->segment.data_bytes == data_bytes && view->bucket_count == plan->bucket_count)) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_CONFIG,
                   "the index of an earlier start has %" PRIu64 " buckets in %" PRIu64
                   " bytes, by index_memory and index_keys, not %" PRIu64 " in %" PRIu64
                   "; start without both, which keeps it, " SL_SHM_FILE_WAY_OUT,
                   view->bucket_count, view->segment.data_bytes, plan->bucket_count, data_bytes);
}

sl_err sl_index_fits(const struct sl_index_options *options, struct sl_error *why)
{
    struct index_header plan = {0};
    uint64_t align_bytes = 0, data_bytes = 0;
    struct sl_index_view view = {.segment = {.fd = -1}};
    const struct sl_shm_file_want want = {
        .directory = options->shm_dir, .name = INDEX_FILE, .kind = SL_SHM_FILE_INDEX};
    sl_err err = index_plan(options, &plan, &align_bytes, &data_bytes, why);
    if (err == SL_OK && sl_shm_file_open(&want, false, &view.segment, NULL) == SL_OK) {
        err = index_view_adopt(&view, NULL) == SL_OK
                  ? index_check_size(options, &plan, data_bytes, &view, why)
                  : SL_OK; /* the registrar reports what is wrong with it */
        sl_shm_file_close(&view.segment);
    }
    return err;
}

static sl_err index_open_segment(const struct sl_index_options *options, struct sl_index *index,
                                 bool *created, struct sl_error *why)
{
    struct index_header plan = {0};
    struct sl_shm_file_want want = {
        .directory = options->shm_dir, .name = INDEX_FILE, .kind = SL_SHM_FILE_INDEX};
    uint64_t data_bytes = 0;
    sl_err err = index_plan(options, &plan, &want.data_align_bytes, &data_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    *created = false;
    err = sl_shm_file_open(&want, true, &index->view.segment, why);
    if (err == SL_OK) {
        err = index_view_adopt(&index->view, why);
        if (err == SL_OK &&
            index->view.header->arena_birth != sl_arena_birth_generation(options->arena)) {
            err = index_replace(options, index, why);
            err = err == SL_OK ? SL_ERR_NOT_FOUND : err;
        }
    }
    if (err == SL_ERR_NOT_FOUND) {
        *created = true;
        want.data_bytes = data_bytes;
        err = index_create(options, &plan, want, &index->view.segment, why);
        err = err == SL_OK ? index_view_adopt(&index->view, why) : err;
    }
    if (err != SL_OK) {
        return err;
    }
    return index_check_size(options, &plan, data_bytes, &index->view, why);
}

static sl_err index_make_tables(struct sl_index *index, bool created, struct sl_error *why)
{
    index->slabs = calloc(index->view.slab_count_max, sizeof(*index->slabs));
    index->recount = created ? NULL : calloc(index->view.bucket_count, sizeof(*index->recount));
    if (index->slabs == NULL || (!created && index->recount == NULL)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tables of the index: %" PRIu64 " slabs",
                       index->view.slab_count_max);
    }
    index->free_slab = INDEX_NONE;
    for (uint32_t i = 0; i < INDEX_SLAB_UNITS; i++) {
        index->partial[i] = INDEX_NONE;
    }
    index->slab_count = (uint32_t)SL_MIN(word_get_acquire(&index->view.header->slab_count),
                                         index->view.slab_count_max);
    index->recovered = created;
    index->made = created;
    return SL_OK;
}

sl_err sl_index_open(const struct sl_index_options *options, bool *created, struct sl_index **out,
                     struct sl_error *why)
{
    bool fresh = false;
    struct sl_index *index = calloc(1, sizeof(*index));
    if (index == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "index handle");
    }
    index->view.segment.fd = -1;
    index->leases.segment.fd = -1;
    index->view.regions.segment.fd = -1;
    index->arena = options->arena;
    index->goes_on = options->goes_on;
    sl_err err = index_open_segment(options, index, &fresh, why);
    if (err == SL_OK) {
        err = index_make_tables(index, fresh, why);
    }
    if (err == SL_OK) {
        index_regions_open(options->shm_dir, &index->view, options->goes_on, &index->view.regions);
    }
    if (err != SL_OK) {
        sl_index_close(&index);
        return err;
    }
    if (fresh) {
        index_live(index);
        index_regions_own(&index->view, false);
    }
    *created = fresh;
    *out = index;
    return SL_OK;
}

void sl_index_close(struct sl_index **index)
{
    if (index == NULL || *index == NULL) {
        return;
    }
    index_regions_close(&(*index)->view.regions);
    sl_shm_file_close(&(*index)->leases.segment);
    sl_shm_file_close(&(*index)->view.segment);
    free((*index)->slabs);
    free((*index)->recount);
    free(*index);
    *index = NULL;
}

const struct sl_index_view *sl_index_as_view(const struct sl_index *index)
{
    return &index->view;
}

bool sl_index_nearly_full(const struct sl_index *index)
{
    struct sl_index_stats stats;
    sl_index_view_stats(&index->view, &stats);
    uint64_t record_bytes =
        index->starved ? (uint64_t)index->slab_count * INDEX_SLAB_BYTES : stats.record_bytes_max;
    uint64_t slots = stats.bucket_count * INDEX_BUCKET_SLOTS;
    return stats.record_bytes_used > record_bytes / 10 * 9 ||
           (stats.key_count + stats.group_count + index->reserved_count) > slots * 85 / 100;
}
