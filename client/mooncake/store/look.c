/* client/mooncake/store/look.c - existence, size, descriptors, removal. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- other nodes ---- */

/* How many of errs are misses of keys that may be elsewhere; their places in misses. */
static uint32_t misses_list(const struct sl_object_key *keys, uint32_t count, const sl_err *errs,
                            uint32_t *misses)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (errs[i] == SL_ERR_NOT_FOUND && keys[i].length != 0) {
            misses[missing++] = i;
        }
    }
    return missing;
}

void store_seek(struct store_base *base, const struct sl_object_key *keys, uint32_t count,
                sl_err *errs, struct sl_elsewhere *found)
{
    if (!sl_client_has_peers(base->client)) {
        return;
    }
    size_t room = (size_t)count + 1;
    uint32_t *misses = malloc(room * sizeof *misses);
    struct sl_object_key *asked = malloc(room * sizeof *asked);
    struct sl_elsewhere *answers = malloc(room * sizeof *answers);
    sl_err *codes = malloc(room * sizeof *codes);
    uint32_t missing = 0;
    if (misses != NULL && asked != NULL && answers != NULL && codes != NULL) {
        missing = misses_list(keys, count, errs, misses);
    }
    for (uint32_t i = 0; i < missing; i++) {
        asked[i] = keys[misses[i]];
    }
    if (missing > 0 &&
        sl_seek_batch(base->client, asked, missing, answers, codes, 0, NULL) == SL_OK) {
        for (uint32_t i = 0; i < missing; i++) {
            errs[misses[i]] = codes[i] == SL_OK ? SL_OK : SL_ERR_NOT_FOUND;
            if (codes[i] == SL_OK && found != NULL) {
                found[misses[i]] = answers[i];
            }
        }
    }
    free(misses);
    free(asked);
    free(answers);
    free(codes);
}

/* ---- existence and size ---- */

static int exist_code_of(sl_err err)
{
    switch (err) {
    case SL_OK:
        return 1;
    case SL_ERR_NOT_FOUND:
    case SL_ERR_BUSY: /* being written, and not there yet */
        return 0;
    default:
        return sl_store_code_of(err);
    }
}

static int exist_none(struct sl_object_key mapped)
{
    int code = store_key_absent(mapped);
    return code == SL_STORE_NOT_FOUND ? 0 : code;
}

static void exist_share(struct store_base *base, const struct sl_object_key *keys, uint32_t count,
                        sl_err *errs, int *codes)
{
    sl_err err = sl_exists_batch(base->client, keys, count, errs);
    if (err == SL_OK) {
        store_seek(base, keys, count, errs, NULL);
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] =
            keys[i].length == 0 ? exist_none(keys[i]) : exist_code_of(err != SL_OK ? err : errs[i]);
        codes[i] = base->dummy && codes[i] < 0 ? SL_STORE_INTERNAL : codes[i];
        codes[i] = codes[i] == 1 && store_doubted(base, keys[i]) ? 0 : codes[i];
    }
}

void sl_store_exist(struct sl_store *store, struct sl_object_key *keys, uint32_t count, int *codes)
{
    struct store_base *base = count == 0 ? NULL : store_enter(store);
    struct store_names names = {.room = NULL};
    sl_err *errs = malloc((SL_MIN(count, STORE_BATCH_MAX) + (size_t)1) * sizeof *errs);
    if (base == NULL || errs == NULL || !store_keys_map(base, keys, count, sizeof *keys, &names)) {
        store_codes_fill(codes, count, base == NULL ? 0 : SL_STORE_NO_BUFFER);
    } else {
        for (uint32_t first = 0; first < count; first += STORE_BATCH_MAX) {
            exist_share(base, keys + first, SL_MIN(count - first, STORE_BATCH_MAX), errs,
                        codes + first);
        }
    }
    free(errs);
    store_names_free(&names);
    if (base != NULL) {
        store_leave(base);
    }
}

int64_t sl_store_size(struct sl_store *store, struct sl_object_key key)
{
    struct store_base *base = store_enter(store);
    if (base == NULL) {
        return SL_STORE_INVALID;
    }
    struct store_names names = {.room = NULL};
    uint64_t length_bytes = 0;
    int64_t result = SL_STORE_NO_BUFFER;
    if (store_keys_map(base, &key, 1, sizeof key, &names)) {
        struct sl_elsewhere other = {.length_bytes = 0};
        sl_err err = key.length == 0 ? SL_OK : sl_size(base->client, key, &length_bytes);
        if (err == SL_ERR_NOT_FOUND) {
            store_seek(base, &key, 1, &err, &other);
            length_bytes = other.length_bytes;
        }
        result = key.length == 0 ? store_key_absent(key)
                 : err != SL_OK  ? sl_store_code_of(err)
                                 : (int64_t)store_head_less(&names, 0, length_bytes);
    }
    store_names_free(&names);
    store_leave(base);
    return result;
}

