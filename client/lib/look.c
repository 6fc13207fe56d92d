/* client/lib/look.c - lookups without reading: existence, size, and the list of all keys. */
#include "client/lib/internal.h"

#include <stdlib.h>
#include <string.h>

struct looks { /* results of the lookups of one call */
    uint32_t found, missed, failed;
};

/* Counts what is rare: errors, and tenants. */
static void __attribute__((noinline))
looks_count_rest(struct sl_client *client, const struct sl_attachment *at,
                 const struct sl_reader *reader, const struct looks *looks)
{
    sl_count(sl_client_counts(at, reader), SL_COUNT_LOOK_FAILED, looks->failed);
    if (client->has_tenant) {
        struct sl_labels *labels = sl_client_labels(at);
        uint32_t label = sl_client_tenant_label(client, labels);
        sl_label_add(labels, label, reader->number, SL_LABEL_LOOK_FOUND, looks->found);
        sl_label_add(labels, label, reader->number, SL_LABEL_LOOK_MISSED, looks->missed);
        sl_label_add(labels, label, reader->number, SL_LABEL_LOOK_FAILED, looks->failed);
    }
}

static void looks_count(struct sl_client *client, const struct sl_attachment *at,
                        const struct sl_reader *reader, const sl_err *codes, uint32_t count)
{
    uint32_t found = 0, missed = 0;
    for (uint32_t i = 0; i < count; i++) {
        found += codes[i] == SL_OK;
        missed += codes[i] == SL_ERR_NOT_FOUND;
    }
    struct sl_counts_row row = sl_client_counts(at, reader);
    sl_count(row, SL_COUNT_LOOK_FOUND, found);
    sl_count(row, SL_COUNT_LOOK_MISSED, missed);
    if (__builtin_expect(found + missed != count || client->has_tenant, 0)) {
        const struct looks looks = {
            .found = found, .missed = missed, .failed = count - found - missed};
        looks_count_rest(client, at, reader, &looks);
    }
}

/* Reading a clock takes a third of the time of looking up one key. */
#define TIMED_EVERY 64u
#define TIMED_KEYS  256u /* from this number on a lookup is always timed */

/* The weight with which it counts; 0: this lookup is not timed. */
static inline uint32_t look_weight(uint32_t count)
{
    static _Thread_local uint32_t turn;
    if (__builtin_expect(turn == 0, 0)) { /* threads with one lookup each are sampled as often */
        turn = 1 + (uint32_t)((uintptr_t)&turn / SL_PAGE_BYTES) % TIMED_EVERY;
    }
    return count >= TIMED_KEYS ? 1 : turn++ % TIMED_EVERY == 0 ? TIMED_EVERY : 0;
}

static sl_err __attribute__((noinline))
exists_timed(struct sl_client *client, struct sl_object_key key)
{
    struct sl_entry entry;
    uint64_t begin_ns = sl_clock_monotonic_ns();
    sl_err err = sl_client_find(client, key, &entry);
    uint64_t ns = sl_clock_monotonic_ns() - begin_ns;
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(client);
    looks_count(client, at, reader, &err, 1);
    if (err == SL_OK || err == SL_ERR_NOT_FOUND) {
        sl_counts_time(sl_client_counts(at, reader), SL_TIMED_KEYS, ns, TIMED_EVERY);
    }
    return err;
}

sl_err sl_exists(struct sl_client *client, struct sl_object_key key)
{
    if (__builtin_expect(look_weight(1) != 0, 0)) {
        return exists_timed(client, key);
    }
    struct sl_entry entry;
    sl_err err = sl_client_find(client, key, &entry);
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    looks_count(client, sl_client_attachment(client), reader, &err, 1);
    return err;
}

#define EXISTS_GROUP 256u

sl_err sl_exists_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       sl_err *codes)
{
    if (count > SL_BATCH_MAX) {
        return SL_ERR_INVALID;
    }
    uint32_t weight = look_weight(count);
    uint64_t begin_ns = weight != 0 ? sl_clock_monotonic_ns() : 0;
    bool serves = sl_client_check_node_batch(client, codes, count, NULL);
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(client);
    bool late = false;
    for (uint32_t first = 0; serves && first < count; first += EXISTS_GROUP) {
        struct sl_key asked[EXISTS_GROUP];
        uint32_t share = SL_MIN(count - first, EXISTS_GROUP);
        sl_client_keys_look(&keys[first], share, asked);
        sl_client_look_batch(client, at, asked, share, NULL, &codes[first]);
        for (uint32_t i = first; i < first + share; i++) {
            if (codes[i] == SL_ERR_BUSY && !late) { /* the batch has one deadline */
                struct sl_entry entry;
                codes[i] = sl_client_find(client, keys[i], &entry);
                late = codes[i] == SL_ERR_BUSY;
            }
        }
    }
    for (uint32_t i = 0; sl_attachment_is_cut(at) && i < count; i++) {
        codes[i] = SL_ERR_CORRUPT;
    }
    looks_count(client, at, reader, codes, count);
    if (weight != 0 && serves) {
        sl_counts_time(sl_client_counts(at, reader), SL_TIMED_KEYS,
                       sl_clock_monotonic_ns() - begin_ns, (uint64_t)weight * count);
    }
    return SL_OK;
}

static struct sl_object_info info_of(struct sl_object_key key, const struct sl_entry *entry)
{
    return (struct sl_object_info){.key = key,
                                   .length_bytes = entry->extent.length_bytes,
                                   .in_memory = entry->extent.generation != 0,
                                   .on_disk = entry->disk.valid != 0,
                                   .digest_low = entry->digest.low,
                                   .digest_high = entry->digest.high};
}

sl_err sl_stat(struct sl_client *client, struct sl_object_key key, struct sl_object_info *out)
{
    struct sl_entry entry = {0};
    sl_err err = sl_client_find(client, key, &entry);
    if (err == SL_OK) {
        *out = info_of(key, &entry);
    }
    return err;
}

sl_err sl_size(struct sl_client *client, struct sl_object_key key, uint64_t *length_bytes)
{
    struct sl_object_info info;
    sl_err err = sl_stat(client, key, &info);
    if (err == SL_OK) {
        *length_bytes = info.length_bytes;
    }
    return err;
}

sl_err sl_list(struct sl_client *client, const char *prefix,
               bool (*each)(void *context, const struct sl_object_info *info), void *context,
               struct sl_error *why)
{
    (void)sl_client_reattach(client, true, NULL);
    sl_err err = sl_client_check_node(client, why);
    if (err != SL_OK) {
        return err;
    }
    char *key = malloc(SL_KEY_BYTES_MAX + 1);
    if (key == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "list");
    }
    struct sl_attachment *at = sl_attachment_acquire(client); /* the callback may take its time */
    size_t prefix_bytes = prefix == NULL ? 0 : strlen(prefix);
    struct sl_entry entry;
    uint64_t cursor = 0;
    while (sl_index_scan(at->view, &cursor, &entry, key)) {
        if (entry.key_length < prefix_bytes ||
            memcmp(key, prefix == NULL ? "" : prefix, prefix_bytes) != 0) {
            continue;
        }
        const struct sl_object_info info =
            info_of((struct sl_object_key){.at = key, .length = entry.key_length}, &entry);
        if (!each(context, &info)) {
            break;
        }
    }
    err = sl_attachment_is_cut(at) ? sl_client_fail_truncated(client, why) : SL_OK;
    sl_attachment_release(client, at);
    free(key);
    return err;
}
