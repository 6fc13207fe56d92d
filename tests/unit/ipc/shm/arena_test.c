/* tests/unit/ipc/shm/arena_test.c - the arena's bounds, generations, and populating while it
 * serves. */
#include "ipc/shm/sl_arena.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define ARENA_BYTES (100 * SL_MIB)
#define CHUNK_BYTES (16 * SL_MIB)
#define SLICE_BYTES (2 * SL_MIB) /* what a step populates */

static struct sl_arena *arena_in(const char *dir, bool expect_created)
{
    struct sl_arena_options options = {
        .directory = dir, .id = 0, .data_bytes = ARENA_BYTES, .chunk_bytes = CHUNK_BYTES};
    struct sl_arena *arena = NULL;
    struct sl_error why = {0};
    bool created = false;
    ck_assert_sl_ok(sl_arena_open_owner(&options, &created, &arena, &why), why);
    ck_assert_int_eq(created, expect_created);
    return arena;
}

START_TEST(generations_never_come_back)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        uint64_t birth = sl_arena_birth_generation(arena);
        uint64_t first = sl_arena_boot_generation(arena);
        uint64_t last = 0;
        for (int i = 0; i < 1000; i++) {
            uint64_t next = sl_arena_next_generation(arena);
            ck_assert_uint_gt(next, last);
            ck_assert_uint_ge(next, first);
            last = next;
        }
        sl_arena_close(&arena);

        arena = arena_in(dir, false); /* another life */

        ck_assert_uint_ge(sl_arena_boot_generation(arena), last + (UINT64_C(1) << 32));
        ck_assert_uint_ge(sl_arena_next_generation(arena), sl_arena_boot_generation(arena));
        ck_assert_uint_eq(sl_arena_birth_generation(arena), birth);
        ck_assert_uint_gt(birth, 0);
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

/* Claims name an extent by its generation: one from an earlier node is invalid in the next, even if
 * both were made in the same second. */
START_TEST(arenas_of_one_second_have_no_generation_in_common)
    {
        uint64_t last = 0;
        for (int i = 0; i < 20; i++) {
            char *dir = shm_dir_make();
            struct sl_arena *arena = arena_in(dir, true);
            uint64_t first = sl_arena_boot_generation(arena);
            ck_assert_uint_gt(first, last);
            for (int k = 0; k < 1000; k++) {
                last = sl_arena_next_generation(arena);
            }
            sl_arena_close(&arena);
            shm_dir_remove(dir);
        }
    }
END_TEST

START_TEST(arena_of_another_plan_is_a_config_error)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        struct sl_arena_options options = {
            .directory = dir, .data_bytes = ARENA_BYTES, .chunk_bytes = CHUNK_BYTES / 2};
        bool created = false;
        struct sl_error why = {0};
        sl_arena_close(&arena);

        ck_assert_int_eq(sl_arena_fits(&options, &why), SL_ERR_CONFIG); /* asked before a start */
        ck_assert_ptr_nonnull(strstr(why.text, "start with that, or lose what is in memory"));
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &arena, NULL), SL_ERR_CONFIG);
        options.chunk_bytes = CHUNK_BYTES;
        ck_assert_int_eq(sl_arena_fits(&options, NULL), SL_OK);
        options.data_bytes = ARENA_BYTES * 2;
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &arena, NULL), SL_ERR_CONFIG);
        options.data_bytes = 100;
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &arena, NULL), SL_ERR_CONFIG);
        ck_assert_ptr_null(arena);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(sizes_are_rounded_down_to_pages)
    {
        char *dir = shm_dir_make();
        struct sl_arena_options options = {
            .directory = dir, .id = 3, .data_bytes = 1000000, .chunk_bytes = SL_GIB};
        struct sl_arena *arena = NULL;
        bool created = false;

        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &arena, NULL), SL_OK);

        ck_assert_uint_eq(sl_arena_data_bytes(arena), 999424);
        ck_assert_uint_eq(sl_arena_chunk_bytes(arena), 999424);
        sl_arena_close(&arena);
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &arena, NULL),
                         SL_OK); /* and match again */
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

