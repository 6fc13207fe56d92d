/* tests/unit/ipc/msg/lane_test.c - lanes: how one is set up and which requests are refused, which
 * frames use it, how it ends, and that no frame is duplicated or overtaken when one lane follows
 * another. */
#include "ipc/msg/mailbox_internal.h"
#include "tests/support/mailbox_wait.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND SL_NS_PER_S
#define RING   (64 * SL_KIB)
#define NOBODY 65534

static char directory[64];

static void directory_make(void)
{
    (void)snprintf(directory, sizeof(directory), "/tmp/sluice-lane-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void directory_remove(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    ck_assert_int_eq(system(command), 0); /* NOLINT: a path made here */
}

static struct sl_mailbox *opened_with(const char *name, bool bind, uint64_t ring_bytes,
                                      uint32_t lanes_max)
{
    struct sl_mailbox *mailbox = NULL;
    struct sl_error why = {0};
    const struct sl_mailbox_options options = {.runtime_dir = directory,
                                               .name = name,
                                               .message_bytes_max = SL_MIB,
                                               .ring_bytes = ring_bytes,
                                               .lanes_max = bind ? lanes_max : 0};
    sl_err err = sl_mailbox_open(&options, &mailbox, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return mailbox;
}

static struct sl_mailbox *opened(const char *name, bool bind)
{
    return opened_with(name, bind, RING, 8);
}

static uint32_t open_fds(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return count;
}

/* Limits this process to `count` more descriptors. */
static void descriptors_leave(uint32_t count)
{
    const struct rlimit few = {.rlim_cur = 256, .rlim_max = 256};
    int left[8];
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (uint32_t i = 0; i < count; i++) {
        left[i] = dup(STDERR_FILENO);
        ck_assert_int_ge(left[i], 0);
    }
    while (dup(STDERR_FILENO) >= 0) {
    }
    ck_assert_int_eq(errno, EMFILE);
    for (uint32_t i = 0; i < count; i++) {
        (void)close(left[i]);
    }
}

static void pause_us(uint64_t us)
{
    const struct timespec pause = {.tv_sec = (time_t)(us / 1000000),
                                   .tv_nsec = (long)(us % 1000000) * 1000};
    (void)nanosleep(&pause, NULL);
}

static struct sl_mailbox_stats stats_of(const struct sl_mailbox *mailbox)
{
    struct sl_mailbox_stats stats;
    sl_mailbox_stats_get(mailbox, &stats);
    return stats;
}

/* Runs both sides. Frames for a are counted, not kept. */
static void turn(struct sl_mailbox *a, struct sl_mailbox *b)
{
    const char *from;
    const void *frame;
    size_t length;
    (void)mailbox_wait(a, SL_NS_PER_MS);
    ck_assert_int_eq(sl_mailbox_receive(a, &from, &frame, &length), SL_ERR_NOT_FOUND);
    if (b != NULL) {
        (void)mailbox_wait(b, SL_NS_PER_MS);
        ck_assert_int_eq(sl_mailbox_receive(b, &from, &frame, &length), SL_ERR_NOT_FOUND);
    }
}

#define UNTIL(condition, a, b)                                                           \
    for (uint64_t until_end_ns = sl_clock_monotonic_ns() + 60 * SECOND; !(condition);) { \
        ck_assert_msg(sl_clock_monotonic_ns() < until_end_ns, "not within a minute: %s", \
                      #condition);                                                       \
        turn((a), (b));                                                                  \
    }

/* Attaches client's lane to the actor "echo". */
static void attach_to(struct sl_mailbox *client, struct sl_mailbox *actor, const char *name)
{
    (void)mailbox_connect(client, name, 0); /* offers */
    UNTIL(mailbox_attached(client, name) && stats_of(actor).lanes > 0, actor, client);
}

static void attach(struct sl_mailbox *client, struct sl_mailbox *actor)
{
    attach_to(client, actor, "echo");
}

static const char *received(struct sl_mailbox *mailbox, const char **from, size_t *length)
{
    const void *frame = NULL;
    sl_err err = SL_ERR_NOT_FOUND;
    for (uint32_t i = 0; err != SL_OK && i < 100; i++) {
        ck_assert_int_eq(mailbox_wait(mailbox, 60 * SECOND), SL_OK);
        err = sl_mailbox_receive(mailbox, from, &frame, length);
    }
    ck_assert_int_eq(err, SL_OK);
    return frame;
}

/* ------------------------------------------------ paths of frames
 * ------------------------------------------------ */

START_TEST(frames_go_over_the_ring_both_ways)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        attach(client, actor);

        ck_assert_int_eq(sl_mailbox_send(client, "echo", "ask", 4, false), SL_OK);
        ck_assert_str_eq(received(actor, &from, &length), "ask");
        ck_assert_str_eq(from, "client.1.0");
        ck_assert_int_eq(sl_mailbox_send(actor, "client.1.0", "answer", 7, true), SL_OK);
        ck_assert_str_eq(received(client, &from, &length), "answer");
        ck_assert_str_eq(from, "echo");

        ck_assert_uint_eq(stats_of(client).lane_sent, 1);
        ck_assert_uint_eq(stats_of(client).lane_received, 1);
        ck_assert_uint_eq(stats_of(actor).lane_sent, 1);
        ck_assert_uint_eq(stats_of(actor).lane_received, 1);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* A frame may be too long for the ring's free space, or longer than the whole ring. */
START_TEST(long_frame_comes_in_its_turn)
    {
        directory_make();
        static char large[2 * RING];
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        attach(client, actor);
        for (uint32_t i = 0; i < 6; i++) {
            memcpy(large, &i, sizeof(i));
            length = i % 3 == 1 ? sizeof(large) : 100;
            ck_assert_int_eq(sl_mailbox_send(client, "echo", large, length, false), SL_OK);
        }
        for (uint32_t i = 0; i < 6; i++) {
            uint32_t got;
            memcpy(&got, received(actor, &from, &length), sizeof(got));
            ck_assert_uint_eq(got, i);
            ck_assert_uint_eq(length, i % 3 == 1 ? sizeof(large) : 100);
        }
        ck_assert_int_eq(sl_mailbox_send(actor, "client.1.0", large, sizeof(large), true), SL_OK);
        ck_assert_mem_eq(received(client, &from, &length), large, sizeof(large));
        ck_assert_uint_eq(length, sizeof(large));
        ck_assert_uint_eq(stats_of(client).lane_sent, 6);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* By number, and by the bytes of the longest frame that may be. */
static const struct {
    size_t bytes;
    uint32_t count;
} untaken[] = {{RING / 4, 64},      {RING, 16},      {SL_MIB / 8, 8},
               {SL_MIB / 8 + 1, 7}, {SL_MIB / 2, 2}, {SL_MIB, 1}};

/* Frames that the reader does not take are bounded, and use up nothing at the sender. */
START_TEST(long_frames_that_nobody_takes_are_a_limit)
    {
        directory_make();
        static char large[SL_MIB];
        const size_t bytes = untaken[_i].bytes;
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        uint32_t taken = 0;
        attach(client, actor);
        uint32_t before = open_fds();

        while (sl_mailbox_send(client, "echo", large, bytes, false) == SL_OK) {
            ck_assert_uint_lt(++taken, 10000);
        }

        ck_assert_uint_eq(taken, untaken[_i].count);
        ck_assert_uint_eq(open_fds(), before);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", large, bytes, false), SL_ERR_LIMIT);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", "short", 6, false), SL_OK);
        for (uint32_t i = 0; i < taken; i++) {
            (void)received(actor, &from, &length);
            ck_assert_uint_eq(length, bytes);
            /* Each frame taken frees space. */
            ck_assert_int_eq(sl_mailbox_send(client, "echo", large, bytes, false), SL_OK);
        }
        ck_assert_str_eq(received(actor, &from, &length), "short");
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(full_ring_is_a_limit_until_the_receiver_takes)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        static char block[4096];
        const char *from = NULL;
        size_t length = 0;
        uint32_t taken = 0;
        attach(client, actor);

        sl_err err = SL_OK;
        while (err == SL_OK && taken < 1000) {
            err = sl_mailbox_send(client, "echo", block, sizeof(block), false);
            taken += err == SL_OK ? 1 : 0;
        }

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        ck_assert_uint_eq(taken, RING / (sizeof(block) + 8));
        for (uint32_t i = 0; i < taken; i++) {
            (void)received(actor, &from, &length);
        }
        ck_assert_int_eq(sl_mailbox_send(client, "echo", block, sizeof(block), false), SL_OK);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* ----------------------------------------------------- ends
 * ----------------------------------------------------- */

/* _i = 1: it had unread bytes, so its socket reports an error before the frames it sent. */
START_TEST(frames_of_a_killed_client_are_read_and_its_lane_goes)
    {
        directory_make();
        char byte = 'x';
        int go[2];
        int ready[2];
        ck_assert_int_eq(pipe(go), 0);
        ck_assert_int_eq(pipe(ready), 0);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            (void)alarm(120);
            struct sl_mailbox *client = opened("client.1.0", false);
            while (!mailbox_attached(client, "echo")) {
                (void)mailbox_connect(client, "echo", 0);
                (void)mailbox_wait(client, SL_NS_PER_MS);
                (void)sl_mailbox_receive(client, &(const char *){NULL}, &(const void *){NULL},
                                         &(size_t){0});
            }
            ck_assert_int_eq(read(go[0], &byte, 1), 1);
            static uint32_t frame[RING / sizeof(uint32_t)];
            for (uint32_t i = 0; i < 3; i++) {
                frame[0] = i;
                ck_assert_int_eq(sl_mailbox_send(client, "echo", frame,
                                                 i == 1 ? sizeof(frame) : sizeof(i), false),
                                 SL_OK);
            }
            ck_assert_int_eq(write(ready[1], &byte, 1), 1);
            for (;;) {
                (void)pause();
            }
        }
        struct sl_mailbox *actor = opened("echo", true);
        UNTIL(stats_of(actor).lanes == 1, actor, NULL);
        ck_assert_int_eq(write(go[1], &byte, 1), 1);
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
        static const char unread[RING];
        ck_assert(_i == 0 ||
                  sl_mailbox_send(actor, "client.1.0", unread, sizeof(unread), true) == SL_OK);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);

        for (uint32_t i = 0; i < 3; i++) {
            const char *from = NULL;
            size_t length = 0;
            uint32_t got;
            memcpy(&got, received(actor, &from, &length), sizeof(got));
            ck_assert_uint_eq(got, i);
        }
        UNTIL(stats_of(actor).lanes == 0, actor, NULL);
        UNTIL(sl_mailbox_send(actor, "client.1.0", "x", 2, true) == SL_ERR_UNREACHABLE, actor,
              NULL);
        ck_assert_uint_eq(actor->lane_count, 0);
        ck_assert_uint_eq(stats_of(actor).lanes_dropped, 0);
        (void)close(go[0]);
        (void)close(go[1]);
        (void)close(ready[0]);
        (void)close(ready[1]);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

static volatile sig_atomic_t signals;

static void signal_came(int number)
{
    (void)number;
    signals = signals + 1;
}

START_TEST(signals_end_no_lane)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        attach(client, actor);
        const struct sigaction action = {.sa_handler = signal_came, .sa_flags = SA_RESTART};
        const struct itimerval often = {.it_interval = {.tv_usec = 500},
                                        .it_value = {.tv_usec = 500}};
        ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
        ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
        while (signals < 300) {
            ck_assert(sl_lane_holds(&client->lanes[0].lane));
        }
        ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(client_attaches_again_to_a_restarted_actor)
    {
        directory_make();
        struct sl_mailbox *client = opened("client.1.0", false);
        for (uint32_t round = 0; round < 3; round++) {
            const char *from = NULL;
            size_t length = 0;
            struct sl_mailbox *actor = opened("echo", true);
            (void)mailbox_connect(client, "echo", 0);
            UNTIL(mailbox_attached(client, "echo"), actor, client);
            ck_assert_int_eq(sl_mailbox_send(client, "echo", "ask", 4, false), SL_OK);
            ck_assert_str_eq(received(actor, &from, &length), "ask");
            /* An answer that was sent before the close is read. */
            ck_assert_int_eq(sl_mailbox_send(actor, "client.1.0", "bye", 4, true), SL_OK);
            sl_mailbox_close(&actor);
            ck_assert_str_eq(received(client, &from, &length), "bye");
            UNTIL(!mailbox_attached(client, "echo"), client, NULL);
        }
        ck_assert_uint_eq(stats_of(client).lane_sent, 3);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

/* Cuts the lane's socket, as if the other side had closed it. */
static void cut(struct sl_mailbox *mailbox)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        if (mailbox->lanes[i].state == SL_LANE_STANDS) {
            (void)shutdown(mailbox->lanes[i].lane.socket_fd, SHUT_RDWR);
        }
    }
}

START_TEST(lane_gone_comes_again)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        attach(client, actor);
        cut(actor);
        UNTIL(stats_of(client).lanes_ended == 1 && stats_of(actor).lanes_ended == 1, client, actor);

        UNTIL(mailbox_attached(client, "echo") && stats_of(actor).lanes == 1, client, actor);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", "again", 6, false), SL_OK);
        ck_assert_str_eq(received(actor, &from, &length), "again");
        ck_assert_int_eq(sl_mailbox_send(actor, "client.1.0", "answer", 7, true), SL_OK);
        ck_assert_str_eq(received(client, &from, &length), "answer");
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* A process that listens and has not answered must not be taken for dead. */
START_TEST(peer_that_has_not_answered_is_busy)
    {
        directory_make();
        struct sl_mailbox *client = opened("client.1.0", false);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", "ask", 4, false), SL_ERR_UNREACHABLE);
        struct sl_mailbox *actor = opened("echo", true);
        uint64_t end_ns =
            sl_clock_monotonic_ns() + 3 * SECOND; /* longer than a handshake may take */
        sl_err err = SL_OK;
        do {
            (void)sl_mailbox_block(client, 10 * SL_NS_PER_MS);
            err = sl_mailbox_send(client, "echo", "ask", 4, false);
            ck_assert(err == SL_ERR_BUSY || err == SL_ERR_UNREACHABLE);
        } while (sl_clock_monotonic_ns() < end_ns);
        ck_assert_int_eq(err, SL_ERR_BUSY);
        UNTIL(mailbox_attached(client, "echo"), actor, client);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* A release with lanes of another kind, whose socket is a stream. */
START_TEST(peer_of_other_lanes_is_of_another_version)
    {
        directory_make();
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/echo.sock", directory);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(listen(fd, 1), 0);
        struct sl_mailbox *client = opened("client.1.0", false);

        ck_assert_int_eq(sl_mailbox_send(client, "echo", "ask", 4, false), SL_ERR_VERSION);

        sl_mailbox_close(&client);
        (void)close(fd);
        directory_remove();
    }
END_TEST

START_TEST(lane_with_hostile_bytes_is_dropped_and_others_go_on)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *good = opened("client.1.0", false);
        struct sl_mailbox *bad = opened("client.2.0", false);
        const char *from = NULL;
        size_t length = 0;
        attach(good, actor);
        (void)mailbox_connect(bad, "echo", 0);
        UNTIL(mailbox_attached(bad, "echo"), actor, bad);
        ck_assert_uint_eq(stats_of(actor).lanes, 2);

        struct sl_queue_shared *shared = bad->lanes[0].lane.writer.shared;
        atomic_store(&shared->tail, _i == 0 ? 8 : _i == 1 ? 3 : UINT64_MAX - 7);
        UNTIL(stats_of(actor).lanes_dropped == 1, actor, NULL);
        UNTIL(!mailbox_attached(bad, "echo"), bad, NULL);

        ck_assert_uint_eq(stats_of(actor).lanes, 1);
        ck_assert_int_eq(sl_mailbox_send(good, "echo", "ask", 4, false), SL_OK);
        ck_assert_str_eq(received(actor, &from, &length), "ask");
        ck_assert_str_eq(from, "client.1.0");
        sl_mailbox_close(&good);
        sl_mailbox_close(&bad);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

static int sealed(size_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* The mark of a long frame, with anything on the socket except a sealed memfd of a valid length. */
START_TEST(lane_with_a_hostile_long_frame_is_dropped)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *bad = opened("client.2.0", false);
        attach(bad, actor);
        uint32_t before = open_fds();
        int pipe_fds[2];
        ck_assert_int_eq(pipe(pipe_fds), 0);
        const int fds[] = {-1,
                           sealed(4096, F_SEAL_SHRINK | F_SEAL_GROW),
                           sealed(4096, F_SEAL_WRITE),
                           sealed(SL_MIB + 1, SEALS),
                           sealed(0, SEALS),
                           pipe_fds[0],
                           -1};
        struct sl_lane *lane = &bad->lanes[0].lane;
        bool doorbell = false;
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr align;
        } control = {.bytes = {0}};
        struct iovec part = {.iov_base = "x", .iov_len = 1};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control.bytes)};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(head), &fds[_i], sizeof(int));
        if (fds[_i] >= 0) {
            ck_assert_int_eq(sendmsg(lane->socket_fd, &message, MSG_NOSIGNAL), 1);
        } else if (_i == 0) {
            ck_assert_int_eq(send(lane->socket_fd, "x", 1, MSG_NOSIGNAL), 1);
        }
        ck_assert_int_eq(sl_queue_write(&lane->writer, 2, "", 0, &doorbell), SL_OK);

        UNTIL(stats_of(actor).lanes_dropped == 1, actor, NULL);

        for (uint32_t i = 1; i + 1 < SL_COUNT(fds); i++) {
            (void)close(fds[i]);
        }
        (void)close(pipe_fds[1]);
        ck_assert_uint_eq(open_fds(), before - 3); /* those of the lane and those sent with it */
        sl_mailbox_close(&bad);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* --------------------------------------------------- order
 * --------------------------------------------------- */

