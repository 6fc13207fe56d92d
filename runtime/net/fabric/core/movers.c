/* runtime/net/fabric/core/movers.c - see movers.h. Orders and results are passed in arrays of
 * maximum size, under one lock for each mover. Each side is woken by an eventfd, once for all new
 * entries. */
#include "runtime/net/fabric/core/movers.h"

#include "runtime/base/sl_signals.h"
#include "runtime/base/sl_spin.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RING_ENTRIES_MAX 4096u
#define ORDERS_A_SLOT    3u /* a late cancel, a start, and its cancel */
#define TOLD_LATE_MAX    4u /* values of a chain for which a busy mover wakes the owner */

enum order_kind { ORDER_RECEIVE, ORDER_SEND, ORDER_CANCEL };
struct order {
    uint32_t slot;
    uint32_t serial; /* of the operation: a late cancel must not hit the next one */
    uint8_t kind;
    int fd; /* ORDER_SEND */
    const struct sl_seal_job *seal;
    struct sl_mover_receive receive; /* ORDER_RECEIVE */
};

/* A mover's state of a slot. */
struct work {
    struct order order; /* `to` of its receive advances with the received bytes */
    bool busy, cancelled;
    bool in_head; /* the head of the next step is being received */
    uint32_t moved_bytes;
    struct msghdr message; /* in use by the kernel */
};

/* The owner's state of a slot. */
struct slot {
    uint32_t serial;
    bool on, cancelled;
};

struct mover {
    struct sl_movers *movers;
    pthread_t thread;
    bool started;
    struct io_uring ring;
    int wake_fd;
    uint64_t wakes;  /* buffer for the ring's read */
    bool has_orders; /* owner: new orders since the last flush */

    pthread_mutex_t lock;
    pthread_cond_t has_opened;
    bool opened;
    sl_err open_code;
    struct sl_error why;
    struct order *orders; /* capacity: ORDERS_A_SLOT for each slot */
    uint32_t order_count;
    struct sl_mover_done *dones; /* ring; a chain for each slot, rounded to a power of two */
    uint32_t done_head, done_count, done_capacity;
    uint32_t late_count; /* number of newest results without a wake-up */
    bool stop;
    bool wakes_now; /* a result other than a value in a chain exists */

    struct order *taken; /* the thread's copy of orders */
    struct work *works;  /* operations by slot */
    struct iovec *parts; /* SL_OPENER_PARTS of each slot */
};

struct sl_movers {
    uint32_t count, slot_count;
    int wake_fd;
    struct slot *slots;
    struct mover *movers;
};

#define TAG_WAKE   UINT64_MAX
#define TAG_CANCEL (UINT64_MAX - 1)

sl_err sl_ring_open(struct io_uring *ring, uint32_t slot_count, struct sl_error *why)
{
    unsigned entries = 64;
    while (entries < RING_ENTRIES_MAX && entries < slot_count) {
        entries *= 2;
    }
    const unsigned plain = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE;
    struct io_uring_params params = {
        .flags = plain | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        .cq_entries = entries * 4,
    };
    int result = io_uring_queue_init_params(entries, ring, &params);
    if (result == -EINVAL) { /* a kernel before 6.1 */
        params = (struct io_uring_params){.flags = plain, .cq_entries = entries * 4};
        result = io_uring_queue_init_params(entries, ring, &params);
    }
    return result >= 0 ? SL_OK
                       : sl_fail(why, SL_ERR_UNSUPPORTED, "no io_uring of %u entries: %s", entries,
                                 strerror(-result));
}

struct io_uring_sqe *sl_ring_sqe(struct io_uring *ring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (sqe == NULL) {
        (void)io_uring_submit(ring);
        sqe = io_uring_get_sqe(ring);
    }
    SL_ASSERT(sqe != NULL); /* submit empties the queue */
    return sqe;
}

uint32_t sl_movers_count(uint32_t wanted)
{
    uint32_t cores = sl_spin_cores();
    return SL_MIN(wanted, cores == 2 ? cores : cores / 2);
}

