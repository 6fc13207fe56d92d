/* ipc/mailbox_lanes.c - the fast lanes of a mailbox: offered to those we talk to, accepted from
 * those who talk to us, read and written, and given up when the other side dies or lies. */
#include "ipc/mailbox_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define KIND_MESSAGE 1u
#define KIND_MARK    2u /* a uint64_t: do not go on before this count has come by ZeroMQ */

/* An offer is one packet on its way while the socket connects: who takes longer is stuck. */
#define HANDSHAKE_NS       (2 * SL_NS_PER_S)
#define HALF_OPEN_MAX      32u
#define ACCEPTS_MAX        32u /* in one go */
#define OFFER_PAUSE_NS     (20 * SL_NS_PER_MS)
#define OFFER_PAUSE_NS_MAX (1 * SL_NS_PER_S)
/* ZeroMQ delivers within a millisecond. A count that does not come was lost with its connection:
 * the lane is given up, and what waits behind the mark with it, as ZeroMQ loses what it holds. */
#define MARK_NS         (2 * SL_NS_PER_S)
#define LISTEN_AGAIN_NS (100 * SL_NS_PER_MS)
#define SYNC_AGAIN_NS   (1 * SL_NS_PER_MS)
/* Looks at the clock once in so many looks at the rings. */
#define SPIN_LOOKS 32u

static void due_at(struct sl_mailbox *mailbox, uint64_t at_ns)
{
    mailbox->tick_at_ns = SL_MIN(mailbox->tick_at_ns, at_ns);
}

/* ----------------------------------------------- slots */

static struct sl_mailbox_lane *lane_new(struct sl_mailbox *mailbox)
{
    uint32_t room = mailbox->lanes_max + SL_MAILBOX_PEERS_MAX;
    for (uint32_t i = 0; i < room; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state == SL_LANE_FREE) {
            *slot = (struct sl_mailbox_lane){.deadline_ns = SL_NEVER_NS};
            sl_lane_init(&slot->lane);
            mailbox->lane_count = SL_MAX(mailbox->lane_count, i + 1);
            return slot;
        }
    }
    return NULL;
}

static uint32_t number_of(const struct sl_mailbox *mailbox, const struct sl_mailbox_lane *slot)
{
    return (uint32_t)(slot - mailbox->lanes);
}

/* The doorbell's other owner may keep it open: closing would not end our watch. */
static void fds_forget(struct sl_mailbox *mailbox, struct sl_lane *lane)
{
    int *fds[] = {&lane->socket_fd, &lane->doorbell_fd, &lane->peer_bell_fd};
    for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
        if (*fds[i] >= 0) {
            (void)epoll_ctl(mailbox->epoll_fd, EPOLL_CTL_DEL, *fds[i], NULL);
            (void)close(*fds[i]);
            *fds[i] = -1;
        }
    }
}

static void peer_loses_lane(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot,
                            uint64_t pause_ns)
{
    if (slot->peer != 0) {
        struct sl_mailbox_peer *peer = &mailbox->peers[slot->peer - 1];
        peer->lane = 0;
        peer->offer_at_ns = sl_deadline_ns(sl_clock_monotonic_ns(), pause_ns);
        due_at(mailbox, peer->offer_at_ns);
        slot->peer = 0;
    }
}

static void lane_free(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, uint64_t pause_ns)
{
    uint32_t number = number_of(mailbox, slot) + 1;
    peer_loses_lane(mailbox, slot, pause_ns);
    fds_forget(mailbox, &slot->lane);
    sl_lane_close(&slot->lane);
    mailbox->stats.lanes -= slot->state == SL_LANE_STANDS ? 1 : 0;
    *slot = (struct sl_mailbox_lane){.state = SL_LANE_FREE, .deadline_ns = SL_NEVER_NS};
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        if (mailbox->lanes[i].after == number) {
            mailbox->lanes[i].after = 0;
        }
    }
    while (mailbox->lane_count > 0 &&
           mailbox->lanes[mailbox->lane_count - 1].state == SL_LANE_FREE) {
        mailbox->lane_count--;
    }
}

/* The other side wrote what cannot be, or did not do in time what it had announced. */
static void lane_drop(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    mailbox->stats.lanes_dropped++;
    lane_free(mailbox, slot, OFFER_PAUSE_NS_MAX);
}

