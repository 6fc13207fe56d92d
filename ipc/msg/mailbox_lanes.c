/* ipc/msg/mailbox_lanes.c - the lanes of a mailbox: offered to peers, accepted from peers, read and
 * written, and closed when the other side dies or violates the protocol. */
#include "ipc/msg/mailbox_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define KIND_MESSAGE 1u
#define KIND_LONG    2u /* empty: the frame itself is sent over the socket */

/* An offer is one packet, sent right after the connect: a peer that takes longer is stuck. */
#define HANDSHAKE_NS  (2 * SL_NS_PER_S)
#define HALF_OPEN_MAX 32u
#define ACCEPTS_MAX   32u /* at a time */
/* Pause after an offer to an absent peer: a restarted actor is found soon. */
#define OFFER_PAUSE_NS     (10 * SL_NS_PER_MS)
#define OFFER_PAUSE_NS_MAX (100 * SL_NS_PER_MS)
/* Pause after a refusal. */
#define REFUSED_PAUSE_NS (1 * SL_NS_PER_S)
#define LISTEN_AGAIN_NS  (100 * SL_NS_PER_MS)
/* Prefix of clients' names: lanes of actors are counted separately. */
#define CLIENT_PREFIX "client."
/* Reads the clock once in this number of polls of the rings. */
#define SPIN_LOOKS 32u

static void due_at(struct sl_mailbox *mailbox, uint64_t at_ns)
{
    mailbox->tick_at_ns = SL_MIN(mailbox->tick_at_ns, at_ns);
}

/* ----------------------------------------------- slots */

/* Lanes that clients and actors offer us, and those that we offer. */
static uint32_t slots_max(const struct sl_mailbox *mailbox)
{
    return mailbox->lanes_max + 2 * SL_MAILBOX_PEERS_MAX;
}

static struct sl_mailbox_lane *lane_new(struct sl_mailbox *mailbox)
{
    for (uint32_t i = 0; i < slots_max(mailbox); i++) {
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

/* Stop watching explicitly: if the doorbell's other owner keeps it open, closing does not. */
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

/* refused: result of sends until the next lane is open. */
static void peer_loses_lane(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot,
                            sl_err refused)
{
    if (slot->peer != 0) {
        struct sl_mailbox_peer *peer = &mailbox->peers[slot->peer - 1];
        bool gone = refused == SL_ERR_UNREACHABLE; /* it may return soon */
        peer->lane = 0;
        peer->refused = refused;
        peer->offer_at_ns =
            sl_deadline_ns(sl_clock_monotonic_ns(), gone ? peer->offer_pause_ns : REFUSED_PAUSE_NS);
        due_at(mailbox, peer->offer_at_ns);
        slot->peer = 0;
    }
}

static void lane_free(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, sl_err refused)
{
    uint32_t number = number_of(mailbox, slot) + 1;
    peer_loses_lane(mailbox, slot, refused);
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

/* The other side wrote invalid data, or missed a deadline. */
static void lane_drop(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    mailbox->stats.lanes_dropped++;
    lane_free(mailbox, slot, SL_ERR_BUSY);
}

/* The other side has closed: frames left in the ring and the socket are still read. */
static void lane_end(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    mailbox->stats.lanes_ended++;
    slot->end = sl_queue_tail(&slot->lane.reader);
    uint64_t left_bytes = slot->end - slot->lane.reader.head;
    if (left_bytes == 0 || left_bytes > slot->lane.reader.ring_bytes) {
        lane_free(mailbox, slot, SL_ERR_UNREACHABLE);
        return;
    }
    peer_loses_lane(mailbox, slot, SL_ERR_UNREACHABLE);
    (void)shutdown(slot->lane.socket_fd, SHUT_RDWR); /* if it is alive, this notifies it */
    mailbox->stats.lanes--;
    slot->state = SL_LANE_ENDING;
}

/* ----------------------------------------------- spinning */

/* Processes of this node that may want a core now: this one, and all that have not announced that
 * they sleep. */
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
            came = sl_mailbox_pending(mailbox);
            sl_spin_pause();
        }
    } while (!came && sl_clock_monotonic_ns() < end_ns);
    sl_spin_result(&mailbox->spin, came);
    return came;
}

