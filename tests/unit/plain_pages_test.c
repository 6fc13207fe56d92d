/* tests/unit/plain_pages_test.c - huge pages under plain memory: where they are asked for, and where
 * not. What the kernel was told, and did, is read from /proc/self/smaps. */
#include "client/lib/plain_pages.h"
#include "runtime/sl_clock.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES   (2 * SL_MIB)
#define MEMORY_BYTES (8 * HUGE_BYTES)
#define LONG_NS      (60 * SL_NS_PER_S)

static const struct sl_plain_policy by_advice = {.text = "always [madvise] never\n",
                                                 .huge_bytes = HUGE_BYTES};
static unsigned char *memory; /* begins with a huge page */

static unsigned char *aligned(int flags, int fd)
{
    unsigned char *at = mmap(NULL, MEMORY_BYTES + HUGE_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(at != MAP_FAILED);
    at += -(uintptr_t)at & (HUGE_BYTES - 1);
    if (fd >= 0 || flags != MAP_PRIVATE) {
        flags |= fd >= 0 ? MAP_FIXED : MAP_FIXED | MAP_ANONYMOUS;
        ck_assert(mmap(at, MEMORY_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0) == at);
    }
    return at;
}

static void setup(void)
{
    memory = aligned(MAP_PRIVATE, -1);
}

/* What the kernel says of the mapping that the address lies in. */
static bool told(const unsigned char *at, uint64_t *huge_kib)
{
    char line[512];
    uint64_t from, end;
    bool here = false, asked = false, found = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    ck_assert_ptr_nonnull(file);
    *huge_kib = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &end) == 2) {
            here = (uintptr_t)at >= from && (uintptr_t)at < end;
            found |= here;
        } else if (here && strncmp(line, "VmFlags:", 8) == 0) {
            asked = strstr(line, " hg") != NULL;
        } else if (here) {
            (void)sscanf(line, "AnonHugePages: %" SCNu64, huge_kib);
        }
    }
    (void)fclose(file);
    ck_assert(found);
    return asked;
}

static bool asked_at(const unsigned char *at)
{
    uint64_t ignored;
    return told(at, &ignored);
}

static struct sl_copier_range range(uint64_t from, uint64_t end)
{
    return (struct sl_copier_range){.address = (uintptr_t)memory + from,
                                    .length_bytes = end - from};
}

/* This system forbids huge pages, or has larger ones: the kernel does not do what is asked. */
static bool system_without(void)
{
    struct sl_plain_policy policy;
    sl_plain_policy_read(&policy);
    return policy.text[0] == '\0' || strstr(policy.text, "[never]") != NULL ||
           policy.huge_bytes != HUGE_BYTES;
}

START_TEST(touched_memory_is_collected_and_keeps_its_bytes)
    {
        uint64_t huge_kib = 0;
        ck_assert_int_eq(madvise(memory, MEMORY_BYTES, MADV_NOHUGEPAGE), 0);
        for (uint64_t i = 0; i < MEMORY_BYTES; i++) {
            memory[i] = (unsigned char)(i * 131 + i / 4099);
        }
        struct sl_copier_range ranges[] = {range(HUGE_BYTES, 7 * HUGE_BYTES)};

        uint64_t asked_bytes = sl_plain_pages_ask(&by_advice, ranges, SL_COUNT(ranges),
                                                  sl_clock_monotonic_ns() + LONG_NS);

        if (system_without()) {
            return;
        }
        ck_assert_uint_eq(asked_bytes, 6 * HUGE_BYTES);
        ck_assert(told(memory + HUGE_BYTES, &huge_kib));
        ck_assert_uint_gt(huge_kib, 0); /* all, unless the machine is short of them */
        ck_assert(!asked_at(memory + HUGE_BYTES - 1));
        ck_assert(!asked_at(memory + 7 * HUGE_BYTES));
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < MEMORY_BYTES; i++) {
            wrong += memory[i] != (unsigned char)(i * 131 + i / 4099);
        }
        ck_assert_uint_eq(wrong, 0);
    }
END_TEST

START_TEST(behind_the_deadline_nothing_is_collected_but_asked_for)
    {
        uint64_t huge_kib = 1;
        ck_assert_int_eq(madvise(memory, MEMORY_BYTES, MADV_NOHUGEPAGE), 0);
        memset(memory, 1, MEMORY_BYTES);
        struct sl_copier_range ranges[] = {range(0, MEMORY_BYTES)};

        uint64_t asked_bytes = sl_plain_pages_ask(&by_advice, ranges, SL_COUNT(ranges), 0);

        if (system_without()) {
            return;
        }
        ck_assert_uint_eq(asked_bytes, MEMORY_BYTES);
        ck_assert(told(memory, &huge_kib));
        ck_assert_uint_eq(huge_kib, 0);
    }
END_TEST

