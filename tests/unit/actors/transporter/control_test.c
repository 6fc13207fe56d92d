/* tests/unit/actors/transporter/control_test.c - frames between nodes over real sockets of the
 * loopback: which peers are accepted, and how an accepted peer can affect others. */
/* Includes the source, not the header: a test must know the routing id that ZeroMQ gave a peer. */
#include "actors/transporter/control/connections.c"
#include "actors/transporter/control/control.c"
#include "tests/support/tmpdir.h"

#include <arpa/inet.h>
#include <check.h>
#include <poll.h>

#define WAIT_NS  (20 * SL_NS_PER_S) /* a limit, not a measurement */
#define QUIET_MS 300                /* for frames that must not arrive */

static struct bed {
    struct sl_tmpdir root;
    char address[64];
    struct sl_control *listener; /* of node a */
    void *context;               /* of raw sockets */
} bed;

static uint32_t refused_count;
static char refused_ip[46], refused_key[SL_CURVE_TEXT_BYTES];

static void key_refused(void *context, const char *ip, const char *key)
{
    ck_assert_ptr_eq(context, &bed);
    refused_count++;
    (void)snprintf(refused_ip, sizeof(refused_ip), "%s", ip);
    (void)snprintf(refused_key, sizeof(refused_key), "%s", key);
}

static uint32_t unauthenticated_max = 512, of_address_max = 64;
static bool plaintext;

static const char *keys_of(const char *node)
{
    static char path[300];
    (void)snprintf(path, sizeof(path), "%s/%s", bed.root.path, node);
    return path;
}

static void file_copy(const char *from, const char *to)
{
    char bytes[512];
    FILE *in = fopen(from, "re");
    ck_assert_ptr_nonnull(in);
    size_t length = fread(bytes, 1, sizeof(bytes), in);
    (void)fclose(in);
    FILE *out = fopen(to, "we");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, length, out), length);
    ck_assert_int_eq(fclose(out), 0);
}

/* Makes `node` accept `other`. */
static void allow(const char *node, const char *other)
{
    char from[600], to[600];
    (void)snprintf(from, sizeof(from), "%s/%s/%s.pub", bed.root.path, other, other);
    (void)snprintf(to, sizeof(to), "%s/%s/%s.pub", bed.root.path, node, other);
    file_copy(from, to);
}

static struct sl_control *control_of_node(const char *node, const char *listen)
{
    struct sl_control *control = NULL;
    struct sl_error why = {0};
    const struct sl_control_options options = {.node = node,
                                               .listen = listen,
                                               .keys = keys_of(node),
                                               .plaintext = plaintext,
                                               .queue_messages = 100,
                                               .message_bytes_max = 4096,
                                               .unauthenticated_max = unauthenticated_max,
                                               .of_address_max = of_address_max,
                                               .unauth = key_refused,
                                               .context = &bed};
    ck_assert_msg(sl_control_open(&options, &control, &why) == SL_OK, "%s", why.text);
    return control;
}

static const char *public_of(const char *node)
{
    static char key[SL_CURVE_TEXT_BYTES];
    ck_assert_int_eq(sl_curve_load_public(keys_of(node), node, key, NULL), SL_OK);
    return key;
}

/* a listens and knows b and c; d has keys of its own that a does not know. */
static void bed_open(void)
{
    static const char *const nodes[] = {"a", "b", "c", "d"};
    char endpoint[64] = "";
    size_t size = sizeof(endpoint);
    memset(&bed, 0, sizeof(bed));
    sl_tmpdir_make(&bed.root, "/tmp");
    for (size_t i = 0; i < SL_COUNT(nodes); i++) {
        ck_assert_int_eq(sl_curve_make(keys_of(nodes[i]), nodes[i], NULL), SL_OK);
    }
    for (size_t i = 1; i < SL_COUNT(nodes); i++) {
        allow(nodes[i], "a");
    }
    allow("a", "b");
    allow("a", "c");
    bed.listener = control_of_node("a", "127.0.0.1:*");
    ck_assert_int_eq(zmq_getsockopt(of(bed.listener)->router, ZMQ_LAST_ENDPOINT, endpoint, &size),
                     0);
    (void)snprintf(bed.address, sizeof(bed.address), "%s", endpoint + strlen("tcp://"));
    bed.context = zmq_ctx_new();
}

