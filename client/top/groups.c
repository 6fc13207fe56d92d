/* client/top/groups.c - see the header. */
#include "client/top/groups.h"
#include "runtime/sl_base.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MODEL_DIGITS 32u /* of our own keys: MODEL/BLOCK/RANK/POOL */

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

/* ---- the table ---- */

sl_err top_groups_init(struct top_groups *groups, struct sl_error *why)
{
    *groups = (struct top_groups){.rows = calloc(TOP_GROUPS_MAX + 1, sizeof(struct top_group))};
    return groups->rows != NULL ? SL_OK
                                : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for groups of keys");
}

void top_groups_fini(struct top_groups *groups)
{
    free(groups->rows);
    groups->rows = NULL;
}

void top_groups_clear(struct top_groups *groups)
{
    groups->count = 0;
    memset(groups->slots, 0, sizeof groups->slots);
    memset(groups->rows, 0, (TOP_GROUPS_MAX + 1) * sizeof(struct top_group));
}

/* The slot of that name, or the free one where it belongs. */
static uint32_t slot_of(const struct top_groups *groups, const char *name)
{
    uint32_t slot = (uint32_t)XXH3_64bits(name, strlen(name)) & (TOP_GROUP_SLOTS - 1);
    while (groups->slots[slot] != 0 &&
           strcmp(groups->rows[groups->slots[slot] - 1].name, name) != 0) {
        slot = (slot + 1) & (TOP_GROUP_SLOTS - 1);
    }
    return slot;
}

struct top_group *top_groups_find(const struct top_groups *groups, const char *name)
{
    uint32_t number = groups->slots[slot_of(groups, name)];
    if (number == 0 && groups->count > TOP_GROUPS_MAX &&
        strcmp(groups->rows[TOP_GROUPS_MAX].name, name) == 0) {
        number = TOP_GROUPS_MAX + 1;
    }
    return number != 0 ? &groups->rows[number - 1] : NULL;
}

struct top_group *top_groups_of(struct top_groups *groups, const char *name)
{
    uint32_t slot = slot_of(groups, name);
    if (groups->slots[slot] != 0) {
        return &groups->rows[groups->slots[slot] - 1];
    }
    if (groups->count >= TOP_GROUPS_MAX) { /* one place is left for these */
        groups->count = TOP_GROUPS_MAX + 1;
        (void)snprintf(groups->rows[TOP_GROUPS_MAX].name, TOP_GROUP_BYTES, "(others)");
        return &groups->rows[TOP_GROUPS_MAX];
    }
    struct top_group *group = &groups->rows[groups->count++];
    (void)snprintf(group->name, sizeof group->name, "%s", name);
    groups->slots[slot] = (uint16_t)groups->count;
    return group;
}
