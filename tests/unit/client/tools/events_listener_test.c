/* tests/unit/client/tools/events_listener_test.c - limits for peers of the publisher of events:
 * connections, topics, frames and idle time are bounded, and peers that respect the bounds are
 * served meanwhile. */
#include "client/tools/events/listener.h"
#include "client/tools/events/publish.h"
#include "runtime/base/sl_clock.h"
#include "tests/support/events_subscribe.h"
#include "tests/support/netns.h"
#include "tests/support/tmpdir.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define GREETING_BYTES 64
#define TOPIC          "kv@a-pod-with-a-name@a-model-with-a-name-of-its-own@that-goes-on-beyond-64-bytes"
#define WAIT_S         60

static struct sl_tmpdir directory;
static struct ev_publisher *publisher;
static uint16_t ports[2];

static void nothing(void *context)
{
    (void)context;
}

static uint16_t port_free(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &at_bytes), 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

static void opened(const char *topic, uint32_t idle_ms)
{
    char publish[64], replay[64];
    struct sl_error why = {0};
    const struct ev_publisher_options options = {.publish = publish,
                                                 .replay = replay,
                                                 .directory = directory.path,
                                                 .idle_ms = idle_ms,
                                                 .topic = topic,
                                                 .queue_messages = 100,
                                                 .kept_messages = 100,
                                                 .kept_bytes = SL_MIB,
                                                 .incarnation = 1,
                                                 .snapshot = nothing};
    sl_err err = SL_ERR_EXISTS;
    for (uint32_t tries = 0; tries < 20 && err == SL_ERR_EXISTS;
         tries++) { /* others use ports as well */
        ports[0] = port_free();
        ports[1] = port_free();
        (void)snprintf(publish, sizeof publish, "tcp://0.0.0.0:%u", ports[0]);
        (void)snprintf(replay, sizeof replay, "tcp://0.0.0.0:%u", ports[1]);
        err = ev_publisher_open(&options, &publisher, &why);
    }
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

static void setup(void)
{
    sl_tmpdir_make(&directory, "/tmp");
}

static void teardown(void)
{
    ev_publisher_close(&publisher);
    sl_tmpdir_remove(&directory);
}

static int connect_from(uint16_t port, const char *from)
{
    const struct timeval limit = {.tv_sec = WAIT_S};
    struct sockaddr_in mine = {.sin_family = AF_INET};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)inet_pton(AF_INET, from, &mine.sin_addr);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&mine, sizeof mine), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static bool bytes_read(int fd, void *out, size_t length)
{
    for (size_t used = 0; used < length;) {
        ssize_t got = recv(fd, (char *)out + used, length - used, 0);
        if (got <= 0) {
            ck_assert_msg(got == 0 || errno == ECONNRESET, "nothing for %d s", WAIT_S);
            return false;
        }
        used += (size_t)got;
    }
    return true;
}

static bool frame_read(int fd, uint8_t *flags, uint8_t body[4096], size_t *length)
{
    uint8_t head[2];
    if (!bytes_read(fd, head, 2)) {
        return false;
    }
    ck_assert_uint_eq(head[0] & 2, 0); /* short frames only */
    *flags = head[0];
    *length = head[1];
    return bytes_read(fd, body, head[1]);
}

static bool frame_send(int fd, uint8_t flags, const void *body, size_t length)
{
    uint8_t frame[600] = {flags, (uint8_t)length};
    size_t header = 2;
    if (length > 255) {
        frame[0] |= 2;
        frame[1] = 0;
        frame[7] = (uint8_t)(length >> 8);
        frame[8] = (uint8_t)length;
        header = 9;
    }
    memcpy(frame + header, body, length);
    return send(fd, frame, header + length, MSG_NOSIGNAL) == (ssize_t)(header + length);
}

/* Greets as ZMTP 3.minor: 3.0 sends topics as messages, 3.1 as commands. False: it ended. */
static bool greets(int fd, const char *type, uint8_t minor)
{
    uint8_t greeting[GREETING_BYTES] = {0xff, 0,    0, 0,     0,   0,   0,   0,
                                        1,    0x7f, 3, minor, 'N', 'U', 'L', 'L'};
    uint8_t ready[64], body[4096], flags;
    size_t length = 0;
    int ready_bytes = snprintf((char *)ready, sizeof ready, "\5READY\13Socket-Type%c%c%c%c%s", 0, 0,
                               0, (int)strlen(type), type);
    return send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting &&
           bytes_read(fd, greeting, sizeof greeting) &&
           frame_send(fd, 4, ready, (size_t)ready_bytes) && frame_read(fd, &flags, body, &length);
}