void sl_low_water_set(struct sl_low_water *low, int fd, uint32_t bytes)
{
    int value = (int)bytes;
    if (low->bytes != bytes &&
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value)) == 0) {
        low->bytes = bytes;
    }
}

static void wake(int fd)
{
    const uint64_t one = 1;
    ssize_t put = write(fd, &one, sizeof(one)); /* EAGAIN: already woken */
    (void)put;
}

/* ---- the thread ---- */

static void mover_listen(struct mover *mover)
{
    struct io_uring_sqe *sqe = sl_ring_sqe(&mover->ring);
    io_uring_prep_read(sqe, mover->wake_fd, &mover->wakes, sizeof(mover->wakes), 0);
    io_uring_sqe_set_data64(sqe, TAG_WAKE);
}

static void receive_submit(struct mover *mover, struct work *work)
{
    const struct sl_mover_receive *receive = &work->order.receive;
    struct io_uring_sqe *sqe = sl_ring_sqe(&mover->ring);
    struct iovec *parts = &mover->parts[(size_t)work->order.slot * SL_OPENER_PARTS];
    uint32_t left_bytes = work->in_head ? 0 : receive->length_bytes - work->moved_bytes;
    uint32_t low_bytes = 0;
    work->message = (struct msghdr){.msg_iov = parts};
    work->message.msg_iovlen =
        sl_opener_parts(receive->opener, receive->to, left_bytes, parts, &low_bytes);
    sl_low_water_set(receive->low, receive->fd, low_bytes);
    io_uring_prep_recvmsg(sqe, receive->fd, &work->message, 0);
    io_uring_sqe_set_data64(sqe, work->order.slot);
}

static void mover_report(struct mover *mover, const struct sl_mover_done *done)
{
    (void)pthread_mutex_lock(&mover->lock);
    mover->wakes_now |= !done->more;
    mover->late_count++;
    SL_ASSERT(mover->done_count < mover->done_capacity);
    uint32_t at = (mover->done_head + mover->done_count++) & (mover->done_capacity - 1);
    mover->dones[at] = *done;
    (void)pthread_mutex_unlock(&mover->lock);
}

/* Wakes the owner for unreported results: always before the mover sleeps; while it is busy, values
 * of a chain are reported a few at a time. */
static void owner_wake(struct mover *mover, bool sleeps)
{
    (void)pthread_mutex_lock(&mover->lock);
    uint32_t late = SL_MIN(mover->late_count, mover->done_count); /* the owner may have some */
    bool now = late > 0 && (sleeps || mover->wakes_now || late >= TOLD_LATE_MAX);
    if (now || late == 0) {
        mover->late_count = 0;
        mover->wakes_now = false;
    }
    (void)pthread_mutex_unlock(&mover->lock);
    if (now) {
        wake(mover->movers->wake_fd);
    }
}

static void mover_end(struct mover *mover, struct work *work, int32_t result)
{
    const struct sl_mover_done done = {
        .slot = work->order.slot, .result = result, .in_head = work->in_head};
    work->busy = false;
    mover_report(mover, &done);
}

static void step_begin(struct work *work)
{
    struct sl_mover_receive *receive = &work->order.receive;
    const struct sl_mover_step *step = receive->steps;
    receive->to = step->to;
    receive->length_bytes = step->length_bytes;
    receive->digest = step->digest;
    receive->steps++;
    receive->step_count--;
    work->in_head = false;
    work->moved_bytes = 0;
}

static void value_whole(struct mover *mover, struct work *work)
{
    if (work->order.receive.step_count == 0 || work->cancelled) {
        mover_end(mover, work, (int32_t)work->moved_bytes);
        return;
    }
    const struct sl_mover_done done = {
        .slot = work->order.slot, .result = (int32_t)work->moved_bytes, .more = true};
    mover_report(mover, &done);
    work->in_head = true;
}

