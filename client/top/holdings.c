/* client/top/holdings.c - see the header. */
#include "client/top/holdings.h"
#include "ipc/sl_index.h"
#include "runtime/sl_base.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MODEL_DIGITS 32u                   /* of our own keys: MODEL/BLOCK/RANK/POOL */
#define SLOTS        (2u * TOP_GROUPS_MAX) /* of the table; a power of two */
#define LOOK_EVERY   256u                  /* objects between two looks at the clock */

struct top_holdings {
    char shm_dir[sizeof(((struct sl_paths *)0)->shm_dir)];
    struct sl_index_view *view;
    enum top_grouping grouping;
    uint64_t cursor;
    struct top_group *now, *last; /* TOP_GROUPS_MAX + 1 each: being filled, and the whole ones */
    uint32_t now_count, last_count;
    bool whole;
    uint16_t slots[SLOTS]; /* number of a group of now, + 1; 0: none */
};

/* ---- names ---- */

static const char *last_of(const char *key, uint32_t length)
{
    const char *found = NULL;
    for (uint32_t i = 0; i < length; i++) {
        found = key[i] == '/' || key[i] == '@' ? &key[i] : found;
    }
    return found;
}

static bool is_own(const char *key, uint32_t length)
{
    uint32_t i = 0;
    while (i < MODEL_DIGITS && i < length && isxdigit((unsigned char)key[i])) {
        i++;
    }
    return i == MODEL_DIGITS && i < length && key[i] == '/';
}

/* Bytes of a name that a terminal would take for orders are shown as '?'. */
static void name_add(char out[TOP_GROUP_BYTES], const char *from, size_t length)
{
    size_t at = strlen(out);
    for (size_t i = 0; i < length && at + 1 < TOP_GROUP_BYTES; i++) {
        unsigned char byte = (unsigned char)from[i];
        out[at++] = byte < 0x20 || byte >= 0x7f ? '?' : (char)byte;
    }
    out[at] = '\0';
}

void top_group_of(const char *key, uint32_t length, enum top_grouping grouping,
                  char out[TOP_GROUP_BYTES])
{
    out[0] = '\0';
    if (is_own(key, length)) {
        const char *rank = memchr(&key[MODEL_DIGITS + 1], '/', length - MODEL_DIGITS - 1);
        name_add(out, key, grouping == TOP_BY_MODEL ? MODEL_DIGITS : 12);
        if (grouping == TOP_BY_PREFIX && rank != NULL) {
            name_add(out, "/*", 2);
            name_add(out, rank, length - (size_t)(rank - key));
        }
        return;
    }
    const char *end = grouping == TOP_BY_PREFIX ? last_of(key, length) : memchr(key, '@', length);
    if (grouping == TOP_BY_MODEL && end != NULL &&
        (end - key == 4 || end - key == 6) && /* older keys of LMCache begin with the engine */
        (strncmp(key, "vllm@", 5) == 0 || strncmp(key, "sglang@", 7) == 0)) {
        const char *next = memchr(end + 1, '@', length - (size_t)(end + 1 - key));
        key = next != NULL ? end + 1 : key;
        end = next != NULL ? next : end;
    } else if (end == NULL && grouping == TOP_BY_MODEL) {
        end = memchr(key, '/', length);
    }
    if (end == NULL || end == key) {
        name_add(out, "(keys without a prefix)", 23);
    } else {
        name_add(out, key, (size_t)(end - key));
    }
}

/* ---- reading ---- */

sl_err top_holdings_create(const char *shm_dir, struct top_holdings **out, struct sl_error *why)
{
    struct top_holdings *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->now = calloc(TOP_GROUPS_MAX + 1, sizeof(struct top_group));
        made->last = calloc(TOP_GROUPS_MAX + 1, sizeof(struct top_group));
    }
    if (made == NULL || made->now == NULL || made->last == NULL) {
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
        free((*holdings)->now);
        free((*holdings)->last);
        free(*holdings);
        *holdings = NULL;
    }
}

static void anew(struct top_holdings *holdings)
{
    holdings->cursor = 0;
    holdings->now_count = 0;
    memset(holdings->slots, 0, sizeof holdings->slots);
    memset(holdings->now, 0, (TOP_GROUPS_MAX + 1) * sizeof(struct top_group));
}

static struct top_group *group_of(struct top_holdings *holdings, const char *name)
{
    uint32_t slot = (uint32_t)XXH3_64bits(name, strlen(name)) & (SLOTS - 1);
    while (holdings->slots[slot] != 0) {
        struct top_group *group = &holdings->now[holdings->slots[slot] - 1];
        if (strcmp(group->name, name) == 0) {
            return group;
        }
        slot = (slot + 1) & (SLOTS - 1);
    }
    if (holdings->now_count >= TOP_GROUPS_MAX) { /* one place is left for these */
        holdings->now_count = TOP_GROUPS_MAX + 1;
        (void)snprintf(holdings->now[TOP_GROUPS_MAX].name, TOP_GROUP_BYTES, "(others)");
        return &holdings->now[TOP_GROUPS_MAX];
    }
    struct top_group *group = &holdings->now[holdings->now_count++];
    (void)snprintf(group->name, sizeof group->name, "%s", name);
    holdings->slots[slot] = (uint16_t)holdings->now_count;
    return group;
}

static void entry_add(struct top_holdings *holdings, const struct sl_entry *entry)
{
    char name[TOP_GROUP_BYTES];
    top_group_of(entry->key, entry->key_length, holdings->grouping, name);
    struct top_group *group = group_of(holdings, name);
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
    qsort(holdings->now, holdings->now_count, sizeof(struct top_group), group_order);
    struct top_group *filled = holdings->now;
    holdings->now = holdings->last;
    holdings->last = filled;
    holdings->last_count = holdings->now_count;
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
        holdings->last_count = 0;
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
    *count = holdings->last_count;
    *whole = holdings->whole;
    return holdings->last;
}