/* The other side is gone: what it left in the ring is read still. */
static void lane_end(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    mailbox->stats.lanes_ended++;
    slot->end = sl_queue_tail(&slot->lane.reader);
    uint64_t left_bytes = slot->end - slot->lane.reader.head;
    if (left_bytes == 0 || left_bytes > slot->lane.reader.ring_bytes) {
        lane_free(mailbox, slot, OFFER_PAUSE_NS);
        return;
    }
    peer_loses_lane(mailbox, slot, OFFER_PAUSE_NS);
    fds_forget(mailbox, &slot->lane);
    mailbox->stats.lanes--;
    slot->state = SL_LANE_ENDING;
}

/* ----------------------------------------------- spinning */

/* Asked again whenever a lane comes to stand: the cores may be others by then. */
static void spin_reckon(struct sl_mailbox *mailbox)
{
    mailbox->spin_cores = sl_spin_cores();
}

/* Processes of this node that may want a core now: we, and who has not said that it sleeps. */
static uint32_t runnable_count(const struct sl_mailbox *mailbox)
{
    uint32_t count = 1;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        const struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        count += slot->state == SL_LANE_STANDS && sl_queue_reader_is_awake(&slot->lane.writer);
    }
    return count;
}

static uint64_t spin_budget(struct sl_mailbox *mailbox)
{
    if (mailbox->spin_anyway) {
        return mailbox->spin_wish_ns;
    }
    if (mailbox->stats.lanes == 0 || mailbox->spin_wish_ns == 0) {
        return 0;
    }
    return sl_spin_budget(&mailbox->spin, mailbox->spin_wish_ns, mailbox->spin_cores,
                          runnable_count(mailbox));
}

bool sl_mailbox_spin(struct sl_mailbox *mailbox, uint64_t until_ns)
{
    uint64_t budget_ns = spin_budget(mailbox);
    if (budget_ns == 0) {
        return false;
    }
    uint64_t end_ns = SL_MIN(until_ns, sl_deadline_ns(sl_clock_monotonic_ns(), budget_ns));
    bool came = false;
    do {
        for (uint32_t i = 0; i < SPIN_LOOKS && !came; i++) {
            came = sl_mailbox_lanes_ready(mailbox);
            sl_spin_pause();
        }
    } while (!came && sl_clock_monotonic_ns() < end_ns);
    sl_spin_learn(&mailbox->spin, came);
    return came;
}

/* ----------------------------------------------- coming to stand */

static void lane_stands(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    slot->state = SL_LANE_STANDS;
    slot->deadline_ns = SL_NEVER_NS;
    mailbox->stats.lanes++;
    spin_reckon(mailbox);
}

static bool watch_bell(struct sl_mailbox *mailbox, const struct sl_mailbox_lane *slot)
{
    /* Edge-triggered: every ring is news, and need not be read. */
    return sl_mailbox_watch(mailbox, slot->lane.doorbell_fd, SL_TAG_BELL, number_of(mailbox, slot),
                            EPOLLIN | EPOLLET) == 0;
}

void sl_mailbox_lane_offer(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                           uint64_t now_ns)
{
    if (mailbox->ring_bytes == 0 || peer->lane != 0 || now_ns < peer->offer_at_ns) {
        return;
    }
    char path[SL_SOCKET_PATH_BYTES];
    struct sl_mailbox_lane *slot = lane_new(mailbox);
    peer->offer_pause_ns =
        SL_MIN(SL_MAX(peer->offer_pause_ns * 2, OFFER_PAUSE_NS), OFFER_PAUSE_NS_MAX);
    peer->offer_at_ns = now_ns + peer->offer_pause_ns;
    due_at(mailbox, peer->offer_at_ns);
    if (slot == NULL || sl_lane_path(mailbox->directory, peer->name, path, sizeof(path)) != SL_OK ||
        sl_lane_offer(&slot->lane, path, mailbox->name, peer->name, mailbox->ring_bytes, NULL) !=
            SL_OK) {
        return; /* ZeroMQ carries */
    }
    slot->state = SL_LANE_OFFERED;
    slot->ours = true;
    slot->peer = (uint32_t)(peer - mailbox->peers) + 1;
    slot->deadline_ns = now_ns + HANDSHAKE_NS;
    due_at(mailbox, slot->deadline_ns);
    peer->lane = number_of(mailbox, slot) + 1;
    if (!watch_bell(mailbox, slot) ||
        sl_mailbox_watch(mailbox, slot->lane.socket_fd, SL_TAG_LANE, number_of(mailbox, slot),
                         EPOLLIN | EPOLLRDHUP) != 0) {
        lane_free(mailbox, slot, peer->offer_pause_ns);
    }
}

