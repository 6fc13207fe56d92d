/* ipc/shm/index_regions.c - see index_regions.h. */
#include "ipc/shm/index_regions.h"

#include <fcntl.h>

#define REGIONS_FILE "changes"

#ifdef SL_INDEX_KILL_POINTS /* here, since all programs with the index link this file */
void (*sl_index_kill_point)(void);
void (*sl_index_load_point)(void);
#endif

/* The part of the header page for regions. */
struct regions_header {
    uint64_t seed; /* of the index to which they belong */
    uint64_t bucket_count;
    uint64_t region_buckets;
    index_word lives; /* number of openings for writing */
};
static_assert(sizeof(struct regions_header) == 32, "format of the header of changes");

static struct regions_header header_of(uint64_t seed, uint64_t bucket_count)
{
    return (struct regions_header){
        .seed = seed, .bucket_count = bucket_count, .region_buckets = INDEX_REGION_BUCKETS};
}

/* Size of a table with one word per region. */
static uint64_t table_bytes(uint64_t bucket_count)
{
    return sl_align_up(index_region_count(bucket_count) * sizeof(index_word), SL_PAGE_BYTES);
}

static struct sl_shm_file_want want_of(const char *shm_dir, uint64_t bucket_count)
{
    return (struct sl_shm_file_want){.directory = shm_dir,
                                     .name = REGIONS_FILE,
                                     .kind = SL_SHM_FILE_CHANGES,
                                     .data_bytes = 2 * table_bytes(bucket_count)};
}

static void regions_map(struct index_regions *regions)
{
    regions->header = sl_shm_file_own(&regions->segment);
    regions->counts = (index_word *)(void *)regions->segment.data;
    regions->occupied = regions->counts + regions->segment.data_bytes / 2 / sizeof(index_word);
}

static sl_err regions_check(struct index_regions *regions, const struct sl_index_view *view)
{
    if (regions->header->seed == view->seed &&
        regions->header->bucket_count == view->bucket_count &&
        regions->header->region_buckets == INDEX_REGION_BUCKETS) {
        return SL_OK;
    }
    index_regions_close(regions);
    return SL_ERR_STALE;
}

static sl_err regions_create(const char *shm_dir, const struct regions_header *header,
                             struct sl_progress_callback goes_on, struct index_regions *out,
                             struct sl_error *why)
{
    struct sl_shm_file_want want = want_of(shm_dir, header->bucket_count);
    want.own = header;
    want.own_bytes = sizeof(*header);
    want.populate_bytes = want.data_bytes;
    want.goes_on = goes_on;
    sl_err err = sl_shm_file_renew(&want, &out->segment, why);
    if (err == SL_OK) {
        regions_map(out);
    }
    return err;
}

/* ---- the registrar ---- */

sl_err index_regions_make(const char *shm_dir, const struct index_header *index,
                          struct sl_progress_callback goes_on, struct sl_error *why)
{
    const struct regions_header header = header_of(index->seed, index->bucket_count);
    struct index_regions regions = {.segment = {.fd = -1}};
    sl_err err = regions_create(shm_dir, &header, goes_on, &regions, why);
    index_regions_close(&regions);
    return err;
}

static sl_err regions_open(const char *shm_dir, const struct sl_index_view *view, bool writable,
                           struct index_regions *out)
{
    struct sl_shm_file_want want = want_of(shm_dir, view->bucket_count);
    struct sl_shm_file segment;
    sl_err err = sl_shm_file_open(&want, writable, &segment, NULL);
    if (err != SL_OK) {
        return err;
    }
    out->segment = segment;
    regions_map(out);
    return regions_check(out, view);
}

void index_regions_open(const char *shm_dir, const struct sl_index_view *view,
                        struct sl_progress_callback goes_on, struct index_regions *out)
{
    sl_err err = regions_open(shm_dir, view, true, out);
    if (err == SL_OK && sl_shm_file_is_short(&out->segment)) {
        index_regions_close(out);
        err = SL_ERR_CORRUPT;
    }
    if (err != SL_OK && err != SL_ERR_VERSION) {
        const struct regions_header header = header_of(view->seed, view->bucket_count);
        err = regions_create(shm_dir, &header, goes_on, out, NULL);
    }
    if (err == SL_OK) {
        word_publish(&out->header->lives, word_get(&out->header->lives) + 1);
    }
}

void index_region_recount(const struct sl_index_view *view, uint64_t region)
{
    uint64_t occupied = 0;
    if (view->regions.counts == NULL) {
        return;
    }
    uint64_t end = SL_MIN((region + 1) * INDEX_REGION_BUCKETS, view->bucket_count);
    for (uint64_t at = region * INDEX_REGION_BUCKETS; at < end; at++) {
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            occupied += word_get(&view->buckets[at].slots[i]) != 0;
        }
    }
    word_publish(&view->regions.occupied[region], occupied);
}

void index_regions_own(struct sl_index_view *view, bool opened)
{
    struct index_regions *regions = &view->regions;
    for (uint64_t i = 0;
         opened && regions->counts != NULL && i < index_region_count(view->bucket_count); i++) {
        if (word_get(&regions->counts[i]) == 0) {
            word_set(&regions->counts[i], 1);
        }
    }
    /* A lock of the open file: held while this process lives and has it open, and visible from
     * other namespaces. */
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    regions->owned =
        regions->counts != NULL && fcntl(regions->segment.fd, F_OFD_SETLK, &whole) == 0;
}

bool index_regions_renew(const char *shm_dir, struct sl_index_view *view)
{
    struct index_regions *regions = &view->regions;
    if (regions->counts != NULL && !sl_shm_file_is_short(&regions->segment) &&
        sl_shm_file_linked(&regions->segment)) {
        return false;
    }
    index_regions_close(regions);
    index_regions_open(shm_dir, view, (struct sl_progress_callback){0}, regions);
    for (uint64_t i = 0; i < index_region_count(view->bucket_count); i++) {
        index_region_recount(view, i);
    }
    index_regions_own(view, true);
    return regions->counts != NULL;
}

void index_regions_close(struct index_regions *regions)
{
    if (regions->counts != NULL) {
        sl_shm_file_close(&regions->segment);
    }
    *regions = (struct index_regions){.segment = {.fd = -1}};
}

/* ---- readers ---- */

sl_err index_regions_attach(const char *shm_dir, const struct sl_index_view *view,
                            struct index_regions *out)
{
    return regions_open(shm_dir, view, false, out);
}

uint64_t index_regions_life(const struct index_regions *regions)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (regions->counts == NULL || sl_shm_file_is_cut(&regions->segment) ||
        !sl_shm_file_linked(&regions->segment)) {
        return 0;
    }
    /* Read before the lock: the next writer opens, recovers, and only then holds it. */
    uint64_t life = word_get_acquire(&regions->header->lives);
    bool counted = regions->owned ||
                   (fcntl(regions->segment.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
    return counted ? life : 0;
}
