/* tests/unit/client/lib/client_threads_test.c - calls of several threads on one client: no wake-up
 * is lost.
 *
 * A sleeping thread checks again every 50 ms, which makes a lost wake-up look like slowness. Here
 * these checks are disabled: ppoll and pthread_cond_timedwait of the client's threads are wrapped
 * (--wrap), and a wait of more than a few milliseconds never ends by time. A lost wake-up then ends
 * its call with SL_ERR_TIMEOUT, on a machine of any speed. */
#include "client/lib/internal.h"
#include "tests/support/mailbox_wait.h"
#include "tests/support/own_id.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_NS     (20 * SL_NS_PER_S)
#define ENDLESS_S       60
#define SHORT_WAIT_NS   (10 * SL_NS_PER_MS) /* tries again to send after this long */
#define CALLS_PER_TEST  400u
#define THREADS_MAX     8u
#define ANSWER_PAUSE_US 200u /* long enough that all threads sleep */

static _Thread_local bool never_by_time;

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                 const sigset_t *mask)
{
    static const struct timespec endless = {.tv_sec = ENDLESS_S};
    bool looks_again =
        timeout != NULL && (timeout->tv_sec > 0 || timeout->tv_nsec > (long)SHORT_WAIT_NS);
    return __real_ppoll(fds, count, never_by_time && looks_again ? &endless : timeout, mask);
}

int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *at)
{
    struct timespec later = *at;
    later.tv_sec += never_by_time ? ENDLESS_S : 0;
    return __real_pthread_cond_timedwait(cond, mutex, &later);
}

/* The timer of the descriptor for ends likewise: it is set, which clears an earlier expiry, but to
 * a time that is never reached. */
#define NEVER_S 3600
static _Atomic bool no_timers;

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old)
{
    uint64_t at_ns = (uint64_t)at->it_value.tv_sec * SL_NS_PER_S + (uint64_t)at->it_value.tv_nsec;
    bool looks_again = at_ns > sl_clock_monotonic_ns() + SHORT_WAIT_NS;
    struct itimerspec never = *at;
    never.it_value.tv_sec += NEVER_S;
    return __real_timerfd_settime(fd, flags, no_timers && looks_again ? &never : at, old);
}

static void pause_us(uint32_t us)
{
    const struct timespec pause = {.tv_nsec = (long)us * 1000};
    (void)nanosleep(&pause, NULL);
}

/* ---- an actor that answers PING, in its time ---- */

struct bed {
    struct sl_tmpdir dir;
    struct sl_client client;
    struct sl_codec *in, *out;
    struct sl_mailbox *actor;
    pthread_t actor_thread;
    _Atomic uint32_t pause_us;
    _Atomic bool stop;
};