static void offer_answered(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    struct sl_mailbox_peer *peer = &mailbox->peers[slot->peer - 1];
    sl_err err = sl_lane_answered(&slot->lane);
    if (err == SL_OK && !sl_lane_holds(&slot->lane)) {
        err = SL_ERR_PEER_DIED; /* it said yes, and died before we heard it */
    }
    if (err == SL_OK) {
        peer->offer_pause_ns = 0;
        slot->mark_due = peer->used;
        mailbox->connect_count++;
        lane_stands(mailbox, slot);
    } else if (err != SL_ERR_NOT_FOUND) {
        /* One that died comes back soon; one that refuses does so for long. */
        lane_free(mailbox, slot,
                  err == SL_ERR_PEER_DIED ? peer->offer_pause_ns : OFFER_PAUSE_NS_MAX);
    }
}

/* Another lane under this name and of this direction. */
static struct sl_mailbox_lane *lane_of(const struct sl_mailbox *mailbox, const char *name,
                                       enum sl_mailbox_lane_state state)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state == state && !slot->ours && strcmp(slot->lane.name, name) == 0) {
            return slot;
        }
    }
    return NULL;
}

/* A name that comes again is a restarted process, or one that gave its lane up: the new one counts,
 * after what the old one still holds. */
static void lane_succeeds(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    struct sl_mailbox_lane *old = lane_of(mailbox, slot->lane.name, SL_LANE_STANDS);
    if (old != NULL) {
        struct sl_mailbox_lane *older = lane_of(mailbox, slot->lane.name, SL_LANE_ENDING);
        if (older != NULL) { /* one is enough to keep for the dead */
            lane_free(mailbox, older, 0);
        }
        lane_end(mailbox, old);
    }
    old = lane_of(mailbox, slot->lane.name, SL_LANE_ENDING);
    slot->after = old != NULL ? number_of(mailbox, old) + 1 : 0;
}

static void offer_came(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    sl_err err = sl_lane_take_offer(&slot->lane, NULL);
    if (err == SL_ERR_NOT_FOUND) {
        return;
    }
    if (err == SL_OK && slot->lane.reader.ring_bytes > mailbox->ring_bytes) {
        err = SL_ERR_LIMIT;
    }
    if (err == SL_OK && !watch_bell(mailbox, slot)) {
        err = SL_ERR_OS;
    }
    if (err == SL_OK) {
        lane_succeeds(mailbox, slot);
    }
    if (err != SL_ERR_PEER_DIED && sl_lane_confirm(&slot->lane, err) != SL_OK) {
        err = SL_ERR_PEER_DIED;
    }
    if (err == SL_OK) {
        lane_stands(mailbox, slot);
        return;
    }
    mailbox->stats.lanes_refused++;
    lane_free(mailbox, slot, 0);
}

/* The oldest of too many handshakes gives way: who stalls one must not keep the others out. */
static void half_open_bound(struct sl_mailbox *mailbox)
{
    struct sl_mailbox_lane *oldest = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state == SL_LANE_ACCEPTED) {
            count++;
            oldest = oldest == NULL || slot->deadline_ns < oldest->deadline_ns ? slot : oldest;
        }
    }
    if (count >= HALF_OPEN_MAX) {
        mailbox->stats.lanes_refused++;
        lane_free(mailbox, oldest, 0);
    }
}

static uint32_t theirs_count(const struct sl_mailbox *mailbox)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        count += mailbox->lanes[i].state != SL_LANE_FREE && !mailbox->lanes[i].ours ? 1 : 0;
    }
    return count;
}

/* Lanes of the dead that a forked child still holds open: they go when the room is needed. */
static void dead_sweep(struct sl_mailbox *mailbox)
{
    for (uint32_t i = mailbox->lane_count; i-- > 0;) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state == SL_LANE_STANDS && !slot->ours && kill((pid_t)slot->lane.pid, 0) != 0 &&
            errno == ESRCH) {
            lane_end(mailbox, slot);
        }
    }
}

