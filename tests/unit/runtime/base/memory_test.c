/* tests/unit/runtime/base/memory_test.c - the table of registered memory and the allocator of
 * libsluice. */
#include "client/lib/internal.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB         ((uint64_t)1 << 30)
#define THREADS     4
#define ROUNDS      2000
#define CHUNK_COUNT 5000u

/* Addresses that are not in use: registering does not touch memory. */
static void *at(uint64_t offset_bytes)
{
    return (void *)(uintptr_t)((UINT64_C(1) << 40) + offset_bytes); /* NOLINT */
}

static bool known(uint64_t offset_bytes, uint64_t length_bytes)
{
    struct sl_place_info info = {0};
    return sl_memory_find(at(offset_bytes), length_bytes, &info) == SL_OK &&
           info.place == SL_PLACE_PLAIN;
}

static void add(uint64_t offset_bytes, uint64_t length_bytes)
{
    ck_assert_int_eq(sl_memory_register(at(offset_bytes), length_bytes, NULL), SL_OK);
}

static sl_err take(uint64_t offset_bytes)
{
    return sl_memory_unregister(at(offset_bytes), NULL);
}

/* ---- registering ---- */

START_TEST(what_is_registered_is_found_and_nothing_beside_it)
    {
        add(1000, 100);

        ck_assert(known(1000, 100) && known(1050, 50) && known(1099, 1) && known(1000, 0));
        ck_assert(!known(999, 1) && !known(999, 2) && !known(1099, 2) && !known(1100, 1));
        ck_assert(!known(1000, UINT64_MAX));
        ck_assert_int_eq(take(1000), SL_OK);
        ck_assert(!known(1000, 1));
    }
END_TEST

START_TEST(adjacent_and_chunked_registrations_are_one)
    {
        for (uint64_t i = 0; i < CHUNK_COUNT; i++) { /* in shuffled order */
            add((i * 7919 % CHUNK_COUNT) * GIB, GIB);
        }

        ck_assert(known(0, CHUNK_COUNT * GIB) && known(GIB - 1, 2));
        ck_assert_int_eq(take(7 * GIB), SL_OK);
        ck_assert(!known(0, CHUNK_COUNT * GIB) && known(0, 7 * GIB) && !known(7 * GIB, 1));
        ck_assert(known(8 * GIB, (CHUNK_COUNT - 8) * GIB));
    }
END_TEST