static void bed_close(void)
{
    sl_control_close(&bed.listener);
    (void)zmq_ctx_term(bed.context);
    sl_tmpdir_remove(&bed.root);
}

static struct sl_control *asker(const char *node)
{
    struct sl_control *control = control_of_node(node, "");
    ck_assert_int_eq(control->ops->peer_add(control, "a", bed.address, NULL), SL_OK);
    return control;
}

/* A socket that announces any id, with the keys of a node (NULL: none). */
static void *raw_dealer(const char *node, const void *id, size_t id_bytes)
{
    char server[SL_CURVE_TEXT_BYTES], endpoint[96];
    struct sl_curve_pair pair;
    void *socket = zmq_socket(bed.context, ZMQ_DEALER);
    ck_assert(set_int(socket, ZMQ_LINGER, 0));
    ck_assert(set_int(socket, ZMQ_RECONNECT_IVL, -1)); /* before it connects, or it is too late */
    if (node != NULL) {
        ck_assert_int_eq(sl_curve_load(keys_of(node), node, &pair, NULL), SL_OK);
        ck_assert_int_eq(sl_curve_load_public(keys_of(node), "a", server, NULL), SL_OK);
        ck_assert(zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server, SL_CURVE_TEXT_BYTES) == 0 &&
                  zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, pair.public_text,
                                 SL_CURVE_TEXT_BYTES) == 0 &&
                  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair.secret_text,
                                 SL_CURVE_TEXT_BYTES) == 0);
    }
    if (id_bytes > 0) {
        ck_assert_int_eq(zmq_setsockopt(socket, ZMQ_ROUTING_ID, id, id_bytes), 0);
    }
    (void)snprintf(endpoint, sizeof(endpoint), "tcp://%s", bed.address);
    ck_assert_int_eq(zmq_connect(socket, endpoint), 0);
    return socket;
}

/* Receives the next frame of a control within the time; false: none arrived. */
static bool receive(struct sl_control *control, struct sl_control_frame *out, uint64_t wait_ns)
{
    uint64_t until_ns = sl_clock_monotonic_ns() + wait_ns;
    do {
        while (control->ops->receive(control, out)) {
            if (out->bytes != NULL) {
                return true;
            }
        }
        struct pollfd ready = {.fd = control->ops->fd(control), .events = POLLIN};
        (void)poll(&ready, 1, 5);
    } while (sl_clock_monotonic_ns() < until_ns);
    return false;
}

/* The asker sends `text` until a receives a frame, which must be that, from this peer. */
static void says(struct sl_control *control, const char *text, const char *peer)
{
    struct sl_control_frame frame;
    uint64_t until_ns = sl_clock_monotonic_ns() + WAIT_NS;
    while (control->ops->send(control, "a", text, strlen(text), false) != SL_OK) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
        (void)receive(bed.listener, &frame, SL_NS_PER_MS); /* keys are looked up in this thread */
    }
    ck_assert(receive(bed.listener, &frame, WAIT_NS));
    ck_assert(plaintext ? frame.peer == NULL : strcmp(frame.peer, peer) == 0);
    ck_assert_uint_eq(frame.length_bytes, strlen(text));
    ck_assert_int_eq(memcmp(frame.bytes, text, strlen(text)), 0);
    bed.listener->ops->heard(bed.listener, peer);
}

static void hears(struct sl_control *control, const char *text)
{
    struct sl_control_frame frame;
    ck_assert(receive(control, &frame, WAIT_NS));
    ck_assert(frame.answer && frame.length_bytes == strlen(text) &&
              memcmp(frame.bytes, text, strlen(text)) == 0);
}

static void talk(struct sl_control *control, const char *peer)
{
    says(control, "ask", peer);
    ck_assert_int_eq(bed.listener->ops->send(bed.listener, peer, "answer", 6, true), SL_OK);
    hears(control, "answer");
}