/* ----------------------------------------------- opening */

static void lane_opened(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    slot->state = SL_LANE_STANDS;
    slot->deadline_ns = SL_NEVER_NS;
    mailbox->stats.lanes++;
    mailbox->spin_cores = sl_spin_cores(); /* they may have changed by then */
}

static bool watch_bell(struct sl_mailbox *mailbox, const struct sl_mailbox_lane *slot)
{
    /* Edge-triggered: every ring is an event, and need not be read. */
    return sl_mailbox_watch(mailbox, slot->lane.doorbell_fd, SL_TAG_BELL, number_of(mailbox, slot),
                            EPOLLIN | EPOLLET) == 0;
}

/* Edge-triggered: frames in an open lane's socket are announced by the ring. */
static bool watch_socket(struct sl_mailbox *mailbox, const struct sl_mailbox_lane *slot)
{
    return sl_mailbox_watch(mailbox, slot->lane.socket_fd, SL_TAG_LANE, number_of(mailbox, slot),
                            EPOLLIN | EPOLLRDHUP | EPOLLET) == 0;
}

void sl_mailbox_lane_offer(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                           uint64_t now_ns)
{
    if (peer->lane != 0 || now_ns < peer->offer_at_ns) {
        return;
    }
    char path[SL_SOCKET_PATH_BYTES];
    struct sl_mailbox_lane *slot = lane_new(mailbox);
    peer->offer_pause_ns =
        SL_MIN(SL_MAX(peer->offer_pause_ns * 2, OFFER_PAUSE_NS), OFFER_PAUSE_NS_MAX);
    peer->offer_at_ns = now_ns + peer->offer_pause_ns;
    due_at(mailbox, peer->offer_at_ns);
    peer->refused = slot != NULL ? sl_lane_path(mailbox->directory, peer->name, path, sizeof(path))
                                 : SL_ERR_LIMIT;
    peer->os_code = 0;
    if (peer->refused == SL_OK) {
        peer->refused =
            sl_lane_offer(&slot->lane, path, mailbox->name, peer->name, mailbox->ring_bytes);
        peer->os_code = peer->refused == SL_ERR_LIMIT ? errno : 0;
    }
    if (peer->refused != SL_OK) {
        return;
    }
    /* No deadline: a process that listens either answers or dies. */
    slot->state = SL_LANE_OFFERED;
    slot->ours = true;
    slot->peer = (uint32_t)(peer - mailbox->peers) + 1;
    peer->lane = number_of(mailbox, slot) + 1;
    peer->refused = SL_ERR_BUSY;
    if (!watch_bell(mailbox, slot) || !watch_socket(mailbox, slot)) {
        lane_free(mailbox, slot, SL_ERR_OS);
    }
}

static void offer_answered(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    sl_err err = sl_lane_answered(&slot->lane);
    if (err == SL_OK && !sl_lane_holds(&slot->lane)) {
        err = SL_ERR_PEER_DIED; /* it accepted, and died before we received that */
    }
    if (err == SL_OK) {
        mailbox->peers[slot->peer - 1].offer_pause_ns = OFFER_PAUSE_NS;
        mailbox->connect_count++;
        lane_opened(mailbox, slot);
    } else if (err != SL_ERR_NOT_FOUND) {
        lane_free(mailbox, slot, err == SL_ERR_PEER_DIED ? SL_ERR_UNREACHABLE : err);
    }
}

/* Finds the lane in this state that the peer of this name offered. */
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

/* A name that connects again is a restarted process, or one that gave up its lane: the new lane
 * counts, after the frames left in the old one. */
