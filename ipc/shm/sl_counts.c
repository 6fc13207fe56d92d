/* ipc/shm/sl_counts.c - see sl_counts.h. The file has a header line for each block, then the
 * blocks, each of SL_COUNTS_ROWS rows. A block has memory from its first owner on. */
#include "ipc/shm/sl_counts.h"
#include "ipc/shm/sl_mapped.h"
#include "runtime/base/sl_limits.h"

#define COUNTS_FILE "counts"
#define ROW_WORDS   144u /* whole lines: counts, then a histogram for each timed kind */
#define ROW_BYTES   (ROW_WORDS * sizeof(uint64_t))
#define BLOCK_BYTES ((uint64_t)SL_COUNTS_ROWS * ROW_BYTES)
#define BLOCK_COUNT (SL_COUNTS_BLOCKS + 1u)
/* Whole pages. */
#define HEADERS_BYTES \
    ((BLOCK_COUNT * sizeof(struct header) + SL_PAGE_BYTES - 1) / SL_PAGE_BYTES * SL_PAGE_BYTES)
#define DATA_BYTES (HEADERS_BYTES + BLOCK_COUNT * BLOCK_BYTES)
#define TIME_WORD  SL_COUNTS_MAX
#define TIME_WORDS (SL_COUNTS_BUCKETS + 1u) /* and their sum */
_Static_assert(SL_COUNT_COUNT <= SL_COUNTS_MAX, "counts have their words");
_Static_assert(TIME_WORD + SL_TIMED_COUNT * TIME_WORDS <= ROW_WORDS, "a row has room");

struct header {
    _Atomic uint64_t owner;  /* generation of a client; 0: none */
    _Atomic uint64_t used;   /* not 0: it has memory, and maybe counts */
    _Atomic uint64_t number; /* of the owner */
    uint64_t room[5];
};
_Static_assert(DATA_BYTES < SL_LIMITS_COUNTS_BYTES, "limits count it whole, with its header");
#define OWNER_COMES 1u /* its number is not set yet */
#define OWNER_LATE  2u /* nor was it at the registrar's last check */
_Static_assert(sizeof(struct header) == 64, "a line");

struct sl_counts {
    struct sl_shm_file segment;
    uint32_t block;
    uint64_t owner; /* 0: the shared block */
};

#define US SL_NS_PER_US
#define MS SL_NS_PER_MS
const uint64_t sl_counts_bucket_ends_ns[SL_COUNTS_BUCKETS] = {
    1 * US,   2 * US,   5 * US,    10 * US,   20 * US,   50 * US,    100 * US,  200 * US,
    500 * US, 1 * MS,   2 * MS,    5 * MS,    10 * MS,   20 * MS,    50 * MS,   100 * MS,
    200 * MS, 500 * MS, 1000 * MS, 2000 * MS, 5000 * MS, 10000 * MS, UINT64_MAX};

static struct header *header_of(const struct sl_shm_file *segment, uint32_t block)
{
    return (struct header *)(void *)segment->data + block;
}

static uint64_t block_offset(uint32_t block)
{
    return HEADERS_BYTES + block * BLOCK_BYTES;
}

static _Atomic uint64_t *row_at(const struct sl_shm_file *segment, uint32_t block, uint32_t row)
{
    return (_Atomic uint64_t *)(void *)(segment->data + block_offset(block) + row * ROW_BYTES);
}

static sl_err shared_use(struct sl_shm_file *segment, struct sl_error *why)
{
    (void)why;
    atomic_store_explicit(&header_of(segment, 0)->used, 1, memory_order_relaxed);
    return SL_OK;
}

static const struct sl_mapped_kind counts_kind = {
    .want = {.name = COUNTS_FILE,
             .kind = SL_SHM_FILE_COUNTS,
             .data_bytes = DATA_BYTES,
             .allocate_bytes = HEADERS_BYTES + BLOCK_BYTES, /* of the shared block */
             .prepare = shared_use},
    .object_bytes = sizeof(struct sl_counts),
    .writable = true};

sl_err sl_counts_make(const char *shm_dir, struct sl_error *why)
{
    return sl_mapped_make(&counts_kind, shm_dir, why);
}

void sl_counts_free(const char *shm_dir, bool (*is_gone)(void *context, struct sl_proc_id client),
                    void *context)
{
    struct sl_shm_file segment = {.fd = -1};
    if (sl_mapped_shm_file(&counts_kind, shm_dir, true, &segment, NULL) != SL_OK) {
        return;
    }
    for (uint32_t i = 1; i < BLOCK_COUNT; i++) {
        struct header *header = header_of(&segment, i);
        uint64_t owner = atomic_load_explicit(&header->owner, memory_order_acquire);
        const struct sl_proc_id client = {
            .pid = (uint32_t)atomic_load_explicit(&header->number, memory_order_relaxed),
            .start_time = owner};
        if (owner == OWNER_COMES) {
            (void)atomic_compare_exchange_strong(&header->owner, &owner, OWNER_LATE);
        } else if (owner == OWNER_LATE || (owner != 0 && is_gone(context, client))) {
            (void)atomic_compare_exchange_strong(&header->owner, &owner, 0);
        }
    }
    sl_shm_file_close(&segment);
}

