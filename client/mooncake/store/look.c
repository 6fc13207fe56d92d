/* client/mooncake/store/look.c - existence, size and descriptors of keys. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- other nodes ---- */

void store_seek(struct store_base *base, const struct sl_object_key *keys, uint32_t count,
                sl_err *errs, struct sl_remote_info *found)
{
    if (!sl_client_has_peers(base->client)) {
        return;
    }
    SL_AUTO(free) uint32_t *misses = store_calloc(count, sizeof *misses);
    SL_AUTO(free) struct sl_object_key *asked = store_calloc(count, sizeof *asked);
    SL_AUTO(free) struct sl_remote_info *answers = store_calloc(count, sizeof *answers);
    SL_AUTO(free) sl_err *codes = store_calloc(count, sizeof *codes);
    uint32_t missing = 0;
    if (misses == NULL || asked == NULL || answers == NULL || codes == NULL) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (errs[i] == SL_ERR_NOT_FOUND && keys[i].length != 0) {
            asked[missing] = keys[i];
            misses[missing++] = i;
        }
    }
    if (missing == 0 ||
        sl_remote_lookup_batch(base->client, asked, missing, answers, codes, 0, NULL) != SL_OK) {
        return;
    }
    for (uint32_t i = 0; i < missing; i++) {
        errs[misses[i]] = codes[i] == SL_OK ? SL_OK : SL_ERR_NOT_FOUND;
        if (codes[i] == SL_OK && found != NULL) {
            found[misses[i]] = answers[i];
        }
    }
}

/* ---- existence and size ---- */

/* A key that is being written does not exist yet. */
static int exist_code_of(int code)
{
    bool absent = code == SL_STORE_NOT_FOUND || code == SL_STORE_NOT_READY;
    return code == SL_STORE_OK ? 1 : absent ? 0 : code;
}

void sl_store_exist(struct sl_store *store, struct sl_object_key *keys, uint32_t count, int *codes)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    if (base == NULL || errs == NULL || !store_keys_map(base, keys, count, sizeof *keys, &names)) {
        store_codes_fill(codes, count, base == NULL ? 0 : SL_STORE_NO_BUFFER);
        return;
    }
    sl_err err = sl_exists_batch(base->client, keys, count, errs);
    if (err == SL_OK) {
        store_seek(base, keys, count, errs, NULL);
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] =
            exist_code_of(keys[i].length == 0 ? store_key_absent(keys[i])
                                              : sl_store_code_of(err != SL_OK ? err : errs[i]));
        codes[i] = base->dummy && codes[i] < 0 ? SL_STORE_INTERNAL : codes[i];
        codes[i] = codes[i] == 1 && store_doubted(base, keys[i]) ? 0 : codes[i];
    }
}

int64_t sl_store_size(struct sl_store *store, struct sl_object_key key)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    struct sl_remote_info other = {.length_bytes = 0};
    uint64_t length_bytes = 0;
    if (base == NULL || !store_keys_map(base, &key, 1, sizeof key, &names)) {
        return base == NULL ? SL_STORE_INVALID : SL_STORE_NO_BUFFER;
    }
    if (key.length == 0) {
        return store_key_absent(key);
    }
    sl_err err = sl_size(base->client, key, &length_bytes);
    if (err == SL_ERR_NOT_FOUND) {
        store_seek(base, &key, 1, &err, &other);
        length_bytes = other.length_bytes;
    }
    return err != SL_OK ? sl_store_code_of(err) : (int64_t)length_bytes;
}

/* ---- descriptors ---- */

/* Writes the segment's name: that of the contribution's host, or without one the node's. */
static void segment_name(const struct store_base *base, uint64_t contributions,
                         const struct sl_segment_info *infos, uint32_t info_count,
                         char name[SL_STORE_NAME_BYTES])
{
    (void)snprintf(name, SL_STORE_NAME_BYTES, "%s", sl_client_instance(base->client));
    for (uint32_t i = 0; i < info_count; i++) {
        if (infos[i].number < SL_CONTRIBUTIONS_MAX && (contributions >> infos[i].number & 1) != 0) {
            (void)snprintf(name, SL_STORE_NAME_BYTES, "%.*s",
                           (int)segment_host_length(infos[i].name), infos[i].name);
        }
    }
}

uint32_t store_contributions(struct sl_client *client, struct sl_segment_info *infos)
{
    uint32_t count = SL_CONTRIBUTIONS_MAX;
    if (sl_segments(client, infos, &count, 0, NULL) != SL_OK) {
        return 0;
    }
    return SL_MIN(count, SL_CONTRIBUTIONS_MAX);
}

int sl_store_replicas(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                      struct sl_store_replica *out)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free)
    struct sl_segment_info *infos = store_calloc(SL_CONTRIBUTIONS_MAX, sizeof *infos);
    SL_AUTO(free) struct sl_stat *stats = store_calloc(count, sizeof *stats);
    SL_AUTO(free)
    struct sl_remote_info *others =
        store_calloc(count, sizeof *others); /* node "": this node has it */
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    memset(out, 0, count * sizeof *out);
    if (base == NULL || infos == NULL || stats == NULL || others == NULL || errs == NULL ||
        !store_keys_map(base, keys, count, sizeof *keys, &names)) {
        return base == NULL ? SL_STORE_INVALID : SL_STORE_NO_BUFFER;
    }
    uint32_t info_count = store_contributions(base->client, infos);
    sl_err err = sl_stat_batch(base->client, keys, count, stats, errs);
    if (err != SL_OK) {
        return sl_store_code_of(err);
    }
    store_seek(base, keys, count, errs, others);
    for (uint32_t i = 0; i < count; i++) {
        bool here = others[i].node[0] == '\0';
        if (keys[i].length == 0 || errs[i] != SL_OK) {
            continue;
        }
        out[i].in_memory = here ? stats[i].in_memory : others[i].in_memory;
        out[i].on_disk = here ? stats[i].on_disk : !others[i].in_memory;
        out[i].length_bytes = here ? stats[i].length_bytes : others[i].length_bytes;
        (void)snprintf(out[i].segment, sizeof out[i].segment, "%s", others[i].node);
        if (here) {
            segment_name(base, stats[i].contributions, infos, info_count, out[i].segment);
        }
    }
    return SL_STORE_OK;
}