/* True: there may be more to accept. */
static bool accept_one(struct sl_mailbox *mailbox, uint64_t now_ns)
{
    struct sl_lane lane;
    sl_err err = sl_lane_accept(&lane, mailbox->listen_fd);
    if (err == SL_ERR_PERMISSION) {
        mailbox->stats.lanes_refused++;
        return true;
    }
    if (err == SL_ERR_LIMIT || err == SL_ERR_OS) {
        /* It stays readable: looking away for a moment keeps the loop from spinning on it. */
        (void)epoll_ctl(mailbox->epoll_fd, EPOLL_CTL_DEL, mailbox->listen_fd, NULL);
        mailbox->listen_again_ns = now_ns + LISTEN_AGAIN_NS;
        due_at(mailbox, mailbox->listen_again_ns);
        return false;
    }
    if (err != SL_OK) {
        return false;
    }
    half_open_bound(mailbox);
    if (theirs_count(mailbox) >= mailbox->lanes_max) {
        dead_sweep(mailbox);
    }
    struct sl_mailbox_lane *slot =
        theirs_count(mailbox) < mailbox->lanes_max ? lane_new(mailbox) : NULL;
    if (slot == NULL) {
        mailbox->stats.lanes_refused++;
        (void)sl_lane_take_offer(&lane, NULL); /* unread, it would swallow the answer */
        (void)sl_lane_confirm(&lane, SL_ERR_LIMIT);
        sl_lane_close(&lane);
        return true;
    }
    slot->lane = lane;
    slot->state = SL_LANE_ACCEPTED;
    slot->deadline_ns = now_ns + HANDSHAKE_NS;
    due_at(mailbox, slot->deadline_ns);
    if (sl_mailbox_watch(mailbox, lane.socket_fd, SL_TAG_LANE, number_of(mailbox, slot),
                         EPOLLIN | EPOLLRDHUP) != 0) {
        lane_free(mailbox, slot, 0);
        return true;
    }
    offer_came(mailbox, slot); /* mostly it is there already */
    return true;
}

void sl_mailbox_lanes_event(struct sl_mailbox *mailbox, enum sl_mailbox_tag tag, uint32_t number)
{
    if (tag == SL_TAG_LISTEN) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        for (uint32_t i = 0; i < ACCEPTS_MAX && accept_one(mailbox, now_ns); i++) {
        }
        return;
    }
    /* Events of a slot that was freed in the same batch, or used anew, do no harm: what is done here
     * is asked for first. */
    if (number >= mailbox->lane_count) {
        return;
    }
    struct sl_mailbox_lane *slot = &mailbox->lanes[number];
    if (tag == SL_TAG_BELL) { /* somebody wrote, which the ring says as well */
        if (slot->lane.doorbell_fd >= 0) {
            sl_lane_rung(&slot->lane);
        }
    } else if (slot->state == SL_LANE_OFFERED) {
        offer_answered(mailbox, slot);
    } else if (slot->state == SL_LANE_ACCEPTED) {
        offer_came(mailbox, slot);
    } else if (slot->state == SL_LANE_STANDS && !sl_lane_holds(&slot->lane)) {
        lane_end(mailbox, slot);
    }
}

static void listen_again(struct sl_mailbox *mailbox, uint64_t now_ns)
{
    if (mailbox->listen_again_ns == 0 || now_ns < mailbox->listen_again_ns) {
        return;
    }
    mailbox->listen_again_ns =
        sl_mailbox_watch(mailbox, mailbox->listen_fd, SL_TAG_LISTEN, 0, EPOLLIN) == 0
            ? 0
            : now_ns + LISTEN_AGAIN_NS;
}

void sl_mailbox_lane_reconnected(struct sl_mailbox *mailbox, const struct sl_mailbox_peer *peer)
{
    struct sl_mailbox_lane *slot = peer->lane != 0 ? &mailbox->lanes[peer->lane - 1] : NULL;
    if (slot != NULL && slot->state == SL_LANE_STANDS && slot->marks_sent > 0) {
        slot->sync_due = true;
        due_at(mailbox, 0);
    }
}

/* The count of the last mark once more: its reader would wait for a lost one until MARK_NS. */
static void sync_again(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, uint64_t now_ns)
{
    const struct sl_mailbox_sync sync = {.token = slot->lane.token, .count = slot->marks_sent};
    slot->sync_due =
        sl_mailbox_zmq_request(mailbox, &mailbox->peers[slot->peer - 1], NULL, 0, &sync) != SL_OK;
    if (slot->sync_due) {
        due_at(mailbox, now_ns + SYNC_AGAIN_NS);
    }
}

