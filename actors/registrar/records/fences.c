/* actors/registrar/records/fences.c - quarantine of extents whose reservation has ended and whose
 * writer may still write.
 *
 * When the quarantine begins the possible writers are known: the writer's process, or, if that is
 * dead, at most a successor that has not sent HELLO yet (a process that looks at the claim later
 * finds it ended). A live actor is sent FENCE, and killed if it does not answer. An absent actor
 * gets a grace period; a successor that sends HELLO within it is sent the FENCE instead. A client's
 * extent stays in quarantine while a pin names it, or, if the client writes without pins, while it
 * lives. Disk I/O outlives its process, hence io_grace. */
#include "actors/registrar/records/fences.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/retired.h"

#include <stdlib.h>

static uint32_t *claim_head(struct registrar *self, const struct reg_claim *claim)
{
    bool live = claim->state == REG_CLAIM_RESERVED || claim->state == REG_CLAIM_PROMOTING;
    uint32_t peer = live ? claim->owner_peer : claim->writer_peer;
    if (peer == REG_NONE) {
        return NULL;
    }
    return live ? &self->peers->all[peer].owned : &self->peers->all[peer].held;
}

static void claim_unlist(struct registrar *self, uint32_t slot)
{
    struct reg_claim *claim = &self->claims->all[slot];
    uint32_t *head = claim_head(self, claim);
    if (claim->ahead && claim->state == REG_CLAIM_RESERVED) {
        reg_prealloc_count(self, slot, false);
    }
    if (head != NULL) {
        reg_list_remove(self, REG_LIST_PEER, head, slot);
    }
    if (claim->group != REG_NONE) {
        reg_group_mark(&self->groups->all[claim->group], claim->part_index, false);
        reg_list_remove(self, REG_LIST_GROUP, &self->groups->all[claim->group].claims, slot);
        claim->group = REG_NONE;
    }
}

static void claim_charge(struct registrar *self, struct reg_claim *claim, bool charge)
{
    if (claim->charged == charge) {
        return;
    }
    uint64_t space = sl_extent_space(claim->extent.length_bytes);
    uint32_t peer = claim->owner_peer;
    bool known = peer != REG_NONE && self->peers->all[peer].used &&
                 sl_proc_id_equal(self->peers->all[peer].proc, claim->owner);
    claim->charged = charge;
    self->claims->quarantined_bytes =
        charge ? self->claims->quarantined_bytes + space : self->claims->quarantined_bytes - space;
    if (known && charge) {
        self->peers->all[peer].quarantined_bytes += space;
    } else if (known) {
        self->peers->all[peer].quarantined_bytes -=
            SL_MIN(space, self->peers->all[peer].quarantined_bytes);
    }
}

void reg_claim_release(struct registrar *self, uint32_t slot)
{
    struct reg_claim *claim = &self->claims->all[slot];
    claim_unlist(self, slot);
    claim_charge(self, claim, false);
    reg_notify_freed(self, claim->ref);
    sl_index_set_kind(self->index, claim->ref, SL_RECORD_FREE);
    reg_give(self, claim->extent.offset_bytes, claim->extent.length_bytes);
    reg_claim_remove(self, slot);
}

static void claim_grace(struct registrar *self, uint32_t slot, uint64_t grace_ns)
{
    uint64_t until_ns = sl_deadline_ns(self->env->now_ns, grace_ns);
    self->claims->all[slot].state = REG_CLAIM_GRACE;
    /* A restart reads from the record how long to wait. */
    sl_index_set_deadline(self->index, self->claims->all[slot].ref, until_ns);
    sl_heap_set(&self->claims->timers, slot, until_ns);
}

