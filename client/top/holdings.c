/* client/top/holdings.c - see the header. */
#include "client/top/holdings.h"
#include "ipc/sl_index.h"
#include "runtime/sl_base.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY 256u /* objects between two looks at the clock */

struct top_holdings {
    char shm_dir[sizeof(((struct sl_paths *)0)->shm_dir)];
    struct sl_index_view *view;
    enum top_grouping grouping;
    uint64_t cursor;
    struct top_groups now, last; /* being filled, and the whole ones */
    bool whole;
};

/* ---- reading ---- */

sl_err top_holdings_create(const char *shm_dir, struct top_holdings **out, struct sl_error *why)
{
    struct top_holdings *made = calloc(1, sizeof *made);
    if (made == NULL || top_groups_init(&made->now, NULL) != SL_OK ||
        top_groups_init(&made->last, NULL) != SL_OK) {
        top_holdings_destroy(&made);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for groups of keys");
    }
    (void)snprintf(made->shm_dir, sizeof made->shm_dir, "%s", shm_dir);
    *out = made;
    return SL_OK;
}

void top_holdings_destroy(struct top_holdings **holdings)
{
    if (*holdings != NULL) {
        sl_index_view_close(&(*holdings)->view);
        top_groups_fini(&(*holdings)->now);
        top_groups_fini(&(*holdings)->last);
        free(*holdings);
        *holdings = NULL;
    }
}

static void anew(struct top_holdings *holdings)
{
    holdings->cursor = 0;
    top_groups_clear(&holdings->now);
}

static void entry_add(struct top_holdings *holdings, const struct sl_entry *entry)
{
    char name[TOP_GROUP_BYTES];
    top_group_of(entry->key, entry->key_length, holdings->grouping, name);
    struct top_group *group = top_groups_of(&holdings->now, name);
    group->objects++;
    group->memory_bytes +=
        entry->extent.generation != 0 ? sl_extent_space(entry->extent.length_bytes) : 0;
    group->disk_bytes += entry->disk.valid != 0 ? entry->extent.length_bytes : 0;
}

static int group_order(const void *left, const void *right)
{
    const struct top_group *a = left;
    const struct top_group *b = right;
    if (a->memory_bytes != b->memory_bytes) {
        return a->memory_bytes < b->memory_bytes ? 1 : -1;
    }
    if (a->disk_bytes != b->disk_bytes) {
        return a->disk_bytes < b->disk_bytes ? 1 : -1;
    }
    return strcmp(a->name, b->name);
}

static void pass_end(struct top_holdings *holdings)
{
    struct top_groups filled = holdings->now;
    qsort(filled.rows, filled.count, sizeof(struct top_group), group_order);
    holdings->now = holdings->last;
    holdings->last = filled;
    holdings->whole = true;
    anew(holdings);
}

sl_err top_holdings_read_on(struct top_holdings *holdings, enum top_grouping grouping,
                            uint64_t budget_ns, struct sl_error *why)
{
    char key[SL_KEY_BYTES_MAX + 1];
    struct sl_entry entry;
    const struct sl_index_view *before = holdings->view;
    sl_err err = sl_index_view_follow(holdings->shm_dir, &holdings->view, why);
    if (err != SL_OK) {
        return err;
    }
    if (holdings->view != before || holdings->grouping != grouping) {
        holdings->grouping = grouping;
        holdings->whole = false;
        top_groups_clear(&holdings->last);
        anew(holdings);
    }
    uint64_t until_ns = sl_deadline_ns(sl_clock_monotonic_ns(), budget_ns);
    for (uint32_t i = 1; sl_index_scan(holdings->view, &holdings->cursor, &entry, key); i++) {
        entry_add(holdings, &entry);
        if (i % LOOK_EVERY == 0 && sl_clock_monotonic_ns() >= until_ns) {
            return SL_OK;
        }
    }
    pass_end(holdings);
    return SL_OK;
}

const struct top_group *top_holdings_groups(const struct top_holdings *holdings, uint32_t *count,
                                            bool *whole)
{
    *count = holdings->last.count;
    *whole = holdings->whole;
    return holdings->last.rows;
}