static void lane_replace_older(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    struct sl_mailbox_lane *old = lane_of(mailbox, slot->lane.name, SL_LANE_STANDS);
    if (old != NULL) {
        struct sl_mailbox_lane *older = lane_of(mailbox, slot->lane.name, SL_LANE_ENDING);
        if (older != NULL) { /* one is enough to keep for a dead process */
            lane_free(mailbox, older, SL_OK);
        }
        lane_end(mailbox, old);
    }
    old = lane_of(mailbox, slot->lane.name, SL_LANE_ENDING);
    slot->after = old != NULL ? number_of(mailbox, old) + 1 : 0;
}

static uint32_t theirs_count(const struct sl_mailbox *mailbox, const char *prefix)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        const struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        count += slot->state != SL_LANE_FREE && !slot->ours &&
                 strncmp(slot->lane.name, prefix, strlen(prefix)) == 0;
    }
    return count;
}

/* Frees lanes of dead processes that a forked child still holds open, when room is needed. */
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

/* Whether there is room for one more lane to us under a name with this prefix. */
static bool has_room(struct sl_mailbox *mailbox, const char *prefix, uint32_t most)
{
    if (theirs_count(mailbox, prefix) > most) {
        dead_sweep(mailbox);
    }
    return theirs_count(mailbox, prefix) <= most;
}

static void offer_came(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot)
{
    sl_err err = sl_lane_take_offer(&slot->lane);
    if (err == SL_ERR_NOT_FOUND) {
        return;
    }
    if (err == SL_OK && (slot->lane.reader.ring_bytes > mailbox->ring_bytes ||
                         !has_room(mailbox, CLIENT_PREFIX, mailbox->lanes_max))) {
        err = SL_ERR_LIMIT;
    }
    if (err == SL_OK && !watch_bell(mailbox, slot)) {
        err = SL_ERR_OS;
    }
    if (err == SL_OK) {
        lane_replace_older(mailbox, slot);
    }
    if (err != SL_ERR_PEER_DIED && sl_lane_confirm(&slot->lane, err) != SL_OK) {
        err = SL_ERR_PEER_DIED;
    }
    if (err == SL_OK) {
        lane_opened(mailbox, slot);
        return;
    }
    mailbox->stats.lanes_refused++;
    lane_free(mailbox, slot, SL_OK);
}