START_TEST(where_the_system_forbids_them_nothing_is_asked_for)
    {
        static const struct sl_plain_policy forbids[] = {
            {.text = "always madvise [never]\n", .huge_bytes = HUGE_BYTES},
            {.text = "", .huge_bytes = HUGE_BYTES}};
        for (uint32_t i = 0; i < SL_COUNT(forbids); i++) {
            struct sl_copier_range ranges[] = {range(0, MEMORY_BYTES)};

            ck_assert_uint_eq(
                sl_plain_pages_ask(&forbids[i], ranges, 1, sl_clock_monotonic_ns() + LONG_NS), 0);

            ck_assert(!asked_at(memory));
        }
    }
END_TEST

/* What of [0, MEMORY_BYTES) is asked for, in huge pages from..end, of ranges in KiB. */
static const struct {
    uint64_t kib[3][2];
    uint32_t count;
    uint64_t asked_bytes;
} shapes[] = {
    {{{0, 2048}}, 1, HUGE_BYTES},
    {{{1, 6144}}, 1, 2 * HUGE_BYTES},
    {{{0, 6143}}, 1, 2 * HUGE_BYTES},
    {{{1, 4095}}, 1, 0},
    {{{1, 2047}}, 1, 0},
    {{{1024, 2048}, {0, 1024}}, 2, HUGE_BYTES},                   /* they meet, out of order */
    {{{1024, 3072}, {0, 2048}}, 2, HUGE_BYTES},                   /* they overlap */
    {{{0, 8192}, {1024, 2048}, {4096, 6144}}, 3, 4 * HUGE_BYTES}, /* within another */
    {{{0, 1024}, {1025, 2048}}, 2, 0},                            /* a gap */
    {{{12288, 16384}, {0, 2048}}, 2, 3 * HUGE_BYTES},
};

START_TEST(whole_huge_pages_within_the_ranges_are_asked_for)
    {
        struct sl_copier_range ranges[3];
        for (uint32_t i = 0; i < shapes[_i].count; i++) {
            ranges[i] = range(shapes[_i].kib[i][0] * SL_KIB, shapes[_i].kib[i][1] * SL_KIB);
        }

        uint64_t asked_bytes = sl_plain_pages_ask(&by_advice, ranges, shapes[_i].count, 0);

        ck_assert(asked_bytes == shapes[_i].asked_bytes || (asked_bytes == 0 && system_without()));
    }
END_TEST

START_TEST(a_hole_and_a_mapping_of_other_rights_are_borders)
    {
        ck_assert_int_eq(munmap(memory + HUGE_BYTES + SL_PAGE_BYTES, SL_PAGE_BYTES), 0);
        ck_assert_int_eq(mprotect(memory + 4 * HUGE_BYTES, 4 * HUGE_BYTES, PROT_READ), 0);
        struct sl_copier_range ranges[] = {range(0, MEMORY_BYTES)};

        uint64_t asked_bytes = sl_plain_pages_ask(&by_advice, ranges, 1, 0);

        ck_assert(asked_bytes == 7 * HUGE_BYTES || (asked_bytes == 0 && system_without()));
        ck_assert(!asked_at(memory + HUGE_BYTES));
    }
END_TEST

START_TEST(shared_memory_and_files_stay_as_they_are)
    {
        char path[] = "/tmp/plain_pages_XXXXXX";
        int fd = mkstemp(path);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)MEMORY_BYTES), 0);
        unsigned char *others[] = {aligned(MAP_SHARED, -1), aligned(MAP_PRIVATE, fd),
                                   aligned(MAP_SHARED, fd)};
        for (uint32_t i = 0; i < SL_COUNT(others); i++) {
            memset(others[i], 1, MEMORY_BYTES);
            struct sl_copier_range ranges[] = {
                {.address = (uintptr_t)others[i], .length_bytes = MEMORY_BYTES}};

            ck_assert_uint_eq(
                sl_plain_pages_ask(&by_advice, ranges, 1, sl_clock_monotonic_ns() + LONG_NS), 0);

            ck_assert(!asked_at(others[i]));
        }
        (void)close(fd);
    }
END_TEST

int main(void)
{
    TCase *pages = tcase_create("pages");
    tcase_set_timeout(pages, 60);
    tcase_add_checked_fixture(pages, setup, NULL);
    tcase_add_test(pages, touched_memory_is_collected_and_keeps_its_bytes);
    tcase_add_test(pages, behind_the_deadline_nothing_is_collected_but_asked_for);
    tcase_add_test(pages, where_the_system_forbids_them_nothing_is_asked_for);
    tcase_add_loop_test(pages, whole_huge_pages_within_the_ranges_are_asked_for, 0,
                        SL_COUNT(shapes));
    tcase_add_test(pages, a_hole_and_a_mapping_of_other_rights_are_borders);
    tcase_add_test(pages, shared_memory_and_files_stay_as_they_are);
    Suite *suite = suite_create("plain_pages");
    suite_add_tcase(suite, pages);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