static const struct {
    uint64_t offset, length;
    bool inside;
} ranges[] = {
    {0, 1, true},
    {0, CHUNK_BYTES, true},
    {0, CHUNK_BYTES + 1, false},
    {CHUNK_BYTES - 1, 1, true},
    {CHUNK_BYTES - 1, 2, false},
    {ARENA_BYTES - 1, 1, true}, /* the last chunk is short */
    {ARENA_BYTES - 1, 2, false},
    {ARENA_BYTES - 4 * SL_MIB, 4 * SL_MIB, true},
    {ARENA_BYTES - 4 * SL_MIB, 16 * SL_MIB, false},
    {ARENA_BYTES, 1, false},
    {0, 0, false},
    {UINT64_MAX, 1, false},
    {1, UINT64_MAX, false},
    {UINT64_MAX, UINT64_MAX, false},
};

START_TEST(address_is_given_within_one_chunk_only)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        unsigned char *base = sl_arena_at(arena, 0, 1);

        unsigned char *at = sl_arena_at(arena, ranges[_i].offset, ranges[_i].length);

        ck_assert_ptr_eq(at, ranges[_i].inside ? base + ranges[_i].offset : NULL);
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

static void *populate_all(void *argument)
{
    sl_err err = SL_OK;
    while (err == SL_OK) {
        err = sl_arena_populate_below(argument, UINT64_MAX, NULL);
    }
    return (void *)(uintptr_t)err;
}

START_TEST(threads_populate_all_of_it)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        struct sl_arena *other = NULL;
        pthread_t threads[3];
        ck_assert_uint_eq(sl_arena_populated_bytes(arena), 0);
        ck_assert_int_eq(sl_arena_attach(dir, 0, true, &other, NULL), SL_OK);

        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, populate_all, arena), 0);
        }
        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            void *err = NULL;
            pthread_join(threads[i], &err);
            ck_assert_uint_eq((uintptr_t)err, SL_ERR_NOT_FOUND);
        }

        ck_assert_uint_eq(sl_arena_populated_bytes(arena), ARENA_BYTES);
        ck_assert_uint_eq(sl_arena_populated_bytes(other), ARENA_BYTES); /* others see it */
        sl_arena_close(&other);
        sl_arena_close(&arena);
        arena = arena_in(dir, false); /* and it stays */
        ck_assert_int_eq(sl_arena_populate_below(arena, UINT64_MAX, NULL), SL_ERR_NOT_FOUND);
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(populating_stops_at_what_is_wanted)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);

        ck_assert_int_eq(sl_arena_populate_below(arena, 1, NULL), SL_OK);
        ck_assert_int_eq(sl_arena_populate_below(arena, SLICE_BYTES, NULL), SL_ERR_NOT_FOUND);

        ck_assert_uint_eq(sl_arena_populated_bytes(arena), SLICE_BYTES);
        ck_assert_int_eq(sl_arena_populate_below(arena, SLICE_BYTES + 1, NULL), SL_OK);
        ck_assert_uint_eq(sl_arena_populated_bytes(arena), 2 * SLICE_BYTES);
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

/* An arena for which its file system has no space. NULL: no tmpfs can be mounted here. */
static struct sl_arena *arena_in_50_mib(char **dir)
{
    *dir = shm_dir_make();
    if (!shm_dir_limit(*dir, "50m")) {
        printf("skipped: no tmpfs can be mounted here\n");
        shm_dir_remove(*dir);
        return NULL;
    }
    return arena_in(*dir, true);
}

