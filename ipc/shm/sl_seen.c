/* ipc/shm/sl_seen.c - see sl_seen.h. The file has a page with the number of the newer half and its
 * count of keys, then the halves. */
#include "ipc/shm/sl_seen.h"
#include "ipc/shm/sl_mapped.h"

#include <stdatomic.h>

#define SEEN_FILE     "seen"
#define LINE_WORDS    8u
#define KEYS_PER_LINE 32u /* 16 bits a key */
#define HALVES        2u

struct head {
    _Atomic uint64_t newer; /* 0 or 1 */
    _Atomic uint64_t added; /* keys of the newer half */
};
struct line {
    _Atomic uint64_t words[LINE_WORDS]; /* a key has one bit in each */
};

struct sl_seen {
    struct sl_shm_file segment;
    uint64_t line_mask; /* lines per half are a power of two */
};

static uint64_t lines_of(uint64_t key_count)
{
    uint64_t keys = SL_SEEN_KEYS_MIN;
    while (keys < key_count && keys < SL_SEEN_KEYS_MAX) {
        keys *= 2;
    }
    return keys / KEYS_PER_LINE;
}

static uint64_t half_bytes(const struct sl_seen *seen)
{
    return (seen->line_mask + 1) * sizeof(struct line);
}

static struct head *head_of(const struct sl_seen *seen)
{
    return (struct head *)(void *)seen->segment.data;
}

static struct line *half_of(const struct sl_seen *seen, uint64_t half)
{
    return (struct line *)(void *)(seen->segment.data + SL_PAGE_BYTES + half * half_bytes(seen));
}

/* Computes the size of a half from that of the file. Errors: SL_ERR_CORRUPT. */
static sl_err measure(void *object, struct sl_error *why)
{
    struct sl_seen *seen = object;
    uint64_t lines = (seen->segment.data_bytes - SL_PAGE_BYTES) / sizeof(struct line) / HALVES;
    if (seen->segment.data_bytes <= SL_PAGE_BYTES || lines == 0 || (lines & (lines - 1)) != 0 ||
        SL_PAGE_BYTES + HALVES * lines * sizeof(struct line) != seen->segment.data_bytes) {
        return sl_fail(why, SL_ERR_CORRUPT, "the filter of keys has an invalid size");
    }
    seen->line_mask = lines - 1;
    return SL_OK;
}

static const struct sl_mapped_kind seen_kind = {
    .want = {.name = SEEN_FILE, .kind = SL_SHM_FILE_SEEN},
    .object_bytes = sizeof(struct sl_seen),
    .measure = measure};

sl_err sl_seen_make(const char *shm_dir, uint64_t key_count, struct sl_seen **out,
                    struct sl_error *why)
{
    struct sl_shm_file_want want = seen_kind.want;
    want.directory = shm_dir;
    want.data_bytes = SL_PAGE_BYTES + HALVES * lines_of(key_count) * sizeof(struct line);
    want.allocate_bytes = want.data_bytes;
    void *seen = NULL;
    struct sl_shm_file segment = {.fd = -1};
    sl_err err = sl_shm_file_open_or_renew(&want, &segment, why);
    if (err == SL_OK) {
        err = sl_mapped_adopt(&seen_kind, &segment, &seen, why);
    }
    *out = err == SL_OK ? seen : *out;
    return err;
}

sl_err sl_seen_open(const char *shm_dir, struct sl_seen **out, struct sl_error *why)
{
    void *seen = NULL;
    sl_err err = sl_mapped_open(&seen_kind, shm_dir, &seen, why);
    *out = err == SL_OK ? seen : *out;
    return err;
}

void sl_seen_close(struct sl_seen **seen)
{
    sl_mapped_close(*seen);
    *seen = NULL;
}

bool sl_seen_is_current(const char *shm_dir, const struct sl_seen *seen)
{
    return sl_mapped_is_current(&seen_kind, shm_dir, seen);
}

void sl_seen_follow(const char *shm_dir, struct sl_seen **seen)
{
    *seen = sl_mapped_follow(&seen_kind, shm_dir, *seen);
}

/* A hash of a hash, so that line and bits are independent (the finalizer of MurmurHash3). */
static uint64_t mixed(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 33;
    hash *= UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 33;
}

static uint64_t bit_of(uint64_t bits, uint32_t word)
{
    return UINT64_C(1) << (bits >> (6 * word) & 63);
}

static bool half_has(const struct sl_seen *seen, uint64_t half, uint64_t hash)
{
    const struct line *line = &half_of(seen, half)[hash & seen->line_mask];
    uint64_t bits = mixed(hash);
    for (uint32_t i = 0; i < LINE_WORDS; i++) {
        uint64_t word = atomic_load_explicit(&line->words[i], memory_order_relaxed);
        if ((word & bit_of(bits, i)) == 0) {
            return false;
        }
    }
    return true;
}

static void half_clear(struct sl_seen *seen, uint64_t half)
{
    struct line *lines = half_of(seen, half);
    for (uint64_t i = 0; i <= seen->line_mask; i++) {
        for (uint32_t k = 0; k < LINE_WORDS; k++) {
            atomic_store_explicit(&lines[i].words[k], 0, memory_order_relaxed);
        }
    }
}

void sl_seen_fetch(const struct sl_seen *seen, uint64_t hash)
{
    if (seen != NULL) {
        uint64_t newer = atomic_load_explicit(&head_of(seen)->newer, memory_order_relaxed) & 1;
        __builtin_prefetch((const void *)&half_of(seen, newer)[hash & seen->line_mask], 1);
    }
}

void sl_seen_add(struct sl_seen *seen, uint64_t hash)
{
    if (seen == NULL) {
        return;
    }
    struct head *head = head_of(seen);
    uint64_t newer = atomic_load_explicit(&head->newer, memory_order_relaxed) & 1;
    uint64_t added = atomic_load_explicit(&head->added, memory_order_relaxed);
    if (half_has(seen, newer, hash)) {
        return;
    }
    if (added >= (seen->line_mask + 1) * KEYS_PER_LINE) {
        newer ^= 1;
        half_clear(seen, newer);
        atomic_store_explicit(&head->newer, newer, memory_order_relaxed);
        added = 0;
    }
    struct line *line = &half_of(seen, newer)[hash & seen->line_mask];
    uint64_t bits = mixed(hash);
    for (uint32_t i = 0; i < LINE_WORDS; i++) { /* there is no other writer */
        uint64_t word = atomic_load_explicit(&line->words[i], memory_order_relaxed);
        atomic_store_explicit(&line->words[i], word | bit_of(bits, i), memory_order_relaxed);
    }
    atomic_store_explicit(&head->added, added + 1, memory_order_relaxed);
}

bool sl_seen_has(const struct sl_seen *seen, uint64_t hash)
{
    return seen != NULL && (half_has(seen, 0, hash) || half_has(seen, 1, hash));
}