static int subscriber(const char *from)
{
    int fd = connect_from(ports[0], from);
    ck_assert(greets(fd, "SUB", 0));
    return fd;
}

static void topic_send(int fd, bool on, const char *topic)
{
    char text[256];
    int length = snprintf(text, sizeof text, "%c%s", (int)on, topic);
    ck_assert(frame_send(fd, 0, text, (size_t)length));
}

/* Sends messages until the subscriber has one. False: its connection ended. */
static bool heard(int fd)
{
    uint8_t flags, body[4096];
    size_t length = 0;
    int left = 0;
    char scrap[1];
    uint64_t give_up_ns = sl_clock_monotonic_ns() + WAIT_S * SL_NS_PER_S;
    while (recv(fd, scrap, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        (void)ev_publisher_serve(publisher,
                                 sl_clock_monotonic_ns()); /* ZeroMQ processes topics there */
        ev_publisher_send(publisher, "payload", 7);
        (void)usleep(1000);
    }
    for (left = 3; left > 0; left--) {
        if (!frame_read(fd, &flags, body, &length)) {
            return false;
        }
    }
    return memcmp(body, "payload", 7) == 0;
}

static void hears(int fd)
{
    ck_assert(heard(fd));
}

static struct ev_publisher_stats stats_when(bool (*fine)(const struct ev_publisher_stats *))
{
    struct ev_publisher_stats now = {0};
    uint64_t give_up_ns = sl_clock_monotonic_ns() + WAIT_S * SL_NS_PER_S;
    for (ev_publisher_stats(publisher, &now); !fine(&now); ev_publisher_stats(publisher, &now)) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        (void)usleep(1000);
    }
    return now;
}

START_TEST(an_address_has_so_many_connections_and_others_have_theirs)
    {
        struct ev_publisher_stats now;
        char scrap[1];
        int fds[EV_CONNECTIONS_OF_ONE];
        opened("t", 60000);
        for (uint32_t i = 0; i < EV_CONNECTIONS_OF_ONE; i++) { /* of both ports */
            fds[i] = connect_from(ports[i % 2], "127.0.0.1");
            ck_assert(greets(fds[i], i % 2 == 0 ? "SUB" : "DEALER", 0));
        }
        for (uint32_t i = 0; i < 2; i++) {
            int over = connect_from(ports[i], "127.0.0.1");
            ck_assert_int_le(recv(over, scrap, 1, 0),
                             0); /* it ends; for the limit the test would fail */
            (void)close(over);
        }
        ev_publisher_stats(publisher, &now);
        ck_assert_uint_eq(now.connections_refused, 2);
        int other = subscriber("127.0.0.2");
        topic_send(other, true, "t");
        hears(other);
        topic_send(fds[0], true, "");
        hears(fds[0]);
        (void)close(fds[2]); /* makes room */
        uint64_t give_up_ns = sl_clock_monotonic_ns() + WAIT_S * SL_NS_PER_S;
        int again = -1;
        for (bool served = false; !served; served = greets(again, "SUB", 0)) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            (void)close(again);
            again = connect_from(ports[0], "127.0.0.1");
        }
        for (uint32_t i = 0; i < EV_CONNECTIONS_OF_ONE; i++) {
            (void)(i == 2 || close(fds[i]));
        }
        (void)close(other);
        (void)close(again);
    }
END_TEST

/* Opens connections from there until one is refused, at most the number allowed to an address. */
static uint32_t take_all(const char *net, uint32_t address, int fds[EV_CONNECTIONS_MAX],
                         uint32_t count)
{
    char from[32];
    (void)snprintf(from, sizeof from, "%s.%u", net, address);
    for (uint32_t i = 0; i < EV_CONNECTIONS_OF_ONE; i++) {
        int fd = connect_from(ports[0], from);
        if (!greets(fd, "SUB", 0)) {
            (void)close(fd);
            return i;
        }
        ck_assert_uint_lt(count + i, EV_CONNECTIONS_MAX);
        fds[count + i] = fd;
    }
    return EV_CONNECTIONS_OF_ONE;
}