static bool raw_hears(void *socket)
{
    char bytes[64];
    return zmq_recv(socket, bytes, sizeof(bytes), ZMQ_DONTWAIT) >= 0;
}

/* ---- who gets in ---- */

START_TEST(who_has_no_key_that_is_known_says_and_hears_nothing)
    {
        struct sl_control_frame frame;
        bed_open();
        struct sl_control *b = asker("b"), *d = asker("d");
        void *bare = raw_dealer(NULL, NULL, 0);
        ck_assert_int_ge(zmq_send(bare, "ask", 3, ZMQ_DONTWAIT), 0);

        uint64_t until_ns = sl_clock_monotonic_ns() + WAIT_NS;
        do {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
            ck_assert(!receive(bed.listener, &frame, QUIET_MS * SL_NS_PER_MS));
        } while (bed.listener->refused == 0);

        ck_assert_int_eq(d->ops->send(d, "a", "ask", 3, false), SL_ERR_UNREACHABLE);
        ck_assert_uint_eq(refused_count, bed.listener->refused); /* each; for operators */
        ck_assert_str_eq(refused_ip, "127.0.0.1");
        ck_assert_str_eq(refused_key, public_of("d"));
        ck_assert(!raw_hears(bare));
        talk(b, "b"); /* a peer with a key is not blocked */
        sl_control_close(&b);
        sl_control_close(&d);
        (void)zmq_close(bare);
        bed_close();
    }
END_TEST

/* Two nodes with one key, or without any: answers go to the first one, whichever spoke last, and a
 * refusal to the refused one. */
START_TEST(another_connection_of_a_name_takes_no_answers)
    {
        struct sl_control_frame frame;
        plaintext = _i == 1;
        bed_open();
        struct sl_control *first = asker("b"), *second = asker("b");
        talk(first, "b");
        uint64_t until_ns = sl_clock_monotonic_ns() + WAIT_NS;
        while (second->ops->send(second, "a", "ask", 3, false) != SL_OK) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
            (void)receive(bed.listener, &frame, SL_NS_PER_MS);
        }
        ck_assert(receive(bed.listener, &frame, WAIT_NS));
        ck_assert(frame.other);
        ck_assert_msg(strncmp(frame.from, "127.0.0.1:", 10) == 0, "%s", frame.from);

        ck_assert_int_eq(bed.listener->ops->refuse(bed.listener, "no", 2), SL_OK);
        ck_assert_int_eq(bed.listener->ops->send(bed.listener, "b", "yes", 3, true), SL_OK);

        hears(second, "no");
        hears(first, "yes");
        sl_control_close(&first);
        while (bed.listener->ops->send(bed.listener, "b", "?", 1, true) ==
               SL_OK) { /* until it has ended */
            ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
            (void)receive(bed.listener, &frame, SL_NS_PER_MS);
        }
        sl_control_close(&second);
        bed_close();
        plaintext = false;
    }
END_TEST

/* ---- who connects and says nothing ---- */

#define CROWD 60u

/* From 127.0.0.N, for many different addresses. */
static int stranger_from(uint32_t number)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + number)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)strtoul(strrchr(bed.address, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static bool is_open(int fd)
{
    char bytes[128]; /* ZeroMQ greets at once */
    ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    while (got > 0) {
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    }
    return got < 0 && errno == EAGAIN;
}

static uint32_t open_count(const int *fds, uint32_t count)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < count; i++) {
        open += is_open(fds[i]) ? 1 : 0;
    }
    return open;
}

static const struct {
    bool one_address;
    uint32_t unauthenticated_max, of_address_max, stay;
} crowds[] = {{true, 512, 5, 5}, {false, 7, 5, 7}, {true, 4, 50, 4}};