void sl_mailbox_lanes_tick(struct sl_mailbox *mailbox, uint64_t now_ns)
{
    if (now_ns < mailbox->tick_at_ns) {
        return;
    }
    mailbox->tick_at_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state == SL_LANE_FREE) {
            continue;
        }
        if (slot->sync_due && slot->state == SL_LANE_STANDS) {
            sync_again(mailbox, slot, now_ns);
        }
        if (slot->deadline_ns <= now_ns) {
            lane_drop(mailbox, slot);
        } else {
            due_at(mailbox, slot->deadline_ns);
        }
    }
    for (uint32_t i = 0; mailbox->ring_bytes != 0 && i < mailbox->peer_count; i++) {
        struct sl_mailbox_peer *peer = &mailbox->peers[i];
        sl_mailbox_lane_offer(mailbox, peer, now_ns);
        if (peer->lane == 0) {
            due_at(mailbox, peer->offer_at_ns);
        }
    }
    listen_again(mailbox, now_ns);
    if (mailbox->listen_again_ns != 0) {
        due_at(mailbox, mailbox->listen_again_ns);
    }
}

/* ----------------------------------------------- sending */

static sl_err lane_write(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, uint8_t kind,
                         const void *frame, size_t length_bytes)
{
    bool doorbell = false;
    sl_err err = sl_queue_write(&slot->lane.writer, kind, frame, length_bytes, &doorbell);
    if (err == SL_ERR_PROTOCOL) {
        lane_drop(mailbox, slot);
    } else if (err == SL_OK && doorbell) {
        sl_lane_ring(&slot->lane);
        mailbox->stats.doorbells++;
    } else if (err == SL_OK) {
        mailbox->stats.wakeups_avoided++;
    }
    return err;
}

/* SL_ERR_UNSUPPORTED: the lane is none any more. */
static sl_err lane_send(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, const void *frame,
                        size_t length_bytes)
{
    sl_err err = lane_write(mailbox, slot, KIND_MESSAGE, frame, length_bytes);
    mailbox->stats.lane_sent += err == SL_OK ? 1 : 0;
    return err == SL_ERR_PROTOCOL ? SL_ERR_UNSUPPORTED : err;
}

/* A count by ZeroMQ, with a frame or alone, and the mark that waits for it in the ring. */
static sl_err lane_mark(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, const void *frame,
                        size_t length_bytes)
{
    const struct sl_mailbox_sync sync = {.token = slot->lane.token, .count = slot->marks_sent + 1};
    if (!sl_queue_has_room(&slot->lane.writer, sizeof(sync.count))) {
        return SL_ERR_LIMIT;
    }
    sl_err err = sl_mailbox_zmq_request(mailbox, &mailbox->peers[slot->peer - 1], frame,
                                        length_bytes, &sync);
    if (err != SL_OK) {
        return err;
    }
    slot->marks_sent++;
    slot->mark_due = false;
    /* It has room; a lane that is dropped here takes no message with it. */
    (void)lane_write(mailbox, slot, KIND_MARK, &sync.count, sizeof(sync.count));
    return SL_OK;
}

sl_err sl_mailbox_lane_request(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                               const void *frame, size_t length_bytes)
{
    struct sl_mailbox_lane *slot = peer->lane != 0 ? &mailbox->lanes[peer->lane - 1] : NULL;
    if (slot == NULL || slot->state != SL_LANE_STANDS) {
        return SL_ERR_UNSUPPORTED;
    }
    if (length_bytes > sl_queue_frame_bytes_max(mailbox->ring_bytes)) {
        return lane_mark(mailbox, slot, frame, length_bytes);
    }
    if (slot->mark_due) {
        sl_err err = lane_mark(mailbox, slot, NULL, 0);
        if (err != SL_OK && err != SL_ERR_UNREACHABLE) {
            return err;
        }
        slot->mark_due = false; /* without a connection nothing is on its way */
    }
    return lane_send(mailbox, slot, frame, length_bytes);
}