static void actor_answer(struct bed *bed, const char *from, const void *frame, size_t length)
{
    struct sl_msg request;
    char to[32];
    (void)snprintf(to, sizeof to, "%s", from);
    if (sl_codec_decode(bed->in, frame, length, &request, NULL) != SL_OK ||
        request.type != SL_MSG_PING) {
        return;
    }
    pause_us(bed->pause_us);
    struct sl_msg reply = {.type = SL_MSG_PONG,
                           .sender = sl_text_of("registrar"),
                           .seq = request.seq,
                           .budget_ns = 1,
                           .reply_to = request.seq};
    reply.body.pong.name = sl_text_of("registrar");
    struct sl_error why = {0};
    sl_err err = sl_codec_encode(bed->out, &reply, &frame, &length, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    err = sl_mailbox_send(bed->actor, to, frame, length, true);
    ck_assert_int_eq(err, SL_OK);
}

static void *actor_run(void *context)
{
    struct bed *bed = context;
    const char *from = NULL;
    const void *frame = NULL;
    size_t length = 0;
    while (!atomic_load_explicit(&bed->stop, memory_order_relaxed)) {
        while (sl_mailbox_receive(bed->actor, &from, &frame, &length) == SL_OK) {
            actor_answer(bed, from, frame, length);
        }
        (void)mailbox_wait(bed->actor, SL_NS_PER_MS);
    }
    return NULL;
}

/* One round trip. Returns its result. */
static sl_err ping(struct sl_client *client, uint64_t timeout_ns)
{
    struct sl_client_call call = {.to = "registrar",
                                  .deadline_ns =
                                      sl_deadline_ns(sl_clock_monotonic_ns(), timeout_ns),
                                  .msg.type = SL_MSG_PING};
    return sl_client_call(client, &call, NULL);
}

static void bed_open(struct bed *bed)
{
    memset(bed, 0, sizeof *bed);
    sl_tmpdir_make(&bed->dir, "/tmp");
    struct sl_mailbox_options options = {.runtime_dir = bed->dir.path,
                                         .name = "registrar",
                                         .message_bytes_max = SL_MIB,
                                         .ring_bytes = 64 * SL_KIB,
                                         .lanes_max = 8};
    ck_assert_int_eq(sl_codec_create(SL_MIB, &bed->in, NULL), SL_OK);
    ck_assert_int_eq(sl_codec_create(SL_MIB, &bed->out, NULL), SL_OK);
    ck_assert_int_eq(sl_mailbox_open(&options, &bed->actor, NULL), SL_OK);
    bed->pause_us = ANSWER_PAUSE_US;
    ck_assert_int_eq(pthread_create(&bed->actor_thread, NULL, actor_run, bed), 0);

    struct sl_client *client = &bed->client;
    client->self = own_id();
    client->call_retry_ns = 2 * DEADLINE_NS; /* never: a second send would wake sleeping threads */
    (void)snprintf(client->name, sizeof client->name, "client.%u.0", client->self.pid);
    pthread_mutex_init(&client->lock, NULL);
    (void)snprintf(client->paths.log_dir, sizeof client->paths.log_dir, "%s/log", bed->dir.path);
    client->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->next_seq = 1;
    ck_assert_int_eq(sl_codec_create(SL_MIB, &client->codec, NULL), SL_OK);
    options.name = client->name;
    options.lanes_max = 0;
    ck_assert_int_eq(sl_mailbox_open(&options, &client->mailbox, NULL), SL_OK);
    /* Lanes are attached by retries: only after that do waits not end by time. */
    do {
        ck_assert_int_eq(ping(client, DEADLINE_NS), SL_OK);
    } while (!mailbox_attached(client->mailbox, "registrar"));
}

static void bed_close(struct bed *bed)
{
    atomic_store_explicit(&bed->stop, true, memory_order_relaxed);
    (void)pthread_join(bed->actor_thread, NULL);
    sl_client_ends_close(&bed->client);
    sl_mailbox_close(&bed->client.mailbox);
    sl_mailbox_close(&bed->actor);
    sl_codec_destroy(&bed->client.codec);
    sl_log_close(&bed->client.log);
    sl_codec_destroy(&bed->in);
    sl_codec_destroy(&bed->out);
    (void)close(bed->client.kick_fd);
    pthread_mutex_destroy(&bed->client.lock);
    sl_tmpdir_remove(&bed->dir);
}

/* ---- threads of the client ---- */

enum habit {
    WAITS,      /* one call after the other */
    LOOKS_ONLY, /* starts a call and asks now and then whether it is done, without waiting */
    TELLS,      /* sends requests that get no answer */
    PAUSES,     /* waits for calls and rests between them */
};
struct worker {
    struct bed *bed;
    pthread_t thread;
    enum habit habit;
    uint32_t count;
    uint32_t failed;
    sl_err first; /* failure */
};

static sl_err look_until_done(struct sl_client *client)
{
    struct sl_client_call call = {.to = "registrar",
                                  .deadline_ns =
                                      sl_deadline_ns(sl_clock_monotonic_ns(), DEADLINE_NS),
                                  .msg.type = SL_MSG_PING};
    sl_err err = sl_client_call_start(client, &call, NULL);
    while (err == SL_OK && !sl_client_call_wait(client, &call, 0)) {
        pause_us(ANSWER_PAUSE_US / 3);
    }
    return err == SL_OK ? call.code : err;
}

static sl_err tell(struct sl_client *client)
{
    struct sl_msg msg = {.type = SL_MSG_PING};
    (void)sl_client_send(client, "registrar", &msg, SL_NS_PER_S);
    pause_us(ANSWER_PAUSE_US);
    return SL_OK;
}

static void *worker_run(void *context)
{
    struct worker *self = context;
    struct sl_client *client = &self->bed->client;
    never_by_time = true;
    for (uint32_t i = 0; i < self->count && self->failed == 0; i++) {
        sl_err err = self->habit == LOOKS_ONLY ? look_until_done(client)
                     : self->habit == TELLS    ? tell(client)
                                               : ping(client, DEADLINE_NS);
        if (self->habit == PAUSES) {
            pause_us(ANSWER_PAUSE_US * (1 + i % 3));
        }
        if (err != SL_OK) {
            self->first = err;
            self->failed++;
        }
    }
    return NULL;
}

static const struct {
    uint32_t waiting, looking, telling, pausing;
} crowds[] = {
    {.waiting = 1},
    {.waiting = 2},
    {.waiting = 4},
    {.waiting = 8},
    {.waiting = 1, .pausing = 1},
    {.waiting = 1, .looking = 1},
    {.waiting = 1, .telling = 1},
    {.waiting = 2, .looking = 2, .telling = 2, .pausing = 2},
};

START_TEST(threads_with_calls_in_flight_lose_no_wake_up)
    {
        static struct bed bed;
        struct worker workers[THREADS_MAX];
        const uint32_t counts[] = {[WAITS] = crowds[_i].waiting,
                                   [LOOKS_ONLY] = crowds[_i].looking,
                                   [TELLS] = crowds[_i].telling,
                                   [PAUSES] = crowds[_i].pausing};
        uint32_t worker_count = 0;
        bed_open(&bed);
        for (enum habit habit = WAITS; habit <= PAUSES; habit++) {
            for (uint32_t i = 0; i < counts[habit]; i++) {
                workers[worker_count++] = (struct worker){.bed = &bed, .habit = habit};
            }
        }

        for (uint32_t i = 0; i < worker_count; i++) {
            workers[i].count = CALLS_PER_TEST / worker_count;
            ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
        }
        for (uint32_t i = 0; i < worker_count; i++) {
            (void)pthread_join(workers[i].thread, NULL);
        }

        for (uint32_t i = 0; i < worker_count; i++) {
            ck_assert_msg(workers[i].failed == 0, "thread %u of %u: %s", i, worker_count,
                          sl_err_text(workers[i].first));
        }
        ck_assert_uint_eq(bed.client.call_count, 0);
        ck_assert_ptr_null(bed.client.waiters);
        ck_assert(!bed.client.polling);
        bed_close(&bed);
    }
END_TEST

/* A polling thread leaves when its own call is done; another must then poll for the others. */
START_TEST(the_last_call_of_a_polling_thread_wakes_another)
    {
        static struct bed bed;
        struct worker workers[THREADS_MAX];
        bed_open(&bed);

        for (uint32_t i = 0; i < THREADS_MAX; i++) { /* all end one after the other */
            workers[i] = (struct worker){.bed = &bed, .habit = WAITS, .count = 1 + 3 * i};
            ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
        }
        for (uint32_t i = 0; i < THREADS_MAX; i++) {
            (void)pthread_join(workers[i].thread, NULL);
        }

        for (uint32_t i = 0; i < THREADS_MAX; i++) {
            ck_assert_int_eq(workers[i].first, SL_OK);
        }
        bed_close(&bed);
    }
END_TEST

/* ---- ends of ops, reported at the descriptor ---- */

#define OPS_PER_THREAD 40u
#define OPS_AT_ONCE    4u

/* Stands for an op: its end is reported with its own address. */
struct paper_op {
    struct sl_client_call call;
    _Atomic uint32_t told;
    sl_err code;
};

static struct sl_op *told_as(struct paper_op *paper)
{
    return (struct sl_op *)(void *)paper;
}

static sl_err paper_start(struct sl_client *client, struct paper_op *paper, uint64_t timeout_ns)
{
    *paper = (struct paper_op){
        .call = {.to = "registrar",
                 .deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), timeout_ns),
                 .msg.type = SL_MSG_PING,
                 .op = told_as(paper)}};
    return sl_client_call_start(client, &paper->call, NULL);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, timeout_ms) == 1;
}