/* Well before the handshake times out. */
START_TEST(so_many_strangers_stay_and_who_has_spoken_does)
    {
        struct sl_control_frame frame;
        int fds[CROWD];
        unauthenticated_max = crowds[_i].unauthenticated_max;
        of_address_max = crowds[_i].of_address_max;
        bed_open();
        struct sl_control *b = asker("b");
        talk(b, "b");
        uint64_t handshakes_ns = peer_of(of(bed.listener), "b")->handshakes_ns;
        uint64_t until_ns = sl_clock_monotonic_ns() + WAIT_NS;

        for (uint32_t i = 0; i < CROWD; i++) {
            fds[i] = stranger_from(crowds[_i].one_address ? 0 : 1 + i);
        }
        while (bed.listener->refused < CROWD - crowds[_i].stay) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
            (void)receive(bed.listener, &frame, SL_NS_PER_MS);
        }

        ck_assert_uint_eq(open_count(fds, CROWD), crowds[_i].stay);
        struct sl_control *c = asker("c"); /* from one of their addresses */
        talk(c, "c");
        talk(b, "b");
        ck_assert_uint_eq(peer_of(of(bed.listener), "b")->handshakes_ns, handshakes_ns);
        for (uint32_t i = 0; i < CROWD; i++) {
            ck_assert_int_eq(close(fds[i]), 0);
        }
        sl_control_close(&b);
        sl_control_close(&c);
        bed_close();
    }
END_TEST

static uint32_t places_taken(void)
{
    const struct control_connections *unauth = of(bed.listener)->unauth;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < unauth->high; i++) {
        taken += unauth->places[i].fd >= 0 ? 1 : 0;
    }
    return taken;
}

/* A peer that opens a connection a second, and keeps each, has only a few. */
START_TEST(a_key_has_so_many_connections)
    {
        void *dealers[HANDSHAKES_AT_ONCE + 4];
        struct sl_control_frame frame;
        bed_open();
        for (uint32_t i = 0; i < SL_COUNT(dealers); i++) {
            struct control_peer *peer = peer_of(of(bed.listener), "b");
            if (peer != NULL) {
                peer->handshakes_ns = 0; /* a second and more has passed */
            }
            dealers[i] = raw_dealer("b", NULL, 0);
            ck_assert_int_ge(zmq_send(dealers[i], "ask", 3, 0), 0);
            ck_assert(receive(bed.listener, &frame, WAIT_NS));
        }
        ck_assert_uint_eq(places_taken(), HANDSHAKES_AT_ONCE);
        for (uint32_t i = 0; i < SL_COUNT(dealers); i++) {
            (void)zmq_close(dealers[i]);
        }
        bed_close();
    }
END_TEST

/* 0: NAME.pub is removed; 1: it holds another key. */
START_TEST(a_key_that_goes_takes_its_connections_along)
    {
        char path[400];
        struct sl_control_frame frame;
        bed_open();
        struct sl_control *b = asker("b"), *c = asker("c");
        talk(b, "b");
        talk(c, "c");
        ck_assert_uint_eq(places_taken(), 2);

        if (_i == 0) {
            (void)snprintf(path, sizeof(path), "%s/b.pub", keys_of("a"));
            ck_assert_int_eq(remove(path), 0);
        }
        bed.listener->ops->peer_key(bed.listener, "b",
                                    _i == 0 ? NULL : of(bed.listener)->pair.public_text);

        ck_assert_uint_eq(places_taken(), 1);
        uint64_t until_ns = sl_clock_monotonic_ns() + WAIT_NS; /* until b notices it */
        while (b->ops->send(b, "a", "ask", 3, false) == SL_OK) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
            ck_assert(!receive(bed.listener, &frame, SL_NS_PER_MS));
            if (_i == 1) {
                peer_of(of(bed.listener), "b")->handshakes_ns =
                    SL_NEVER_NS; /* it does not come back */
            }
        }
        talk(c, "c");
        sl_control_close(&b);
        sl_control_close(&c);
        bed_close();
    }
END_TEST

START_TEST(a_key_that_goes_gives_its_place_back)
    {
        char name[8];
        struct sl_control_frame frame;
        bed_open();
        struct control *self = of(bed.listener);
        for (uint32_t i = 0; i + 1 < SL_CLUSTER_PEERS_MAX; i++) {
            (void)snprintf(name, sizeof(name), "n%u", i);
            (void)snprintf(peer_get(self, name)->key, SL_CURVE_TEXT_BYTES, "%s", name);
        }
        struct sl_control *b = asker("b");
        talk(b, "b");
        struct sl_control *c = asker("c");
        ck_assert(!receive(bed.listener, &frame, QUIET_MS * SL_NS_PER_MS));
        ck_assert_ptr_null(peer_of(self, "c")); /* all are taken */

        bed.listener->ops->peer_key(bed.listener, "n7", NULL);

        talk(c, "c");
        ck_assert_ptr_null(peer_of(self, "n7"));
        sl_control_close(&b);
        sl_control_close(&c);
        bed_close();
    }