/* Accounts for received bytes or the next head, or for the end of an operation. */
static void moved(struct mover *mover, struct work *work, int32_t result)
{
    struct sl_mover_receive *receive = &work->order.receive;
    if (result <= 0) {
        bool some = !work->in_head && work->moved_bytes > 0;
        mover_end(mover, work, some ? (int32_t)work->moved_bytes : result);
        return;
    }
    if (work->in_head) {
        step_begin(work);
        return;
    }
    sl_runs_skip(&receive->to, (uint64_t)result);
    work->moved_bytes += (uint32_t)result;
    if (work->moved_bytes == receive->length_bytes) {
        value_whole(mover, work);
    }
}

/* Takes available bytes until more must be received, or the operation has ended. */
static void receive_pump(struct mover *mover, struct work *work)
{
    struct sl_mover_receive *receive = &work->order.receive;
    while (work->busy) {
        int32_t got = 0;
        if (!work->in_head) {
            got = sl_opener_take(receive->opener, receive->to,
                                 receive->length_bytes - work->moved_bytes, receive->digest);
        } else if (!work->cancelled) {
            got = sl_opener_expect(receive->opener, receive->steps->head);
        }
        if (got == 0 && !work->cancelled) {
            receive_submit(mover, work);
            return;
        }
        moved(mover, work, got == 0 ? -ECANCELED : got);
    }
}