/* Starts ops, OPS_AT_ONCE at a time, and ignores their ends. */
struct submitter {
    struct bed *bed;
    pthread_t thread;
    struct paper_op ops[OPS_PER_THREAD];
    sl_err first;
};

static void *submitter_run(void *context)
{
    struct submitter *self = context;
    for (uint32_t i = 0; i < OPS_PER_THREAD && self->first == SL_OK; i++) {
        while (i >= OPS_AT_ONCE && self->ops[i - OPS_AT_ONCE].told == 0) {
            pause_us(ANSWER_PAUSE_US / 2);
        }
        self->first = paper_start(&self->bed->client, &self->ops[i], DEADLINE_NS);
    }
    return NULL;
}

static const struct {
    uint32_t submitting, waiting;
    uint32_t room;
} loops[] = {
    {.submitting = 1, .room = 16},
    {.submitting = 2, .room = 1},
    {.submitting = 4, .room = 16},
    {.submitting = 8, .room = 3},
    {.submitting = 1, .waiting = 1, .room = 16},
    {.submitting = 2, .waiting = 2, .room = 1},
    {.submitting = 4, .waiting = 4, .room = 16},
    {.submitting = 8, .waiting = 8, .room = 2},
};

START_TEST(a_loop_at_the_descriptor_learns_of_every_end_once)
    {
        static struct bed bed;
        static struct submitter submitters[THREADS_MAX];
        struct worker waiters[THREADS_MAX];
        uint32_t told = 0, submitting = loops[_i].submitting;
        int fd = -1;
        bed_open(&bed);
        ck_assert_int_eq(sl_client_event_fd(&bed.client, &fd, NULL), SL_OK);
        bed.pause_us = ANSWER_PAUSE_US / 4;
        no_timers = true;
        for (uint32_t i = 0; i < loops[_i].waiting; i++) {
            waiters[i] = (struct worker){.bed = &bed, .habit = WAITS, .count = 2 * OPS_PER_THREAD};
            ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, worker_run, &waiters[i]), 0);
        }
        for (uint32_t i = 0; i < submitting; i++) {
            submitters[i] = (struct submitter){.bed = &bed};
            ck_assert_int_eq(
                pthread_create(&submitters[i].thread, NULL, submitter_run, &submitters[i]), 0);
        }

        while (told < submitting * OPS_PER_THREAD) {
            struct sl_op *ops[16];
            ck_assert_msg(readable(fd, (int)(DEADLINE_NS / SL_NS_PER_MS) / 2), "lost after %u",
                          told);
            uint32_t count = sl_client_ended(&bed.client, ops, loops[_i].room);
            ck_assert_uint_le(count, loops[_i].room);
            for (uint32_t i = 0; i < count; i++) {
                struct paper_op *paper = (struct paper_op *)(void *)ops[i];
                ck_assert(paper->call.done);
                ck_assert_int_eq(paper->call.code, SL_OK);
                ck_assert_uint_eq(atomic_fetch_add(&paper->told, 1), 0);
            }
            told += count;
        }

        for (uint32_t i = 0; i < submitting; i++) {
            (void)pthread_join(submitters[i].thread, NULL);
            ck_assert_int_eq(submitters[i].first, SL_OK);
        }
        for (uint32_t i = 0; i < loops[_i].waiting; i++) {
            (void)pthread_join(waiters[i].thread, NULL);
            ck_assert_int_eq(waiters[i].first, SL_OK);
        }
        /* The descriptor may become readable for an end already taken, but not forever. */
        for (uint32_t i = 0; i == 0 || readable(fd, 100); i++) {
            struct sl_op *none[1];
            ck_assert_uint_eq(sl_client_ended(&bed.client, none, 1), 0);
            ck_assert_uint_lt(i, 20);
        }
        ck_assert_ptr_null(bed.client.ended_first);
        bed_close(&bed);
    }
