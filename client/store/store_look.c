/* client/store/store_look.c - existence, size, descriptors, removal. */
#include "client/store/store_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void codes_fill(int *codes, uint32_t count, int code)
{
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = code;
    }
}

/* ---- existence and size ---- */

static void exist_share(struct store_base *base, const struct sl_object_key *keys, uint32_t count,
                        sl_err *errs, int *codes)
{
    sl_err err = sl_exists_batch(base->client, keys, count, errs);
    for (uint32_t i = 0; i < count; i++) {
        sl_err one = err != SL_OK ? err : errs[i];
        if (keys[i].length == 0) {
            codes[i] = store_key_code(keys[i]);
        } else {
            codes[i] = one == SL_OK              ? 1
                       : one == SL_ERR_NOT_FOUND ? 0
                       : one == SL_ERR_BUSY      ? 0 /* written, and not there yet */
                                                 : sl_store_code_of(one);
        }
        codes[i] = base->dummy && codes[i] < 0 ? SL_STORE_INTERNAL : codes[i];
    }
}

void sl_store_exist(struct sl_store *store, struct sl_object_key *keys, uint32_t count, int *codes)
{
    struct store_base *base = count == 0 ? NULL : store_enter(store);
    char *room = NULL;
    sl_err *errs = malloc((SL_MIN(count, STORE_BATCH_MAX) + (size_t)1) * sizeof *errs);
    if (base == NULL || errs == NULL || !store_keys_map(base, keys, count, sizeof *keys, &room)) {
        codes_fill(codes, count, base == NULL ? SL_STORE_INVALID : SL_STORE_NO_BUFFER);
    } else {
        for (uint32_t first = 0; first < count; first += STORE_BATCH_MAX) {
            exist_share(base, keys + first, SL_MIN(count - first, STORE_BATCH_MAX), errs,
                        codes + first);
        }
    }
    free(errs);
    free(room);
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
    char *room = NULL;
    uint64_t length_bytes = 0;
    int64_t result = SL_STORE_NO_BUFFER;
    if (store_keys_map(base, &key, 1, sizeof key, &room)) {
        sl_err err = key.length == 0 ? SL_OK : sl_size(base->client, key, &length_bytes);
        result = key.length == 0 ? store_key_code(key)
                 : err != SL_OK  ? sl_store_code_of(err)
                                 : (int64_t)length_bytes;
    }
    free(room);
    store_leave(base);
    return result;
}

/* ---- descriptors ---- */

struct describing {
    struct sl_stat *stats;
    sl_err *errs;
    struct sl_contribution_info infos[SL_CONTRIBUTIONS_MAX];
    uint32_t info_count;
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
            (void)snprintf(replica.segment, sizeof replica.segment, "%s", info->name);
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

static bool describe(const struct describing *describing, struct store_base *base, uint32_t item)
{
    const struct sl_stat *stat = &describing->stats[item];
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
    }
    for (uint32_t i = 0; i < count; i++) {
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
    char *room = NULL;
    int code = SL_STORE_NO_BUFFER;
    struct describing *describing = calloc(1, sizeof *describing);
    if (describing != NULL) {
        describing->each = each;
        describing->context = context;
        describing->stats = calloc((size_t)count + 1, sizeof *describing->stats);
        describing->errs = malloc(((size_t)count + 1) * sizeof *describing->errs);
        if (describing->stats != NULL && describing->errs != NULL &&
            store_keys_map(base, keys, count, sizeof *keys, &room)) {
            code = describe_all(base, describing, keys, count);
        }
        free(describing->stats);
        free(describing->errs);
    }
    free(describing);
    free(room);
    store_leave(base);
    return code;
}
