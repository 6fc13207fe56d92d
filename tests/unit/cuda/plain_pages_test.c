/* tests/unit/cuda/plain_pages_test.c - huge pages under plain memory: where they are requested, and
 * where not. The kernel's flags and results are read from /proc/self/smaps. */
#include "client/lib/plain_pages.h"
#include "runtime/base/sl_clock.h"

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

static unsigned char *memory; /* begins with a huge page */

static void setup(void)
{
    unsigned char *at = mmap(NULL, MEMORY_BYTES + HUGE_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(at != MAP_FAILED);
    memory = at + (-(uintptr_t)at & (HUGE_BYTES - 1));
}

/* Reads the kernel's record of the mapping that contains the address. */
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

/* This system forbids huge pages, or has none: the kernel ignores the request. */
static bool system_without(void)
{
    char text[64] = "[never]";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file != NULL) {
        (void)fgets(text, sizeof text, file);
        (void)fclose(file);
    }
    return strstr(text, "[never]") != NULL;
}

START_TEST(touched_memory_is_collected_and_keeps_its_bytes)
    {
        uint64_t huge_kib = 0;
        ck_assert_int_eq(madvise(memory, MEMORY_BYTES, MADV_NOHUGEPAGE), 0);
        for (uint64_t i = 0; i < MEMORY_BYTES; i++) {
            memory[i] = (unsigned char)(i * 131 + i / 4099);
        }

        sl_plain_pages_ask((uintptr_t)memory + 5, 7 * HUGE_BYTES - 5,
                           sl_clock_monotonic_ns() + LONG_NS);

        bool asked = told(memory + HUGE_BYTES, &huge_kib);
        ck_assert(asked == !system_without());
        ck_assert(!asked || huge_kib > 0); /* all, unless the machine is short of them */
        ck_assert(
            !asked_at(memory + HUGE_BYTES - 1)); /* a part of a huge page, and what is beside it */
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

        sl_plain_pages_ask((uintptr_t)memory, MEMORY_BYTES, 0);

        ck_assert(told(memory, &huge_kib) == !system_without());
        ck_assert_uint_eq(huge_kib, 0);
    }
END_TEST

int main(void)
{
    TCase *pages = tcase_create("pages");
    tcase_set_timeout(pages, 60);
    tcase_add_checked_fixture(pages, setup, NULL);
    tcase_add_test(pages, touched_memory_is_collected_and_keeps_its_bytes);
    tcase_add_test(pages, behind_the_deadline_nothing_is_collected_but_asked_for);
    Suite *suite = suite_create("plain_pages");
    suite_add_tcase(suite, pages);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
