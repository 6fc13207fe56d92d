/* ipc/shm/sl_alloc.c - the allocator of extents: two-level segregated fit over pages, and slabs of
 * 64-byte units below a page.
 *
 * All state is private to the registrar (arrays sized once, no later allocation) and can be rebuilt
 * from the records at any time, so none of it is in shared memory. Free runs of pages coalesce at
 * once, but never across a chunk's edge. */
#include "ipc/shm/sl_arena.h"

#include <inttypes.h>
#include <stdlib.h>

#define ALLOC_NONE           UINT32_MAX
#define ALLOC_UNIT_BYTES     64u
#define ALLOC_PAGE_UNITS     (SL_PAGE_BYTES / ALLOC_UNIT_BYTES)
#define ALLOC_FINE_LOG       5u
#define ALLOC_FINE           (1u << ALLOC_FINE_LOG) /* lists per power of two: at most 1/32 of slack */
#define ALLOC_COARSE         15u                    /* up to 2^18 pages: one chunk of 1 GiB */
#define ALLOC_NEAR_TRIES     8u   /* of its own list, before a larger run is split */
#define ALLOC_LAST_TRIES     256u /* of its own list, before giving up */
#define ALLOC_CHUNK_PAGE_MAX (UINT32_C(1) << 18)

enum page_kind {
    PAGE_OUT = 0, /* never opened, or inside a run */
    PAGE_FREE,    /* first and last page of a free run, both hold its length */
    PAGE_USED,    /* first (holds the length) and last page (holds 0) of an extent */
    PAGE_SLAB,    /* one page of small extents */
};

struct page {
    uint32_t run; /* in pages */
    uint32_t next, prev;
    uint8_t kind;
    uint8_t units;   /* slab: size of its extents, in units */
    uint16_t closed; /* first page of an extent beyond the usable pages, after a shrink */
    uint64_t slots;  /* slab: a set bit is a free slot */
};

struct sl_alloc {
    struct page *pages;
    /* A bit per page: in use when it is opened, since a record claimed it at the rebuild, or it was
     * in use at a shrink. Meaningless below usable_pages. */
    uint64_t *claimed;
    uint32_t page_count, chunk_pages, usable_pages;
    uint32_t closed_end; /* no page from here on is closed and in use */
    bool settled;        /* free runs exist; no more claims */
    uint32_t coarse_mask;
    uint32_t fine_mask[ALLOC_COARSE];
    uint32_t heads[ALLOC_COARSE][ALLOC_FINE];
    uint32_t slabs[ALLOC_PAGE_UNITS]; /* slabs with a free slot, by units */
    uint64_t used_bytes, extent_count;
    uint64_t closed_bytes; /* of used_bytes, those in pages that are no longer usable */
};

uint64_t sl_extent_space(uint64_t length_bytes)
{
    if (length_bytes <= SL_PAGE_BYTES - ALLOC_UNIT_BYTES) {
        return sl_align_up(length_bytes, ALLOC_UNIT_BYTES);
    }
    return sl_align_up(length_bytes, SL_PAGE_BYTES);
}