/* ---- descriptors ---- */

struct describing {
    struct sl_stat *stats;
    struct sl_elsewhere *others; /* node "": it is here */
    sl_err *errs;
    struct sl_contribution_info infos[SL_CONTRIBUTIONS_MAX];
    uint32_t info_count;
    struct store_names names;
    bool (*each)(void *context, uint32_t item, const struct sl_store_replica *replica);
    void *context;
};

static bool describe_memory(const struct describing *describing, struct store_base *base,
                            uint32_t item)
{
    const struct sl_stat *stat = &describing->stats[item];
    struct sl_store_replica replica = {.in_memory = true, .length_bytes = stat->length_bytes};
    bool any = false;
    for (uint32_t i = 0; i < describing->info_count; i++) {
        const struct sl_contribution_info *info = &describing->infos[i];
        if (info->number < SL_CONTRIBUTIONS_MAX && (stat->contributions >> info->number & 1) != 0) {
            (void)snprintf(replica.segment, sizeof replica.segment, "%.*s",
                           (int)store_segment_host_length(info->name), info->name);
            any = true;
            if (!describing->each(describing->context, item, &replica)) {
                return false;
            }
        }
    }
    if (any) {
        return true;
    }
    /* A node without contributions. */
    (void)snprintf(replica.segment, sizeof replica.segment, "%s", sl_client_instance(base->client));
    return describing->each(describing->context, item, &replica);
}

static bool describe_other(const struct describing *describing, uint32_t item)
{
    const struct sl_elsewhere *other = &describing->others[item];
    struct sl_store_replica replica = {.in_memory = other->in_memory,
                                       .length_bytes = other->length_bytes};
    (void)snprintf(replica.segment, sizeof replica.segment, "%s", other->node);
    return describing->each(describing->context, item, &replica);
}

static bool describe(const struct describing *describing, struct store_base *base, uint32_t item)
{
    const struct sl_stat *stat = &describing->stats[item];
    if (describing->others[item].node[0] != '\0') {
        return describe_other(describing, item);
    }
    struct sl_store_replica disk = {.in_memory = false, .length_bytes = stat->length_bytes};
    if (stat->in_memory && !describe_memory(describing, base, item)) {
        return false;
    }
    (void)snprintf(disk.segment, sizeof disk.segment, "%s", sl_client_instance(base->client));
    return !stat->on_disk || describing->each(describing->context, item, &disk);
}

/* Of a node without them there are none. */
static void contributions_ask(struct store_base *base, struct describing *describing)
{
    uint32_t count = SL_CONTRIBUTIONS_MAX;
    if (sl_contributions(base->client, describing->infos, &count, 0, NULL) == SL_OK) {
        describing->info_count = SL_MIN(count, SL_CONTRIBUTIONS_MAX);
    }
}

static int describe_all(struct store_base *base, struct describing *describing,
                        const struct sl_object_key *keys, uint32_t count)
{
    contributions_ask(base, describing);
    for (uint32_t first = 0; first < count; first += STORE_BATCH_MAX) {
        uint32_t share = SL_MIN(count - first, STORE_BATCH_MAX);
        sl_err err = sl_stat_batch(base->client, keys + first, share, describing->stats + first,
                                   describing->errs + first);
        if (err != SL_OK) {
            return sl_store_code_of(err);
        }
        store_seek(base, keys + first, share, describing->errs + first, describing->others + first);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t *here = &describing->stats[i].length_bytes;
        uint64_t *there = &describing->others[i].length_bytes;
        *here = store_head_less(&describing->names, i, *here);
        *there = store_head_less(&describing->names, i, *there);
        if (keys[i].length != 0 && describing->errs[i] == SL_OK && !describe(describing, base, i)) {
            return SL_STORE_INTERNAL;
        }
    }
    return SL_STORE_OK;
}

int sl_store_replicas(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                      bool (*each)(void *context, uint32_t item,
                                   const struct sl_store_replica *replica),
                      void *context)
{
    struct store_base *base = store_enter(store);
    if (base == NULL) {
        return SL_STORE_INVALID;
    }
    int code = SL_STORE_NO_BUFFER;
    struct describing *describing = calloc(1, sizeof *describing);
    if (describing != NULL) {
        describing->each = each;
        describing->context = context;
        describing->stats = calloc((size_t)count + 1, sizeof *describing->stats);
        describing->others = calloc((size_t)count + 1, sizeof *describing->others);
        describing->errs = malloc(((size_t)count + 1) * sizeof *describing->errs);
        if (describing->stats != NULL && describing->others != NULL && describing->errs != NULL &&
            store_keys_map(base, keys, count, sizeof *keys, &describing->names)) {
            code = describe_all(base, describing, keys, count);
        }
        store_names_free(&describing->names);
        free(describing->stats);
        free(describing->others);
        free(describing->errs);
    }
    free(describing);
    store_leave(base);
    return code;
}
