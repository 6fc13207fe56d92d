/* client/tools/bench/limit.c - the limits that benchmarks are compared with: memcpy, the fastest
 * copy routine, a bare probe of a hash table. */
#include "client/tools/bench/bench.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_copy.h"
#include "runtime/base/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#define CACHES_MAX     8u
#define CACHE_FALLBACK (32 * SL_MIB)

static bool line_read(uint32_t index, const char *name, char out[32])
{
    char path[96];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/%s", index, name);
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    return file != NULL && fgets(out, 32, file) != NULL;
}

static bool cache_read(uint32_t index, uint64_t *bytes)
{
    char text[32], kind[32];
    if (!line_read(index, "type", kind) || !line_read(index, "size", text)) {
        return false;
    }
    *bytes = 0;
    if (strncmp(kind, "Instruction", 11) != 0) {
        text[strcspn(text, "\n")] = '\0';
        (void)sl_parse_size(text, bytes, NULL);
    }
    return true;
}

uint64_t bench_cache_bytes(void)
{
    uint64_t largest = 0, bytes = 0;
    for (uint32_t i = 0; i < CACHES_MAX && cache_read(i, &bytes); i++) {
        largest = SL_MAX(largest, bytes);
    }
    return largest != 0 ? largest : CACHE_FALLBACK;
}

/* Memory whose pages are all mapped, and none of them to the shared zero page. */
static unsigned char *warm_memory(uint64_t bytes, int sharing, struct sl_error *why)
{
    void *at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) {
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "bench: %" PRIu64 " bytes", bytes);
        return NULL;
    }
    memset(at, 0x5a, bytes);
    return at;
}

static sl_err probe_open(struct bench *bench, struct sl_error *why)
{
    bench->probe_slots = 1024;
    while (bench->probe_slots < bench->keys * 2) {
        bench->probe_slots *= 2;
    }
    bench->probe_table = calloc(bench->probe_slots, sizeof *bench->probe_table);
    if (bench->probe_table == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "bench: %" PRIu64 " slots", bench->probe_slots);
    }
    for (uint64_t i = 0; i < bench->keys; i++) {
        uint64_t hash =
            XXH3_64bits(&bench->key_texts[i * BENCH_KEY_BYTES], BENCH_KEY_BYTES - 1) | 1;
        uint64_t at = hash & (bench->probe_slots - 1);
        while (bench->probe_table[at] != 0 && bench->probe_table[at] != hash) {
            at = (at + 1) & (bench->probe_slots - 1);
        }
        bench->probe_table[at] = hash;
    }
    return SL_OK;
}

sl_err bench_limit_open(struct bench *bench, struct sl_error *why)
{
    bench->user = warm_memory(bench->walk_bytes, MAP_PRIVATE, why);
    if (bench->user == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    if (bench->kind == BENCH_EXISTS) {
        return probe_open(bench, why);
    }
    bench->shared = warm_memory(bench->walk_bytes, MAP_SHARED, why);
    return bench->shared == NULL ? SL_ERR_NO_MEMORY : SL_OK;
}

void bench_limit_close(struct bench *bench)
{
    if (bench->user != NULL) {
        (void)munmap(bench->user, bench->walk_bytes);
    }
    if (bench->shared != NULL) {
        (void)munmap(bench->shared, bench->walk_bytes);
    }
    free(bench->probe_table);
}

const char *bench_limit_name(const struct bench *bench)
{
    return bench->kind == BENCH_EXISTS ? "bare hash-table probe"
                                       : "memcpy between faulted mappings";
}

const char *bench_copy_name(const struct bench *bench)
{
    const struct sl_copy_routine *routine = sl_copy_streaming();
    return bench->kind == BENCH_EXISTS || routine == NULL ? NULL : routine->name;
}

/* Walks through the memory with copies in the direction and with the sizes of the operation. */
static void copy_turn(struct bench *bench, const struct sl_copy_routine *routine)
{
    uint64_t slots = SL_MAX(bench->walk_bytes / bench->size_bytes, 1);
    for (uint64_t i = 0; i < bench->batch; i++) {
        uint64_t at = bench->limit_next++ % slots * bench->size_bytes;
        unsigned char *to = bench->kind == BENCH_PUT ? bench->shared + at : bench->user + at;
        const unsigned char *from =
            bench->kind == BENCH_PUT ? bench->user + at : bench->shared + at;
        uint64_t whole = bench->size_bytes & ~(uint64_t)(SL_COPY_ALIGN_BYTES - 1);
        if (routine != NULL && ((uintptr_t)to & (SL_COPY_ALIGN_BYTES - 1)) == 0) {
            routine->stream(to, from, whole);
            memcpy(to + whole, from + whole, bench->size_bytes - whole);
            routine->finish();
        } else {
            memcpy(to, from, bench->size_bytes);
        }
        __asm__ volatile("" ::: "memory"); /* keeps the copy, though its result is not read */
    }
}

/* The minimal lookup: hashes the key, probes a table of 64-bit hashes of the same size. */
static bool probe_turn(struct bench *bench)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < BENCH_PROBES; i++) {
        const char *key = &bench->key_texts[bench->limit_next++ % bench->keys * BENCH_KEY_BYTES];
        uint64_t hash = XXH3_64bits(key, BENCH_KEY_BYTES - 1) | 1;
        uint64_t at = hash & (bench->probe_slots - 1);
        while (bench->probe_table[at] != 0 && bench->probe_table[at] != hash) {
            at = (at + 1) & (bench->probe_slots - 1);
        }
        found += bench->probe_table[at] == hash;
    }
    return found == BENCH_PROBES;
}

sl_err bench_limit_round(struct bench *bench, enum bench_side side, struct bench_round *out,
                         struct sl_error *why)
{
    const struct sl_copy_routine *routine = side == BENCH_SIDE_COPY ? sl_copy_streaming() : NULL;
    *out = (struct bench_round){0};
    do {
        uint64_t started_ns = sl_clock_monotonic_ns();
        if (bench->kind != BENCH_EXISTS) {
            copy_turn(bench, routine);
            out->ops += bench->batch;
        } else if (probe_turn(bench)) {
            out->ops += BENCH_PROBES;
        } else {
            return sl_fail(why, SL_ERR_INTERNAL, "baseline: a key was not found");
        }
        uint64_t took_ns = sl_clock_monotonic_ns() - started_ns;
        out->busy_ns += took_ns;
        ctl_histogram_add(&bench->calls_ns[side], took_ns);
    } while (out->busy_ns < BENCH_ROUND_NS);
    return SL_OK;
}