#define ORDER_FRAMES 20000u
#define LARGE_BYTES  (RING / 4)

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Sends numbers as fast as they are taken; every tenth is too long for the ring. */
static void send_numbers(uint64_t seed)
{
    static char frame[LARGE_BYTES];
    struct sl_mailbox *client = opened("client.1.0", false);
    uint64_t random = seed;
    (void)alarm(240);
    for (uint32_t i = 0; i < ORDER_FRAMES; i++) {
        size_t length =
            next_random(&random) % 10 == 0 ? sizeof(frame) : 4 + next_random(&random) % 300;
        memcpy(frame, &i, sizeof(i));
        while (sl_mailbox_send(client, "echo", frame, length, false) != SL_OK) {
            (void)mailbox_wait(client, SL_NS_PER_MS);
            (void)sl_mailbox_receive(client, &(const char *){NULL}, &(const void *){NULL},
                                     &(size_t){0});
        }
    }
    /* Sends the end until the other side has received it. */
    const uint32_t end = UINT32_MAX;
    const char *from;
    const void *answer;
    size_t length;
    do {
        (void)sl_mailbox_send(client, "echo", &end, sizeof(end), false);
        (void)mailbox_wait(client, 100 * SL_NS_PER_MS);
    } while (sl_mailbox_receive(client, &from, &answer, &length) != SL_OK);
    _exit(0);
}

