/* client/lib/leases.c - lookups that lease what they find, if the client requested leases and the
 * node has them. */
#include "client/lib/internal.h"

/* The leases of this attachment; NULL: lookups take no leases. */
static const struct sl_leases *leases_of(const struct sl_client *client,
                                         const struct sl_attachment *at)
{
    return client->leases ? atomic_load_explicit(&at->leases, memory_order_acquire) : NULL;
}

sl_err sl_client_leases_follow(struct sl_client *client, struct sl_attachment *at,
                               struct sl_error *why)
{
    const char *shm_dir = client->paths.shm_dir;
    bool blocks = atomic_load_explicit(&client->holds, memory_order_relaxed) &&
                  sl_index_view_lease_blocks(at->view) != 0;
    bool objects = client->leases && sl_index_view_lease_ttl(at->view) != 0;
    if (client->read_only || (!objects && !blocks)) {
        return SL_OK;
    }
    struct sl_leases *old = atomic_load_explicit(&at->leases, memory_order_acquire);
    if (old != NULL && sl_leases_current(old, shm_dir) == SL_OK) {
        return SL_OK;
    }
    struct sl_leases *fresh = NULL;
    struct sl_error reason = {0};
    sl_err err = at->old_leases_count == SL_CLIENT_OLD_LEASES_MAX
                     ? SL_ERR_LIMIT
                     : sl_leases_open(shm_dir, at->view, &fresh, &reason);
    if (err != SL_OK) {
        return err == SL_ERR_VERSION ? sl_fail(why, err, "%s", reason.text) : SL_OK;
    }
    if (old != NULL) { /* other threads may be using it */
        at->old_leases[at->old_leases_count++] = old;
    }
    atomic_store_explicit(&at->leases, fresh, memory_order_release);
    return SL_OK;
}

void sl_client_holds_begin(struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_attachment *at = sl_client_attachment(client);
    bool begun = atomic_load_explicit(&client->holds, memory_order_relaxed);
    if (begun && (sl_client_holds(at) != NULL || sl_index_view_lease_blocks(at->view) == 0)) {
        return; /* from now on opened with each attachment */
    }
    pthread_mutex_lock(&client->lock);
    atomic_store_explicit(&client->holds, true, memory_order_relaxed);
    (void)sl_client_leases_follow(client, at, NULL); /* retried soon after a failure */
    pthread_mutex_unlock(&client->lock);
}

const struct sl_leases *sl_client_holds(const struct sl_attachment *at)
{
    return atomic_load_explicit(&at->leases, memory_order_acquire);
}

void sl_client_leases_close(struct sl_attachment *at)
{
    struct sl_leases *leases = atomic_load_explicit(&at->leases, memory_order_relaxed);
    sl_leases_close(&leases);
    for (uint32_t i = 0; i < at->old_leases_count; i++) {
        sl_leases_close(&at->old_leases[i]);
    }
}

sl_err sl_client_look(const struct sl_client *client, const struct sl_attachment *at,
                      struct sl_object_key key, struct sl_entry *entry)
{
    const struct sl_leases *leases = leases_of(client, at);
    if (leases == NULL) {
        return sl_index_find(at->view, key.at, key.length, entry);
    }
    const struct sl_key asked = {.at = key.at, .length = key.length};
    uint64_t end_ns = 0;
    return sl_leases_find(leases, &asked, sl_clock_monotonic_ns(), entry, &end_ns);
}

void sl_client_look_batch(const struct sl_client *client, const struct sl_attachment *at,
                          const struct sl_key *keys, uint32_t count, struct sl_entry *entries,
                          sl_err *codes)
{
    const struct sl_leases *leases = leases_of(client, at);
    if (leases == NULL) {
        sl_index_find_batch(at->view, keys, count, entries, codes);
    } else {
        sl_leases_find_batch(leases, keys, count, sl_clock_monotonic_ns(), entries, NULL, codes);
    }
}

bool sl_client_lease_over(const struct sl_entry *entry)
{
    return entry->lease_end_ns != 0 && sl_clock_monotonic_ns() > entry->lease_end_ns;
}
