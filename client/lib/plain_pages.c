/* client/lib/plain_pages.c - see plain_pages.h. */
#include "client/lib/plain_pages.h"

#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define POLICY_FILE    "/sys/kernel/mm/transparent_hugepage/enabled"
#define SIZE_FILE      "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
#define HUGE_BYTES     (2 * SL_MIB)
#define HUGE_BYTES_MAX SL_GIB
/* A call to the kernel: it holds up page faults of other threads meanwhile, some ms. */
#define STEP_BYTES (16 * SL_MIB)
#define SPANS_MAX  4096u

/* A stretch of whole huge pages. */
struct span {
    uint64_t from, end;
};
struct spans {
    struct span at[SPANS_MAX];
    uint32_t count;
};

void sl_plain_policy_read(struct sl_plain_policy *out)
{
    *out = (struct sl_plain_policy){.huge_bytes = HUGE_BYTES};
    FILE *file = fopen(POLICY_FILE, "re");
    if (file != NULL) {
        if (fgets(out->text, sizeof out->text, file) == NULL) {
            out->text[0] = '\0';
        }
        (void)fclose(file);
    }
    uint64_t bytes = 0;
    file = fopen(SIZE_FILE, "re");
    if (file != NULL) {
        if (fscanf(file, "%" SCNu64, &bytes) == 1 && bytes >= SL_PAGE_BYTES &&
            bytes <= HUGE_BYTES_MAX && (bytes & (bytes - 1)) == 0) {
            out->huge_bytes = bytes;
        }
        (void)fclose(file);
    }
}

static int by_address(const void *left, const void *right)
{
    const struct sl_copier_range *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

/* Ranges that overlap or touch become one: layers may lie between each other. */
static uint32_t ranges_join(struct sl_copier_range *ranges, uint32_t count)
{
    uint32_t kept = 0;
    qsort(ranges, count, sizeof *ranges, by_address);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_copier_range *last = &ranges[kept - (kept > 0)];
        uint64_t end = ranges[i].address + ranges[i].length_bytes;
        if (kept > 0 && ranges[i].address - last->address <= last->length_bytes) {
            last->length_bytes = SL_MAX(last->length_bytes, end - last->address);
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}

/* A line of /proc/self/maps. False: memory of a file, shared, or of the kernel. */
static bool mapping_read(const char *line, struct span *out)
{
    char rights[5] = "";
    uint64_t inode = 0;
    int name_at = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %*x:%*x %" SCNu64 " %n", &out->from,
               &out->end, rights, &inode, &name_at) < 4) {
        return false;
    }
    const char *name = line + name_at;
    return rights[3] == 'p' && inode == 0 &&
           (*name == '\0' || strncmp(name, "[heap]", 6) == 0 || strncmp(name, "[anon:", 6) == 0);
}

static void spans_add(struct spans *spans, const struct span *mapping,
                      const struct sl_copier_range *range, uint64_t huge_bytes)
{
    uint64_t from = SL_MAX(mapping->from, (uint64_t)range->address);
    uint64_t end = SL_MIN(mapping->end, range->address + range->length_bytes);
    from = sl_align_up(from, huge_bytes);
    end -= end % huge_bytes;
    if (from < end && spans->count < SPANS_MAX) {
        spans->at[spans->count++] = (struct span){.from = from, .end = end};
    }
}

/* Both are in the order of addresses. */
static void spans_find(FILE *maps, const struct sl_copier_range *ranges, uint32_t count,
                       uint64_t huge_bytes, struct spans *spans)
{
    char *line = NULL;
    size_t room = 0;
    uint32_t first = 0;
    while (first < count && getline(&line, &room, maps) >= 0) {
        struct span mapping;
        if (!mapping_read(line, &mapping)) {
            continue;
        }
        while (first < count &&
               ranges[first].address + ranges[first].length_bytes <= mapping.from) {
            first++;
        }
        for (uint32_t i = first; i < count && ranges[i].address < mapping.end; i++) {
            spans_add(spans, &mapping, &ranges[i], huge_bytes);
        }
    }
    free(line);
}

static uint64_t spans_ask(const struct spans *spans, uint64_t huge_bytes, uint64_t deadline_ns)
{
    uint64_t asked_bytes = 0;
    for (uint32_t i = 0; i < spans->count; i++) { /* first all, which takes no time */
        const struct span *span = &spans->at[i];
        void *at = (void *)(uintptr_t)span->from; /* NOLINT(performance-no-int-to-ptr) */
        bool can = madvise(at, span->end - span->from, MADV_HUGEPAGE) == 0;
        asked_bytes += can ? span->end - span->from : 0;
    }
    uint64_t step_bytes = SL_MAX(STEP_BYTES, huge_bytes);
    for (uint32_t i = 0; i < spans->count; i++) {
        const struct span *span = &spans->at[i];
        for (uint64_t from = span->from; from < span->end; from += step_bytes) {
            if (sl_clock_monotonic_ns() >= deadline_ns) {
                return asked_bytes;
            }
            void *at = (void *)(uintptr_t)from; /* NOLINT(performance-no-int-to-ptr) */
            /* Pages that are pinned, or were never touched, stay as they are. */
            (void)madvise(at, SL_MIN(step_bytes, span->end - from), MADV_COLLAPSE);
        }
    }
    return asked_bytes;
}

uint64_t sl_plain_pages_ask(const struct sl_plain_policy *policy, struct sl_copier_range *ranges,
                            uint32_t count, uint64_t deadline_ns)
{
    if (policy->text[0] == '\0' || strstr(policy->text, "[never]") != NULL) {
        return 0;
    }
    FILE *maps = fopen("/proc/self/maps", "re");
    struct spans *spans = malloc(sizeof *spans);
    uint64_t asked_bytes = 0;
    if (maps != NULL && spans != NULL) {
        spans->count = 0;
        spans_find(maps, ranges, ranges_join(ranges, count), policy->huge_bytes, spans);
        asked_bytes = spans_ask(spans, policy->huge_bytes, deadline_ns);
    }
    free(spans);
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return asked_bytes;
}