START_TEST(full_system_leaves_the_arena_at_its_prefix)
    {
        char *dir = NULL;
        struct sl_arena *arena = arena_in_50_mib(&dir);
        if (arena == NULL) {
            return;
        }

        struct sl_error why = {0};
        for (uint64_t i = 0; i < 16; i++) {
            ck_assert_sl_ok(sl_arena_populate_below(arena, UINT64_MAX, &why), why);
        }
        ck_assert_int_eq(sl_arena_populate_below(arena, UINT64_MAX, &why), SL_ERR_NO_SPACE);
        ck_assert_ptr_nonnull(strstr(why.text, "df -h /dev/shm"));
        ck_assert_int_eq(sl_arena_populate_below(arena, UINT64_MAX, NULL), SL_ERR_NO_SPACE);
        ck_assert_int_eq(sl_arena_populate_now(arena, 34 * SL_MIB, _i == 0, &why), SL_ERR_NO_SPACE);
        ck_assert_uint_eq(sl_arena_reachable_bytes(arena), 32 * SL_MIB);

        ck_assert_uint_eq(sl_arena_populated_bytes(arena), 32 * SL_MIB);
        memset(sl_arena_at(arena, 16 * SL_MIB, CHUNK_BYTES), 1, CHUNK_BYTES); /* no signal */
        /* other writers can use what the failed steps took */
        struct sl_shm_file_want want = {.directory = dir,
                                        .name = "s",
                                        .kind = SL_SHM_FILE_PINS,
                                        .data_bytes = 16 * SL_MIB,
                                        .data_align_bytes = 4096};
        struct sl_shm_file segment;
        ck_assert_int_eq(sl_shm_file_create(&want, &segment, NULL), SL_OK);
        ck_assert_int_eq(sl_shm_file_populate(&segment, 0, 16 * SL_MIB, NULL), SL_OK);
        sl_shm_file_close(&segment);
        sl_arena_close(&arena);
        umount(dir);
        shm_dir_remove(dir);
    }
END_TEST

static const struct {
    uint64_t below;
    uint64_t populated;
} hurries[] = {
    {1, SLICE_BYTES},           {SLICE_BYTES, SLICE_BYTES}, {3 * SLICE_BYTES + 1, 4 * SLICE_BYTES},
    {ARENA_BYTES, ARENA_BYTES}, {UINT64_MAX, ARENA_BYTES},
};

/* Even rows populate, odd ones only allocate. */
START_TEST(hurry_reaches_what_is_wanted_at_once)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        struct sl_error why = {0};
        ck_assert_sl_ok(sl_arena_populate_below(arena, UINT64_MAX, &why), why);

        ck_assert_sl_ok(sl_arena_populate_now(arena, hurries[_i / 2].below, _i % 2 == 0, &why),
                        why);

        ck_assert_uint_eq(sl_arena_populated_bytes(arena), hurries[_i / 2].populated);
        uint64_t bytes = SLICE_BYTES;
        unsigned char *at = sl_arena_at(arena, hurries[_i / 2].populated - bytes, bytes);
        ck_assert_ptr_nonnull(at);
        ck_assert_uint_eq(at[bytes - 1], 0);
        memset(at, 1, bytes);
        ck_assert_sl_ok(sl_arena_populate_now(arena, 1, true, &why), why); /* nothing is undone */
        ck_assert_uint_eq(sl_arena_populated_bytes(arena), hurries[_i / 2].populated);
        ck_assert_uint_eq(at[0], 1);
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

/* Slices that hurry takes over from running threads are available when it returns. */
START_TEST(hurry_beside_threads_waits_for_none_of_them)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        pthread_t threads[3];
        struct sl_error why = {0};
        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, populate_all, arena), 0);
        }

        for (uint64_t at = 0; at < ARENA_BYTES; at += SL_MIB) {
            ck_assert_sl_ok(sl_arena_populate_now(arena, at + SL_MIB, false, &why), why);
            ck_assert_uint_ge(sl_arena_populated_bytes(arena), at + SL_MIB);
            memset(sl_arena_at(arena, at, SL_MIB), (int)(at / SL_MIB), SL_MIB);
        }

        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            void *err = NULL;
            pthread_join(threads[i], &err);
            ck_assert_uint_eq((uintptr_t)err, SL_ERR_NOT_FOUND);
        }
        for (uint64_t at = 0; at < ARENA_BYTES; at += SL_MIB) {
            const unsigned char *bytes = sl_arena_at(arena, at, SL_MIB);
            ck_assert_uint_eq(bytes[0], at / SL_MIB);
            ck_assert_uint_eq(bytes[SL_MIB - 1], at / SL_MIB);
        }
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