/* Decides whether the writer can be asked, and puts the claim into its list. */
static void claim_hold(struct registrar *self, uint32_t slot)
{
    struct reg_claim *claim = &self->claims->all[slot];
    uint32_t writer = claim->writer_peer;
    if (writer == REG_NONE) {
        claim_grace(self, slot, self->claims->io_grace_ns);
        return;
    }
    struct reg_peer *peer = &self->peers->all[writer];
    bool alive = reg_peer_alive(self, writer);
    if (peer->client && !alive) {
        claim->state = REG_CLAIM_HELD;
        reg_list_add(self, REG_LIST_PEER, &peer->held, slot);
        reg_claim_release(self, slot);
        return;
    }
    claim->state = peer->client ? REG_CLAIM_HELD : REG_CLAIM_FENCE_DUE;
    reg_list_add(self, REG_LIST_PEER, &peer->held, slot);
    if (claim->state == REG_CLAIM_HELD && claim->pinned) {
        self->claims->held_count++;
        self->claims->held_look_ns = self->env->now_ns;
    }
    if (!peer->client && alive) {
        self->claims->fences_due = true;
    } else if (!peer->client) {
        claim_grace(self, slot,
                    peer->tierer ? self->claims->io_grace_ns : self->set.fence_timeout_ns);
    }
}

void reg_claim_quarantine(struct registrar *self, uint32_t slot)
{
    struct reg_claim *claim = &self->claims->all[slot];
    SL_ASSERT(claim->state == REG_CLAIM_RESERVED || claim->state == REG_CLAIM_PROMOTING);
    claim_unlist(self, slot);
    reg_claim_unkey(self, slot);
    sl_heap_clear(&self->claims->timers, slot);
    sl_index_set_deadline(self->index, claim->ref, self->env->now_ns);
    sl_index_set_kind(self->index, claim->ref, SL_RECORD_QUARANTINED);
    claim_charge(self, claim, true);
    claim_hold(self, slot);
}

void reg_claim_restore_quarantine(struct registrar *self, uint32_t slot, struct sl_proc_id writer,
                                  uint64_t deadline_ns)
{
    struct reg_claim *claim = &self->claims->all[slot];
    uint64_t now_ns = self->env->now_ns;
    claim_charge(self, claim, true);
    if (claim->writer_peer != REG_NONE) {
        claim_hold(self, slot);
    } else if (self->env->ops->alive(self->env, writer) || deadline_ns <= now_ns ||
               deadline_ns - now_ns > self->claims->io_grace_ns) {
        claim_grace(self, slot, self->claims->io_grace_ns);
    } else {
        claim_grace(self, slot, deadline_ns - now_ns);
    }
}

/* ---- extents that a client pins for each write ---- */

/* After a restart such a claim is listed under one client of its process, while its pin may be in
 * another client's pin file; so all pins are scanned. */
static void held_each(struct registrar *self, void (*each)(struct registrar *self, uint32_t slot))
{
    for (uint32_t i = 0; i < self->peers->high; i++) {
        const struct reg_peer *peer = &self->peers->all[i];
        uint32_t slot = peer->used && peer->pins != NULL ? peer->held : REG_NONE;
        while (slot != REG_NONE) {
            const struct reg_claim *claim = &self->claims->all[slot];
            uint32_t next = claim->node[REG_LIST_PEER].next;
            if (claim->state == REG_CLAIM_HELD && claim->pinned) {
                each(self, slot);
            }
            slot = next;
        }
    }
}

static void held_count(struct registrar *self, uint32_t slot)
{
    (void)slot;
    self->claims->held_count++;
}

static void held_look(struct registrar *self, uint32_t slot)
{
    reg_pinned_add(self, self->claims->all[slot].extent.generation);
}

static void held_free(struct registrar *self, uint32_t slot)
{
    if (!reg_pinned_is(self, self->claims->all[slot].extent.generation)) {
        reg_claim_release(self, slot);
        self->claims->held_count--;
    }
}

void reg_held_free_unpinned(struct registrar *self)
{
    self->claims->held_count = 0;
    self->claims->held_look_ns = self->env->now_ns + REG_RETIRED_SCAN_NS;
    held_each(self, held_count);
    if (self->claims->held_count > 0 && reg_pinned_begin(self, self->claims->held_count)) {
        held_each(self, held_look);
        reg_pinned_scan(self);
        held_each(self, held_free);
    }
}