sl_err sl_mailbox_lane_reply(struct sl_mailbox *mailbox, const char *to, const void *frame,
                             size_t length_bytes)
{
    struct sl_mailbox_lane *slot = lane_of(mailbox, to, SL_LANE_STANDS);
    if (slot == NULL || length_bytes > sl_queue_frame_bytes_max(slot->lane.writer.ring_bytes)) {
        return SL_ERR_UNSUPPORTED;
    }
    return lane_send(mailbox, slot, frame, length_bytes);
}

/* ----------------------------------------------- receiving */

bool sl_mailbox_lane_ready(const struct sl_mailbox *mailbox, uint32_t slot_number)
{
    const struct sl_mailbox_lane *slot = &mailbox->lanes[slot_number];
    if (slot->mark_awaited != 0 || slot->after != 0) {
        return false;
    }
    return slot->state == SL_LANE_ENDING ||
           (slot->state == SL_LANE_STANDS && sl_queue_ready(&slot->lane.reader));
}

bool sl_mailbox_lanes_ready(const struct sl_mailbox *mailbox)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        if (sl_mailbox_lane_ready(mailbox, i)) {
            return true;
        }
    }
    return false;
}

/* Stops the lane at a mark whose count has not come. False: this is no mark. */
static bool mark_take(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, size_t length_bytes)
{
    uint64_t count;
    if (length_bytes != sizeof(count) || slot->ours) {
        return false;
    }
    memcpy(&count, mailbox->buffer, sizeof(count));
    if (count > slot->mark_come) {
        slot->mark_awaited = count;
        slot->deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), MARK_NS);
        due_at(mailbox, slot->deadline_ns);
    }
    return true;
}

bool sl_mailbox_lane_take(struct sl_mailbox *mailbox, uint32_t slot_number, size_t *length_bytes)
{
    struct sl_mailbox_lane *slot = &mailbox->lanes[slot_number];
    bool taken = false;
    while (!taken && sl_mailbox_lane_ready(mailbox, slot_number)) {
        uint8_t kind = 0;
        sl_err err = sl_queue_read(&slot->lane.reader, mailbox->buffer, mailbox->buffer_bytes,
                                   &kind, length_bytes);
        taken = err == SL_OK && kind == KIND_MESSAGE;
        if (!taken &&
            (err != SL_OK || kind != KIND_MARK || !mark_take(mailbox, slot, *length_bytes))) {
            lane_drop(mailbox, slot);
            return false;
        }
    }
    if (taken) {
        memcpy(mailbox->from, slot->lane.name, sizeof(mailbox->from));
        mailbox->stats.lane_received++;
    }
    /* Behind the end, also when a frame that was changed meanwhile jumps over it. */
    if (slot->state == SL_LANE_ENDING && (int64_t)(slot->end - slot->lane.reader.head) <= 0) {
        lane_free(mailbox, slot, 0);
    }
    return taken;
}

void sl_mailbox_lanes_hold(struct sl_mailbox *mailbox, const char *from)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state >= SL_LANE_STANDS && !slot->ours && strcmp(slot->lane.name, from) == 0) {
            slot->holding = true;
            slot->hold_until =
                slot->state == SL_LANE_ENDING ? slot->end : sl_queue_tail(&slot->lane.reader);
        }
    }
}

uint32_t sl_mailbox_lanes_held(const struct sl_mailbox *mailbox)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        const struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        /* One that waits for a mark waits for this frame, or for one behind it. */
        if (slot->holding && sl_mailbox_lane_ready(mailbox, i) &&
            (int64_t)(slot->hold_until - slot->lane.reader.head) > 0) {
            return i + 1;
        }
    }
    return 0;
}

void sl_mailbox_lanes_unhold(struct sl_mailbox *mailbox)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        mailbox->lanes[i].holding = false;
    }
}

void sl_mailbox_lane_sync(struct sl_mailbox *mailbox, const char *from,
                          const struct sl_mailbox_sync *sync)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state < SL_LANE_STANDS || slot->ours || slot->lane.token != sync->token ||
            strcmp(slot->lane.name, from) != 0) {
            continue;
        }
        slot->mark_come = SL_MAX(slot->mark_come, sync->count);
        if (slot->mark_awaited <= slot->mark_come) {
            slot->mark_awaited = 0;
            slot->deadline_ns = SL_NEVER_NS;
        }
    }
}

/* ----------------------------------------------- sleeping */