END_TEST

START_TEST(the_descriptor_says_when_an_op_ends_by_its_deadline)
    {
        static struct bed bed;
        struct paper_op paper;
        struct sl_op *ops[2];
        int fd = -1, again = -2;
        bed_open(&bed);
        ck_assert_int_eq(sl_client_event_fd(&bed.client, &fd, NULL), SL_OK);
        ck_assert_int_eq(sl_client_event_fd(&bed.client, &again, NULL), SL_OK);
        ck_assert_int_eq(fd, again);
        (void)sl_client_ended(&bed.client, ops, 2);
        ck_assert(!readable(fd, 0));
        atomic_store_explicit(&bed.stop, true, memory_order_relaxed); /* no more answers */
        (void)pthread_join(bed.actor_thread, NULL);
        uint64_t started_ns = sl_clock_monotonic_ns();
        ck_assert_int_eq(paper_start(&bed.client, &paper, 200 * SL_NS_PER_MS), SL_OK);

        uint32_t count = 0, rounds = 0;
        while (count == 0 && sl_clock_monotonic_ns() - started_ns < DEADLINE_NS / 2) {
            ck_assert(readable(fd, (int)(DEADLINE_NS / SL_NS_PER_MS)));
            count = sl_client_ended(&bed.client, ops, 2);
            rounds++;
        }

        ck_assert_uint_eq(count, 1);
        ck_assert_ptr_eq(ops[0], told_as(&paper));
        ck_assert_int_eq(paper.call.code, SL_ERR_TIMEOUT);
        ck_assert_uint_ge(sl_clock_monotonic_ns() - started_ns, 200 * SL_NS_PER_MS);
        ck_assert_uint_lt(rounds, 100); /* it sleeps in between */
        ck_assert_int_eq(pthread_create(&bed.actor_thread, NULL, actor_run, &bed), 0);
        bed_close(&bed);
    }
