/* client/lib/lent.c - extents that a GPU may still access, because copies did not end by the
 * deadline of their call. They are neither committed nor released before the copies are known to
 * have ended. Later calls check that, and closing the client does; after that the process keeps the
 * rest until it ends. */
#include "client/lib/lent.h"

#include <stdlib.h>

struct sl_client_lent {
    struct sl_client_lent *next;
    struct sl_client_lending what;
    bool over;
};

void sl_client_lend_extent(struct sl_client *client, const struct sl_client_lending *lending)
{
    struct sl_client_lent *lent = calloc(1, sizeof *lent);
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
static bool lent_elsewhere(const struct sl_client *client, uint64_t generation)
{
    const struct sl_client_lent *lent = client->lent;
    while (lent != NULL && lent->what.claim.generation != generation) {
        lent = lent->next;
    }
    return lent != NULL;
}

/* Under the lock. The last entry of an extent releases it. */
static void lent_give(struct sl_client *client, const struct sl_client_lent *lent)
{
    sl_pins_give(lent->what.at->pins, lent->what.pin);
    if (lent->what.claim.ref != 0 && !lent_elsewhere(client, lent->what.claim.generation) &&
        client->orphan_count < SL_CLIENT_ORPHANS_MAX) {
        client->orphans[client->orphan_count++] = lent->what.claim;
    }
}

void sl_client_lent_settle(struct sl_client *client)
{
    struct sl_client_lent *over = NULL;
    pthread_mutex_lock(&client->lock);
    struct sl_client_lent *first = client->lent_settling ? NULL : client->lent;
    client->lent_settling = client->lent_settling || first != NULL;
    pthread_mutex_unlock(&client->lock);
    if (first == NULL) {
        return;
    }
    /* Without the lock, since drivers are called. New entries are added before `first`; only this
     * thread removes any. */
    for (struct sl_client_lent *lent = first; lent != NULL; lent = lent->next) {
        lent->over = !sl_gpu_lent(lent->what.gpu, lent->what.lent_count);
    }
    pthread_mutex_lock(&client->lock);
    for (struct sl_client_lent **at = &client->lent; *at != NULL;) {
        struct sl_client_lent *lent = *at;
        if (!lent->over) {
            at = &lent->next;
            continue;
        }
        *at = lent->next;
        lent->next = over;
        over = lent;
        atomic_fetch_sub_explicit(&client->lent_count, 1, memory_order_relaxed);
    }
    for (const struct sl_client_lent *lent = over; lent != NULL; lent = lent->next) {
        lent_give(client, lent);
    }
    client->lent_settling = false;
    pthread_mutex_unlock(&client->lock);
    while (over != NULL) {
        struct sl_client_lent *next = over->next;
        sl_client_let(client, over->what.at);
        free(over);
        over = next;
    }
}

bool sl_client_lent_in(const struct sl_client *client, const struct sl_attachment *at)
{
    for (const struct sl_client_lent *lent = client->lent; lent != NULL; lent = lent->next) {
        if (lent->what.at == at) {
            return true;
        }
    }
    return false;
}

void sl_client_lent_free(struct sl_client *client)
{
    while (client->lent != NULL) {
        struct sl_client_lent *next = client->lent->next;
        free(client->lent);
        client->lent = next;
    }
}