START_TEST(overlapping_registrations_count_and_end_by_their_start)
    {
        add(0, 100);
        add(50, 100);
        add(50, 10);

        ck_assert(known(0, 150));
        ck_assert_int_eq(take(60), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(take(50), SL_OK); /* the last one at this start */
        ck_assert(known(0, 150));
        ck_assert_int_eq(take(50), SL_OK);
        ck_assert(known(0, 100) && !known(0, 101));
        ck_assert_int_eq(take(50), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(take(0), SL_OK);
        ck_assert(!known(0, 1));
    }
END_TEST

START_TEST(what_is_no_memory_is_refused)
    {
        struct sl_error why = {0};

        ck_assert_int_eq(sl_memory_register(NULL, 1, &why), SL_ERR_INVALID);
        ck_assert_int_eq(sl_memory_register(at(0), 0, &why), SL_ERR_INVALID);
        ck_assert_int_eq(sl_memory_register(at(0), UINT64_MAX, &why), SL_ERR_INVALID);
        ck_assert_int_eq(sl_memory_register((void *)UINTPTR_MAX, 1, &why), SL_ERR_INVALID);
        ck_assert(why.text[0] != '\0');
        ck_assert_int_eq(sl_memory_unregister(NULL, &why), SL_ERR_NOT_FOUND);
    }
END_TEST

static void *thread_main(void *context)
{
    uint64_t base = *(uint64_t *)context;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        add(base, 64);
        ck_assert(known(base, 64));
        add(base + 64, 64);
        ck_assert(known(base, 128) && known(5 * GIB, GIB));
        ck_assert_int_eq(take(base), SL_OK);
        ck_assert_int_eq(take(base + 64), SL_OK);
    }
    return NULL;
}

START_TEST(threads_register_and_look_up_side_by_side)
    {
        pthread_t running[THREADS];
        uint64_t bases[THREADS];
        add(5 * GIB, GIB);

        for (uint64_t i = 0; i < THREADS; i++) {
            bases[i] = i * 4096;
            ck_assert_int_eq(pthread_create(&running[i], NULL, thread_main, &bases[i]), 0);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            ck_assert_int_eq(pthread_join(running[i], NULL), 0);
        }

        ck_assert(known(5 * GIB, GIB) && !known(0, 1));
    }
END_TEST

/* ---- the allocator ---- */

static const uint64_t lengths[] = {1, 4096, 4097, 2 * SL_MIB, 3 * SL_MIB + 1};
START_TEST(allocated_memory_is_zeroed_aligned_and_ours)
    {
        uint64_t length = lengths[_i];
        struct sl_place_info info = {0};
        void *memory = NULL;

        ck_assert_int_eq(sl_memory_alloc(length, &memory, NULL), SL_OK);

        uint64_t align = length >= 2 * SL_MIB ? 2 * SL_MIB : 4096;
        ck_assert_uint_eq((uintptr_t)memory % align, 0);
        unsigned char *bytes = memory;
        ck_assert(bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
        memset(bytes, 0x5a, length);
        ck_assert_int_eq(sl_memory_find(memory, length, &info), SL_OK);
        ck_assert_int_eq(info.place, SL_PLACE_OURS);
        ck_assert_int_eq(sl_memory_free(memory, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_find(memory, 1, &info), SL_ERR_NOT_FOUND);
    }
END_TEST

START_TEST(a_wrong_address_is_not_freed)
    {
        unsigned char *memory = NULL;
        void *out = NULL;
        int mine = 0;
        ck_assert_int_eq(sl_memory_alloc(2 * SL_MIB, (void **)&memory, NULL), SL_OK);

        ck_assert_int_eq(sl_memory_free(memory + 4096, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_free(&mine, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_free(NULL, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_free(memory, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_free(memory, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_alloc(0, &out, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_memory_alloc(UINT64_MAX, &out, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_memory_alloc((uint64_t)1 << 55, &out, NULL), SL_ERR_NO_MEMORY);
        ck_assert_ptr_null(out);
    }
END_TEST

START_TEST(the_allocators_own_registration_is_not_the_callers_to_end)
    {
        void *memory = NULL;
        struct sl_place_info info = {0};
        ck_assert_int_eq(sl_memory_alloc(8192, &memory, NULL), SL_OK);

        ck_assert_int_eq(sl_memory_unregister(memory, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_register(memory, 4096, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_unregister(memory, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_unregister(memory, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_find(memory, 8192, &info), SL_OK);
        ck_assert_int_eq(sl_memory_register(memory, 4096, NULL), SL_OK); /* ends with the free */
        ck_assert_int_eq(sl_memory_free(memory, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_find(memory, 1, &info), SL_ERR_NOT_FOUND);
    }
END_TEST

START_TEST(freed_memory_has_no_registrations_left)
    {
        void *at = NULL;
        struct sl_place_info info;
        unsigned char beside[64];

        ck_assert_int_eq(sl_memory_alloc(3 * SL_MIB, &at, NULL), SL_OK);
        unsigned char *memory = at;
        ck_assert_int_eq(sl_memory_register(memory, 10, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_register(memory + SL_MIB, SL_MIB, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_register(memory + 3 * SL_MIB - 1, 1, NULL), SL_OK);
        ck_assert_int_eq(sl_memory_register(beside, sizeof beside, NULL), SL_OK);

        ck_assert_int_eq(sl_memory_free(memory, NULL), SL_OK);

        ck_assert_int_eq(sl_memory_find(memory + SL_MIB, 1, &info), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_unregister(memory + SL_MIB, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_unregister(memory + 3 * SL_MIB - 1, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_find(beside, sizeof beside, &info), SL_OK);
        ck_assert_int_eq(sl_memory_unregister(beside, NULL), SL_OK);
    }
END_TEST

START_TEST(a_fork_shares_what_was_allocated)
    {
        unsigned char *memory = NULL;
        int status = -1;
        ck_assert_int_eq(sl_memory_alloc(4096, (void **)&memory, NULL), SL_OK);

        pid_t child = fork();
        if (child == 0) {
            memory[5] = 77;
            _exit(0);
        }

        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_uint_eq(memory[5], 77);
        ck_assert_int_eq(sl_memory_free(memory, NULL), SL_OK);
    }
END_TEST

static void *alloc_main(void *context)
{
    (void)context;
    for (uint32_t i = 0; i < 200; i++) {
        void *memory[4];
        for (uint32_t m = 0; m < SL_COUNT(memory); m++) {
            ck_assert_int_eq(sl_memory_alloc(4096 * (m + 1), &memory[m], NULL), SL_OK);
        }
        for (uint32_t m = 0; m < SL_COUNT(memory); m++) {
            ck_assert_int_eq(sl_memory_free(memory[m], NULL), SL_OK);
        }
    }
    return NULL;
}

START_TEST(threads_allocate_side_by_side)
    {
        pthread_t running[THREADS];

        for (uint32_t i = 0; i < THREADS; i++) {
            ck_assert_int_eq(pthread_create(&running[i], NULL, alloc_main, NULL), 0);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            ck_assert_int_eq(pthread_join(running[i], NULL), 0);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_is_registered_is_found_and_nothing_beside_it);
    tcase_add_test(tcase, adjacent_and_chunked_registrations_are_one);
    tcase_add_test(tcase, overlapping_registrations_count_and_end_by_their_start);
    tcase_add_test(tcase, what_is_no_memory_is_refused);
    tcase_add_test(tcase, threads_register_and_look_up_side_by_side);
    tcase_add_loop_test(tcase, allocated_memory_is_zeroed_aligned_and_ours, 0,
                        (int)SL_COUNT(lengths));
    tcase_add_test(tcase, a_wrong_address_is_not_freed);
    tcase_add_test(tcase, the_allocators_own_registration_is_not_the_callers_to_end);
    tcase_add_test(tcase, freed_memory_has_no_registrations_left);
    tcase_add_test(tcase, a_fork_shares_what_was_allocated);
    tcase_add_test(tcase, threads_allocate_side_by_side);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