END_TEST

/* ---- what a peer can do to others ---- */

START_TEST(a_peer_that_claims_the_routing_id_of_another_gets_nothing_of_it)
    {
        struct sl_control_frame frame;
        bed_open();
        struct sl_control *b = asker("b");
        talk(b, "b");
        const struct control_peer *route = peer_of(of(bed.listener), "b");
        ck_assert_uint_gt(route->route_bytes, 0);

        void *hostile = raw_dealer("c", route->route, route->route_bytes);
        ck_assert_int_ge(zmq_send(hostile, "mine", 4, ZMQ_DONTWAIT), 0);
        while (receive(bed.listener, &frame, QUIET_MS * SL_NS_PER_MS)) {
            ck_assert_str_eq(frame.peer, "c"); /* it must count as c's own */
        }

        ck_assert_int_eq(bed.listener->ops->send(bed.listener, "b", "for b", 5, true), SL_OK);
        hears(b, "for b");
        ck_assert(!raw_hears(hostile));
        talk(b, "b");
        struct sl_control *again = asker("b"); /* and reconnects */
        talk(again, "b");
        ck_assert(!raw_hears(hostile));
        sl_control_close(&again);
        sl_control_close(&b);
        (void)zmq_close(hostile);
        bed_close();
    }
END_TEST

/* ZeroMQ ends the process when it assigns an id that a peer has claimed before: 32 bits, which a
 * peer must not be able to guess for long. */
START_TEST(a_key_gets_so_many_connections_and_no_more_and_others_get_theirs)
    {
        void *sockets[6 * HANDSHAKES_AT_ONCE];
        char id[8];
        uint32_t heard = 0;
        struct sl_control_frame frame;
        bed_open();
        uint64_t start_ns = sl_clock_monotonic_ns();
        for (uint32_t i = 0; i < SL_COUNT(sockets); i++) {
            (void)snprintf(id, sizeof(id), "x%u", i);
            sockets[i] = raw_dealer("c", id, strlen(id));
            ck_assert_int_ge(zmq_send(sockets[i], id, strlen(id), ZMQ_DONTWAIT), 0);
        }
        bool more = true;
        while (more || heard == 0 || bed.listener->refused == 0) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), start_ns + WAIT_NS);
            more = receive(bed.listener, &frame, QUIET_MS * SL_NS_PER_MS);
            ck_assert(!more || strcmp(frame.peer, "c") == 0);
            heard += more;
        }
        uint64_t later = (sl_clock_monotonic_ns() - start_ns) / HANDSHAKE_EVERY_NS;

        ck_assert_uint_le(heard, HANDSHAKES_AT_ONCE + later + 1);
        struct sl_control *b = asker("b");
        talk(b, "b");
        sl_control_close(&b);
        for (uint32_t i = 0; i < SL_COUNT(sockets); i++) {
            (void)zmq_close(sockets[i]);
        }
        bed_close();
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("control");
    TCase *tests = tcase_create("control");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, who_has_no_key_that_is_known_says_and_hears_nothing);
    tcase_add_loop_test(tests, another_connection_of_a_name_takes_no_answers, 0, 2);
    tcase_add_loop_test(tests, so_many_strangers_stay_and_who_has_spoken_does, 0, SL_COUNT(crowds));
    tcase_add_test(tests, a_key_has_so_many_connections);
    tcase_add_loop_test(tests, a_key_that_goes_takes_its_connections_along, 0, 2);
    tcase_add_test(tests, a_key_that_goes_gives_its_place_back);
    tcase_add_test(tests, a_peer_that_claims_the_routing_id_of_another_gets_nothing_of_it);
    tcase_add_test(tests, a_key_gets_so_many_connections_and_no_more_and_others_get_theirs);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