/* Takes a block without an owner, if there is one. */
static void block_take(struct sl_counts *counts, struct sl_proc_id client)
{
    for (uint32_t i = 1; i < BLOCK_COUNT; i++) {
        struct header *header = header_of(&counts->segment, i);
        uint64_t nobody = 0, comes = OWNER_COMES, late = OWNER_LATE;
        /* Acquire: the previous owner has done all its counting. */
        if (!atomic_compare_exchange_strong_explicit(&header->owner, &nobody, OWNER_COMES,
                                                     memory_order_acquire, memory_order_relaxed)) {
            continue;
        }
        if (atomic_load_explicit(&header->used, memory_order_relaxed) == 0 &&
            sl_shm_file_allocate(&counts->segment, block_offset(i), BLOCK_BYTES, NULL) != SL_OK) {
            atomic_store_explicit(&header->owner, 0, memory_order_release);
            return; /* shared memory is full: use the shared block */
        }
        atomic_store_explicit(&header->used, 1, memory_order_release);
        atomic_store_explicit(&header->number, client.pid, memory_order_relaxed);
        if (atomic_compare_exchange_strong(&header->owner, &comes, client.start_time) ||
            atomic_compare_exchange_strong(&header->owner, &late, client.start_time)) {
            counts->block = i;
            counts->owner = client.start_time;
            return;
        } /* otherwise we were stopped for so long that it was taken away */
    }
}

sl_err sl_counts_open(const char *shm_dir, struct sl_proc_id client, struct sl_counts **out,
                      struct sl_error *why)
{
    void *counts = NULL;
    sl_err err = sl_mapped_open(&counts_kind, shm_dir, &counts, why);
    if (err != SL_OK) {
        return err;
    }
    *out = counts;
    if (sl_proc_id_is_client(client)) {
        block_take(*out, client);
    }
    return SL_OK;
}

bool sl_counts_are_current(const char *shm_dir, const struct sl_counts *counts)
{
    return sl_mapped_is_current(&counts_kind, shm_dir, counts);
}

void sl_counts_leave(struct sl_counts **counts)
{
    sl_mapped_close(*counts);
    *counts = NULL;
}

void sl_counts_close(struct sl_counts **counts)
{
    if (*counts != NULL && (*counts)->owner != 0) {
        uint64_t owner = (*counts)->owner;
        struct header *header = header_of(&(*counts)->segment, (*counts)->block);
        (void)atomic_compare_exchange_strong_explicit(&header->owner, &owner, 0,
                                                      memory_order_release, memory_order_relaxed);
    }
    sl_counts_leave(counts);
}

struct sl_counts_row sl_counts_row_of(const struct sl_counts *counts, uint32_t thread)
{
    if (counts == NULL) {
        return (struct sl_counts_row){0};
    }
    uint32_t row = SL_MIN(thread, SL_COUNTS_ROWS - 1);
    return (struct sl_counts_row){.words = row_at(&counts->segment, counts->block, row),
                                  .shared = counts->owner == 0 || row == SL_COUNTS_ROWS - 1};
}

static uint32_t bucket_of(uint64_t ns)
{
    uint32_t bucket = 0;
    while (ns > sl_counts_bucket_ends_ns[bucket]) {
        bucket++;
    }
    return bucket;
}

void sl_counts_time(struct sl_counts_row row, uint32_t timed, uint64_t ns, uint64_t times)
{
    uint32_t first = TIME_WORD + timed * TIME_WORDS;
    sl_counts_word_add(row, first + bucket_of(ns), times);
    sl_counts_word_add(row, first + SL_COUNTS_BUCKETS, ns * times);
}

static uint64_t word_at(const _Atomic uint64_t *row, uint32_t word)
{
    return atomic_load_explicit(&row[word], memory_order_relaxed);
}

static void row_sum(const _Atomic uint64_t *row, struct sl_counts_sum *out)
{
    for (uint32_t i = 0; i < SL_COUNT_COUNT; i++) {
        out->counts[i] += word_at(row, i);
    }
    for (uint32_t timed = 0; timed < SL_TIMED_COUNT; timed++) {
        uint32_t first = TIME_WORD + timed * TIME_WORDS;
        for (uint32_t i = 0; i < SL_COUNTS_BUCKETS; i++) {
            out->times[timed].buckets[i] += word_at(row, first + i);
        }
        out->times[timed].sum_ns += word_at(row, first + SL_COUNTS_BUCKETS);
    }
}

sl_err sl_counts_read(const char *shm_dir, struct sl_counts_sum *out, struct sl_error *why)
{
    struct sl_shm_file segment = {.fd = -1};
    *out = (struct sl_counts_sum){0};
    sl_err err = sl_mapped_shm_file(&counts_kind, shm_dir, false, &segment, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t block = 0; block < BLOCK_COUNT; block++) {
        const struct header *header = header_of(&segment, block);
        /* Acquire: a used block has memory. Reading one without would allocate some. */
        if (atomic_load_explicit(&header->used, memory_order_acquire) == 0) {
            continue;
        }
        out->client_count += atomic_load_explicit(&header->owner, memory_order_relaxed) != 0;
        for (uint32_t row = 0; row < SL_COUNTS_ROWS; row++) {
            row_sum(row_at(&segment, block, row), out);
        }
    }
    err = sl_shm_file_is_cut(&segment)
              ? sl_fail(why, SL_ERR_CORRUPT, "%s/%s was cut short", shm_dir, COUNTS_FILE)
              : SL_OK;
    sl_shm_file_close(&segment);
    return err;
}