/* Frames may be lost with a lane that is cut, as with any connection; those that arrive do so in
 * order and once. _i: cuts. */
START_TEST(order_is_kept_from_lane_to_lane)
    {
        directory_make();
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            send_numbers(4711);
        }
        struct sl_mailbox *actor = opened("echo", true);
        uint64_t random = 99;
        uint32_t count = 0;
        uint32_t next = 0;
        uint32_t cuts = 0;
        uint32_t cut_at = 500;
        for (;;) {
            const char *from = NULL;
            size_t length = 0;
            uint32_t got;
            memcpy(&got, received(actor, &from, &length), sizeof(got));
            if (got == UINT32_MAX) {
                ck_assert_int_eq(sl_mailbox_send(actor, from, "heard", 6, true), SL_OK);
                break;
            }
            ck_assert_uint_ge(got, next);
            next = got + 1;
            count++;
            if (cuts < (uint32_t)_i && count >= cut_at && stats_of(actor).lanes > 0) {
                cut(actor);
                cuts++;
                cut_at = count + (uint32_t)(next_random(&random) % 1000);
            }
        }
        int status = 0;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        struct sl_mailbox_stats stats = stats_of(actor);
        (void)printf("lane: %u of %u numbers came in order, %" PRIu64 " frames, %u cuts\n", count,
                     ORDER_FRAMES, stats.lane_received, cuts);
        ck_assert(_i > 0 || count == ORDER_FRAMES);
        ck_assert_uint_eq(stats.lanes_dropped, 0);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* ---------------------------------------------------- offers
 * ---------------------------------------------------- */

