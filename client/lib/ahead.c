/* client/lib/ahead.c - extents that were granted to this client ahead of use, so that a put
 * costs one round trip.
 *
 * Kept by the space they take: values of one size come again and again. A class is asked for when
 * its size was put a moment ago, and refilled by the answer to each publish. What lies unused for
 * reservation_ttl the registrar takes back by itself, without a word: an extent is therefore
 * pinned, and looked at again, before a byte is written to it. */
#include "client/lib/internal.h"

#include <string.h>

/* A size that was put this long ago is put again: more is asked for. */
#define WARM_NS (500 * SL_NS_PER_MS)
/* Asked for beyond the batch at hand, so that several threads find something. */
#define SPARE_COUNT 4u

static struct sl_ahead_class *class_of(struct sl_client *client, uint64_t space_bytes)
{
    for (uint32_t i = 0; i < SL_AHEAD_CLASSES; i++) {
        if (client->ahead[i].space_bytes == space_bytes) {
            return &client->ahead[i];
        }
    }
    return NULL;
}

/* Gives back what the class holds; with the next call to the registrar. The lock is held. */
static void class_clear(struct sl_client *client, struct sl_ahead_class *class)
{
    for (uint32_t i = 0; i < class->count && client->orphan_count < SL_CLIENT_ORPHANS_MAX; i++) {
        const struct sl_ahead_extent *extent =
            &class->extents[(class->first + i) % SL_AHEAD_EXTENTS_MAX];
        client->orphans[client->orphan_count++] =
            (struct sl_item_claim){.ref = extent->ref, .generation = extent->generation};
    }
    memset(class, 0, sizeof *class);
}

void sl_ahead_note(struct sl_client *client, uint64_t space_bytes, uint64_t now_ns)
{
    pthread_mutex_lock(&client->lock);
    struct sl_ahead_class *class = class_of(client, space_bytes);
    for (uint32_t i = 0; class == NULL && i < SL_AHEAD_CLASSES; i++) {
        if (client->ahead[i].space_bytes == 0) {
            class = &client->ahead[i];
        }
    }
    if (class == NULL) { /* the one that was not used for longest makes room */
        class = &client->ahead[0];
        for (uint32_t i = 1; i < SL_AHEAD_CLASSES; i++) {
            class = client->ahead[i].used_ns < class->used_ns ? &client->ahead[i] : class;
        }
        class_clear(client, class);
    }
    class->space_bytes = space_bytes;
    class->used_ns = now_ns;
    pthread_mutex_unlock(&client->lock);
}

bool sl_ahead_warm(struct sl_client *client, uint64_t space_bytes, uint32_t count, uint64_t now_ns)
{
    pthread_mutex_lock(&client->lock);
    const struct sl_ahead_class *class = class_of(client, space_bytes);
    bool warm = class != NULL && now_ns - class->used_ns < WARM_NS &&
                (count < class->short_of || now_ns - class->short_ns >= WARM_NS);
    pthread_mutex_unlock(&client->lock);
    return warm;
}

uint32_t sl_ahead_missing(struct sl_client *client, uint64_t space_bytes, uint32_t count)
{
    pthread_mutex_lock(&client->lock);
    const struct sl_ahead_class *class = class_of(client, space_bytes);
    uint32_t want = SL_MIN(count + SPARE_COUNT, SL_AHEAD_EXTENTS_MAX);
    uint32_t have = class == NULL ? 0 : class->count;
    pthread_mutex_unlock(&client->lock);
    return want > have ? want - have : 0;
}

bool sl_ahead_take(struct sl_client *client, uint64_t space_bytes, struct sl_attachment *at,
                   struct sl_ahead_extent *out)
{
    bool found = false;
    pthread_mutex_lock(&client->lock);
    struct sl_ahead_class *class = class_of(client, space_bytes);
    while (!found && class != NULL && class->count > 0) {
        /* The oldest first: none lies here until it is taken back. */
        *out = class->extents[class->first];
        class->first = (class->first + 1) % SL_AHEAD_EXTENTS_MAX;
        class->count--;
        found = out->attachment == at->number; /* those of a node that is gone are nothing */
    }
    pthread_mutex_unlock(&client->lock);
    return found;
}

/* The lock is held. */
static bool class_push(struct sl_ahead_class *class, const struct sl_ahead_extent *extent)
{
    if (class == NULL || class->count == SL_AHEAD_EXTENTS_MAX) {
        return false;
    }
    class->extents[(class->first + class->count++) % SL_AHEAD_EXTENTS_MAX] = *extent;
    return true;
}

void sl_ahead_give(struct sl_client *client, uint64_t space_bytes,
                   const struct sl_ahead_extent *extent)
{
    pthread_mutex_lock(&client->lock);
    bool kept = class_push(class_of(client, space_bytes), extent);
    pthread_mutex_unlock(&client->lock);
    if (!kept) {
        const struct sl_item_claim claim = {.ref = extent->ref, .generation = extent->generation};
        sl_client_orphan(client, &claim, 1);
    }
}

void sl_ahead_arrived(struct sl_client *client, uint64_t space_bytes, uint32_t asked,
                      const struct sl_msg *reply, const struct sl_attachment *at)
{
    struct sl_ahead_class *class = class_of(client, space_bytes);
    uint64_t count = reply->body.publish_reply.ahead.count;
    for (uint64_t i = 0; i < count; i++) {
        const struct sl_item_grant *grant = &reply->body.publish_reply.ahead.at[i];
        const struct sl_ahead_extent extent = {.generation = grant->generation,
                                               .offset_bytes = grant->offset_bytes,
                                               .ref = (uint32_t)grant->ref,
                                               .arena = (uint32_t)grant->arena,
                                               .attachment = at->number};
        if (grant->code != SL_OK || grant->ref == 0) {
            continue;
        }
        if (!class_push(class, &extent) && client->orphan_count < SL_CLIENT_ORPHANS_MAX) {
            client->orphans[client->orphan_count++] =
                (struct sl_item_claim){.ref = grant->ref, .generation = grant->generation};
        }
    }
    if (class != NULL) { /* the registrar has its bounds: for a while larger batches do not ask */
        class->short_of = count < asked ? class->count + 1 : UINT32_MAX;
        class->short_ns = sl_clock_monotonic_ns();
    }
}

void sl_ahead_forget(struct sl_client *client)
{
    pthread_mutex_lock(&client->lock);
    for (uint32_t i = 0; i < SL_AHEAD_CLASSES; i++) {
        class_clear(client, &client->ahead[i]);
    }
    pthread_mutex_unlock(&client->lock);
}
