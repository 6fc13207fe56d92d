/* client/lib/plain_pages.c - see plain_pages.h. */
#include "client/lib/plain_pages.h"

#include "runtime/base/sl_clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_BYTES (2 * SL_MIB)
/* Size of a kernel call, during which page faults of other threads wait, some ms. */
#define STEP_BYTES (8 * HUGE_BYTES)

/* Checked here, since MADV_COLLAPSE ignores the policy. */
static bool system_forbids(void)
{
    char text[64] = "[never]";
    SL_AUTO(fclose) FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    return file == NULL || fgets(text, sizeof text, file) == NULL ||
           strstr(text, "[never]") != NULL;
}

void sl_plain_pages_ask(uint64_t address, uint64_t length_bytes, uint64_t deadline_ns)
{
    uint64_t from = sl_align_up(address, HUGE_BYTES);
    uint64_t end = address + length_bytes - (address + length_bytes) % HUGE_BYTES;
    if (from >= end || system_forbids()) {
        return;
    }
    /* Memory that the kernel refuses stays as it is: pinned pages, holes, memory of a disk file. */
    (void)madvise((void *)(uintptr_t)from, end - from, MADV_HUGEPAGE); /* NOLINT(performance-*) */
    for (; from < end && sl_clock_monotonic_ns() < deadline_ns; from += STEP_BYTES) {
        void *at = (void *)(uintptr_t)from; /* NOLINT(performance-no-int-to-ptr) */
        (void)madvise(at, SL_MIN(STEP_BYTES, end - from), MADV_COLLAPSE);
    }
}