/* However many connections others have, a new address can open some. */
START_TEST(all_have_so_many_connections_and_few_addresses_cannot_have_them_all)
    {
        int fds[EV_CONNECTIONS_MAX];
        uint32_t count = 0;
        opened("t", 60000);
        for (uint32_t address = 1; address <= 4; address++) {
            count += take_all("127.0.0", address, fds, count);
        }
        ck_assert_uint_ge(count, 3 * EV_CONNECTIONS_OF_ONE);
        for (uint32_t address = 5; address <= 8; address++) {
            uint32_t more = take_all("127.0.0", address, fds, count);
            ck_assert_uint_ge(more, 1);
            count += more;
        }
        for (uint32_t address = 9; count < EV_CONNECTIONS_MAX; address++) {
            count += take_all("127.0.0", address, fds, count);
        }
        ck_assert_uint_eq(take_all("127.0.0", 100, fds, count), 0);
        topic_send(fds[255], true, "t");
        hears(fds[255]);
        for (uint32_t i = 0; i < EV_CONNECTIONS_MAX; i++) {
            (void)close(fds[i]);
        }
    }
END_TEST

/* A few dozen addresses use their maximum; this machine's clients still get their share. */
START_TEST(others_leave_this_machine_its_share)
    {
        int fds[EV_CONNECTIONS_MAX];
        uint32_t count = 0;
        const char *missing = netns_missing();
        if (missing != NULL) {
            (void)printf("skipped: %s\n", missing);
            return;
        }
        netns_enter();
        ck_assert(netns_run("ip route add local 198.51.100.0/24 dev lo"));
        opened("t", 60000);
        for (uint32_t address = 1; address <= 40; address++) {
            count += take_all("198.51.100", address, fds, count);
        }
        ck_assert_uint_eq(count, EV_CONNECTIONS_MAX - EV_CONNECTIONS_LOCAL);
        int own = subscriber("127.0.0.1");
        topic_send(own, true, "t");
        hears(own);
        (void)close(own);
        for (uint32_t i = 0; i < count; i++) {
            (void)close(fds[i]);
        }
    }
END_TEST

static bool one_topic_refused(const struct ev_publisher_stats *now)
{
    return now->topics_refused == 1;
}

START_TEST(a_connection_has_so_many_topics)
    {
        char topic[EV_TOPIC_BYTES_MAX + 2];
        opened("t16", 60000);
        int fd = subscriber("127.0.0.1"), fine = subscriber("127.0.0.1");
        for (uint32_t i = 0; i < EV_TOPICS_MAX; i++) {
            (void)snprintf(topic, sizeof topic, "t%02u", i);
            topic_send(fd, true, topic);
        }
        topic_send(fd, false, "never there"); /* makes no room */
        topic_send(fd, true, "t16");
        (void)stats_when(one_topic_refused);
        topic_send(fine, true, "t16");
        hears(fine);
        ck_assert_int_lt(recv(fd, topic, 1, MSG_DONTWAIT), 0);
        topic_send(fd, false, "t03");
        topic_send(fd, true, "t16");
        hears(fd);
        (void)close(fd);
        (void)close(fine);
    }
END_TEST

START_TEST(a_topic_has_so_many_bytes_unless_it_begins_that_of_the_publisher)
    {
        char topic[EV_TOPIC_BYTES_MAX + 2];
        memset(topic, 'x', sizeof topic - 1);
        topic[sizeof topic - 1] = '\0';
        opened(TOPIC, 60000);
        int fd = subscriber("127.0.0.1");
        topic_send(fd, true, topic);
        (void)stats_when(one_topic_refused);
        topic_send(fd, true, TOPIC);
        hears(fd);
        (void)close(fd);
    }
END_TEST

START_TEST(topics_by_command_count_alike)
    {
        char command[128];
        opened("t", 60000);
        int fd = connect_from(ports[0], "127.0.0.1");
        ck_assert(greets(fd, "SUB", 1));
        for (uint32_t i = 0; i <= EV_TOPICS_MAX; i++) {
            int length = snprintf(command, sizeof command, "\11SUBSCRIBE%u", i);
            ck_assert(frame_send(fd, 4, command, (size_t)length));
        }
        (void)stats_when(one_topic_refused);
        ck_assert(frame_send(fd, 4, "\6CANCEL3", 8));
        ck_assert(frame_send(fd, 4, "\11SUBSCRIBEt", 11));
        hears(fd);
        (void)close(fd);
    }
END_TEST

static bool all_topics_refused(const struct ev_publisher_stats *now)
{
    return now->topics_refused >= 100000 - EV_TOPICS_MAX;
}

