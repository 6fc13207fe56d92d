/* client/store/store_keys.c - keys: the prefix of a tenant, and keys that a batch has twice.
 *
 * A key of the default tenant is itself, unless it begins with the mark; all others are mark,
 * tenant, mark, key. A tenant's name has no mark, so no two tenants' keys ever meet. */
#include "client/store/store_internal.h"

#include <stdlib.h>
#include <string.h>

static struct sl_object_key *key_at(struct sl_object_key *keys, uint32_t index, size_t stride_bytes)
{
    return (struct sl_object_key *)((char *)keys + index * stride_bytes);
}

static const struct sl_object_key *key_seen(const struct sl_object_key *keys, uint32_t index,
                                            size_t stride_bytes)
{
    return (const struct sl_object_key *)((const char *)keys + index * stride_bytes);
}

/* No key: its address tells store_key_code() why. */
static struct sl_object_key key_bad(bool empty)
{
    return (struct sl_object_key){.at = empty ? "" : NULL, .length = 0};
}

int store_key_code(struct sl_object_key mapped)
{
    return mapped.at == NULL ? SL_STORE_BAD_KEY : SL_STORE_INVALID;
}

int store_key_absent(struct sl_object_key mapped)
{
    return mapped.at == NULL ? SL_STORE_NOT_FOUND : SL_STORE_INVALID;
}

static bool key_is_plain(const struct store_base *base, struct sl_object_key key)
{
    return base->prefix_length == 0 && key.at[0] != STORE_TENANT_MARK;
}

/* The prefix of the default tenant where it needs one. */
static const char default_prefix[] = {STORE_TENANT_MARK, STORE_TENANT_MARK};

static uint32_t prefix_of(const struct store_base *base, const char **out)
{
    *out = base->prefix_length == 0 ? default_prefix : base->prefix;
    return base->prefix_length == 0 ? (uint32_t)sizeof default_prefix : base->prefix_length;
}

bool store_keys_map(const struct store_base *base, struct sl_object_key *keys, uint32_t count,
                    size_t stride_bytes, char **room)
{
    const char *prefix;
    uint32_t prefix_length = prefix_of(base, &prefix);
    size_t needed = 0;
    *room = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_object_key *key = key_at(keys, i, stride_bytes);
        if (key->length == 0 || key->length > STORE_KEY_BYTES_MAX ||
            memchr(key->at, 0, key->length) != NULL) {
            *key = key_bad(key->length == 0);
        } else if (!key_is_plain(base, *key)) {
            needed += (size_t)key->length + prefix_length;
        }
    }
    if (needed == 0) {
        return true;
    }
    char *to = *room = malloc(needed);
    if (to == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sl_object_key *key = key_at(keys, i, stride_bytes);
        if (key->length == 0 || key_is_plain(base, *key)) {
            continue;
        }
        if (key->length + prefix_length > STORE_KEY_BYTES_MAX) {
            *key = key_bad(false);
            continue;
        }
        memcpy(to, prefix, prefix_length);
        memcpy(to + prefix_length, key->at, key->length);
        *key = (struct sl_object_key){.at = to, .length = key->length + prefix_length};
        to += key->length;
    }
    return true;
}

bool store_groups_map(const struct store_base *base, struct sl_pieces *items, uint32_t count,
                      char **room)
{
    size_t needed = 0;
    *room = NULL;
    for (uint32_t i = 0; base->prefix_length != 0 && i < count; i++) {
        needed +=
            items[i].bundle.length == 0 ? 0 : (size_t)items[i].bundle.length + base->prefix_length;
    }
    char *to = *room = needed == 0 ? NULL : malloc(needed);
    if (needed == 0 || to == NULL) {
        return needed == 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sl_object_key *bundle = &items[i].bundle;
        if (bundle->length == 0) {
            continue;
        }
        memcpy(to, base->prefix, base->prefix_length);
        memcpy(to + base->prefix_length, bundle->at, bundle->length);
        *bundle = (struct sl_object_key){.at = to, .length = bundle->length + base->prefix_length};
        to += bundle->length;
    }
    return true;
}

bool store_key_own(const struct store_base *base, struct sl_object_key key,
                   struct sl_object_key *own)
{
    *own = key;
    if (base->prefix_length == 0 && key.at[0] != STORE_TENANT_MARK) {
        return true;
    }
    const char *prefix;
    uint32_t prefix_length = prefix_of(base, &prefix);
    if (key.length <= prefix_length || memcmp(key.at, prefix, prefix_length) != 0) {
        return false;
    }
    own->at += prefix_length;
    own->length -= prefix_length;
    return true;
}

/* ---- twice the same ---- */

#define HASH_MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

uint64_t store_key_hash(struct sl_object_key key)
{
    uint64_t hash = key.length * HASH_MULTIPLIER;
    uint32_t at = 0;
    for (; at + sizeof(uint64_t) <= key.length; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, key.at + at, sizeof word);
        hash = (hash ^ word) * HASH_MULTIPLIER;
        hash ^= hash >> 32;
    }
    uint64_t word = 0;
    memcpy(&word, key.at + at, key.length - at);
    hash = (hash ^ word) * HASH_MULTIPLIER;
    return hash ^ hash >> 29;
}

static bool same_key(const struct sl_object_key *left, const struct sl_object_key *right)
{
    return left->length == right->length && left->length != 0 &&
           memcmp(left->at, right->at, left->length) == 0;
}

#define DUPLICATES_PLAIN 8u /* below, every pair is compared */

static bool duplicates_of_few(const struct sl_object_key *keys, size_t stride_bytes, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (same_key(key_seen(keys, i, stride_bytes), key_seen(keys, j, stride_bytes))) {
                return true;
            }
        }
    }
    return false;
}

/* Probes end: chains of a hostile batch, whose hashes are alike, cost count steps each at most. */
bool store_duplicates(const struct sl_object_key *keys, size_t stride_bytes, uint32_t count,
                      uint32_t **later, bool *any)
{
    *later = NULL;
    *any = false;
    if (count <= DUPLICATES_PLAIN && !duplicates_of_few(keys, stride_bytes, count)) {
        return true;
    }
    size_t slots = 16;
    while (slots < (size_t)count * 2) {
        slots *= 2;
    }
    uint32_t *table = calloc(slots, sizeof *table); /* index + 1 */
    *later = malloc(((size_t)count + 1) * sizeof **later);
    if (table == NULL || *later == NULL) {
        free(table);
        free(*later);
        *later = NULL;
        return false;
    }
    uint64_t seed = store_random() | 1;
    for (uint32_t i = count; i-- > 0;) { /* backwards: the last one is met first */
        const struct sl_object_key *key = key_seen(keys, i, stride_bytes);
        (*later)[i] = i;
        if (key->length == 0) {
            continue;
        }
        size_t slot = (size_t)((store_key_hash(*key) * seed) >> 20) & (slots - 1);
        while (table[slot] != 0 && !same_key(key, key_seen(keys, table[slot] - 1, stride_bytes))) {
            slot = (slot + 1) & (slots - 1);
        }
        if (table[slot] != 0) {
            (*later)[i] = table[slot] - 1;
            *any = true;
        } else {
            table[slot] = i + 1;
        }
    }
    free(table);
    return true;
}
