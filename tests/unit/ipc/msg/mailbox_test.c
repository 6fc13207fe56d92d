/* tests/unit/ipc/msg/mailbox_test.c - frames between endpoints of one process and of forked ones.
 */
#include "ipc/msg/sl_curve.h"
#include "ipc/msg/sl_mailbox.h"
#include "runtime/base/sl_clock.h"
#include "tests/support/mailbox_wait.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define SECOND SL_NS_PER_S

static char directory[64];

static void directory_make(void)
{
    (void)snprintf(directory, sizeof(directory), "/tmp/sluice-mailbox-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void directory_remove(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    ck_assert_int_eq(system(command), 0); /* NOLINT: a path made here */
}

static struct sl_mailbox *opened(const char *name, bool bind)
{
    struct sl_mailbox *mailbox = NULL;
    struct sl_error why = {0};
    const struct sl_mailbox_options options = {.runtime_dir = directory,
                                               .name = name,
                                               .message_bytes_max = SL_MIB,
                                               .ring_bytes = 64 * SL_KIB,
                                               .lanes_max = bind ? 8 : 0};
    sl_err err = sl_mailbox_open(&options, &mailbox, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return mailbox;
}

static void pause_ms(uint32_t ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* Sends until it is accepted, for at most a given time. Returns the time it took. */
static uint64_t send_until_taken(struct sl_mailbox *mailbox, const char *to, const char *text,
                                 uint64_t budget_ns)
{
    uint64_t start_ns = sl_clock_monotonic_ns();
    for (;;) {
        sl_err err = sl_mailbox_send(mailbox, to, text, strlen(text) + 1, false);
        uint64_t took_ns = sl_clock_monotonic_ns() - start_ns;
        if (err == SL_OK) {
            return took_ns;
        }
        ck_assert(err == SL_ERR_UNREACHABLE || err == SL_ERR_BUSY);
        ck_assert_uint_lt(took_ns, budget_ns);
        (void)sl_mailbox_block(mailbox, SL_NS_PER_MS);
    }
}

/* Returns the next frame as text. */
static const char *received(struct sl_mailbox *mailbox, const char **from)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    ck_assert_int_eq(mailbox_wait(mailbox, 20 * SECOND), SL_OK);
    ck_assert_int_eq(sl_mailbox_receive(mailbox, from, &frame, &length_bytes), SL_OK);
    ck_assert_uint_gt(length_bytes, 0);
    return frame;
}

START_TEST(request_and_reply_travel)
    {
        directory_make();
        struct sl_mailbox *actor = opened("registrar", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        mailbox_meet(client, actor);

        ck_assert_int_eq(sl_mailbox_send(client, "registrar", "ask", 4, false), SL_OK);
        ck_assert_str_eq(received(actor, &from), "ask");
        ck_assert_str_eq(from, "client.1.0");
        ck_assert_int_eq(sl_mailbox_send(actor, "client.1.0", "answer", 7, true), SL_OK);
        ck_assert_str_eq(received(client, &from), "answer");

        ck_assert_str_eq(from, "registrar");
        ck_assert_int_eq(mailbox_wait(actor, SL_NS_PER_MS), SL_ERR_TIMEOUT);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        ck_assert_ptr_null(actor);
        directory_remove();
    }
END_TEST

START_TEST(socket_is_for_its_user_alone_and_goes_with_its_owner)
    {
        directory_make();
        char path[128];
        struct stat status;
        struct sl_mailbox *actor = opened("swapper.0", true);
        (void)snprintf(path, sizeof(path), "%s/swapper.0.sock", directory);

        ck_assert_int_eq(stat(path, &status), 0);

        ck_assert_uint_eq(status.st_mode & 0777, 0600);
        sl_mailbox_close(&actor);
        ck_assert_int_ne(stat(path, &status), 0);
        directory_remove();
    }
END_TEST

START_TEST(second_of_a_name_is_refused)
    {
        directory_make();
        struct sl_mailbox *actor = opened("keyer", true);
        struct sl_mailbox *second = NULL;
        struct sl_error why = {0};
        const struct sl_mailbox_options options = {.runtime_dir = directory,
                                                   .name = "keyer",
                                                   .message_bytes_max = SL_MIB,
                                                   .ring_bytes = 64 * SL_KIB,
                                                   .lanes_max = 8};

        ck_assert_int_eq(sl_mailbox_open(&options, &second, &why), SL_ERR_EXISTS);

        ck_assert_ptr_nonnull(strstr(why.text, "keyer"));
        ck_assert_ptr_null(second);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

static const struct {
    const char *directory;
    const char *name;
    uint64_t message_bytes_max, ring_bytes;
    uint32_t lanes_max;
} bad_options[] = {
    {"/tmp", "a/b", 4096, 4096, 0},
    {"/tmp", "", 4096, 4096, 0},
    {"/tmp", "01234567890123456789012345678901", 4096, 4096, 0},
    {"/tmp/01234567890123456789012345678901234567890123456789012345678901234567890123", "a", 4096,
     4096, 0},
    {"/tmp", "a", 1, 4096, 0},
    {"/tmp", "a", 4096, 0, 0},
    {"/tmp", "a", 4096, 4096, SL_MAILBOX_LANES_MAX + 1},
};

START_TEST(bad_option_is_refused)
    {
        struct sl_mailbox *mailbox = NULL;
        struct sl_error why = {0};
        const struct sl_mailbox_options options = {.runtime_dir = bad_options[_i].directory,
                                                   .name = bad_options[_i].name,
                                                   .message_bytes_max =
                                                       bad_options[_i].message_bytes_max,
                                                   .ring_bytes = bad_options[_i].ring_bytes,
                                                   .lanes_max = bad_options[_i].lanes_max};

        ck_assert_int_eq(sl_mailbox_open(&options, &mailbox, &why), SL_ERR_INVALID);

        ck_assert(why.text[0] != '\0');
    }
END_TEST

START_TEST(nobody_is_unreachable)
    {
        directory_make();
        struct sl_mailbox *client = opened("client.1.0", false);
        struct sl_mailbox *actor = opened("registrar", true);

        ck_assert_int_eq(sl_mailbox_send(client, "nobody", "x", 2, false), SL_ERR_UNREACHABLE);
        ck_assert_int_eq(mailbox_connect(client, "nobody", 30 * SL_NS_PER_MS), SL_ERR_UNREACHABLE);
        ck_assert_int_eq(sl_mailbox_send(actor, "client.2.0", "x", 2, true), SL_ERR_UNREACHABLE);
        ck_assert_int_eq(sl_mailbox_send(client, "registrar", "x", 2, true), SL_ERR_UNREACHABLE);
        ck_assert_int_eq(sl_mailbox_send(client, "../x", "x", 2, false), SL_ERR_INVALID);
        ck_assert_int_eq(sl_mailbox_send(client, "", "x", 2, false), SL_ERR_INVALID);
        sl_mailbox_close(&actor);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

START_TEST(frame_over_the_bound_is_refused)
    {
        directory_make();
        struct sl_mailbox *client = opened("client.1.0", false);
        char *large = calloc(1, SL_MIB + 1);
        ck_assert_ptr_nonnull(large);

        ck_assert_int_eq(sl_mailbox_send(client, "registrar", large, SL_MIB + 1, false),
                         SL_ERR_INVALID);

        free(large);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

START_TEST(largest_frame_arrives)
    {
        directory_make();
        struct sl_mailbox *actor = opened("registrar", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        char *large = malloc(SL_MIB);
        const char *from = NULL;
        const void *frame = NULL;
        size_t length_bytes = 0;
        ck_assert_ptr_nonnull(large);
        memset(large, 'z', SL_MIB);
        mailbox_meet(client, actor);

        ck_assert_int_eq(sl_mailbox_send(client, "registrar", large, SL_MIB, false), SL_OK);
        ck_assert_int_eq(mailbox_wait(actor, SECOND), SL_OK);
        ck_assert_int_eq(sl_mailbox_receive(actor, &from, &frame, &length_bytes), SL_OK);

        ck_assert_uint_eq(length_bytes, SL_MIB);
        ck_assert_mem_eq(frame, large, SL_MIB);
        free(large);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(full_queue_is_a_limit_until_the_receiver_takes)
    {
        directory_make();
        struct sl_mailbox *actor = opened("registrar", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        static char block[65536];
        const char *from = NULL;
        const void *frame = NULL;
        size_t length_bytes = 0;
        mailbox_meet(client, actor);
        uint32_t taken = 0;
        sl_err err = SL_OK;
        for (uint64_t end_ns = sl_clock_monotonic_ns() + 5 * SECOND;
             err == SL_OK && sl_clock_monotonic_ns() < end_ns;) {
            err = sl_mailbox_send(client, "registrar", block, sizeof(block), false);
            taken += err == SL_OK ? 1 : 0;
            if (taken % 8 == 0) {
                pause_ms(1);
            }
        }

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        ck_assert_uint_lt(taken, 1000);
        for (uint32_t i = 0; i < taken; i++) {
            ck_assert_int_eq(mailbox_wait(actor, SECOND), SL_OK);
            ck_assert_int_eq(sl_mailbox_receive(actor, &from, &frame, &length_bytes), SL_OK);
            ck_assert_uint_eq(length_bytes, sizeof(block));
        }
        ck_assert_int_eq(sl_mailbox_send(client, "registrar", "x", 2, false), SL_OK);
        (void)printf("mailbox: a queue took %u frames of 64 KiB\n", taken);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(full_reply_queue_is_a_limit)
    {
        directory_make();
        struct sl_mailbox *actor = opened("registrar", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        static char block[65536];
        const char *from = NULL;
        mailbox_meet(client, actor);
        ck_assert_int_eq(sl_mailbox_send(client, "registrar", "ask", 4, false), SL_OK);
        (void)received(actor, &from);
        sl_err err = SL_OK;
        for (uint32_t i = 0; err == SL_OK && i < 1000; i++) {
            err = sl_mailbox_send(actor, "client.1.0", block, sizeof(block), true);
            if (i % 8 == 0) {
                pause_ms(1);
            }
        }

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

START_TEST(peers_take_turns)
    {
        directory_make();
        struct sl_mailbox *actor = opened("registrar", true);
        struct sl_mailbox *clients[3];
        for (uint32_t i = 0; i < 3; i++) {
            char name[32];
            (void)snprintf(name, sizeof(name), "client.%u.0", i);
            clients[i] = opened(name, false);
            mailbox_meet(clients[i], actor);
            for (uint32_t k = 0; k < 100; k++) {
                ck_assert_int_eq(sl_mailbox_send(clients[i], "registrar", "x", 2, false), SL_OK);
            }
        }
        pause_ms(100);
        uint32_t counts[3] = {0};

        for (uint32_t i = 0; i < 30; i++) {
            const char *from = NULL;
            (void)received(actor, &from);
            counts[from[7] - '0']++;
        }

        ck_assert_uint_eq(counts[0], 10);
        ck_assert_uint_eq(counts[1], 10);
        ck_assert_uint_eq(counts[2], 10);
        for (uint32_t i = 0; i < 3; i++) {
            sl_mailbox_close(&clients[i]);
        }
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* ---------------------------------------------------- processes
 * ---------------------------------------------------- */

/* Starts a process that echoes frames as `name` until it is killed. */
static pid_t echo_started(const char *name)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0) {
        return pid;
    }
    (void)alarm(30);
    struct sl_mailbox *mailbox = opened(name, true);
    for (;;) {
        const char *from = NULL;
        const void *frame = NULL;
        size_t length_bytes = 0;
        if (mailbox_wait(mailbox, SECOND) == SL_OK &&
            sl_mailbox_receive(mailbox, &from, &frame, &length_bytes) == SL_OK) {
            (void)sl_mailbox_send(mailbox, from, frame, length_bytes, true);
        }
    }
}

static void killed(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(dead_peer_is_unreachable)
    {
        directory_make();
        pid_t pid = echo_started("echo");
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        (void)send_until_taken(client, "echo", "one", 5 * SECOND);
        ck_assert_str_eq(received(client, &from), "one");

        killed(pid);

        sl_err err = SL_OK;
        for (uint32_t i = 0; err == SL_OK && i < 1000; i++) { /* the notice takes a moment */
            err = sl_mailbox_send(client, "echo", "two", 4, false);
            pause_ms(1);
        }
        ck_assert_int_eq(err, SL_ERR_UNREACHABLE);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

START_TEST(restarted_peer_is_heard_within_a_second)
    {
        directory_make();
        struct sl_mailbox *client = opened("client.1.0", false);
        uint64_t longest_ns = 0;
        for (uint32_t round = 0; round < 3; round++) {
            const char *from = NULL;
            char text[16];
            (void)snprintf(text, sizeof(text), "round %u", round);
            uint64_t connects = sl_mailbox_connect_count(client);
            pid_t pid = echo_started("echo");

            uint64_t took_ns = send_until_taken(client, "echo", text, 20 * SECOND);
            ck_assert_str_eq(received(client, &from), text);

            ck_assert_uint_gt(sl_mailbox_connect_count(client), connects);
            longest_ns = SL_MAX(longest_ns, took_ns);
            killed(pid);
            while (sl_mailbox_send(client, "echo", "gone?", 6, false) == SL_OK) {
                pause_ms(1);
            }
        }
        (void)printf("mailbox: a restarted peer is reached within %" PRIu64 " us\n",
                     longest_ns / SL_NS_PER_US);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

START_TEST(restarted_client_is_answered_under_its_old_name)
    {
        directory_make();
        pid_t pid = echo_started("echo");
        for (uint32_t round = 0; round < 3; round++) {
            const char *from = NULL;
            struct sl_mailbox *client = opened("client.1.0", false);
            ck_assert_int_eq(mailbox_connect(client, "echo", 2 * SECOND), SL_OK);
            ck_assert_int_eq(sl_mailbox_send(client, "echo", "again", 6, false), SL_OK);
            ck_assert_str_eq(received(client, &from), "again");
            sl_mailbox_close(&client);
        }
        killed(pid);
        directory_remove();
    }
END_TEST

START_TEST(stopped_peer_costs_a_limit_and_no_wait)
    {
        directory_make();
        pid_t pid = echo_started("echo");
        struct sl_mailbox *client = opened("client.1.0", false);
        static char block[65536];
        const char *from = NULL;
        ck_assert_int_eq(mailbox_connect(client, "echo", 20 * SECOND), SL_OK);
        ck_assert_int_eq(sl_mailbox_send(client, "echo", block, sizeof(block), false), SL_OK);
        (void)received(client, &from);
        ck_assert_int_eq(kill(pid, SIGSTOP), 0);
        uint32_t slow_count = 0;
        sl_err err = SL_OK;
        for (uint32_t i = 0; err == SL_OK && i < 10000; i++) {
            uint64_t start_ns = sl_clock_monotonic_ns();
            err = sl_mailbox_send(client, "echo", block, sizeof(block), false);
            slow_count += sl_clock_monotonic_ns() - start_ns >= 500 * SL_NS_PER_MS;
            if (i % 8 == 0) {
                pause_ms(1);
            }
        }

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        ck_assert_uint_lt(slow_count,
                          5); /* who loses its core is slow once; a send that waits always is */
        killed(pid);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

START_TEST(descriptor_wakes_a_loop_for_every_frame)
    {
        directory_make();
        struct sl_mailbox *actor = opened("registrar", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        mailbox_meet(client, actor);
        int fd = sl_mailbox_fd(actor);
        for (uint32_t i = 0; i < 500; i++) {
            const char *from = NULL;
            const void *frame = NULL;
            size_t length_bytes = 0;
            ck_assert_int_eq(sl_mailbox_send(client, "registrar", "x", 2, false), SL_OK);
            /* A reply every now and then: sending may swallow the wake-up. */
            uint32_t got = 0;
            for (uint32_t turn = 0; got == 0 && turn < 100; turn++) {
                struct pollfd waited = {.fd = fd, .events = POLLIN};
                if (!sl_mailbox_pending(actor)) {
                    ck_assert_int_eq(poll(&waited, 1, 1000), 1);
                }
                while (sl_mailbox_receive(actor, &from, &frame, &length_bytes) == SL_OK) {
                    got++;
                    ck_assert_int_eq(sl_mailbox_send(actor, from, "y", 2, true), SL_OK);
                }
            }
            ck_assert_uint_eq(got, 1);
            while (sl_mailbox_receive(client, &from, &frame, &length_bytes) == SL_OK) {
            }
        }
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        directory_remove();
    }
END_TEST

/* A loop that waits on the mailbox: frames end its waits, and so does its own descriptor. */
START_TEST(block_ends_for_every_frame_and_for_the_loop)
    {
        directory_make();
        struct sl_mailbox *actor = opened("registrar", true);
        struct sl_mailbox *client = opened("client.1.0", false);
        mailbox_meet(client, actor);
        int loop_fd = epoll_create1(0), bell = eventfd(0, EFD_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN};
        uint64_t one = 1;
        ck_assert_int_eq(epoll_ctl(loop_fd, EPOLL_CTL_ADD, bell, &event), 0);
        ck_assert_int_eq(sl_mailbox_join(actor, loop_fd, NULL), SL_OK);
        for (uint32_t i = 0; i < 500; i++) {
            const char *from = NULL;
            const void *frame = NULL;
            size_t length_bytes = 0;
            uint32_t got = 0;
            bool of_loop = false;
            if (i % 5 == 0) { /* level-triggered: reported while it lasts */
                ck_assert_int_eq(write(bell, &one, sizeof one), sizeof one);
                ck_assert(sl_mailbox_block(actor, SECOND));
            }
            ck_assert_int_eq(sl_mailbox_send(client, "registrar", "x", 2, false), SL_OK);
            uint64_t until_ns = sl_clock_monotonic_ns() + 60 * SECOND;
            while (got == 0 && sl_clock_monotonic_ns() < until_ns) {
                uint64_t now_ns = sl_clock_monotonic_ns();
                if (sl_mailbox_sleep(actor, now_ns) != 0) {
                    of_loop = sl_mailbox_block(actor, 30 * SECOND) || of_loop;
                    ck_assert_uint_lt(sl_clock_monotonic_ns() - now_ns, 30 * SECOND);
                }
                while (sl_mailbox_receive(actor, &from, &frame, &length_bytes) == SL_OK) {
                    got++;
                    ck_assert_int_eq(sl_mailbox_send(actor, from, "y", 2, true), SL_OK);
                }
            }
            ck_assert_uint_eq(got, 1);
            if (i % 5 == 0) {
                ck_assert(sl_mailbox_block(actor, 0));
                ck_assert_int_eq(read(bell, &one, sizeof one), sizeof one);
            } else {
                ck_assert(!of_loop);
            }
            ck_assert(!sl_mailbox_block(actor, 0));
            while (sl_mailbox_receive(client, &from, &frame, &length_bytes) == SL_OK) {
            }
        }
        sl_mailbox_close(&client);
        sl_mailbox_close(&actor);
        (void)close(loop_fd);
        (void)close(bell);
        directory_remove();
    }
END_TEST

#define ROUNDS 2000u

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

START_TEST(round_trip_is_timed)
    {
        static uint64_t took_ns[ROUNDS];
        directory_make();
        pid_t pid = echo_started("echo");
        struct sl_mailbox *client = opened("client.1.0", false);
        const char *from = NULL;
        ck_assert_int_eq(mailbox_connect(client, "echo", 5 * SECOND), SL_OK);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            uint64_t start_ns = sl_clock_monotonic_ns();
            ck_assert_int_eq(sl_mailbox_send(client, "echo", "ping", 5, false), SL_OK);
            (void)received(client, &from);
            took_ns[i] = sl_clock_monotonic_ns() - start_ns;
        }
        qsort(took_ns, ROUNDS, sizeof(took_ns[0]), compare_u64);
        (void)printf("mailbox: round trip p50 %" PRIu64 " us, p99 %" PRIu64 " us\n",
                     took_ns[ROUNDS / 2] / 1000, took_ns[ROUNDS * 99 / 100] / 1000);
        killed(pid);
        sl_mailbox_close(&client);
        directory_remove();
    }
END_TEST

/* libzmq aborts a process that cannot have the threads and descriptors of its first socket. */
START_TEST(context_without_descriptors_is_a_limit)
    {
        const struct rlimit few = {.rlim_cur = 200, .rlim_max = 200};
        void *context = NULL;
        struct sl_error why = {0};
        int last = -1, left = 0;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        for (int fd = dup(0); fd >= 0; fd = dup(0)) {
            last = fd;
        }

        sl_err err = sl_zmq_context_open(&context, &why);
        for (; left < 32 && err != SL_OK; left++) {
            ck_assert_int_eq(err, SL_ERR_LIMIT);
            (void)close(last - left);
            err = sl_zmq_context_open(&context, &why);
        }

        ck_assert_msg(err == SL_OK, "%s", why.text);
        ck_assert_int_gt(left, 5); /* less is not enough: each of them was asked for */
        void *socket = zmq_socket(context, ZMQ_ROUTER);
        ck_assert_ptr_nonnull(socket);
        ck_assert_int_eq(zmq_close(socket), 0);
        ck_assert_int_eq(zmq_ctx_term(context), 0);
    }
END_TEST

START_TEST(context_without_threads_is_a_limit)
    {
        void *context = NULL;
        struct sl_error why = {0};
        pthread_attr_t huge;
        ck_assert_int_eq(pthread_attr_init(&huge), 0);
        ck_assert_int_eq(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
        ck_assert_int_eq(pthread_setattr_default_np(&huge), 0);

        ck_assert_int_eq(sl_zmq_context_open(&context, &why), SL_ERR_LIMIT);

        ck_assert_ptr_null(context);
        ck_assert_ptr_nonnull(strstr(why.text, "2 threads"));
        (void)pthread_attr_destroy(&huge);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("mailbox");
    TCase *one = tcase_create("one process");
    tcase_set_timeout(one, 30);
    tcase_add_test(one, request_and_reply_travel);
    tcase_add_test(one, socket_is_for_its_user_alone_and_goes_with_its_owner);
    tcase_add_test(one, second_of_a_name_is_refused);
    tcase_add_loop_test(one, bad_option_is_refused, 0, SL_COUNT(bad_options));
    tcase_add_test(one, context_without_descriptors_is_a_limit);
    tcase_add_test(one, context_without_threads_is_a_limit);
    tcase_add_test(one, nobody_is_unreachable);
    tcase_add_test(one, frame_over_the_bound_is_refused);
    tcase_add_test(one, largest_frame_arrives);
    tcase_add_test(one, full_queue_is_a_limit_until_the_receiver_takes);
    tcase_add_test(one, full_reply_queue_is_a_limit);
    tcase_add_test(one, peers_take_turns);
    tcase_add_test(one, descriptor_wakes_a_loop_for_every_frame);
    tcase_add_test(one, block_ends_for_every_frame_and_for_the_loop);
    suite_add_tcase(suite, one);
    TCase *several = tcase_create("several processes");
    tcase_set_timeout(several, 30);
    tcase_add_test(several, dead_peer_is_unreachable);
    tcase_add_test(several, restarted_peer_is_heard_within_a_second);
    tcase_add_test(several, restarted_client_is_answered_under_its_old_name);
    tcase_add_test(several, stopped_peer_costs_a_limit_and_no_wait);
    tcase_add_test(several, round_trip_is_timed);
    suite_add_tcase(suite, several);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