START_TEST(a_flood_of_topics_takes_no_memory)
    {
        char topic[64];
        opened("t", 60000);
        int fd = subscriber("127.0.0.1");
        size_t before = mallinfo2().uordblks;
        for (uint32_t i = 0; i < 100000; i++) {
            (void)snprintf(topic, sizeof topic, "%08x-and-more-of-which-nothing-is-shared",
                           i * 2654435761u);
            topic_send(fd, true, topic);
        }
        (void)stats_when(all_topics_refused);
        (void)ev_publisher_serve(publisher, sl_clock_monotonic_ns());
        ck_assert_uint_lt(mallinfo2().uordblks, before + SL_MIB);
        (void)close(fd);
    }
END_TEST

static const struct {
    const char *type;
    uint8_t flags;
    size_t length;
} ending[] = {{"SUB", 0, EV_FRAME_BYTES_MAX + 1},
              {"SUB", 4, EV_FRAME_BYTES_MAX + 1},
              {"DEALER", 0, EV_FRAME_BYTES_MAX + 1},
              {"DEALER", 1, 8}}; /* a message without an end */
START_TEST(a_connection_ends_that_sends_too_much)
    {
        uint8_t body[EV_FRAME_BYTES_MAX + 1] = {0}, flags, answer[4096];
        size_t length = 0;
        struct ev_publisher_stats now;
        opened("t", 60000);
        int fd = connect_from(ports[ending[_i].type[0] == 'D'], "127.0.0.1");
        ck_assert(greets(fd, ending[_i].type, 0));
        while (frame_send(fd, ending[_i].flags, body, ending[_i].length) &&
               recv(fd, answer, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        }
        ck_assert(!frame_read(fd, &flags, answer, &length));
        ev_publisher_stats(publisher, &now);
        ck_assert_uint_eq(now.connections_ended, 1);
        (void)close(fd);
    }
END_TEST

static const char *const foreign[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\1\0\2\1", /* ZMTP 1 */
                                      "\xff\1\1\1\1\1\1\1\1\x7f\1"};                   /* and 2 */
START_TEST(who_speaks_another_protocol_is_cut)
    {
        char scrap[128];
        opened("t", 60000);
        int fd = connect_from(ports[0], "127.0.0.1");
        ck_assert_int_gt(send(fd, foreign[_i], strlen(foreign[_i]), MSG_NOSIGNAL), 0);
        while (recv(fd, scrap, sizeof scrap, 0) > 0) {
        }
        struct ev_publisher_stats now;
        ev_publisher_stats(publisher, &now);
        ck_assert_uint_eq(now.connections_ended, 1);
        (void)close(fd);
    }
END_TEST

/* False: the machine stalled for so long that the served connection was silent as well. */
static bool is_served_until_cut(int served, int silent, uint64_t idle_ns)
{
    uint8_t scrap[1];
    bool cut = false;
    while (!cut) {
        uint64_t begin_ns = sl_clock_monotonic_ns();
        cut = recv(silent, scrap, 1, MSG_PEEK | MSG_DONTWAIT) == 0 || errno != EAGAIN;
        bool serves = heard(served); /* for much longer than the idle limit */
        if (sl_clock_monotonic_ns() - begin_ns > idle_ns / 2) {
            return false;
        }
        ck_assert(serves);
    }
    return true;
}

START_TEST(who_is_silent_is_cut_and_who_is_served_stays)
    {
        uint32_t tries = 0;
        for (bool fine = false; !fine; tries++) {
            ck_assert_uint_lt(tries, 10);
            ev_publisher_close(&publisher);
            opened("t", 1000u << tries);
            int silent = subscriber("127.0.0.1"), served = subscriber("127.0.0.1");
            topic_send(served, true, "t");
            hears(served);
            fine = is_served_until_cut(served, silent, (1000ul << tries) * SL_NS_PER_MS);
            if (fine) {
                struct ev_publisher_stats now;
                ev_publisher_stats(publisher, &now);
                ck_assert_uint_eq(now.connections_ended, 1);
            }
            (void)close(silent);
            (void)close(served);
        }
    }
END_TEST

/* It asks once and then is silent, which is allowed. A connection without a greeting is not. */
START_TEST(a_replay_connection_that_is_done_is_none_over_a_bound)
    {
        char scrap[128];
        struct ev_publisher_stats now;
        opened("t", 1000);
        int done = connect_from(ports[1], "127.0.0.1");
        ck_assert(greets(done, "DEALER", 0));
        while (recv(done, scrap, sizeof scrap, 0) > 0) {
        }
        ev_publisher_stats(publisher, &now);
        ck_assert_uint_eq(now.connections_ended, 0);
        int mute = connect_from(ports[1], "127.0.0.1");
        while (recv(mute, scrap, sizeof scrap, 0) > 0) {
        }
        ev_publisher_stats(publisher, &now);
        ck_assert_uint_eq(now.connections_ended, 1);
        (void)close(done);
        (void)close(mute);
    }
END_TEST

static uint64_t cpu_ns(void)
{
    struct timespec now;
    ck_assert_int_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static bool refused(const struct ev_publisher_stats *now)
{
    return now->connections_refused > 0;
}

START_TEST(without_a_descriptor_nothing_spins)
    {
        struct rlimit limit;
        opened("t", 60000);
        int fd = subscriber("127.0.0.1");
        topic_send(fd, true, "t");
        int waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons(ports[0])};
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = (rlim_t)waiting + 1;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        ck_assert_int_eq(connect(waiting, (struct sockaddr *)&to, sizeof to), 0);
        (void)stats_when(refused);
        uint64_t begin_ns = cpu_ns();
        (void)usleep(500000); /* one that spins would use all of it */
        ck_assert_uint_lt(cpu_ns() - begin_ns, 250 * SL_NS_PER_MS);
        hears(fd);
        limit.rlim_cur = before;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        ck_assert(greets(waiting, "SUB", 0)); /* it is accepted then */
        (void)close(waiting);
        (void)close(fd);
    }
END_TEST

/* A publisher waits for its subscriber and counts the bytes that it took before they are read. */
START_TEST(a_subscriber_that_reads_nothing_takes_64_mib)
    {
        char at[128], scrap[16];
        char *payload = calloc(1, SL_MIB);
        struct ev_subscriber *subscriber = NULL;
        struct sl_error why = {0};
        const int one = 1, a_second_ms = 1000;
        void *context = zmq_ctx_new(), *xpub = zmq_socket(context, ZMQ_XPUB);
        ck_assert_int_eq(zmq_setsockopt(xpub, ZMQ_XPUB_NODROP, &one, sizeof one), 0);
        ck_assert_int_eq(zmq_setsockopt(xpub, ZMQ_SNDHWM, &one, sizeof one), 0);
        ck_assert_int_eq(zmq_setsockopt(xpub, ZMQ_SNDTIMEO, &a_second_ms, sizeof a_second_ms), 0);
        (void)snprintf(at, sizeof at, "ipc://%s/pub", directory.path);
        ck_assert_int_eq(zmq_bind(xpub, at), 0);
        ck_assert_int_eq(ev_subscriber_open(at, at, &subscriber, &why), SL_OK);
        ck_assert_int_eq(zmq_recv(xpub, scrap, sizeof scrap, 0), 1);
        uint32_t taken = 0;
        while (taken < 200 && zmq_send(xpub, payload, SL_MIB, 0) == (int)SL_MIB) {
            taken++;
        }
        ck_assert_uint_gt(taken, 0);
        ck_assert_uint_le(taken, 80); /* and what sockets hold */
        ev_subscriber_close(&subscriber);
        const int none = 0;
        (void)zmq_setsockopt(xpub, ZMQ_LINGER, &none, sizeof none);
        (void)zmq_close(xpub);
        (void)zmq_ctx_term(context);
        free(payload);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("events_listener");
    TCase *tests = tcase_create("bounds");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, an_address_has_so_many_connections_and_others_have_theirs);
    tcase_add_test(tests, all_have_so_many_connections_and_few_addresses_cannot_have_them_all);
    tcase_add_test(tests, others_leave_this_machine_its_share);
    tcase_add_test(tests, a_replay_connection_that_is_done_is_none_over_a_bound);
    tcase_add_test(tests, a_connection_has_so_many_topics);
    tcase_add_test(tests, a_topic_has_so_many_bytes_unless_it_begins_that_of_the_publisher);
    tcase_add_test(tests, topics_by_command_count_alike);
    tcase_add_test(tests, a_flood_of_topics_takes_no_memory);
    tcase_add_loop_test(tests, a_connection_ends_that_sends_too_much, 0, SL_COUNT(ending));
    tcase_add_loop_test(tests, who_speaks_another_protocol_is_cut, 0, SL_COUNT(foreign));
    tcase_add_test(tests, who_is_silent_is_cut_and_who_is_served_stays);
    tcase_add_test(tests, without_a_descriptor_nothing_spins);
    tcase_add_test(tests, a_subscriber_that_reads_nothing_takes_64_mib);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