/* The wire form of an offer, as a hostile process would write it. */
struct offer {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint64_t ring_bytes;
    char name[32];
};

enum {
    OFFER_GOOD,
    OFFER_MAGIC,
    OFFER_VERSION,
    OFFER_SHORT,
    OFFER_LONG,
    OFFER_NAME_UNCLEAN,
    OFFER_NAME_ENDLESS,
    OFFER_NAME_EMPTY,
    OFFER_RING_UNFIT,
    OFFER_RING_LARGER_THAN_OURS,
    OFFER_NO_DESCRIPTORS,
    OFFER_ONE_DESCRIPTOR,
    OFFER_FOUR_DESCRIPTORS,
    OFFER_MEMORY_UNSEALED,
    OFFER_MEMORY_SMALL,
    OFFER_MEMORY_IS_A_FILE,
    OFFER_BELL_IS_A_COUNTER,
    OFFER_BELL_IS_A_FIFO,
    OFFER_BELL_IS_A_SOCKET,
    OFFER_BELL_FULL,
    OFFER_OF_BEFORE,
    OFFER_KINDS,
};

static int raw_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/echo.sock", directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static int memory_for(int kind)
{
    uint64_t bytes = 4096 + 2 * RING;
    int fd = -1;
    if (kind == OFFER_MEMORY_IS_A_FILE) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/file", directory);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    } else {
        fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    ck_assert_int_ge(fd, 0);
    bytes = kind == OFFER_MEMORY_SMALL            ? bytes - 4096
            : kind == OFFER_RING_LARGER_THAN_OURS ? bytes + 2 * RING
                                                  : bytes;
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    if (kind != OFFER_MEMORY_UNSEALED && kind != OFFER_MEMORY_IS_A_FILE) {
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    }
    return fd;
}

static void raw_offer(int socket_fd, int kind)
{
    struct {
        struct offer offer;
        char more[8];
    } sent = {
        .offer = {.magic = "sllane>\n", .version = 3, .ring_bytes = RING, .name = "client.9.0"}};
    int fds[4] = {memory_for(kind), -1, eventfd(0, EFD_NONBLOCK), eventfd(0, 0)};
    int pipe_fds[2];
    char path[128];
    size_t length = sizeof(sent.offer);
    size_t fd_count = 3;
    ck_assert_int_eq(pipe(pipe_fds), 0); /* blocking, which must not affect others */
    fds[1] = pipe_fds[1];
    if (kind != OFFER_BELL_IS_A_COUNTER && kind != OFFER_OF_BEFORE) {
        ck_assert_int_ge(dup2(pipe_fds[0], fds[2]), 0);
    }
    switch (kind) {
    case OFFER_MAGIC:
        sent.offer.magic[0] = 'x';
        break;
    case OFFER_VERSION:
        sent.offer.version = 4;
        break;
    case OFFER_SHORT:
        length -= 1;
        break;
    case OFFER_LONG:
        length += sizeof(sent.more);
        break;
    case OFFER_NAME_UNCLEAN:
        memcpy(sent.offer.name, "../x", 5);
        break;
    case OFFER_NAME_ENDLESS:
        memset(sent.offer.name, 'x', sizeof(sent.offer.name));
        break;
    case OFFER_NAME_EMPTY:
        memset(sent.offer.name, 0, sizeof(sent.offer.name));
        break;
    case OFFER_RING_UNFIT:
        sent.offer.ring_bytes = UINT64_C(1) << 63;
        break;
    case OFFER_RING_LARGER_THAN_OURS:
        sent.offer.ring_bytes = 2 * RING;
        break;
    case OFFER_NO_DESCRIPTORS:
        fd_count = 0;
        break;
    case OFFER_ONE_DESCRIPTOR:
        fd_count = 1;
        break;
    case OFFER_FOUR_DESCRIPTORS:
        fd_count = 4;
        break;
    case OFFER_BELL_IS_A_FIFO:
        (void)snprintf(path, sizeof(path), "%s/pipe:[1]", directory);
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        (void)close(fds[1]);
        fds[1] = open(path, O_RDWR | O_CLOEXEC);
        ck_assert_int_ge(fds[1], 0);
        break;
    case OFFER_BELL_IS_A_SOCKET:
        ck_assert_int_ge(dup2(socket_fd, fds[1]), 0);
        break;
    case OFFER_BELL_FULL:
        ck_assert_int_eq(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
        while (write(fds[1], path, 1) == 1) {
        }
        ck_assert_int_eq(fcntl(fds[1], F_SETFL, 0), 0);
        break;
    case OFFER_OF_BEFORE:
        sent.offer.version = 1;
        ck_assert_int_ge(dup2(fds[2], fds[1]), 0);
        break;
    default:
        break;
    }
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = &sent, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * fd_count);
    }
    ck_assert_int_eq(sendmsg(socket_fd, &message, MSG_NOSIGNAL), (ssize_t)length);
    for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
        (void)close(fds[i]);
    }
    (void)close(pipe_fds[0]);
}

static const struct {
    int kind;
    uint32_t code;
} offers[] = {
    {OFFER_GOOD, SL_OK},
    {OFFER_MAGIC, SL_ERR_PROTOCOL},
    {OFFER_VERSION, SL_ERR_VERSION},
    {OFFER_SHORT, SL_ERR_PROTOCOL},
    {OFFER_LONG, SL_ERR_PROTOCOL},
    {OFFER_NAME_UNCLEAN, SL_ERR_PROTOCOL},
    {OFFER_NAME_ENDLESS, SL_ERR_PROTOCOL},
    {OFFER_NAME_EMPTY, SL_ERR_PROTOCOL},
    {OFFER_RING_UNFIT, SL_ERR_PROTOCOL},
    {OFFER_RING_LARGER_THAN_OURS, SL_ERR_LIMIT},
    {OFFER_NO_DESCRIPTORS, SL_ERR_PROTOCOL},
    {OFFER_ONE_DESCRIPTOR, SL_ERR_PROTOCOL},
    {OFFER_FOUR_DESCRIPTORS, SL_ERR_PROTOCOL},
    {OFFER_MEMORY_UNSEALED, SL_ERR_PROTOCOL},
    {OFFER_MEMORY_SMALL, SL_ERR_PROTOCOL},
    {OFFER_MEMORY_IS_A_FILE, SL_ERR_PROTOCOL},
    {OFFER_BELL_IS_A_COUNTER, SL_ERR_PROTOCOL},
    {OFFER_BELL_IS_A_FIFO, SL_ERR_PROTOCOL},
    {OFFER_BELL_IS_A_SOCKET, SL_ERR_PROTOCOL},
    {OFFER_OF_BEFORE, SL_ERR_VERSION},
};