static uint64_t slab_all_free(uint32_t units)
{
    uint32_t count = ALLOC_PAGE_UNITS / units;
    return count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* ---- lists of pages ---- */

static void list_add(struct sl_alloc *alloc, uint32_t *head, uint32_t at)
{
    struct page *page = &alloc->pages[at];
    page->prev = ALLOC_NONE;
    page->next = *head;
    if (*head != ALLOC_NONE) {
        alloc->pages[*head].prev = at;
    }
    *head = at;
}

static void list_remove(struct sl_alloc *alloc, uint32_t *head, uint32_t at)
{
    const struct page *page = &alloc->pages[at];
    *(page->prev != ALLOC_NONE ? &alloc->pages[page->prev].next : head) = page->next;
    if (page->next != ALLOC_NONE) {
        alloc->pages[page->next].prev = page->prev;
    }
}

/* ---- free runs ---- */

struct run_class {
    uint32_t coarse, fine;
};

static struct run_class run_class_of(uint32_t pages)
{
    if (pages < ALLOC_FINE) {
        return (struct run_class){0, pages};
    }
    uint32_t log = 31u - (uint32_t)__builtin_clz(pages);
    return (struct run_class){log - ALLOC_FINE_LOG + 1,
                              (pages >> (log - ALLOC_FINE_LOG)) - ALLOC_FINE};
}

static void run_link(struct sl_alloc *alloc, uint32_t start, uint32_t pages)
{
    struct run_class class = run_class_of(pages);
    struct page *last = &alloc->pages[start + pages - 1];
    struct page *first = &alloc->pages[start];
    last->kind = PAGE_FREE;
    last->run = pages;
    first->kind = PAGE_FREE;
    first->run = pages;
    list_add(alloc, &alloc->heads[class.coarse][class.fine], start);
    alloc->fine_mask[class.coarse] |= 1u << class.fine;
    alloc->coarse_mask |= 1u << class.coarse;
}

static void run_unlink(struct sl_alloc *alloc, uint32_t start)
{
    struct run_class class = run_class_of(alloc->pages[start].run);
    uint32_t *head = &alloc->heads[class.coarse][class.fine];
    list_remove(alloc, head, start);
    if (*head == ALLOC_NONE) {
        alloc->fine_mask[class.coarse] &= ~(1u << class.fine);
        if (alloc->fine_mask[class.coarse] == 0) {
            alloc->coarse_mask &= ~(1u << class.coarse);
        }
    }
}

/* Frees [start, +pages) and joins it with free neighbours of its chunk. */
static void run_free(struct sl_alloc *alloc, uint32_t start, uint32_t pages)
{
    uint32_t end = start + pages;
    if (start % alloc->chunk_pages != 0 && alloc->pages[start - 1].kind == PAGE_FREE) {
        start -= alloc->pages[start - 1].run;
        run_unlink(alloc, start);
    }
    if (end % alloc->chunk_pages != 0 && end < alloc->page_count &&
        alloc->pages[end].kind == PAGE_FREE) {
        uint32_t right_pages = alloc->pages[end].run;
        run_unlink(alloc, end);
        end += right_pages;
    }
    run_link(alloc, start, end - start);
}

static void run_mark_used(struct sl_alloc *alloc, uint32_t start, uint32_t pages)
{
    struct page *last = &alloc->pages[start + pages - 1];
    struct page *first = &alloc->pages[start];
    last->kind = PAGE_USED;
    last->run = 0; /* distinguishes it from a first page at the rebuild */
    first->kind = PAGE_USED;
    first->run = pages;
}

/* Checks at most `tries` runs of the class of `pages`: some may be long enough. Uniform odd sizes
 * find their own holes here. */
static uint32_t run_find_near(const struct sl_alloc *alloc, uint32_t pages, uint32_t tries)
{
    struct run_class class = run_class_of(pages);
    uint32_t at = alloc->heads[class.coarse][class.fine];
    for (uint32_t i = 0; i < tries && at != ALLOC_NONE; i++) {
        if (alloc->pages[at].run >= pages) {
            return at;
        }
        at = alloc->pages[at].next;
    }
    return ALLOC_NONE;
}

/* The first run of the next larger non-empty class, which is always long enough. */
static uint32_t run_find_larger(const struct sl_alloc *alloc, uint32_t pages)
{
    struct run_class class = run_class_of(pages);
    uint32_t fine =
        class.fine + 1 < ALLOC_FINE ? alloc->fine_mask[class.coarse] >> (class.fine + 1) : 0;
    if (fine != 0) {
        return alloc->heads[class.coarse][class.fine + 1 + (uint32_t)__builtin_ctz(fine)];
    }
    uint32_t coarse = alloc->coarse_mask >> (class.coarse + 1);
    if (coarse == 0) {
        return ALLOC_NONE;
    }
    class.coarse += 1 + (uint32_t)__builtin_ctz(coarse);
    return alloc->heads[class.coarse][__builtin_ctz(alloc->fine_mask[class.coarse])];
}

static uint32_t run_take(struct sl_alloc *alloc, uint32_t pages)
{
    uint32_t start = run_find_near(alloc, pages, ALLOC_NEAR_TRIES);
    if (start == ALLOC_NONE) {
        start = run_find_larger(alloc, pages);
    }
    if (start == ALLOC_NONE) {
        start = run_find_near(alloc, pages, ALLOC_LAST_TRIES);
    }
    if (start == ALLOC_NONE) {
        return ALLOC_NONE;
    }
    uint32_t found_pages = alloc->pages[start].run;
    run_unlink(alloc, start);
    if (found_pages > pages) {
        run_link(alloc, start + pages, found_pages - pages);
    }
    run_mark_used(alloc, start, pages);
    return start;
}

/* ---- slabs ---- */

static void slab_link(struct sl_alloc *alloc, uint32_t at)
{
    list_add(alloc, &alloc->slabs[alloc->pages[at].units], at);
}

static void slab_unlink(struct sl_alloc *alloc, uint32_t at)
{
    list_remove(alloc, &alloc->slabs[alloc->pages[at].units], at);
}

static void slab_open(struct sl_alloc *alloc, uint32_t at, uint32_t units)
{
    struct page *slab = &alloc->pages[at];
    slab->kind = PAGE_SLAB;
    slab->units = (uint8_t)units;
    slab->slots = slab_all_free(units);
    slab_link(alloc, at);
}

static void slab_take_slot(struct sl_alloc *alloc, uint32_t at, uint32_t slot)
{
    struct page *slab = &alloc->pages[at];
    slab->slots &= ~(UINT64_C(1) << slot);
    if (slab->slots == 0) {
        slab_unlink(alloc, at);
    }
}

static sl_err slab_take(struct sl_alloc *alloc, uint32_t units, uint64_t *offset_bytes)
{
    uint32_t at = alloc->slabs[units];
    if (at == ALLOC_NONE) {
        at = run_take(alloc, 1);
        if (at == ALLOC_NONE) {
            return SL_ERR_NO_SPACE;
        }
        slab_open(alloc, at, units);
    }
    uint32_t slot = (uint32_t)__builtin_ctzll(alloc->pages[at].slots);
    slab_take_slot(alloc, at, slot);
    *offset_bytes = (uint64_t)at * SL_PAGE_BYTES + (uint64_t)slot * units * ALLOC_UNIT_BYTES;
    return SL_OK;
}

static void slab_give(struct sl_alloc *alloc, uint64_t offset_bytes, uint32_t units)
{
    uint32_t at = (uint32_t)(offset_bytes / SL_PAGE_BYTES);
    uint32_t unit = (uint32_t)(offset_bytes % SL_PAGE_BYTES / ALLOC_UNIT_BYTES);
    struct page *slab = &alloc->pages[at];
    SL_ASSERT(slab->kind == PAGE_SLAB);
    SL_ASSERT(slab->units == units);
    SL_ASSERT(unit % units == 0);
    uint64_t bit = UINT64_C(1) << (unit / units);
    SL_ASSERT((slab->slots & bit) == 0); /* freed twice */
    if (slab->slots == 0) {
        slab_link(alloc, at);
    }
    slab->slots |= bit;
    if (slab->slots == slab_all_free(units)) {
        slab_unlink(alloc, at);
        run_free(alloc, at, 1);
    }
}

/* ---- closed pages ---- */

static void pages_claim(struct sl_alloc *alloc, uint32_t start, uint32_t pages)
{
    for (uint32_t i = start; i < start + pages; i++) {
        alloc->claimed[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

/* Forgets the runs of pages that are not in use. Entries without a run are not written: this would
 * allocate memory for them. */
static void pages_forget(struct sl_alloc *alloc, uint32_t start, uint32_t pages)
{
    for (uint32_t i = start; i < start + pages; i++) {
        alloc->claimed[i / 64] &= ~(UINT64_C(1) << (i % 64));
        if (alloc->pages[i].kind != PAGE_OUT) {
            alloc->pages[i] = (struct page){.kind = PAGE_OUT};
        }
    }
}

static uint64_t slab_used_bytes(const struct page *slab)
{
    uint64_t taken = slab_all_free(slab->units) & ~slab->slots;
    return (uint64_t)__builtin_popcountll(taken) * slab->units * ALLOC_UNIT_BYTES;
}

/* The pages of what begins at page `at`. */
static uint32_t piece_pages(const struct sl_alloc *alloc, uint32_t at)
{
    SL_ASSERT(alloc->pages[at].kind != PAGE_OUT);
    return alloc->pages[at].kind == PAGE_SLAB ? 1 : alloc->pages[at].run;
}

/* Closes the piece that begins at page `at`. */
static void piece_close(struct sl_alloc *alloc, uint32_t at, uint32_t pages)
{
    struct page *first = &alloc->pages[at];
    if (first->kind == PAGE_FREE) {
        run_unlink(alloc, at);
        pages_forget(alloc, at, pages);
        return;
    }
    if (first->kind == PAGE_SLAB && first->slots != 0) {
        slab_unlink(alloc, at);
    }
    first->closed = 1;
    pages_claim(alloc, at, pages);
    alloc->closed_bytes +=
        first->kind == PAGE_SLAB ? slab_used_bytes(first) : (uint64_t)pages * SL_PAGE_BYTES;
    alloc->closed_end = SL_MAX(alloc->closed_end, at + pages);
}

/* Opens a claimed piece: if it was closed, it counts as usable again. Returns its pages; 1: it was
 * claimed at the rebuild, and has at least one. */
static uint32_t piece_open(struct sl_alloc *alloc, uint32_t at)
{
    struct page *first = &alloc->pages[at];
    if (first->closed == 0) {
        return 1;
    }
    first->closed = 0;
    if (first->kind == PAGE_SLAB) {
        alloc->closed_bytes -= slab_used_bytes(first);
        if (first->slots != 0) {
            slab_link(alloc, at);
        }
        return 1;
    }
    alloc->closed_bytes -= (uint64_t)first->run * SL_PAGE_BYTES;
    return first->run;
}

/* Frees an extent in closed pages: its space is not reused. */
static void closed_give(struct sl_alloc *alloc, uint64_t offset_bytes, uint64_t length_bytes)
{
    uint32_t at = (uint32_t)(offset_bytes / SL_PAGE_BYTES);
    struct page *first = &alloc->pages[at];
    alloc->closed_bytes -= sl_extent_space(length_bytes);
    if (first->kind != PAGE_SLAB) {
        SL_ASSERT(first->kind == PAGE_USED); /* otherwise freed twice */
        SL_ASSERT(offset_bytes % SL_PAGE_BYTES == 0);
        SL_ASSERT((uint64_t)first->run * SL_PAGE_BYTES == sl_extent_space(length_bytes));
        pages_forget(alloc, at, first->run);
        return;
    }
    uint32_t unit = (uint32_t)(offset_bytes % SL_PAGE_BYTES / ALLOC_UNIT_BYTES);
    SL_ASSERT((uint64_t)first->units * ALLOC_UNIT_BYTES == sl_extent_space(length_bytes));
    SL_ASSERT(unit % first->units == 0);
    uint64_t bit = UINT64_C(1) << (unit / first->units);
    SL_ASSERT((first->slots & bit) == 0); /* freed twice */
    first->slots |= bit;
    if (first->slots == slab_all_free(first->units)) {
        pages_forget(alloc, at, 1);
    }
}

/* ---- opening of pages ---- */

static bool page_claimed(const struct sl_alloc *alloc, uint32_t page)
{
    return (alloc->claimed[page / 64] >> (page % 64) & 1) != 0;
}

/* Frees what is unclaimed of [from, to). Returns `to`, or the end of a closed piece that crosses
 * it. */
static uint32_t alloc_open_pages(struct sl_alloc *alloc, uint32_t from, uint32_t to)
{
    uint32_t start = from;
    uint32_t page = from;
    while (page < to) {
        if (page % alloc->chunk_pages == 0 && page > start) {
            run_free(alloc, start, page - start);
            start = page;
        }
        if (page_claimed(alloc, page)) {
            if (page > start) {
                run_free(alloc, start, page - start);
            }
            page += piece_open(alloc, page);
            start = page;
            continue;
        }
        /* Skips a word of unclaimed pages at once, if no chunk ends inside. */
        bool skip = page % 64 == 0 && page + 64 <= to && alloc->claimed[page / 64] == 0 &&
                    alloc->chunk_pages - page % alloc->chunk_pages > 64;
        page += skip ? 64 : 1;
    }
    if (to > start) {
        run_free(alloc, start, to - start);
    }
    return SL_MAX(to, page);
}

static void alloc_settle(struct sl_alloc *alloc)
{
    if (!alloc->settled) {
        alloc->settled = true;
        (void)alloc_open_pages(alloc, 0, alloc->usable_pages); /* nothing is closed yet */
    }
}

sl_err sl_alloc_create(const struct sl_alloc_options *options, struct sl_alloc **out,
                       struct sl_error *why)
{
    uint64_t page_count = options->data_bytes / SL_PAGE_BYTES;
    uint64_t chunk_pages = SL_MIN(options->chunk_bytes / SL_PAGE_BYTES, page_count);
    if (chunk_pages == 0 || chunk_pages > ALLOC_CHUNK_PAGE_MAX || page_count >= ALLOC_NONE) {
        return sl_fail(why, SL_ERR_INVALID,
                       "allocator over %" PRIu64 " bytes in chunks of %" PRIu64,
                       options->data_bytes, options->chunk_bytes);
    }
    struct sl_alloc *alloc = calloc(1, sizeof(*alloc));
    if (alloc == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "allocator");
    }
    alloc->page_count = (uint32_t)page_count;
    alloc->chunk_pages = (uint32_t)chunk_pages;
    /* Zeroed memory that the system allocates on touch: it costs only what is in use. */
    alloc->pages = calloc(page_count, sizeof(*alloc->pages));
    alloc->claimed = calloc(page_count / 64 + 1, sizeof(*alloc->claimed));
    if (alloc->pages == NULL || alloc->claimed == NULL) {
        sl_alloc_destroy(&alloc);
        return sl_fail(why, SL_ERR_NO_MEMORY, "allocator tables of %" PRIu64 " pages", page_count);
    }
    for (uint32_t i = 0; i < ALLOC_COARSE * ALLOC_FINE; i++) {
        alloc->heads[i / ALLOC_FINE][i % ALLOC_FINE] = ALLOC_NONE;
    }
    for (uint32_t i = 0; i < ALLOC_PAGE_UNITS; i++) {
        alloc->slabs[i] = ALLOC_NONE;
    }
    *out = alloc;
    return SL_OK;
}

void sl_alloc_destroy(struct sl_alloc **alloc)
{
    if (alloc == NULL || *alloc == NULL) {
        return;
    }
    free((*alloc)->pages);
    free((*alloc)->claimed);
    free(*alloc);
    *alloc = NULL;
}

void sl_alloc_grow(struct sl_alloc *alloc, uint64_t populated_bytes)
{
    uint32_t pages = (uint32_t)SL_MIN(populated_bytes / SL_PAGE_BYTES, alloc->page_count);
    if (pages <= alloc->usable_pages) {
        return;
    }
    if (alloc->settled) {
        pages = alloc_open_pages(alloc, alloc->usable_pages, pages);
    }
    alloc->usable_pages = pages;
}

void sl_alloc_shrink(struct sl_alloc *alloc, uint64_t usable_bytes)
{
    uint32_t from = (uint32_t)SL_MIN(usable_bytes / SL_PAGE_BYTES, alloc->page_count);
    alloc_settle(alloc);
    if (from >= alloc->usable_pages) {
        return;
    }
    uint32_t at = from / alloc->chunk_pages * alloc->chunk_pages;
    while (at + piece_pages(alloc, at) <= from) {
        at += piece_pages(alloc, at);
    }
    if (at < from && alloc->pages[at].kind == PAGE_FREE) { /* split */
        uint32_t pages = alloc->pages[at].run;
        run_unlink(alloc, at);
        pages_forget(alloc, from, pages - (from - at));
        run_link(alloc, at, from - at);
        at += pages;
    } else if (at < from) {
        at += piece_pages(alloc, at);
        from = at;
    }
    while (at < alloc->usable_pages) {
        uint32_t pages = piece_pages(alloc, at);
        piece_close(alloc, at, pages);
        at += pages;
    }
    alloc->usable_pages = from;
}

uint64_t sl_alloc_end_bytes(struct sl_alloc *alloc)
{
    uint32_t end = SL_MAX(alloc->closed_end, alloc->usable_pages);
    while (end > alloc->usable_pages && !page_claimed(alloc, end - 1)) {
        bool skip =
            end % 64 == 0 && end - 64 >= alloc->usable_pages && alloc->claimed[end / 64 - 1] == 0;
        end -= skip ? 64 : 1;
    }
    alloc->closed_end = end;
    return (uint64_t)end * SL_PAGE_BYTES;
}

/* ---- the interface ---- */

static bool length_is_small(uint64_t length_bytes)
{
    return length_bytes <= SL_PAGE_BYTES - ALLOC_UNIT_BYTES;
}

static uint32_t units_of(uint64_t length_bytes)
{
    return (uint32_t)((length_bytes + ALLOC_UNIT_BYTES - 1) / ALLOC_UNIT_BYTES);
}

static uint32_t pages_of(uint64_t length_bytes)
{
    return (uint32_t)((length_bytes + SL_PAGE_BYTES - 1) / SL_PAGE_BYTES);
}

sl_err sl_alloc_take(struct sl_alloc *alloc, uint64_t length_bytes, uint64_t *offset_bytes)
{
    if (length_bytes == 0 || length_bytes > (uint64_t)alloc->chunk_pages * SL_PAGE_BYTES) {
        return SL_ERR_INVALID;
    }
    alloc_settle(alloc);
    if (length_is_small(length_bytes)) {
        sl_err err = slab_take(alloc, units_of(length_bytes), offset_bytes);
        if (err != SL_OK) {
            return err;
        }
    } else {
        uint32_t start = run_take(alloc, pages_of(length_bytes));
        if (start == ALLOC_NONE) {
            return SL_ERR_NO_SPACE;
        }
        *offset_bytes = (uint64_t)start * SL_PAGE_BYTES;
    }
    alloc->used_bytes += sl_extent_space(length_bytes);
    alloc->extent_count++;
    return SL_OK;
}

void sl_alloc_free(struct sl_alloc *alloc, uint64_t offset_bytes, uint64_t length_bytes)
{
    uint64_t page = offset_bytes / SL_PAGE_BYTES;
    alloc_settle(alloc);
    SL_ASSERT(length_bytes > 0);
    SL_ASSERT(page < alloc->page_count);
    if (alloc->pages[page].closed != 0) {
        closed_give(alloc, offset_bytes, length_bytes);
    } else if (length_is_small(length_bytes)) {
        slab_give(alloc, offset_bytes, units_of(length_bytes));
    } else {
        SL_ASSERT(offset_bytes % SL_PAGE_BYTES == 0);
        SL_ASSERT(alloc->pages[page].kind == PAGE_USED); /* otherwise freed twice */
        SL_ASSERT(alloc->pages[page].run == pages_of(length_bytes));
        run_free(alloc, (uint32_t)page, pages_of(length_bytes));
    }
    alloc->used_bytes -= sl_extent_space(length_bytes);
    alloc->extent_count--;
}

void sl_alloc_fetch(const struct sl_alloc *alloc, uint64_t offset_bytes)
{
    uint64_t page = offset_bytes / SL_PAGE_BYTES;
    if (page < alloc->page_count) {
        __builtin_prefetch(&alloc->pages[page], 1);
    }
}

/* *counts: whether it is the first claim of this extent. */
static sl_err claim_small(struct sl_alloc *alloc, uint64_t offset_bytes, uint32_t units,
                          bool *counts)
{
    uint32_t page = (uint32_t)(offset_bytes / SL_PAGE_BYTES);
    uint64_t within = offset_bytes % SL_PAGE_BYTES;
    uint32_t slot = (uint32_t)(within / ALLOC_UNIT_BYTES / units);
    struct page *slab = &alloc->pages[page];
    if (within % (units * ALLOC_UNIT_BYTES) != 0 || slot >= ALLOC_PAGE_UNITS / units) {
        return SL_ERR_CORRUPT;
    }
    if (!page_claimed(alloc, page)) {
        pages_claim(alloc, page, 1);
        slab_open(alloc, page, units);
    } else if (slab->kind != PAGE_SLAB || slab->units != units) {
        return SL_ERR_CORRUPT;
    }
    *counts = (slab->slots >> slot & 1) != 0;
    if (*counts) {
        slab_take_slot(alloc, page, slot);
    }
    return SL_OK;
}

static sl_err claim_pages(struct sl_alloc *alloc, uint64_t offset_bytes, uint32_t pages,
                          bool *counts)
{
    uint32_t start = (uint32_t)(offset_bytes / SL_PAGE_BYTES);
    if (offset_bytes % SL_PAGE_BYTES != 0 || pages > alloc->page_count - start ||
        start % alloc->chunk_pages + pages > alloc->chunk_pages) {
        return SL_ERR_CORRUPT;
    }
    if (page_claimed(alloc, start) && alloc->pages[start].kind == PAGE_USED &&
        alloc->pages[start].run == pages) {
        *counts = false;
        return SL_OK;
    }
    for (uint32_t i = start; i < start + pages; i++) {
        if (page_claimed(alloc, i)) {
            return SL_ERR_CORRUPT;
        }
    }
    pages_claim(alloc, start, pages);
    run_mark_used(alloc, start, pages);
    *counts = true;
    return SL_OK;
}

sl_err sl_alloc_claim(struct sl_alloc *alloc, uint64_t offset_bytes, uint64_t length_bytes)
{
    bool counts = false;
    if (alloc->settled) {
        return SL_ERR_INVALID;
    }
    if (length_bytes == 0 || length_bytes > (uint64_t)alloc->chunk_pages * SL_PAGE_BYTES ||
        offset_bytes / SL_PAGE_BYTES >= alloc->page_count) {
        return SL_ERR_CORRUPT;
    }
    sl_err err = length_is_small(length_bytes)
                     ? claim_small(alloc, offset_bytes, units_of(length_bytes), &counts)
                     : claim_pages(alloc, offset_bytes, pages_of(length_bytes), &counts);
    if (err == SL_OK && counts) {
        alloc->used_bytes += sl_extent_space(length_bytes);
        alloc->extent_count++;
    }
    return err;
}

void sl_alloc_stats(const struct sl_alloc *alloc, struct sl_alloc_stats *out)
{
    *out = (struct sl_alloc_stats){.usable_bytes = (uint64_t)alloc->usable_pages * SL_PAGE_BYTES,
                                   .used_bytes = alloc->used_bytes,
                                   .extent_count = alloc->extent_count};
    uint64_t opened_bytes = alloc->used_bytes - alloc->closed_bytes;
    out->free_bytes = out->usable_bytes - SL_MIN(out->usable_bytes, opened_bytes);
}