/* A published slice is never withdrawn, even if threads reach the end of memory meanwhile. */
START_TEST(full_system_takes_nothing_back_from_beside_a_hurry)
    {
        char *dir = NULL;
        struct sl_arena *arena = arena_in_50_mib(&dir);
        if (arena == NULL) {
            return;
        }
        pthread_t threads[3];
        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, populate_all, arena), 0);
        }
        sl_err err = SL_OK;
        uint64_t at = 0;
        while (err == SL_OK) {
            err = sl_arena_populate_now(arena, at + SL_MIB, _i == 0, NULL);
            if (err == SL_OK) {
                memset(sl_arena_at(arena, at, SL_MIB), 1, SL_MIB); /* no signal */
                at += SL_MIB;
            }
        }
        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            void *result = NULL;
            pthread_join(threads[i], &result);
            ck_assert_uint_eq((uintptr_t)result, SL_ERR_NO_SPACE);
        }

        ck_assert_int_eq(err, SL_ERR_NO_SPACE);
        ck_assert_uint_ge(sl_arena_populated_bytes(arena), at);
        ck_assert_uint_eq(sl_arena_populated_bytes(arena), 32 * SL_MIB);
        for (uint64_t i = 0; i < at; i += SL_MIB) {
            ck_assert_uint_eq(*(const unsigned char *)sl_arena_at(arena, i, 1), 1);
        }
        sl_arena_close(&arena);
        umount(dir);
        shm_dir_remove(dir);
    }
END_TEST

static long faults_so_far(void)
{
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

/* Returns the number of page faults when each page is written. Not instrumented, since a
 * sanitizer's shadow memory has faults of its own. */
__attribute__((noinline, no_sanitize("address"), no_sanitize("thread"))) static long
faults_of_writing(volatile unsigned char *at, uint64_t length)
{
    long before = faults_so_far();
    for (uint64_t i = 0; i < length; i += SL_PAGE_BYTES) {
        at[i] = 1;
    }
    at[length - 1] = 1;
    return faults_so_far() - before;
}

static bool system_populates_for_reading(void)
{
    void *page = mmap(NULL, SL_PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool can = madvise(page, SL_PAGE_BYTES, MADV_POPULATE_READ) == 0;
    (void)munmap(page, SL_PAGE_BYTES);
    return can;
}

/* An odd size, so that the last piece is shorter. */
START_TEST(mapped_range_is_written_without_faults)
    {
        char *dir = shm_dir_make();
        uint64_t bytes = 5 * SL_MIB + 3 * SL_PAGE_BYTES;
        struct sl_arena_options options = {
            .directory = dir, .data_bytes = bytes, .chunk_bytes = bytes};
        struct sl_arena *owner = NULL, *client = NULL;
        bool created = false;
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &owner, NULL), SL_OK);
        while (sl_arena_populate_below(owner, UINT64_MAX, NULL) == SL_OK) {
        }
        ck_assert_int_eq(sl_arena_attach(dir, 0, true, &client, NULL), SL_OK);
        uint64_t from = 300000, length = bytes - from;

        unsigned char *at = sl_arena_map(client, from, length);

        ck_assert_ptr_eq(at, sl_arena_at(client, from, length));
        long faults = faults_of_writing(at, length);
        if (system_populates_for_reading()) {
            ck_assert_int_lt(faults, (long)(length / SL_PAGE_BYTES / 4));
        }
        ck_assert_ptr_null(sl_arena_map(client, bytes, 1));
        ck_assert_ptr_null(sl_arena_map(client, bytes - 1, 2));
        ck_assert_ptr_eq(sl_arena_map(owner, 0, bytes), sl_arena_at(owner, 0, bytes));
        sl_arena_close(&client);
        sl_arena_close(&owner);
        shm_dir_remove(dir);
    }
END_TEST

/* ---- releasing memory ---- */

static uint64_t blocks_bytes(const char *dir)
{
    char path[512];
    struct stat status;
    snprintf(path, sizeof(path), "%s/arena.0", dir);
    ck_assert_int_eq(stat(path, &status), 0);
    return (uint64_t)status.st_blocks * 512;
}

static void populate_to(struct sl_arena *arena, uint64_t bytes)
{
    while (sl_arena_populated_bytes(arena) < bytes) {
        ck_assert_int_eq(sl_arena_populate_below(arena, bytes, NULL), SL_OK);
    }
}

