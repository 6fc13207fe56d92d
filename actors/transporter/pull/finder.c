/* actors/transporter/pull/finder.c - which peers to ask for a key: looks it up in the directory.
 *
 * If there is no directory, all peers are candidates. If the directory is unreachable, or does not
 * answer within its share of a BRING's time, the candidates are the configured peers and a few
 * other living ones. The directory is not trusted (members.c). */
#include "actors/transporter/pull/pull.h"
#include "ipc/shm/sl_index_changes.h"

#include <stdlib.h>
#include <string.h>

#define LOOKUP_SHARE      4u /* divisor: a lookup gets a quarter of a BRING's remaining time */
#define UNNAMED_PEERS_MAX SL_DIRECTORY_HOLDERS_MAX

struct tr_lookup_batch {
    bool used;
    uint32_t count;
    struct tr_unit *units[SL_DIRECTORY_KEYS_MAX];
};

sl_err tr_finder_init(struct transporter *self, struct sl_error *why)
{
    self->batches = calloc(SL_DIRECTORY_LOOKUPS_MAX + 1, sizeof(*self->batches));
    return self->batches != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for questions to the directory");
}

void tr_finder_fini(struct transporter *self)
{
    free(self->batches);
    self->batches = NULL;
}

/* Peers to ask in addition to the directory's answer: all configured ones and a few others, of
 * those that publish nothing there (all: of all peers). */
static uint64_t unnamed_peers(struct transporter *self, uint64_t key_hash, bool all)
{
    uint64_t usable = tr_peers_with(self, key_hash), peers = 0, others = 0;
    for (uint32_t i = 0; i < self->peer_count; i++) {
        const struct tr_peer *peer = &self->peers[i];
        uint64_t bit = usable & (all || !peer->member ? UINT64_C(1) << i : 0);
        peers |= peer->configured ? bit : 0;
        others |= peer->configured ? 0 : bit;
    }
    for (uint32_t i = 0, n = 0; others != 0 && n < UNNAMED_PEERS_MAX; i++) {
        uint64_t bit = UINT64_C(1) << (key_hash + i) % TR_PEERS_MAX;
        n += (others & bit) != 0 ? 1 : 0;
        peers |= others & bit;
        others &= ~bit;
    }
    return peers;
}

static uint64_t named_peers(struct transporter *self, const struct sl_directory_found *found)
{
    uint64_t peers = 0;
    for (uint32_t i = 0; i < found->holder_count; i++) {
        const struct tr_peer *peer = tr_peer_find(self, found->holders[i]->name);
        peers |= peer != NULL ? UINT64_C(1) << tr_peer_number(self, peer) : 0;
    }
    return peers;
}

/* found NULL: the directory did not answer. */
static void batch_end(struct transporter *self, struct tr_lookup_batch *batch,
                      const struct sl_directory_found *found)
{
    uint64_t gap_of = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct tr_unit *unit = batch->units[i];
        unit->may = unnamed_peers(self, unit->hash, found == NULL) |
                    (found != NULL ? named_peers(self, &found[i]) : 0);
        bool nobody = tr_unit_peers(self, unit) == 0;
        bool alone = unit->waits != NULL && unit->waits->next == NULL;
        if (tr_unit_alive(self, unit) &&
            (nobody || (gap_of == unit->fetch_number && alone && !unit->sure))) {
            gap_of = nobody && unit->chain ? unit->fetch_number : gap_of; /* a chain ends here */
            tr_unit_end(self, unit, SL_ERR_NOT_FOUND);
        } else {
            (void)tr_unit_queue(self, unit);
        }
    }
    batch->used = false;
    batch->count = 0;
    self->env->ops->wake_at(self->env, 0);
}

void tr_holders_found(void *context, uint64_t cookie, sl_err code,
                      const struct sl_directory_found *found, uint32_t count)
{
    struct transporter *self = context;
    struct tr_lookup_batch *batch = &self->batches[1 + cookie];
    SL_ASSERT(cookie < SL_DIRECTORY_LOOKUPS_MAX && batch->used);
    SL_ASSERT(code != SL_OK || count == batch->count);
    sl_metric_add(self->env->metrics, self->metric.unanswered, code != SL_OK ? 1 : 0);
    batch_end(self, batch, code == SL_OK ? found : NULL);
}

/* Looks up the holders of the open batch's units. */
static void batch_send(struct transporter *self)
{
    struct tr_lookup_batch *open = &self->batches[0], *batch = NULL;
    uint64_t ids[SL_DIRECTORY_KEYS_MAX];
    uint64_t now_ns = self->env->now_ns, deadline_ns = 0;
    struct sl_directory_lookup lookup = {.ids = ids, .count = open->count, .now_ns = now_ns};
    for (uint32_t i = 0; i < open->count; i++) {
        const struct tr_unit *unit = open->units[i];
        ids[i] = sl_key_id(unit->parts[0].key, unit->parts[0].key_length);
        deadline_ns = SL_MAX(deadline_ns, unit->deadline_ns);
    }
    uint64_t share_ns = sl_budget_ns(now_ns, deadline_ns) / LOOKUP_SHARE;
    share_ns = SL_MIN(share_ns, sl_config_u64(self->env->config, SL_SET_directory_timeout));
    lookup.deadline_ns = now_ns + share_ns;
    for (uint32_t i = 0; batch == NULL && i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
        batch = !self->batches[1 + i].used ? &self->batches[1 + i] : NULL;
        lookup.cookie = i;
    }
    sl_err err = batch != NULL ? self->guide.lookup(self->guide.context, &lookup) : SL_ERR_LIMIT;
    if (err == SL_OK) {
        SL_ASSERT(batch != NULL);
        batch->used = true;
        batch->count = open->count;
        memcpy(batch->units, open->units, open->count * sizeof(struct tr_unit *));
        open->count = 0;
        return;
    }
    /* SL_ERR_NOT_FOUND: the directory lists no other node. */
    static const struct sl_directory_found nobody[SL_DIRECTORY_KEYS_MAX];
    sl_metric_add(self->env->metrics, self->metric.unanswered, err != SL_ERR_NOT_FOUND ? 1 : 0);
    batch_end(self, open, err == SL_ERR_NOT_FOUND ? nobody : NULL);
}

void tr_holders_find(struct transporter *self, struct tr_unit *unit)
{
    struct tr_lookup_batch *open = &self->batches[0];
    if (self->guide.lookup == NULL) {
        unit->may = UINT64_MAX;
        (void)tr_unit_queue(self, unit);
        return;
    }
    /* A full batch waits for the next unit, so that the last one is left for tr_holders_flush. */
    if (open->count == SL_DIRECTORY_KEYS_MAX) {
        batch_send(self);
    }
    open->units[open->count++] = unit;
}

void tr_holders_flush(struct transporter *self)
{
    if (self->guide.lookup == NULL) {
        return;
    }
    if (self->batches[0].count > 0) {
        batch_send(self);
        self->guide.flush(self->guide.context, self->env->now_ns);
    }
}