END_TEST

START_TEST(an_op_that_was_let_go_is_not_told)
    {
        static struct bed bed;
        struct paper_op papers[3];
        struct sl_op *ops[4];
        int fd = -1;
        bed_open(&bed);
        ck_assert_int_eq(sl_client_event_fd(&bed.client, &fd, NULL), SL_OK);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_eq(paper_start(&bed.client, &papers[i], DEADLINE_NS), SL_OK);
        }
        for (uint32_t i = 0; i < 3; i++) { /* ended, and not yet reported */
            ck_assert(sl_client_call_wait(&bed.client, &papers[i].call, SL_NEVER_NS));
        }
        ck_assert(readable(fd, 0));

        pthread_mutex_lock(&bed.client.lock);
        sl_client_ends_forget(&bed.client, &papers[2].call); /* the last, then the first */
        sl_client_ends_forget(&bed.client, &papers[0].call);
        sl_client_ends_forget(&bed.client, &papers[0].call);
        pthread_mutex_unlock(&bed.client.lock);

        ck_assert_uint_eq(sl_client_ended(&bed.client, ops, 4), 1);
        ck_assert_ptr_eq(ops[0], told_as(&papers[1]));
        ck_assert(!readable(fd, 0));
        ck_assert_int_eq(paper_start(&bed.client, &papers[0], DEADLINE_NS), SL_OK);
        pthread_mutex_lock(&bed.client.lock);
        sl_client_ends_forget(&bed.client, &papers[0].call); /* while it runs */
        pthread_mutex_unlock(&bed.client.lock);
        ck_assert(sl_client_call_wait(&bed.client, &papers[0].call, SL_NEVER_NS));
        ck_assert_uint_eq(sl_client_ended(&bed.client, ops, 4), 0);
        bed_close(&bed);
    }
END_TEST

/* The contents of the file as one text; "": there is no file. */
static char *file_text(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t length = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    if (file != NULL) {
        (void)fclose(file);
    }
    return text;
}

