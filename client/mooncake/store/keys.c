/* client/mooncake/store/keys.c - maps keys of a batch to the node's names, and finds duplicates. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static struct sl_object_key *key_at(struct sl_object_key *keys, uint32_t index, size_t stride_bytes)
{
    return (struct sl_object_key *)((char *)keys + index * stride_bytes);
}

/* An invalid key; store_key_code() derives the reason from its address. */
static struct sl_object_key key_invalid(bool empty)
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

struct sl_store_prefix store_tenant(const struct store_base *base)
{
    return (struct sl_store_prefix){.at = base->prefix, .length = base->prefix_length};
}

/* How a key is named on the node: by prefix and key, or by digest. A plain name without prefix is
 * the key. */
struct naming {
    struct sl_store_prefix prefix;
    bool plain; /* false: by digest */
};

static struct naming naming_of(struct sl_store_prefix tenant, struct sl_object_key key)
{
    const struct sl_store_prefix prefix = sl_store_prefix_of(tenant, key);
    return (struct naming){prefix, sl_store_key_plain(prefix, key)};
}

/* Returns how many bytes the names need; marks invalid keys. */
static size_t names_measure(struct sl_store_prefix tenant, struct sl_object_key *keys,
                            uint32_t count, size_t stride_bytes)
{
    size_t needed = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_object_key *key = key_at(keys, i, stride_bytes);
        if (key->length == 0 || key->length > SL_STORE_KEY_BYTES_MAX) {
            *key = key_invalid(key->length == 0);
            continue;
        }
        const struct naming naming = naming_of(tenant, *key);
        needed += !naming.plain               ? tenant.length + 2u + SL_STORE_DIGEST_NAME_BYTES
                  : naming.prefix.length != 0 ? (size_t)naming.prefix.length + key->length
                                              : 0;
    }
    return needed;
}

bool store_keys_map(const struct store_base *base, struct sl_object_key *keys, uint32_t count,
                    size_t stride_bytes, char **names)
{
    const struct sl_store_prefix tenant = store_tenant(base);
    size_t needed = names_measure(tenant, keys, count, stride_bytes);
    char *to = *names = needed == 0 ? NULL : malloc(needed);
    for (uint32_t i = 0; to != NULL && i < count; i++) {
        struct sl_object_key *key = key_at(keys, i, stride_bytes);
        const struct naming naming =
            key->length != 0 ? naming_of(tenant, *key) : (struct naming){.plain = true};
        if (naming.plain && naming.prefix.length == 0) {
            continue;
        }
        uint32_t length = naming.prefix.length + key->length;
        if (naming.plain) {
            memcpy(to, naming.prefix.at, naming.prefix.length);
            memcpy(to + naming.prefix.length, key->at, key->length);
        } else if ((length = sl_store_digest_name(tenant, *key, to)) == 0) {
            return false;
        }
        *key = (struct sl_object_key){.at = to, .length = length};
        to += length;
    }
    return needed == 0 || to != NULL;
}

/* ---- duplicates ---- */

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

/* Returns a random seed of hashes, so that no client can choose keys that collide. */
static uint64_t seed_new(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
        number = sl_clock_monotonic_ns() ^ (uint64_t)getpid(); /* no entropy yet */
    }
    return number | 1;
}

/* Sets later[i] to a later item with the same key, or i; *later is NULL if all keys differ. Items
 * with key.length 0 are skipped. Even if all hashes of a hostile batch collide, a probe takes at
 * most count steps. False: no memory. */
static bool duplicates_find(const struct sl_iov_list *items, uint32_t count, uint32_t **later)
{
    bool any = false;
    *later = NULL;
    if (count <= 1) {
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
    uint64_t seed = seed_new();
    for (uint32_t i = count; i-- > 0;) { /* backwards: the last item is entered first */
        const struct sl_object_key *key = &items[i].key;
        (*later)[i] = i;
        if (key->length == 0) {
            continue;
        }
        size_t slot = (size_t)((store_key_hash(*key) * seed) >> 20) & (slots - 1);
        while (table[slot] != 0 && !same_key(key, &items[table[slot] - 1].key)) {
            slot = (slot + 1) & (slots - 1);
        }
        if (table[slot] != 0) {
            (*later)[i] = table[slot] - 1;
            any = true;
        } else {
            table[slot] = i + 1;
        }
    }
    free(table);
    if (!any) {
        free(SL_TAKE(*later));
    }
    return true;
}

/* ---- items to write ---- */

/* Maps the bundles of items to the node's names; libsluice refuses those that are too long. */
static bool groups_map(const struct store_base *base, struct sl_iov_list *items, uint32_t count,
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

bool store_batch_map(const struct store_base *base, struct sl_iov_list *items, uint32_t count,
                     const struct sl_store_terms *terms, struct store_batch *batch)
{
    const struct sl_object_key none = {.length = 0};
    bool given = terms != NULL && terms->groups != NULL;
    for (uint32_t i = 0; i < count; i++) {
        items[i].bundle = given ? terms->groups[i] : none;
    }
    return store_keys_map(base, &items->key, count, sizeof *items, &batch->names) &&
           groups_map(base, items, count, &batch->bundles) &&
           duplicates_find(items, count, &batch->later);
}

void sl_auto_batch(void *at)
{
    struct store_batch *batch = at;
    free(batch->names);
    free(batch->bundles);
    free(batch->later);
}