uint64_t sl_mailbox_sleep(struct sl_mailbox *mailbox, uint64_t now_ns)
{
    sl_mailbox_lanes_tick(mailbox, now_ns);
    if (sl_mailbox_pending(mailbox)) {
        return 0;
    }
    if (mailbox->stats.lanes == 0) {
        return mailbox->tick_at_ns;
    }
    mailbox->announced = true;
    mailbox->announced_at_ns = now_ns;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        if (mailbox->lanes[i].state == SL_LANE_STANDS) {
            sl_queue_announce(&mailbox->lanes[i].lane.reader);
        }
    }
    sl_queue_fence();
    if (sl_mailbox_lanes_ready(mailbox)) {
        sl_mailbox_lanes_awake(mailbox);
        return 0;
    }
    return SL_MIN(mailbox->tick_at_ns, now_ns + SL_QUEUE_SLEEP_NS_MAX);
}

void sl_mailbox_lanes_awake(struct sl_mailbox *mailbox)
{
    if (!mailbox->announced) {
        return;
    }
    mailbox->announced = false;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state != SL_LANE_STANDS) {
            continue;
        }
        struct sl_queue_shared *shared = slot->lane.reader.shared;
        bool untaken = atomic_load_explicit(&shared->sleeping, memory_order_relaxed) != 0;
        /* The writer saw no sleeper, and we slept to the end: what the limit of a sleep is for. */
        if (untaken && sl_mailbox_lane_ready(mailbox, i) &&
            sl_clock_monotonic_ns() - mailbox->announced_at_ns >= SL_QUEUE_SLEEP_NS_MAX) {
            mailbox->stats.late_wakeups++;
        }
        if (untaken) {
            sl_queue_awake(&slot->lane.reader);
        }
    }
}

/* ----------------------------------------------- opening and closing */

sl_err sl_mailbox_lanes_open(struct sl_mailbox *mailbox, const struct sl_mailbox_options *options,
                             struct sl_error *why)
{
    mailbox->listen_fd = -1;
    mailbox->tick_at_ns = SL_NEVER_NS;
    mailbox->ring_bytes = options->ring_bytes;
    mailbox->lanes_max = options->bind ? options->lanes_max : 0;
    mailbox->spin_wish_ns = options->spin_ns;
    mailbox->spin_anyway = options->spin_anyway;
    if (options->ring_bytes == 0) {
        return SL_OK;
    }
    mailbox->buffer_bytes = sl_queue_frame_bytes_max(options->ring_bytes);
    mailbox->buffer = malloc(mailbox->buffer_bytes);
    mailbox->lanes =
        calloc((size_t)mailbox->lanes_max + SL_MAILBOX_PEERS_MAX, sizeof(*mailbox->lanes));
    if (mailbox->buffer == NULL || mailbox->lanes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u lanes of mailbox '%s'",
                       mailbox->lanes_max, mailbox->name);
    }
    return SL_OK;
}

sl_err sl_mailbox_lanes_listen(struct sl_mailbox *mailbox, struct sl_error *why)
{
    char path[SL_SOCKET_PATH_BYTES];
    if (mailbox->ring_bytes == 0 || mailbox->lanes_max == 0) {
        return SL_OK;
    }
    sl_err err = sl_lane_path(mailbox->directory, mailbox->name, path, sizeof(path));
    if (err == SL_OK) {
        err = sl_lane_listen(path, &mailbox->listen_fd, why);
    }
    if (err == SL_OK &&
        sl_mailbox_watch(mailbox, mailbox->listen_fd, SL_TAG_LISTEN, 0, EPOLLIN) != 0) {
        err = sl_fail(why, SL_ERR_OS, "watch '%s'", path);
    }
    return err;
}

void sl_mailbox_lanes_close(struct sl_mailbox *mailbox)
{
    for (uint32_t i = 0; mailbox->lanes != NULL && i < mailbox->lane_count; i++) {
        sl_lane_close(&mailbox->lanes[i].lane);
    }
    if (mailbox->listen_fd >= 0) {
        char path[SL_SOCKET_PATH_BYTES];
        if (sl_lane_path(mailbox->directory, mailbox->name, path, sizeof(path)) == SL_OK) {
            (void)unlink(path);
        }
        (void)close(mailbox->listen_fd);
        mailbox->listen_fd = -1;
    }
    free(mailbox->lanes);
    free(mailbox->buffer);
}
