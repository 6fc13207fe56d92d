/* client/lib/stat.c - looks up properties of many values at once. */
#include "client/lib/internal.h"

#define STAT_GROUP 64u

static struct sl_stat stat_of(const struct sl_client *client, const struct sl_entry *entry)
{
    bool in_memory = entry->extent.generation != 0;
    return (struct sl_stat){
        .length_bytes = entry->extent.length_bytes,
        .lease_end_ns = entry->lease_end_ns,
        .contributions =
            in_memory && entry->contribution != 0 ? UINT64_C(1) << (entry->contribution - 1) : 0,
        .in_memory = in_memory,
        .on_disk = entry->disk.valid != 0,
        .hard_pin = entry->hard_pin,
        .soft_pin_end_ns = entry->soft_pin_end_ns,
        .ours = entry->owner.pid == client->self.pid &&
                sl_proc_id_process(entry->owner) == sl_proc_id_process(client->self),
        .writer_pid = entry->owner.pid,
    };
}

sl_err sl_stat_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                     struct sl_stat *stats, sl_err *codes)
{
    if (count > SL_BATCH_MAX) {
        return SL_ERR_INVALID;
    }
    if (!sl_client_check_node_batch(client, codes, count, NULL)) {
        return SL_OK;
    }
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(client);
    bool late = false;
    for (uint32_t first = 0; first < count; first += STAT_GROUP) {
        struct sl_key asked[STAT_GROUP];
        struct sl_entry entries[STAT_GROUP];
        uint32_t share = SL_MIN(count - first, STAT_GROUP);
        sl_client_keys_look(&keys[first], share, asked);
        sl_client_look_batch(client, at, asked, share, entries, &codes[first]);
        for (uint32_t i = 0; i < share; i++) {
            if (codes[first + i] == SL_ERR_BUSY && !late) { /* torn, or the node was replaced */
                codes[first + i] = sl_client_find(client, keys[first + i], &entries[i]);
                late = codes[first + i] == SL_ERR_BUSY; /* the batch has one deadline */
            }
            stats[first + i] =
                codes[first + i] == SL_OK ? stat_of(client, &entries[i]) : (struct sl_stat){0};
        }
    }
    for (uint32_t i = 0; sl_attachment_is_cut(at) && i < count; i++) {
        codes[i] = SL_ERR_CORRUPT;
        stats[i] = (struct sl_stat){0};
    }
    return SL_OK;
}