START_TEST(freed_memory_is_returned_to_the_system_and_reads_as_zeros)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        struct sl_arena *client = NULL;
        uint64_t before = blocks_bytes(dir);
        populate_to(arena, 8 * SLICE_BYTES);
        ck_assert_int_eq(sl_arena_attach(dir, 0, true, &client, NULL), SL_OK);
        unsigned char *at = sl_arena_map(client, 0, 8 * SLICE_BYTES);
        memset(at, 7, 8 * SLICE_BYTES);

        ck_assert_int_eq(sl_arena_free_after(arena, 3 * SLICE_BYTES, NULL), SL_OK);

        ck_assert_uint_eq(sl_arena_populated_bytes(client), 3 * SLICE_BYTES);
        ck_assert_uint_eq(blocks_bytes(dir), before + 3 * SLICE_BYTES);
        ck_assert_uint_eq(at[3 * SLICE_BYTES - 1], 7);
        ck_assert_uint_eq(at[3 * SLICE_BYTES], 0); /* read late */
        ck_assert_uint_gt(blocks_bytes(dir), before + 3 * SLICE_BYTES);
        ck_assert_int_eq(sl_arena_free_after(arena, 3 * SLICE_BYTES, NULL), SL_OK);
        ck_assert_uint_eq(blocks_bytes(dir), before + 3 * SLICE_BYTES);
        populate_to(arena, 8 * SLICE_BYTES);
        ck_assert_ptr_eq(sl_arena_map(client, 3 * SLICE_BYTES, 5 * SLICE_BYTES),
                         at + 3 * SLICE_BYTES);
        if (system_populates_for_reading()) { /* the pages are mapped together again */
            ck_assert_int_lt(faults_of_writing(at + 3 * SLICE_BYTES, 5 * SLICE_BYTES),
                             (long)(5 * SLICE_BYTES / SL_PAGE_BYTES / 4));
        }
        ck_assert_int_eq(sl_arena_free_after(arena, 0, NULL), SL_OK);
        ck_assert_uint_eq(blocks_bytes(dir), before);
        sl_arena_close(&client);
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(memory_that_somebody_keeps_is_not_given_back)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = arena_in(dir, true);
        struct sl_arena *reader = NULL, *keeper = NULL;
        struct sl_error why = {0};
        populate_to(arena, 2 * SLICE_BYTES);
        ck_assert_int_eq(sl_arena_attach(dir, 0, false, &reader, NULL), SL_OK);
        ck_assert_int_eq(sl_arena_attach(dir, 0, true, &keeper, NULL), SL_OK);
        ck_assert(
            !sl_arena_forbid_freeing(reader)); /* read-only: it cannot, and must not register */
        ck_assert(!sl_arena_freeing_forbidden(arena));

        ck_assert(sl_arena_forbid_freeing(keeper));

        ck_assert(sl_arena_freeing_forbidden(arena));
        ck_assert_int_eq(sl_arena_free_after(arena, 0, &why), SL_ERR_PERMISSION);
        ck_assert_uint_eq(sl_arena_populated_bytes(arena), 2 * SLICE_BYTES);
        sl_arena_close(&arena);
        arena = arena_in(dir, false); /* the next owner as well */
        ck_assert_int_eq(sl_arena_free_after(arena, 0, &why), SL_ERR_PERMISSION);
        sl_arena_close(&keeper);
        sl_arena_close(&reader);
        sl_arena_close(&arena);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(what_was_given_back_and_is_gone_is_refused_without_a_signal)
    {
        char *dir = NULL;
        struct sl_arena *arena = arena_in_50_mib(&dir);
        if (arena == NULL) {
            return;
        }
        populate_to(arena, 32 * SL_MIB);
        ck_assert_int_eq(sl_arena_free_after(arena, 16 * SL_MIB, NULL), SL_OK);
        struct sl_shm_file_want want = {.directory = dir,
                                        .name = "s",
                                        .kind = SL_SHM_FILE_PINS,
                                        .data_bytes = 32 * SL_MIB,
                                        .data_align_bytes = 4096};
        struct sl_shm_file segment;
        ck_assert_int_eq(sl_shm_file_create(&want, &segment, NULL), SL_OK);
        ck_assert_int_eq(sl_shm_file_populate(&segment, 0, 32 * SL_MIB, NULL), SL_OK);

        sl_err step = sl_arena_populate_below(arena, 32 * SL_MIB, NULL);
        sl_err hurry = sl_arena_populate_now(arena, 18 * SL_MIB, false, NULL);

        ck_assert_int_eq(step, SL_ERR_NO_SPACE);
        ck_assert_int_eq(hurry, SL_ERR_NO_SPACE);
        ck_assert_uint_eq(sl_arena_populated_bytes(arena), 16 * SL_MIB);
        sl_shm_file_close(&segment);
        ck_assert_int_eq(sl_shm_file_remove(dir, "s", NULL), SL_OK);
        populate_to(arena, 32 * SL_MIB);
        sl_arena_close(&arena);
        umount(dir);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(an_attached_arena_is_told_from_its_successor)
    {
        char *dir = shm_dir_make();
        struct sl_arena_options options = {
            .directory = dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
        struct sl_arena *owner = NULL, *next = NULL, *first = NULL, *second = NULL;
        bool created = false;
        ck_assert_int_eq(sl_arena_attach(dir, 0, true, &first, NULL), SL_ERR_NOT_FOUND);
        ck_assert_ptr_null(first);
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &owner, NULL), SL_OK);
        ck_assert_int_eq(sl_arena_attach(dir, 0, true, &first, NULL), SL_OK);
        ck_assert_int_eq(sl_arena_current(first, dir), SL_OK);

        ck_assert_int_eq(sl_shm_file_remove(dir, "arena.0", NULL), SL_OK);
        ck_assert_int_eq(sl_arena_current(first, dir), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &next, NULL), SL_OK);
        ck_assert_int_eq(sl_arena_attach(dir, 0, true, &second, NULL), SL_OK);

        ck_assert_int_eq(sl_arena_current(first, dir), SL_ERR_STALE);
        ck_assert_int_eq(sl_arena_current(second, dir), SL_OK);
        ck_assert_uint_eq(sl_arena_birth_generation(second), sl_arena_birth_generation(next));
        sl_arena_close(&first);
        sl_arena_close(&second);
        sl_arena_close(&next);
        sl_arena_close(&owner);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(attaching_to_nothing_is_not_found)
    {
        char *dir = shm_dir_make();
        struct sl_arena *arena = NULL;

        ck_assert_int_eq(sl_arena_attach(dir, 7, false, &arena, NULL), SL_ERR_NOT_FOUND);

        shm_dir_remove(dir);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("arena");
    tcase_add_test(tcase, generations_never_come_back);
    tcase_add_test(tcase, arenas_of_one_second_have_no_generation_in_common);
    tcase_add_test(tcase, arena_of_another_plan_is_a_config_error);
    tcase_add_test(tcase, sizes_are_rounded_down_to_pages);
    tcase_add_loop_test(tcase, address_is_given_within_one_chunk_only, 0, SL_COUNT(ranges));
    tcase_add_test(tcase, threads_populate_all_of_it);
    tcase_add_test(tcase, populating_stops_at_what_is_wanted);
    tcase_add_loop_test(tcase, hurry_reaches_what_is_wanted_at_once, 0, 2 * (int)SL_COUNT(hurries));
    tcase_add_test(tcase, hurry_beside_threads_waits_for_none_of_them);
    tcase_add_loop_test(tcase, full_system_takes_nothing_back_from_beside_a_hurry, 0, 2);
    tcase_add_loop_test(tcase, full_system_leaves_the_arena_at_its_prefix, 0, 2);
    tcase_add_test(tcase, mapped_range_is_written_without_faults);
    tcase_add_test(tcase, freed_memory_is_returned_to_the_system_and_reads_as_zeros);
    tcase_add_test(tcase, memory_that_somebody_keeps_is_not_given_back);
    tcase_add_test(tcase, what_was_given_back_and_is_gone_is_refused_without_a_signal);
    tcase_add_test(tcase, an_attached_arena_is_told_from_its_successor);
    tcase_add_test(tcase, attaching_to_nothing_is_not_found);
    return suite_run(tcase, "arena");
}