static void held_tick(struct registrar *self)
{
    if (self->claims->held_count > 0 && self->env->now_ns >= self->claims->held_look_ns) {
        reg_held_free_unpinned(self);
    }
}

/* ---- FENCE ---- */

static sl_err fence_send(struct registrar *self, uint32_t writer)
{
    struct reg_peer *peer = &self->peers->all[writer];
    uint32_t count = 0;
    for (uint32_t slot = peer->held; slot != REG_NONE;
         slot = self->claims->all[slot].node[REG_LIST_PEER].next) {
        count += self->claims->all[slot].state == REG_CLAIM_FENCE_DUE ? 1 : 0;
    }
    count = SL_MIN(count, SL_BATCH_MAX);
    if (count == 0) {
        return SL_OK;
    }
    struct sl_item_claim *items = calloc(count, sizeof(*items));
    if (items == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    uint32_t filled = 0;
    for (uint32_t slot = peer->held; slot != REG_NONE && filled < count;
         slot = self->claims->all[slot].node[REG_LIST_PEER].next) {
        if (self->claims->all[slot].state == REG_CLAIM_FENCE_DUE) {
            items[filled++] =
                (struct sl_item_claim){.ref = self->claims->all[slot].ref,
                                       .generation = self->claims->all[slot].extent.generation};
        }
    }
    struct sl_msg msg = {.type = SL_MSG_FENCE};
    msg.body.fence.items.at = items;
    msg.body.fence.items.count = count;
    uint64_t deadline_ns = sl_deadline_ns(self->env->now_ns, self->set.fence_timeout_ns);
    sl_err err = sl_calls_send(self->calls, peer->name, &msg, deadline_ns,
                               reg_cookie(REG_CALL_FENCE, writer), &peer->fence_seq);
    free(items);
    if (err != SL_OK) {
        peer->fence_seq = 0;
        return err;
    }
    peer->fence_due_ns = deadline_ns;
    filled = 0;
    for (uint32_t slot = peer->held; slot != REG_NONE && filled < count;
         slot = self->claims->all[slot].node[REG_LIST_PEER].next) {
        if (self->claims->all[slot].state == REG_CLAIM_FENCE_DUE) {
            self->claims->all[slot].state = REG_CLAIM_FENCE_SENT;
            filled++;
        }
    }
    sl_metric_add(self->env->metrics, self->claims->metric.fence_count, 1);
    sl_trace_event(self->env->metrics, self->env->now_ns, 0, "fence", peer->name, count);
    return SL_OK;
}

static void fences_send(struct registrar *self)
{
    if (!self->claims->fences_due) {
        return;
    }
    self->claims->fences_due = false;
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        struct reg_peer *peer = &self->peers->all[i];
        if (!peer->used || !peer->present || peer->client || peer->held == REG_NONE ||
            peer->fence_seq != 0) {
            continue;
        }
        if (fence_send(self, i) != SL_OK) {
            self->claims->fences_due = true; /* no call is free: retried soon */
        }
    }
}

static void fence_kill(struct registrar *self, uint32_t writer, const char *reason)
{
    struct reg_peer *peer = &self->peers->all[writer];
    reg_log(self, SL_LOG_ERROR, 0, "%s (process %u) %s a fence: killed", peer->name, peer->proc.pid,
            reason);
    sl_metric_add(self->env->metrics, self->claims->metric.killed_count, 1);
    /* Its claims stay quarantined until its death is reported. */
    self->env->ops->kill(self->env, peer->proc);
}

static void fence_reply(struct registrar *self, uint32_t writer, const struct sl_msg *msg)
{
    sl_err code = msg->code;
    struct reg_peer *peer = &self->peers->all[writer];
    if (!peer->used || peer->fence_seq == 0) {
        return;
    }
    peer->fence_seq = 0;
    peer->fence_lates = 0;
    if (!reg_peer_alive(self, writer)) {
        return; /* a successor answered; the report of the death settles the claims */
    }
    if (code != SL_OK) {
        fence_kill(self, writer, "refused");
        return;
    }
    uint32_t slot = peer->held;
    while (slot != REG_NONE) {
        uint32_t next = self->claims->all[slot].node[REG_LIST_PEER].next;
        if (self->claims->all[slot].state == REG_CLAIM_FENCE_SENT) {
            reg_claim_release(self, slot);
        }
        slot = next;
    }
    self->claims->fences_due = true; /* for claims that were added meanwhile */
}

