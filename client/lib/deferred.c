/* client/lib/deferred.c - extents that a GPU may still access, because copies did not end by the
 * deadline of their call. They are neither committed nor released before the copies are known to
 * have ended. Later calls check that, and closing the client does; after that the process keeps the
 * rest until it ends. */
#include "client/lib/deferred.h"

#include <stdlib.h>

struct sl_client_deferred {
    struct sl_client_deferred *next;
    struct sl_client_deferral what;
    bool over;
};

void sl_client_extent_defer(struct sl_client *client, const struct sl_client_deferral *lending)
{
    struct sl_client_deferred *deferred = calloc(1, sizeof *deferred);
    sl_attachment_hold(lending->at);
    if (deferred == NULL) {
        return; /* it stays reserved until the process ends */
    }
    deferred->what = *lending;
    pthread_mutex_lock(&client->lock);
    deferred->next = client->deferred;
    client->deferred = deferred;
    atomic_fetch_add_explicit(&client->deferred_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&client->lock);
}

/* Under the lock. Several GPUs may write to one extent: that of a draft. */
static bool deferred_by_other_gpu(const struct sl_client *client, uint64_t generation)
{
    const struct sl_client_deferred *deferred = client->deferred;
    while (deferred != NULL && deferred->what.claim.generation != generation) {
        deferred = deferred->next;
    }
    return deferred != NULL;
}

/* Under the lock. The last entry of an extent releases it. */
static void deferred_release(struct sl_client *client, const struct sl_client_deferred *deferred)
{
    sl_pins_release(deferred->what.at->pins, deferred->what.pin);
    if (deferred->what.claim.ref != 0 &&
        !deferred_by_other_gpu(client, deferred->what.claim.generation) &&
        client->orphan_count < SL_CLIENT_ORPHANS_MAX) {
        client->orphans[client->orphan_count++] = deferred->what.claim;
    }
}

void sl_client_deferred_settle(struct sl_client *client)
{
    struct sl_client_deferred *over = NULL;
    pthread_mutex_lock(&client->lock);
    struct sl_client_deferred *first = client->deferred_settling ? NULL : client->deferred;
    client->deferred_settling = client->deferred_settling || first != NULL;
    pthread_mutex_unlock(&client->lock);
    if (first == NULL) {
        return;
    }
    /* Without the lock, since drivers are called. New entries are added before `first`; only this
     * thread removes any. */
    for (struct sl_client_deferred *deferred = first; deferred != NULL; deferred = deferred->next) {
        deferred->over =
            !sl_gpu_copies_unfinished(deferred->what.gpu, deferred->what.unfinished_count);
    }
    pthread_mutex_lock(&client->lock);
    for (struct sl_client_deferred **at = &client->deferred; *at != NULL;) {
        struct sl_client_deferred *deferred = *at;
        if (!deferred->over) {
            at = &deferred->next;
            continue;
        }
        *at = deferred->next;
        deferred->next = over;
        over = deferred;
        atomic_fetch_sub_explicit(&client->deferred_count, 1, memory_order_relaxed);
    }
    for (const struct sl_client_deferred *deferred = over; deferred != NULL;
         deferred = deferred->next) {
        deferred_release(client, deferred);
    }
    client->deferred_settling = false;
    pthread_mutex_unlock(&client->lock);
    while (over != NULL) {
        struct sl_client_deferred *next = over->next;
        sl_attachment_release(client, over->what.at);
        free(over);
        over = next;
    }
}

bool sl_client_deferred_in(const struct sl_client *client, const struct sl_attachment *at)
{
    for (const struct sl_client_deferred *deferred = client->deferred; deferred != NULL;
         deferred = deferred->next) {
        if (deferred->what.at == at) {
            return true;
        }
    }
    return false;
}

void sl_client_deferred_free(struct sl_client *client)
{
    while (client->deferred != NULL) {
        struct sl_client_deferred *next = client->deferred->next;
        free(client->deferred);
        client->deferred = next;
    }
}