/* The oldest of too many handshakes is dropped, so that stalled ones do not keep others out. */
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
        lane_free(mailbox, oldest, SL_OK);
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
        /* It stays readable: not watching it for a moment keeps the loop from spinning. */
        (void)epoll_ctl(mailbox->epoll_fd, EPOLL_CTL_DEL, mailbox->listen_fd, NULL);
        mailbox->listen_again_ns = now_ns + LISTEN_AGAIN_NS;
        due_at(mailbox, mailbox->listen_again_ns);
        return false;
    }
    if (err != SL_OK) {
        return false;
    }
    half_open_bound(mailbox);
    bool room = has_room(mailbox, "", mailbox->lanes_max + SL_MAILBOX_PEERS_MAX - 1);
    struct sl_mailbox_lane *slot = room ? lane_new(mailbox) : NULL;
    if (slot == NULL) {
        mailbox->stats.lanes_refused++;
        (void)sl_lane_take_offer(&lane); /* unread, it would absorb the answer */
        (void)sl_lane_confirm(&lane, SL_ERR_LIMIT);
        sl_lane_close(&lane);
        return true;
    }
    slot->lane = lane;
    slot->state = SL_LANE_ACCEPTED;
    slot->deadline_ns = now_ns + HANDSHAKE_NS;
    due_at(mailbox, slot->deadline_ns);
    if (!watch_socket(mailbox, slot)) {
        lane_free(mailbox, slot, SL_OK);
        return true;
    }
    offer_came(mailbox, slot); /* usually the offer has arrived */
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
    /* Events of a slot that was freed or reused in the same batch are harmless: each action is
     * checked first. */
    if (number >= mailbox->lane_count) {
        return;
    }
    struct sl_mailbox_lane *slot = &mailbox->lanes[number];
    if (tag == SL_TAG_BELL) { /* a frame was written, which the ring shows as well */
        if (slot->lane.doorbell_fd >= 0) {
            sl_lane_bell_drain(&slot->lane);
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

void sl_mailbox_lanes_tick(struct sl_mailbox *mailbox, uint64_t now_ns)
{
    if (now_ns < mailbox->tick_at_ns) {
        return;
    }
    mailbox->tick_at_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->deadline_ns <= now_ns) {
            lane_drop(mailbox, slot);
        } else {
            due_at(mailbox, slot->deadline_ns);
        }
    }
    for (uint32_t i = 0; i < mailbox->peer_count; i++) {
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

static sl_err lane_send(struct sl_mailbox *mailbox, struct sl_mailbox_lane *slot, const void *frame,
                        size_t length_bytes)
{
    bool is_long = length_bytes > sl_queue_frame_bytes_max(slot->lane.writer.ring_bytes);
    bool doorbell = false;
    sl_err err = SL_OK;
    if (is_long) { /* after this nothing may fail for lack of room */
        err = !sl_queue_has_room(&slot->lane.writer, 0)
                  ? SL_ERR_LIMIT
                  : sl_lane_send_long(&slot->lane, frame, length_bytes, mailbox->message_bytes_max);
    }
    if (err == SL_OK) {
        err = sl_queue_write(&slot->lane.writer, is_long ? KIND_LONG : KIND_MESSAGE, frame,
                             is_long ? 0 : length_bytes, &doorbell);
    }
    if (err == SL_ERR_PROTOCOL) {
        lane_drop(mailbox, slot);
    }
    if (err != SL_OK) {
        return err == SL_ERR_LIMIT ? SL_ERR_LIMIT : SL_ERR_UNREACHABLE;
    }
    if (doorbell) {
        sl_lane_ring(&slot->lane);
    }
    mailbox->stats.doorbells += doorbell ? 1 : 0;
    mailbox->stats.wakeups_avoided += doorbell ? 0 : 1;
    mailbox->stats.lane_sent++;
    return SL_OK;
}

sl_err sl_mailbox_lane_request(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                               const void *frame, size_t length_bytes)
{
    struct sl_mailbox_lane *slot = peer->lane != 0 ? &mailbox->lanes[peer->lane - 1] : NULL;
    return slot != NULL && slot->state == SL_LANE_STANDS
               ? lane_send(mailbox, slot, frame, length_bytes)
               : peer->refused;
}

sl_err sl_mailbox_lane_reply(struct sl_mailbox *mailbox, const char *to, const void *frame,
                             size_t length_bytes)
{
    struct sl_mailbox_lane *slot = lane_of(mailbox, to, SL_LANE_STANDS);
    return slot != NULL ? lane_send(mailbox, slot, frame, length_bytes) : SL_ERR_UNREACHABLE;
}

/* ----------------------------------------------- receiving */

/* Whether a frame may be taken off this lane now. */
static bool lane_ready(const struct sl_mailbox_lane *slot)
{
    return slot->after == 0 &&
           (slot->state == SL_LANE_ENDING ||
            (slot->state == SL_LANE_STANDS && sl_queue_ready(&slot->lane.reader)));
}

bool sl_mailbox_pending(const struct sl_mailbox *mailbox)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        if (lane_ready(&mailbox->lanes[i])) {
            return true;
        }
    }
    return false;
}

static void long_frame_end(struct sl_mailbox *mailbox)
{
    if (mailbox->long_frame != NULL) {
        (void)munmap(mailbox->long_frame, mailbox->long_bytes);
        mailbox->long_frame = NULL;
    }
}