/* A registrar that was stopped itself may have an answer, or a successor's HELLO, still unread. So
 * it asks again before it kills the writer. */
static void fence_again(struct registrar *self, uint32_t writer)
{
    struct reg_peer *peer = &self->peers->all[writer];
    for (uint32_t slot = peer->held; slot != REG_NONE;
         slot = self->claims->all[slot].node[REG_LIST_PEER].next) {
        if (self->claims->all[slot].state == REG_CLAIM_FENCE_SENT) {
            self->claims->all[slot].state = REG_CLAIM_FENCE_DUE;
        }
    }
    peer->fence_lates++;
    self->claims->fences_due = true;
}

static void fence_expired(struct registrar *self, uint32_t writer)
{
    struct reg_peer *peer = &self->peers->all[writer];
    if (!peer->used || peer->fence_seq == 0) {
        return;
    }
    peer->fence_seq = 0;
    if (self->env->now_ns > sl_deadline_ns(peer->fence_due_ns, REG_LATE_NS) &&
        peer->fence_lates < REG_LATES_MAX) {
        fence_again(self, writer);
    } else {
        fence_kill(self, writer, "did not acknowledge");
    }
}

static void claims_writer_died(struct registrar *self, uint32_t writer)
{
    struct reg_peer *peer = &self->peers->all[writer];
    uint32_t slot = peer->held;
    while (slot != REG_NONE) {
        uint32_t next = self->claims->all[slot].node[REG_LIST_PEER].next;
        if (self->claims->all[slot].state != REG_CLAIM_GRACE && peer->tierer) {
            claim_grace(self, slot, self->claims->io_grace_ns);
        } else if (self->claims->all[slot].state != REG_CLAIM_GRACE) {
            reg_claim_release(self, slot);
        }
        slot = next;
    }
}

/* ---- the part ---- */

/* A successor has arrived and can be asked about claims of the absent actor. For a tierer its
 * arrival is the answer: it has the disk's lock, which the kernel keeps until the last request of
 * the dead process has ended. */
static void fences_successor(struct registrar *self, uint32_t at, bool restored)
{
    const struct reg_peer *peer = &self->peers->all[at];
    uint32_t next;
    if (restored) {
        return; /* decided when its claims were read */
    }
    for (uint32_t slot = peer->held; slot != REG_NONE; slot = next) {
        next = self->claims->all[slot].node[REG_LIST_PEER].next;
        if (self->claims->all[slot].state != REG_CLAIM_GRACE) {
            continue;
        }
        if (peer->tierer) {
            reg_claim_release(self, slot);
            self->space.freed = true;
        } else {
            sl_heap_clear(&self->claims->timers, slot);
            self->claims->all[slot].state = REG_CLAIM_FENCE_DUE;
            self->claims->fences_due = true;
        }
    }
}

static uint64_t fences_next(const struct registrar *self)
{
    uint64_t fences_ns = self->claims->fences_due ? self->env->now_ns + SL_NS_PER_MS : SL_NEVER_NS;
    uint64_t held_ns = self->claims->held_count > 0 ? self->claims->held_look_ns : SL_NEVER_NS;
    return SL_MIN(fences_ns, held_ns);
}

static const struct reg_call calls[] = {
    {.kind = REG_CALL_FENCE, .reply = fence_reply, .expired = fence_expired},
};

const struct reg_part reg_fences_part = {
    .name = "fences",
    REG_CALLS(calls),
    .tick = held_tick,
    .after = fences_send,
    .next_ns = fences_next,
    .arrived = fences_successor,
    .left = claims_writer_died,
};