START_TEST(a_call_that_ends_by_its_deadline_leaves_a_line_beside_the_actors_logs)
    {
        static struct bed bed;
        char path[128];
        bed_open(&bed);
        (void)snprintf(path, sizeof path, "%s/log", bed.dir.path);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        (void)snprintf(path, sizeof path, "%s/log/clients.jsonl", bed.dir.path);
        ck_assert_int_eq(ping(&bed.client, DEADLINE_NS), SL_OK);
        ck_assert_str_eq(file_text(path), "");
        bed.pause_us = 300000;

        sl_err err = ping(&bed.client, 30 * SL_NS_PER_MS);

        const char *text = file_text(path);
        ck_assert_int_eq(err, SL_ERR_TIMEOUT);
        ck_assert_msg(strstr(text, bed.client.name) != NULL && strstr(text, "PING") != NULL &&
                          strstr(text, "registrar did not answer") != NULL,
                      "%s", text);
        bed_close(&bed);
    }
END_TEST

static const struct {
    bool listens, full;
    const char *text;
} unsent[] = {
    {false, false, "other is not reachable"},
    {true, false, "other: it has not accepted a lane yet"},
    {true, true, "other: no lane to it can be made: Too many open files"},
};

/* Its code is a node's: a lane's code would look like one about keys. */
START_TEST(a_call_that_was_never_sent_says_why)
    {
        struct bed bed;
        bed_open(&bed);
        struct sl_mailbox *other = NULL;
        const struct sl_mailbox_options options = {.runtime_dir = bed.dir.path,
                                                   .name = "other",
                                                   .message_bytes_max = SL_MIB,
                                                   .ring_bytes = 64 * SL_KIB,
                                                   .lanes_max = 8};
        const struct rlimit few = {.rlim_cur = 256, .rlim_max = 256};
        struct sl_client_call call = {
            .to = "other",
            .deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), 100 * SL_NS_PER_MS),
            .msg.type = SL_MSG_PING};
        struct sl_error why = {0};
        ck_assert(!unsent[_i].listens || sl_mailbox_open(&options, &other, NULL) == SL_OK);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        while (unsent[_i].full && dup(STDERR_FILENO) >= 0) {
        }

        ck_assert_int_eq(sl_client_call(&bed.client, &call, &why), SL_ERR_UNREACHABLE);

        ck_assert_msg(strcmp(why.text, unsent[_i].text) == 0, "%s", why.text);
        ck_assert_int_eq(why.code, SL_ERR_UNREACHABLE);
        ck_assert_int_eq(why.os_code, unsent[_i].full ? EMFILE : 0);
        sl_mailbox_close(&other);
        bed_close(&bed);
    }
END_TEST

/* Without answers, each call ends by its own deadline, also on threads that do not poll. */
START_TEST(each_call_ends_by_its_own_deadline)
    {
        static struct bed bed;
        bed_open(&bed);
        bed.pause_us = 900000;
        struct worker other = {.bed = &bed, .habit = WAITS, .count = 1};
        ck_assert_int_eq(pthread_create(&other.thread, NULL, worker_run, &other), 0);
        pause_us(5000);
        uint64_t began_ns = sl_clock_monotonic_ns();

        sl_err err = ping(&bed.client, 60 * SL_NS_PER_MS);

        ck_assert_int_eq(err, SL_ERR_TIMEOUT);
        ck_assert_uint_ge(sl_clock_monotonic_ns() - began_ns, 55 * SL_NS_PER_MS);
        (void)pthread_join(other.thread, NULL);
        ck_assert_int_eq(other.first, SL_OK);
        bed_close(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_threads");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, threads_with_calls_in_flight_lose_no_wake_up, 0,
                        (int)SL_COUNT(crowds));
    tcase_add_test(tcase, the_last_call_of_a_polling_thread_wakes_another);
    tcase_add_test(tcase, a_call_that_ends_by_its_deadline_leaves_a_line_beside_the_actors_logs);
    tcase_add_loop_test(tcase, a_call_that_was_never_sent_says_why, 0, SL_COUNT(unsent));
    tcase_add_test(tcase, each_call_ends_by_its_own_deadline);
    tcase_add_loop_test(tcase, a_loop_at_the_descriptor_learns_of_every_end_once, 0,
                        SL_COUNT(loops));
    tcase_add_test(tcase, the_descriptor_says_when_an_op_ends_by_its_deadline);
    tcase_add_test(tcase, an_op_that_was_let_go_is_not_told);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
