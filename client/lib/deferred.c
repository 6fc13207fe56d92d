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
    struct sl_client_deferred *lent = calloc(1, sizeof *lent);
    sl_attachment_hold(lending->at);
    if (lent == NULL) {
        return; /* it stays reserved until the process ends */
    }
    lent->what = *lending;
    pthread_mutex_lock(&client->lock);
    lent->next = client->lent;
    client->lent = lent;
    atomic_fetch_add_explicit(&client->lent_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&client->lock);
}

/* Under the lock. Several GPUs may write to one extent: that of a draft. */
static bool deferred_by_other_gpu(const struct sl_client *client, uint64_t generation)
{
    const struct sl_client_deferred *lent = client->lent;
    while (lent != NULL && lent->what.claim.generation != generation) {
        lent = lent->next;
    }
    return lent != NULL;
}

/* Under the lock. The last entry of an extent releases it. */
static void deferred_release(struct sl_client *client, const struct sl_client_deferred *lent)
{
    sl_pins_release(lent->what.at->pins, lent->what.pin);
    if (lent->what.claim.ref != 0 && !deferred_by_other_gpu(client, lent->what.claim.generation) &&
        client->orphan_count < SL_CLIENT_ORPHANS_MAX) {
        client->orphans[client->orphan_count++] = lent->what.claim;
    }
}

void sl_client_deferred_settle(struct sl_client *client)
{
    struct sl_client_deferred *over = NULL;
    pthread_mutex_lock(&client->lock);
    struct sl_client_deferred *first = client->lent_settling ? NULL : client->lent;
    client->lent_settling = client->lent_settling || first != NULL;
    pthread_mutex_unlock(&client->lock);
    if (first == NULL) {
        return;
    }
    /* Without the lock, since drivers are called. New entries are added before `first`; only this
     * thread removes any. */
    for (struct sl_client_deferred *lent = first; lent != NULL; lent = lent->next) {
        lent->over = !sl_gpu_copies_unfinished(lent->what.gpu, lent->what.lent_count);
    }
    pthread_mutex_lock(&client->lock);
    for (struct sl_client_deferred **at = &client->lent; *at != NULL;) {
        struct sl_client_deferred *lent = *at;
        if (!lent->over) {
            at = &lent->next;
            continue;
        }
        *at = lent->next;
        lent->next = over;
        over = lent;
        atomic_fetch_sub_explicit(&client->lent_count, 1, memory_order_relaxed);
    }
    for (const struct sl_client_deferred *lent = over; lent != NULL; lent = lent->next) {
        deferred_release(client, lent);
    }
    client->lent_settling = false;
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
    for (const struct sl_client_deferred *lent = client->lent; lent != NULL; lent = lent->next) {
        if (lent->what.at == at) {
            return true;
        }
    }
    return false;
}

void sl_client_deferred_free(struct sl_client *client)
{
    while (client->lent != NULL) {
        struct sl_client_deferred *next = client->lent->next;
        free(client->lent);
        client->lent = next;
    }
}