static void send_submit(struct mover *mover, struct work *work)
{
    int32_t result = work->cancelled ? -ECANCELED : sl_seal_next(work->order.seal, &work->message);
    if (result <= 0) {
        mover_end(mover, work, result < 0 ? result : 1);
        return;
    }
    struct io_uring_sqe *sqe = sl_ring_sqe(&mover->ring);
    io_uring_prep_sendmsg(sqe, work->order.fd, &work->message, MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_data64(sqe, work->order.slot);
}

static void mover_done(struct mover *mover, struct work *work, int32_t result)
{
    if (result <= 0) {
        moved(mover, work, result);
    } else if (work->order.kind == ORDER_RECEIVE) {
        sl_opener_received(work->order.receive.opener, (uint32_t)result);
        receive_pump(mover, work);
    } else {
        sl_seal_sent(work->order.seal, (uint32_t)result);
        send_submit(mover, work);
    }
}

static void mover_cancel(struct mover *mover, struct work *work, const struct order *order)
{
    if (!work->busy || work->order.serial != order->serial) {
        return; /* it has ended */
    }
    work->cancelled = true;
    struct io_uring_sqe *sqe = sl_ring_sqe(&mover->ring);
    io_uring_prep_cancel64(sqe, order->slot, 0);
    io_uring_sqe_set_data64(sqe, TAG_CANCEL);
}

static void mover_order(struct mover *mover, const struct order *order)
{
    struct work *work = &mover->works[order->slot];
    if (order->kind == ORDER_CANCEL) {
        mover_cancel(mover, work, order);
        return;
    }
    *work = (struct work){.order = *order, .busy = true};
    if (order->kind == ORDER_RECEIVE) {
        receive_pump(mover, work);
    } else {
        send_submit(mover, work);
    }
}

/* Takes new orders. False: the thread must stop. */
static bool mover_woken(struct mover *mover)
{
    (void)pthread_mutex_lock(&mover->lock);
    uint32_t count = mover->order_count;
    bool stop = mover->stop;
    memcpy(mover->taken, mover->orders, count * sizeof(*mover->taken));
    mover->order_count = 0;
    (void)pthread_mutex_unlock(&mover->lock);
    for (uint32_t i = 0; i < count && !stop; i++) {
        mover_order(mover, &mover->taken[i]);
    }
    return !stop;
}

static void *mover_run(void *context)
{
    struct mover *mover = context;
    /* With SINGLE_ISSUER, a ring belongs to the thread that opens it. */
    sl_err err = sl_ring_open(&mover->ring, mover->movers->slot_count, &mover->why);
    (void)pthread_mutex_lock(&mover->lock);
    mover->opened = true;
    mover->open_code = err;
    (void)pthread_cond_signal(&mover->has_opened);
    (void)pthread_mutex_unlock(&mover->lock);
    if (err != SL_OK) {
        return NULL;
    }
    bool goes_on = true;
    mover_listen(mover);
    while (goes_on) {
        struct io_uring_cqe *cqe = NULL;
        (void)io_uring_submit_and_get_events(&mover->ring);
        bool sleeps = io_uring_cq_ready(&mover->ring) == 0;
        if (sleeps) {
            owner_wake(mover, true);
            (void)io_uring_submit_and_wait(&mover->ring, 1); /* EINTR: the loop continues */
        }
        while (goes_on && io_uring_peek_cqe(&mover->ring, &cqe) == 0) {
            struct io_uring_cqe copy = *cqe;
            io_uring_cqe_seen(&mover->ring, cqe);
            if (copy.user_data == TAG_WAKE) {
                mover_listen(mover); /* before reading orders, so that no wake-up is lost */
                goes_on = mover_woken(mover);
            } else if (copy.user_data != TAG_CANCEL) {
                mover_done(mover, &mover->works[copy.user_data], copy.res);
            }
            owner_wake(mover, false);
        }
    }
    io_uring_queue_exit(&mover->ring); /* ends operations in progress */
    return NULL;
}

/* ---- the owner ---- */

/* Blocks signals, which are for the actor's own thread. */
static int thread_start(struct mover *mover)
{
    sigset_t all, before;
    sl_signals_of_others(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int os_code = pthread_create(&mover->thread, NULL, mover_run, mover);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    mover->started = os_code == 0;
    return os_code;
}

static sl_err mover_open(struct mover *mover, struct sl_error *why)
{
    uint32_t slots = mover->movers->slot_count;
    mover->orders = calloc(ORDERS_A_SLOT * (size_t)slots, sizeof(*mover->orders));
    mover->taken = calloc(ORDERS_A_SLOT * (size_t)slots, sizeof(*mover->taken));
    mover->done_capacity = 1;
    while (mover->done_capacity < slots * (SL_MOVER_STEPS_MAX + 1)) {
        mover->done_capacity *= 2;
    }
    mover->dones = calloc(mover->done_capacity, sizeof(*mover->dones));
    mover->works = calloc(slots, sizeof(*mover->works));
    mover->parts = calloc((size_t)slots * SL_OPENER_PARTS, sizeof(*mover->parts));
    if (mover->orders == NULL || mover->taken == NULL || mover->dones == NULL ||
        mover->works == NULL || mover->parts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a mover of %u connections", slots);
    }
    mover->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (mover->wake_fd < 0) {
        return sl_fail_os(why, errno, "eventfd");
    }
    int os_code = thread_start(mover);
    if (os_code != 0) {
        return sl_fail_os(why, os_code, "start a mover");
    }
    (void)pthread_mutex_lock(&mover->lock);
    while (!mover->opened) {
        (void)pthread_cond_wait(&mover->has_opened, &mover->lock);
    }
    sl_err err = mover->open_code;
    (void)pthread_mutex_unlock(&mover->lock);
    if (err != SL_OK && why != NULL) {
        *why = mover->why;
    }
    return err;
}

sl_err sl_movers_open(uint32_t count, uint32_t slot_count, int wake_fd, struct sl_movers **out,
                      struct sl_error *why)
{
    struct sl_movers *movers = calloc(1, sizeof(*movers));
    *out = NULL;
    if (movers != NULL) {
        *movers = (struct sl_movers){.slot_count = slot_count, .wake_fd = wake_fd};
        movers->slots = calloc(slot_count, sizeof(*movers->slots));
        movers->movers = calloc(count, sizeof(*movers->movers));
    }
    if (movers == NULL || movers->slots == NULL || movers->movers == NULL) {
        sl_movers_close(&movers);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u movers", count);
    }
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        struct mover *mover = &movers->movers[i];
        *mover = (struct mover){.movers = movers, .wake_fd = -1};
        (void)pthread_mutex_init(&mover->lock, NULL);
        (void)pthread_cond_init(&mover->has_opened, NULL);
        movers->count++;
        err = mover_open(mover, why);
    }
    if (err != SL_OK) {
        sl_movers_close(&movers);
    }
    *out = movers;
    return err;
}

static void mover_close(struct mover *mover)
{
    if (mover->started) {
        (void)pthread_mutex_lock(&mover->lock);
        mover->stop = true;
        (void)pthread_mutex_unlock(&mover->lock);
        wake(mover->wake_fd);
        (void)pthread_join(mover->thread, NULL);
    }
    if (mover->wake_fd >= 0) {
        close(mover->wake_fd);
    }
    (void)pthread_cond_destroy(&mover->has_opened);
    (void)pthread_mutex_destroy(&mover->lock);
    free(mover->orders);
    free(mover->taken);
    free(mover->dones);
    free(mover->works);
    free(mover->parts);
}

void sl_movers_close(struct sl_movers **movers)
{
    struct sl_movers *self = *movers;
    *movers = NULL;
    if (self == NULL) {
        return;
    }
    for (uint32_t i = 0; i < self->count; i++) {
        mover_close(&self->movers[i]);
    }
    free(self->movers);
    free(self->slots);
    free(self);
}

static void order_give(struct sl_movers *movers, const struct order *order)
{
    /* Both directions of a connection use one thread; connections use threads in turns. */
    struct mover *mover = &movers->movers[order->slot / 2 % movers->count];
    (void)pthread_mutex_lock(&mover->lock);
    SL_ASSERT(mover->order_count < ORDERS_A_SLOT * movers->slot_count);
    mover->orders[mover->order_count++] = *order;
    (void)pthread_mutex_unlock(&mover->lock);
    mover->has_orders = true;
}

static uint32_t slot_begin(struct sl_movers *movers, uint32_t slot)
{
    SL_ASSERT(slot < movers->slot_count && !movers->slots[slot].on);
    movers->slots[slot].on = true;
    movers->slots[slot].cancelled = false;
    return ++movers->slots[slot].serial;
}

void sl_movers_receive(struct sl_movers *movers, uint32_t slot,
                       const struct sl_mover_receive *receive)
{
    struct order order = {.slot = slot,
                          .serial = slot_begin(movers, slot),
                          .kind = ORDER_RECEIVE,
                          .receive = *receive};
    order_give(movers, &order);
}

void sl_movers_send(struct sl_movers *movers, uint32_t slot, int fd, const struct sl_seal_job *seal)
{
    struct order order = {.slot = slot,
                          .serial = slot_begin(movers, slot),
                          .kind = ORDER_SEND,
                          .fd = fd,
                          .seal = seal};
    order_give(movers, &order);
}

void sl_movers_cancel(struct sl_movers *movers, uint32_t slot)
{
    struct slot *at = &movers->slots[slot];
    if (at->on && !at->cancelled) {
        struct order order = {.slot = slot, .serial = at->serial, .kind = ORDER_CANCEL};
        at->cancelled = true;
        order_give(movers, &order);
    }
}

void sl_movers_flush(struct sl_movers *movers)
{
    for (uint32_t i = 0; i < movers->count; i++) {
        if (movers->movers[i].has_orders) {
            movers->movers[i].has_orders = false;
            wake(movers->movers[i].wake_fd);
        }
    }
}

uint32_t sl_movers_take(struct sl_movers *movers, struct sl_mover_done *dones, uint32_t count)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < movers->count && taken < count; i++) {
        struct mover *mover = &movers->movers[i];
        (void)pthread_mutex_lock(&mover->lock);
        while (taken < count && mover->done_count > 0) {
            dones[taken] = mover->dones[mover->done_head];
            mover->done_head = (mover->done_head + 1) & (mover->done_capacity - 1);
            mover->done_count--;
            movers->slots[dones[taken].slot].on = dones[taken].more;
            taken++;
        }
        (void)pthread_mutex_unlock(&mover->lock);
    }
    return taken;
}