START_TEST(offer_is_judged)
    {
        struct {
            char magic[8];
            uint32_t version, code;
        } answer = {0};
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        uint32_t before = open_fds();
        int fd = raw_connect();

        raw_offer(fd, offers[_i].kind);
        UNTIL(stats_of(actor).lanes + stats_of(actor).lanes_refused > 0, actor, NULL);

        ck_assert_int_eq(recv(fd, &answer, sizeof(answer), 0), (ssize_t)sizeof(answer));
        ck_assert_mem_eq(answer.magic, "sllane<\n", 8);
        ck_assert_uint_eq(answer.code, offers[_i].code);
        ck_assert_uint_eq(stats_of(actor).lanes, offers[_i].code == SL_OK ? 1 : 0);
        (void)close(fd);
        UNTIL(actor->lane_count == 0, actor, NULL);
        ck_assert_uint_eq(open_fds(), before); /* nothing that came along stays open */
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* One for the connection, three that are sent with it, two doorbells opened again. */
START_TEST(offer_to_who_has_no_descriptors_is_a_limit)
    {
        struct {
            char magic[8];
            uint32_t version, code;
        } answer = {0};
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        int fd = raw_connect();
        raw_offer(fd, OFFER_GOOD);
        descriptors_leave((uint32_t)_i);

        UNTIL(stats_of(actor).lanes + stats_of(actor).lanes_refused > 0, actor, NULL);

        ck_assert_int_eq(recv(fd, &answer, sizeof(answer), 0), (ssize_t)sizeof(answer));
        ck_assert_uint_eq(answer.code, _i < 6 ? SL_ERR_LIMIT : SL_OK);
        (void)close(fd);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* _i = 1: another thread has used up the spare one. Only such a frame is lost, not its lane. */
START_TEST(long_frame_comes_to_who_has_no_descriptors)
    {
        directory_make();
        static char large[RING];
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        attach(client, actor);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", large, sizeof(large), false), SL_OK);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", "short", 6, false), SL_OK);
        descriptors_leave(0);
        if (_i == 1) {
            (void)close(actor->spare_fd);
            actor->spare_fd = -1;
            ck_assert_int_ge(dup(STDERR_FILENO), 0);
        } else {
            (void)received(actor, &from, &length);
            ck_assert_uint_eq(length, sizeof(large));
        }

        ck_assert_str_eq(received(actor, &from, &length), "short");

        ck_assert_uint_eq(stats_of(actor).lanes_dropped, 0);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* The offerer gets a code for a later retry, and a text that gives the cause. */
START_TEST(lane_that_cannot_be_offered_is_a_limit_with_its_cause)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        struct sl_error why = {0};
        descriptors_leave((uint32_t)_i);

        sl_err err = sl_mailbox_send(client, "echo", "ask", 4, false);

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        ck_assert_int_eq(sl_mailbox_fail(client, "echo", err, &why), SL_ERR_LIMIT);
        ck_assert_int_eq(why.os_code, EMFILE);
        ck_assert_msg(strcmp(why.text, "echo: no lane to it can be made: Too many open files") == 0,
                      "%s", why.text);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* The bell's pipe is blocking, full and unread: ringing neither waits nor gets a SIGPIPE. */
START_TEST(a_full_doorbell_is_rung_all_the_same)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        int fd = raw_connect();
        raw_offer(fd, OFFER_BELL_FULL);
        UNTIL(stats_of(actor).lanes == 1, actor, NULL);
        for (uint32_t i = 0; i < 3; i++) {
            sl_lane_ring(&actor->lanes[0].lane);
        }
        (void)close(fd);
        UNTIL(actor->lane_count == 0, actor, NULL);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* A connection without an offer is dropped in time, and does not keep others out meanwhile. */
START_TEST(stalled_handshakes_are_bounded)
    {
        directory_make();
        struct sl_mailbox *actor = opened_with("echo", true, RING, 256);
        struct sl_mailbox *client = opened("client.1.0", false);
        int fds[100];
        uint32_t most = 0;
        for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
            fds[i] = raw_connect();
            turn(actor, NULL);
            most = SL_MAX(most, actor->lane_count);
        }
        attach(client, actor); /* the silent ones block no other */
        ck_assert_uint_le(most, 32);
        /* All of them are closed in time: a refused one at once, the last by its deadline. */
        UNTIL(stats_of(actor).lanes_refused + stats_of(actor).lanes_dropped == SL_COUNT(fds), actor,
              client);
        for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
            char byte;
            ck_assert_int_eq(recv(fds[i], &byte, 1, 0), 0);
            (void)close(fds[i]);
        }
        ck_assert_uint_eq(stats_of(actor).lanes, 1);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(one_lane_too_many_is_a_limit_until_there_is_room)
    {
        directory_make();
        struct sl_mailbox *actor = opened_with("echo", true, RING, 2);
        struct sl_mailbox *clients[3];
        const char *from = NULL;
        size_t length = 0;
        for (uint32_t i = 0; i < 3; i++) {
            char name[32];
            (void)snprintf(name, sizeof(name), "client.%u.0", i);
            clients[i] = opened(name, false);
            (void)mailbox_connect(clients[i], "echo", 0);
            UNTIL(stats_of(actor).lanes + stats_of(actor).lanes_refused > i, actor, clients[i]);
        }
        ck_assert_uint_eq(stats_of(actor).lanes, 2);
        UNTIL(sl_mailbox_send(clients[2], "echo", "ask", 4, false) == SL_ERR_LIMIT, actor,
              clients[2]);

        struct sl_mailbox *other = opened("other", true); /* clients do not keep actors out */
        (void)mailbox_connect(other, "echo", 0);
        UNTIL(mailbox_attached(other, "echo"), actor, other);
        sl_mailbox_close(&other);
        sl_mailbox_close(&clients[0]);

        UNTIL(mailbox_attached(clients[2], "echo"), actor, clients[2]);
        ck_assert_int_eq(sl_mailbox_send(clients[2], "echo", "again", 6, false), SL_OK);
        ck_assert_str_eq(received(actor, &from, &length), "again");
        sl_mailbox_close(&clients[1]);
        sl_mailbox_close(&clients[2]);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* Lets the actor accept and notice events without taking frames. */
static void look_without_taking(struct sl_mailbox *actor)
{
    (void)mailbox_connect(actor, "echo.nobody", SL_NS_PER_MS);
}

/* A client that forked: its child keeps the socket open and outlives it. */
START_TEST(lane_of_a_dead_client_that_forked_makes_room)
    {
        directory_make();
        char byte = 'x';
        int go[2];
        ck_assert_int_eq(pipe(go), 0);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            (void)alarm(240);
            (void)close(go[1]);
            ck_assert_int_eq(read(go[0], &byte, 1), 1);
            int fd = raw_connect();
            raw_offer(fd, OFFER_GOOD);
            ck_assert_int_eq(recv(fd, &byte, 1, 0), 1); /* the lane is accepted */
            if (fork() == 0) {
                _exit(read(go[0], &byte, 1) == 0 ? 0 : 1); /* until the test is over */
            }
            _exit(0);
        }
        struct sl_mailbox *actor = opened_with("echo", true, RING, 1);
        ck_assert_int_eq(write(go[1], &byte, 1), 1);
        UNTIL(stats_of(actor).lanes == 1, actor, NULL);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        struct sl_mailbox *client = opened("client.1.0", false);
        (void)mailbox_connect(client, "echo", 0);
        UNTIL(mailbox_attached(client, "echo"), actor, client);
        ck_assert_uint_eq(stats_of(actor).lanes, 1);
        (void)close(go[0]);
        (void)close(go[1]);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(second_lane_of_a_name_succeeds_the_first)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *first = opened("client.1.0", false);
        struct sl_mailbox *second = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        attach(first, actor);
        ck_assert_int_eq(sl_mailbox_send(first, "echo", "one", 4, false), SL_OK);
        (void)mailbox_connect(second, "echo", 0);
        /* The actor is not asked for frames here: they stay where they are. */
        for (uint32_t i = 0; !mailbox_attached(second, "echo"); i++) {
            ck_assert_uint_lt(i, 60000);
            look_without_taking(actor);
            turn(second, NULL);
        }
        ck_assert_int_eq(sl_mailbox_send(second, "echo", "two", 4, false), SL_OK);
        ck_assert_str_eq(received(actor, &from, &length), "one");
        ck_assert_str_eq(received(actor, &from, &length), "two");
        ck_assert_int_eq(sl_mailbox_send(actor, "client.1.0", "answer", 7, true), SL_OK);
        ck_assert_str_eq(received(second, &from, &length), "answer");
        ck_assert_uint_eq(stats_of(actor).lanes, 1);
        sl_mailbox_close(&first);
        sl_mailbox_close(&second);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(another_user_is_refused)
    {
        if (geteuid() != 0) {
            (void)printf("lane: another user cannot be tried without root\n");
            return;
        }
        directory_make();
        char path[128];
        char byte = 'x';
        int go[2];
        struct stat about;
        ck_assert_int_eq(pipe(go), 0);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            (void)alarm(120);
            if (read(go[0], &byte, 1) != 1 || setuid(NOBODY) != 0) {
                _exit(2);
            }
            int fd = raw_connect();
            _exit(recv(fd, &byte, 1, 0) == 0 ? 0 : 1); /* closed without an answer */
        }
        struct sl_mailbox *actor = opened("echo", true);
        (void)snprintf(path, sizeof(path), "%s/echo.sock", directory);
        ck_assert_int_eq(stat(path, &about), 0);
        ck_assert_uint_eq(about.st_mode & 0777, 0600);
        /* Even if the files would admit them. */
        ck_assert_int_eq(chmod(directory, 0755), 0);
        ck_assert_int_eq(chmod(path, 0666), 0);
        ck_assert_int_eq(write(go[1], &byte, 1), 1);
        UNTIL(stats_of(actor).lanes_refused == 1, actor, NULL);
        int status = 0;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        ck_assert_uint_eq(actor->lane_count, 0);
        (void)close(go[0]);
        (void)close(go[1]);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* --------------------------------------------------- sleeping
 * --------------------------------------------------- */

#define PINGS 4000u

static void echo_for_ever(void)
{
    uint64_t random = 2;
    struct sl_mailbox *actor = opened("echo", true);
    (void)alarm(500);
    for (;;) {
        const char *from = NULL;
        const void *frame = NULL;
        size_t length = 0;
        if (mailbox_wait(actor, SECOND) == SL_OK &&
            sl_mailbox_receive(actor, &from, &frame, &length) == SL_OK) {
            if (next_random(&random) % 8 == 0) {
                pause_us(next_random(&random) % 300);
            }
            if (sl_mailbox_send(actor, from, frame, length, true) != SL_OK) {
                _exit(1);
            }
        }
    }
}

/* Random sizes and pauses, so that both sides meet each other asleep, awake and in between. */
START_TEST(no_wake_up_is_lost)
    {
        static char frame[4096];
        directory_make();
        uint64_t random = 1;
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            echo_for_ever();
        }
        struct sl_mailbox *client = opened("client.1.0", false);
        UNTIL(mailbox_connect(client, "echo", 100 * SL_NS_PER_MS) == SL_OK &&
                  mailbox_attached(client, "echo"),
              client, NULL);
        for (uint32_t i = 0; i < PINGS; i++) {
            const char *from = NULL;
            size_t got = 0;
            size_t length = 4 + next_random(&random) % (sizeof(frame) - 4);
            memcpy(frame, &i, sizeof(i));
            ck_assert_int_eq(sl_mailbox_send(client, "echo", frame, length, false), SL_OK);
            if (next_random(&random) % 4 == 0) {
                pause_us(next_random(&random) % 200);
            }
            const char *answer = received(client, &from, &got);
            ck_assert_uint_eq(got, length);
            ck_assert_mem_eq(answer, frame, sizeof(i));
        }
        struct sl_mailbox_stats stats = stats_of(client);
        (void)printf("lane: %u round trips, %" PRIu64 " doorbells, %" PRIu64
                     " wake-ups avoided, %" PRIu64 " late\n",
                     PINGS, stats.doorbells, stats.wakeups_avoided, stats.late_wakeups);
        ck_assert_uint_eq(stats.lane_received, PINGS);
        ck_assert_uint_gt(stats.doorbells, 0);
        /* A lost doorbell costs 50 ms and is counted. A sleeper that happens to check again just
         * then is counted as well, which takes a pause of 50 ms of the whole machine. */
        ck_assert_uint_lt(stats.late_wakeups, PINGS / 100);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

/* A writer that dies between the frame and the doorbell: the next check finds the frame. */
START_TEST(frame_without_a_doorbell_is_found_by_looking_again)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        bool doorbell = false;
        attach(client, actor);
        turn(actor, client);
        uint64_t now_ns = sl_clock_monotonic_ns();
        uint64_t until_ns = sl_mailbox_sleep(actor, now_ns);
        ck_assert_uint_le(until_ns - now_ns, SL_QUEUE_SLEEP_NS_MAX);

        ck_assert_int_eq(sl_queue_write(&client->lanes[0].lane.writer, 1, "mute", 5, &doorbell),
                         SL_OK);
        ck_assert(doorbell);

        ck_assert_str_eq(received(actor, &from, &length), "mute");
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* Filled by pages, and the rest by bytes: each write wakes the reader, which takes long on a busy
 * machine. A pipe whose reader is awake is emptied as fast, and never full. */
static void pipe_fill(int fd)
{
    static const char page[4096];
    bool room = true;
    for (uint32_t i = 0; room && i < 64; i++) { /* four times what a pipe has room for */
        room = write(fd, page, sizeof(page)) == (ssize_t)sizeof(page);
    }
    room = true;
    for (uint32_t i = 0; room && i < sizeof(page); i++) {
        room = write(fd, page, 1) == 1;
    }
}

#define FDS_MAX 1024

/* Makes all descriptors that this process has received since, and may share, blocking; fills up
 * counters and pipes. inherited: those it had before, from the test runner. */
static void descriptors_spoil(const bool inherited[FDS_MAX])
{
    for (int fd = 3; fd < FDS_MAX; fd++) {
        const uint64_t full = UINT64_MAX - 1;
        int flags = inherited[fd] ? -1 : fcntl(fd, F_GETFL);
        if (flags < 0) {
            continue;
        }
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        char link[32], kind[64];
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, kind, sizeof(kind) - 1);
        kind[SL_MAX(length, 0)] = '\0';
        if (strstr(kind, "eventfd") != NULL && write(fd, &full, sizeof(full)) < 0) {
            uint64_t before;
            (void)!read(fd, &before, sizeof(before));
            (void)!write(fd, &full, sizeof(full));
        }
        if (strncmp(kind, "pipe:[", 6) == 0) {
            pipe_fill(fd);
        }
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
}

#define SPOILT_ROUNDS 300u

/* Sends repeatedly, each time claims to be asleep, and never reads its doorbell. */
static void spoiler_run(int go_fd)
{
    static bool before[FDS_MAX];
    struct sl_lane lane;
    char path[128], byte;
    (void)alarm(400);
    for (int fd = 0; fd < FDS_MAX; fd++) {
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    ck_assert_int_eq(read(go_fd, &byte, 1), 1);
    ck_assert_int_eq(sl_lane_path(directory, "echo", path, sizeof(path)), SL_OK);
    ck_assert_int_eq(sl_lane_offer(&lane, path, "client.6.6", "echo", RING), SL_OK);
    while (sl_lane_answered(&lane) != SL_OK) {
        pause_us(1000);
    }
    descriptors_spoil(before);
    for (uint32_t i = 0; i < SPOILT_ROUNDS; i++) {
        static unsigned char frame[RING];
        uint8_t kind;
        size_t length;
        bool doorbell = false;
        sl_queue_announce(&lane.reader);
        ck_assert_int_eq(sl_queue_write(&lane.writer, 1, "spoilt", 7, &doorbell), SL_OK);
        while (sl_queue_read(&lane.reader, frame, sizeof(frame), &kind, &length) != SL_OK) {
            pause_us(20);
        }
    }
    _exit(0);
}

/* A doorbell that its owner made blocking and filled up does not block others that ring it. */
START_TEST(a_spoilt_doorbell_stops_nobody)
    {
        directory_make();
        int go[2];
        ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
        pid_t pid = fork(); /* before there is anything of the actor's to inherit */
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            spoiler_run(go[0]);
        }
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        attach(client, actor);
        ck_assert_int_eq(write(go[1], "x", 1), 1);
        (void)alarm(400); /* if the actor hangs, this ends the test */
        uint32_t spoilt = 0, others = 0;
        bool asked = false;
        while (spoilt < SPOILT_ROUNDS || others < 100) {
            siginfo_t ended = {0};
            ck_assert_int_eq(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
            ck_assert_msg(ended.si_pid == 0 || ended.si_status == 0, "the spoiler ended: %d",
                          ended.si_status);
            const char *from = NULL;
            const void *frame = NULL;
            size_t length = 0;
            if (!asked && others < 100) {
                ck_assert_int_eq(sl_mailbox_send(client, "echo", "other", 6, false), SL_OK);
                asked = true;
            }
            (void)mailbox_wait(actor, SL_NS_PER_MS / 10); /* the spoiler gets no rings */
            if (sl_mailbox_receive(actor, &from, &frame, &length) == SL_OK) {
                spoilt += length == 7;
                ck_assert_int_eq(sl_mailbox_send(actor, from, frame, length, true), SL_OK);
            }
            if (asked && sl_mailbox_receive(client, &from, &frame, &length) == SL_OK) {
                ck_assert_str_eq(frame, "other");
                others++;
                asked = false;
            }
        }
        int status = 0;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        ck_assert_uint_gt(stats_of(actor).doorbells, SPOILT_ROUNDS / 2);
        (void)close(go[0]);
        (void)close(go[1]);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(sleep_is_refused_while_a_frame_waits)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        size_t length = 0;
        attach(client, actor);
        ck_assert_uint_ne(sl_mailbox_sleep(actor, sl_clock_monotonic_ns()), 0);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", "one", 4, false), SL_OK);
        ck_assert_uint_eq(stats_of(client).doorbells, 1);
        ck_assert_uint_eq(sl_mailbox_sleep(actor, sl_clock_monotonic_ns()), 0);
        ck_assert_str_eq(received(actor, &from, &length), "one");
        ck_assert_int_eq(sl_mailbox_send(client, "echo", "two", 4, false), SL_OK);
        ck_assert_uint_eq(stats_of(client).doorbells, 1); /* awake */
        ck_assert_uint_eq(stats_of(client).wakeups_avoided, 1);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* --------------------------------------------------- spinning
 * --------------------------------------------------- */

static const struct {
    uint32_t cores, runnable;
    bool spins;
} spin_rows[] = {
    {1, 1, false}, {2, 3, false}, {2, 7, false}, {8, 9, false},
    {2, 1, true},  {2, 2, true},  {8, 8, true},  {64, 9, true},
};

START_TEST(spinning_takes_no_core_that_is_wanted)
    {
        struct sl_spin spin = {.worth = true};
        ck_assert_uint_eq(sl_spin_budget(&spin, 50000, spin_rows[_i].cores, spin_rows[_i].runnable),
                          spin_rows[_i].spins ? 50000 : 0);
        ck_assert_uint_eq(sl_spin_budget(&spin, 0, spin_rows[_i].cores, spin_rows[_i].runnable), 0);
        ck_assert_uint_ge(sl_spin_cores(), 1);
    }
END_TEST

START_TEST(spinning_goes_on_while_it_pays)
    {
        struct sl_spin spin = {0};
        uint32_t tried = 0;
        for (uint32_t i = 0; i < (1 + 2 + 4 + 8 + 10 * 16) * SL_SPIN_PROBE; i++) {
            if (sl_spin_budget(&spin, 1000, 2, 1) != 0) {
                tried++;
                sl_spin_result(&spin, false);
            }
        }
        ck_assert_uint_eq(tried, 4 + 10); /* a probe now and then, less and less often */
        while (sl_spin_budget(&spin, 1000, 2, 1) == 0) {
        }
        sl_spin_result(&spin, true);
        for (uint32_t i = 0; i < 100; i++) {
            ck_assert_uint_eq(sl_spin_budget(&spin, 1000, 2, 1), 1000);
            sl_spin_result(&spin, true);
        }
        ck_assert_uint_eq(sl_spin_budget(&spin, 1000, 2, 1), 1000);
        sl_spin_result(&spin, false);
        ck_assert_uint_eq(sl_spin_budget(&spin, 1000, 2, 1), 0);
        struct sl_spin never = {0};
        for (uint32_t i = 0; i < 10 * SL_SPIN_PROBE; i++) {
            ck_assert_uint_eq(sl_spin_budget(&never, 0, 2, 1), 0);
        }
    }
END_TEST

START_TEST(spinning_finds_a_frame_and_ends_in_time)
    {
        directory_make();
        struct sl_mailbox *client = NULL;
        const struct sl_mailbox_options options = {.runtime_dir = directory,
                                                   .name = "client.1.0",
                                                   .message_bytes_max = SL_MIB,
                                                   .ring_bytes = RING,
                                                   .spin_ns = SL_NS_PER_MS,
                                                   .spin_anyway = true};
        const char *from = NULL;
        size_t length = 0;
        struct sl_mailbox *actor = opened("echo", true);
        ck_assert_int_eq(sl_mailbox_open(&options, &client, NULL), SL_OK);
        attach(client, actor);
        uint64_t start_ns = sl_clock_monotonic_ns();
        ck_assert(!sl_mailbox_spin(client, SL_NEVER_NS));
        ck_assert_uint_ge(sl_clock_monotonic_ns() - start_ns, SL_NS_PER_MS);
        ck_assert(!sl_mailbox_spin(client, 0)); /* the deadline has priority */
        ck_assert_int_eq(sl_mailbox_send(actor, "client.1.0", "here", 5, true), SL_OK);
        ck_assert_uint_eq(stats_of(actor).doorbells, 0);
        ck_assert(sl_mailbox_spin(client, SL_NEVER_NS));
        ck_assert_str_eq(received(client, &from, &length), "here");
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* The actor accepted the offer and died before the client saw that: frames written to its lane
 * would be lost. */
START_TEST(yes_of_the_dead_makes_no_lane)
    {
        directory_make();
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        (void)mailbox_connect(client, "echo", 0); /* offers */
        UNTIL(stats_of(actor).lanes == 1, actor, NULL);

        sl_mailbox_close(&actor);
        for (uint32_t i = 0; i < 20; i++) {
            turn(client, NULL);
        }

        ck_assert(!mailbox_attached(client, "echo"));
        ck_assert_uint_eq(stats_of(client).lanes_ended, 0); /* none stood */
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

/* A process that spins learns that this was useless: no frame arrives here. */
static bool did_spin(struct sl_mailbox *mailbox)
{
    mailbox->spin.worth = true;
    ck_assert(!sl_mailbox_spin(mailbox, SL_NEVER_NS));
    return !mailbox->spin.worth;
}

/* Two cores for three processes that are awake: none spins until one of them sleeps. */
START_TEST(crowded_node_does_not_spin)
    {
        directory_make();
        struct sl_mailbox *client = NULL;
        const struct sl_mailbox_options options = {.runtime_dir = directory,
                                                   .name = "client.1.0",
                                                   .message_bytes_max = SL_MIB,
                                                   .ring_bytes = RING,
                                                   .spin_ns = 50000};
        struct sl_mailbox *actor = opened("echo", true);
        struct sl_mailbox *other = opened("other", true);
        ck_assert_int_eq(sl_mailbox_open(&options, &client, NULL), SL_OK);
        attach(client, actor);
        attach_to(client, other, "other");

        client->spin_cores = 2;

        ck_assert(!did_spin(client));
        ck_assert_uint_ne(sl_mailbox_sleep(other, sl_clock_monotonic_ns()), 0);
        ck_assert(did_spin(client));
        client->spin_cores = 1;
        ck_assert_uint_ne(sl_mailbox_sleep(actor, sl_clock_monotonic_ns()), 0);
        ck_assert(!did_spin(client));
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        sl_mailbox_close(&other);
        directory_remove();
    }
END_TEST

static void suite_fill(Suite *suite)
{
    TCase *where = tcase_create("what goes where");
    tcase_add_test(where, frames_go_over_the_ring_both_ways);
    tcase_add_test(where, long_frame_comes_in_its_turn);
    tcase_add_loop_test(where, long_frames_that_nobody_takes_are_a_limit, 0, SL_COUNT(untaken));
    tcase_add_test(where, full_ring_is_a_limit_until_the_receiver_takes);
    tcase_add_loop_test(where, order_is_kept_from_lane_to_lane, 0, 6);
    TCase *ends = tcase_create("ends");
    tcase_add_loop_test(ends, frames_of_a_killed_client_are_read_and_its_lane_goes, 0, 2);
    tcase_add_test(ends, signals_end_no_lane);
    tcase_add_test(ends, client_attaches_again_to_a_restarted_actor);
    tcase_add_test(ends, peer_that_has_not_answered_is_busy);
    tcase_add_test(ends, peer_of_other_lanes_is_of_another_version);
    tcase_add_test(ends, yes_of_the_dead_makes_no_lane);
    tcase_add_test(ends, lane_gone_comes_again);
    tcase_add_loop_test(ends, lane_with_a_hostile_long_frame_is_dropped, 0, 7);
    tcase_add_loop_test(ends, lane_with_hostile_bytes_is_dropped_and_others_go_on, 0, 3);
    TCase *made = tcase_create("offers");
    tcase_add_loop_test(made, offer_is_judged, 0, SL_COUNT(offers));
    tcase_add_loop_test(made, offer_to_who_has_no_descriptors_is_a_limit, 1, 7);
    tcase_add_loop_test(made, long_frame_comes_to_who_has_no_descriptors, 0, 2);
    tcase_add_loop_test(made, lane_that_cannot_be_offered_is_a_limit_with_its_cause, 0, 6);
    tcase_add_test(made, a_full_doorbell_is_rung_all_the_same);
    tcase_add_test(made, stalled_handshakes_are_bounded);
    tcase_add_test(made, one_lane_too_many_is_a_limit_until_there_is_room);
    tcase_add_test(made, lane_of_a_dead_client_that_forked_makes_room);
    tcase_add_test(made, second_lane_of_a_name_succeeds_the_first);
    tcase_add_test(made, another_user_is_refused);
    TCase *sleeping = tcase_create("sleeping");
    tcase_add_test(sleeping, no_wake_up_is_lost);
    tcase_add_test(sleeping, frame_without_a_doorbell_is_found_by_looking_again);
    tcase_add_test(sleeping, sleep_is_refused_while_a_frame_waits);
    tcase_add_test(sleeping, a_spoilt_doorbell_stops_nobody);
    TCase *spinning = tcase_create("spinning");
    tcase_add_loop_test(spinning, spinning_takes_no_core_that_is_wanted, 0, SL_COUNT(spin_rows));
    tcase_add_test(spinning, spinning_goes_on_while_it_pays);
    tcase_add_test(spinning, spinning_finds_a_frame_and_ends_in_time);
    tcase_add_test(spinning, crowded_node_does_not_spin);
    TCase *all[] = {where, ends, made, sleeping, spinning};
    for (uint32_t i = 0; i < SL_COUNT(all); i++) {
        tcase_set_timeout(all[i], 500);
        suite_add_tcase(suite, all[i]);
    }
}

int main(void)
{
    Suite *suite = suite_create("lane");
    suite_fill(suite);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