static void spare_close(struct sl_mailbox *mailbox)
{
    if (mailbox->spare_fd >= 0) {
        (void)close(mailbox->spare_fd);
    }
}

bool sl_mailbox_lane_take(struct sl_mailbox *mailbox, uint32_t slot_number, const void **frame,
                          size_t *length_bytes)
{
    struct sl_mailbox_lane *slot = &mailbox->lanes[slot_number];
    uint8_t kind = 0;
    if (!lane_ready(slot)) {
        return false;
    }
    long_frame_end(mailbox);
    *frame = mailbox->buffer;
    sl_err err = sl_queue_read(&slot->lane.reader, mailbox->buffer, mailbox->buffer_bytes, &kind,
                               length_bytes);
    if (err == SL_OK && kind == KIND_LONG && *length_bytes == 0) {
        spare_close(mailbox);
        err = sl_lane_take_long(&slot->lane, mailbox->message_bytes_max, &mailbox->long_frame,
                                &mailbox->long_bytes);
        mailbox->spare_fd = fcntl(mailbox->epoll_fd, F_DUPFD_CLOEXEC, 0);
        *frame = mailbox->long_frame;
        *length_bytes = mailbox->long_bytes;
    } else if (kind != KIND_MESSAGE) {
        err = SL_ERR_PROTOCOL;
    }
    if (err != SL_OK && err != SL_ERR_LIMIT) { /* without a descriptor one frame is lost, not all */
        lane_drop(mailbox, slot);
        return false;
    }
    memcpy(mailbox->from, slot->lane.name, sizeof(mailbox->from));
    mailbox->stats.lane_received += err == SL_OK ? 1 : 0;
    /* At or past the end, even if a frame that was changed meanwhile skips over it. */
    if (slot->state == SL_LANE_ENDING && (int64_t)(slot->end - slot->lane.reader.head) <= 0) {
        lane_free(mailbox, slot, SL_OK);
    }
    return err == SL_OK;
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
    if (sl_mailbox_pending(mailbox)) {
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
        /* The writer saw no sleeper, so this sleep lasted until its limit. */
        if (untaken && lane_ready(slot) &&
            sl_clock_monotonic_ns() - mailbox->announced_at_ns >= SL_QUEUE_SLEEP_NS_MAX) {
            mailbox->stats.late_wakeups++;
        }
        if (untaken) {
            sl_queue_awake(&slot->lane.reader);
        }
    }
}

/* ----------------------------------------------- opening and closing */

static sl_err lanes_listen(struct sl_mailbox *mailbox, struct sl_error *why)
{
    char path[SL_SOCKET_PATH_BYTES];
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

sl_err sl_mailbox_lanes_open(struct sl_mailbox *mailbox, const struct sl_mailbox_options *options,
                             struct sl_error *why)
{
    mailbox->tick_at_ns = SL_NEVER_NS;
    mailbox->ring_bytes = options->ring_bytes;
    mailbox->lanes_max = options->lanes_max;
    mailbox->spin_wish_ns = options->spin_ns;
    mailbox->spin_anyway = options->spin_anyway;
    mailbox->buffer_bytes = sl_queue_frame_bytes_max(options->ring_bytes);
    mailbox->buffer = malloc(mailbox->buffer_bytes);
    mailbox->peers = calloc(SL_MAILBOX_PEERS_MAX, sizeof(*mailbox->peers));
    mailbox->lanes = calloc(slots_max(mailbox), sizeof(*mailbox->lanes));
    if (mailbox->buffer == NULL || mailbox->lanes == NULL || mailbox->peers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u lanes of mailbox '%s'",
                       mailbox->lanes_max, mailbox->name);
    }
    return mailbox->lanes_max > 0 ? lanes_listen(mailbox, why) : SL_OK;
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
    long_frame_end(mailbox);
    spare_close(mailbox);
    free(mailbox->lanes);
    free(mailbox->peers);
    free(mailbox->buffer);
}
