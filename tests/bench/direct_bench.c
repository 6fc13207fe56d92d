/* tests/bench/direct_bench.c - a hand-over by layers from pool to pool, as a push and as a pull, in
 * turns: how long it takes until decode has the first layers, and the last ones. Two processes in
 * namespaces of their own, with the fabric by tcp (TLS) between them and a connection beside it,
 * which stands for the control port. Actors are left out: both ways have the same ones.
 *
 *   push  prefill writes, and says so; decode digests what is there.
 *   pull  prefill says so; decode reads, and the fabric digests what comes.
 *
 * All layers are ready at once, and prefill knows their digests. What a message names is digested at
 * decode before it counts. Prints medians, and how long the copy of one layer takes; asserts no
 * times.
 *
 *   direct_bench [PAIRS [MESSAGES IN FLIGHT [verbs]]]
 *
 * 0 in flight: 1, and then 4. With verbs: in verbs-vm's guest (tests/rdma/run), with a socket pair as
 * the control port. */
#include "runtime/sl_copy.h"
#include "tests/support/fabric_end.h"
#include "tests/support/netns.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT      7118
#define LAYERS    16u
#define BLOCKS    64u
#define PIECE_MAX (64 * SL_KIB)
#define MEMORY    (BLOCKS * LAYERS * PIECE_MAX) /* [block][layer] */
#define PAIRS_MAX 64u

enum way { WAY_PUSH, WAY_PULL, WAY_COUNT };
enum kind { SAID_ADDRESS, SAID_KEY, SAID_UP, SAID_BEGIN, SAID_NOTICE, SAID_TAKEN, SAID_TOLD };
struct frame {
    uint32_t kind, length_bytes;
    uint64_t a, b;
    unsigned char blob[SL_FABRIC_BLOB_MAX];
};
#define HEAD offsetof(struct frame, blob)

struct course { /* of one hand-over */
    uint64_t way, piece_bytes, layers, flight;
};
struct side {
    struct fabric_end end;
    int control;
    uint32_t key, dones;
    bool other_up;
    struct frame in;
    size_t have;
    struct course course;
    uint32_t next, open, told; /* messages: to be posted; under way; known to decode */
    uint32_t heard;            /* pull, decode: notices */
    uint64_t first_ns, last_ns;
    struct sl_digest digests[LAYERS][BLOCKS]; /* of each message */
};

static void say(struct side *side, uint32_t kind, uint64_t a, uint64_t b, const void *blob,
                uint32_t length_bytes)
{
    struct frame out = {.kind = kind, .length_bytes = length_bytes, .a = a, .b = b};
    if (length_bytes > 0) {
        memcpy(out.blob, blob, length_bytes);
    }
    const unsigned char *at = (const unsigned char *)&out;
    for (size_t done = 0; done < HEAD + length_bytes;) {
        ssize_t now = send(side->control, at + done, HEAD + length_bytes - done, MSG_NOSIGNAL);
        ck_assert(now > 0);
        done += (size_t)now;
    }
}

static uint32_t messages(const struct course *course)
{
    return LAYERS / (uint32_t)course->layers;
}

static uint64_t offset_of(const struct course *course, uint32_t message, uint32_t block)
{
    return (block * (uint64_t)LAYERS + message * course->layers) * course->piece_bytes;
}

static void digests_make(struct side *side, uint32_t message, struct sl_digest *out)
{
    const struct course *course = &side->course;
    for (uint32_t block = 0; block < BLOCKS; block++) {
        out[block] = sl_digest_of(side->end.bytes + offset_of(course, message, block),
                                  course->layers * course->piece_bytes);
    }
}

static void message_post(struct side *side, enum sl_fabric_verb verb, uint32_t message)
{
    static struct sl_fabric_piece pieces[BLOCKS];
    const struct course *course = &side->course;
    struct sl_error why = {0};
    for (uint32_t block = 0; block < BLOCKS; block++) {
        uint64_t at = offset_of(course, message, block);
        pieces[block] = (struct sl_fabric_piece){
            .memory = side->end.memory,
            .key = side->key,
            .offset_bytes = at,
            .remote_offset_bytes = at,
            .length_bytes = course->layers * course->piece_bytes,
            .digest = verb == SL_FABRIC_READ ? &side->digests[message][block] : NULL};
    }
    const struct sl_fabric_transfer transfer = {.verb = verb,
                                                .peer = side->end.peer,
                                                .pieces = pieces,
                                                .piece_count = BLOCKS,
                                                .cookie = message,
                                                .deadline_ns = SL_NEVER_NS};
    ck_assert_msg(sl_fabric_post(side->end.fabric, &transfer, &why) == SL_OK, "%s", why.text);
}

/* Decode has it, and it is right. */
static void message_told(struct side *side)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    side->first_ns = side->told == 0 ? now_ns : side->first_ns;
    side->last_ns = now_ns;
    side->told++;
    say(side, SAID_TAKEN, 0, 0, NULL, 0);
    if (side->told == messages(&side->course)) {
        say(side, SAID_TOLD, side->first_ns, side->last_ns, NULL, 0);
    }
}

static void pull_go(struct side *side)
{
    for (; side->next < side->heard && side->open < side->course.flight; side->next++) {
        side->open++;
        message_post(side, SL_FABRIC_READ, side->next);
    }
}

static void push_go(struct side *side)
{
    for (; side->next < messages(&side->course) && side->open < side->course.flight; side->next++) {
        side->open++;
        message_post(side, SL_FABRIC_WRITE, side->next);
    }
}

static void notice(struct side *side, uint32_t message)
{
    say(side, SAID_NOTICE, message, 0, side->digests[message], sizeof(side->digests[message]));
}

static void noticed(struct side *side, const struct frame *in)
{
    uint32_t message = (uint32_t)in->a;
    struct sl_digest found[BLOCKS];
    memcpy(side->digests[message], in->blob, sizeof(side->digests[message]));
    if (side->course.way == WAY_PULL) {
        side->heard++;
        pull_go(side);
        return;
    }
    digests_make(side, message, found);
    ck_assert_mem_eq(found, side->digests[message], sizeof(found));
    message_told(side);
}

static void frame_take(struct side *side, const struct frame *in)
{
    struct sl_error why = {0};
    switch ((enum kind)in->kind) {
    case SAID_ADDRESS:
        ck_assert_int_eq(sl_fabric_peer_address(side->end.fabric, side->end.peer, in->blob,
                                                in->length_bytes, &why),
                         SL_OK);
        break;
    case SAID_KEY:
        ck_assert_int_eq(sl_fabric_key_open(side->end.fabric, side->end.peer, in->blob,
                                            in->length_bytes, &side->key, &why),
                         SL_OK);
        break;
    case SAID_UP:
        side->other_up = true;
        break;
    case SAID_BEGIN:
        memcpy(&side->course, in->blob, sizeof(side->course));
        memset(side->end.bytes, 0, MEMORY);
        side->next = side->open = side->told = side->heard = 0;
        say(side, SAID_UP, 0, 0, NULL, 0);
        break;
    case SAID_NOTICE:
        noticed(side, in);
        break;
    case SAID_TAKEN: /* prefill */
        side->told++;
        if (side->course.way == WAY_PUSH) {
            side->open--;
            push_go(side);
        }
        break;
    case SAID_TOLD:
        side->first_ns = in->a;
        side->last_ns = in->b;
        break;
    }
}

static void control_read(struct side *side)
{
    for (;;) {
        size_t want = side->have < HEAD ? HEAD : HEAD + side->in.length_bytes;
        if (side->have >= HEAD && side->have == want) {
            side->have = 0;
            frame_take(side, &side->in);
            continue;
        }
        ssize_t now = recv(side->control, (unsigned char *)&side->in + side->have,
                           want - side->have, MSG_DONTWAIT);
        if (now == 0) {
            _exit(0); /* the other process has ended */
        }
        if (now < 0) {
            return;
        }
        side->have += (size_t)now;
    }
}

static void turn(struct side *side)
{
    uint64_t now_ns = sl_clock_monotonic_ns(), at_ns = sl_fabric_wake_at(side->end.fabric);
    struct pollfd ready[2] = {{.fd = sl_fabric_fd(side->end.fabric), .events = POLLIN},
                              {.fd = side->control, .events = POLLIN}};
    (void)poll(ready, 2,
               at_ns <= now_ns ? 0 : (int)SL_MIN((at_ns - now_ns) / SL_NS_PER_MS + 1, 20));
    sl_fabric_step(side->end.fabric, sl_clock_monotonic_ns());
    if (side->end.address_bytes > 0) {
        say(side, SAID_ADDRESS, 0, 0, side->end.address, side->end.address_bytes);
        side->end.address_bytes = 0;
    }
    control_read(side);
    while (side->dones < side->end.done_count) {
        const struct end_done *done = &side->end.dones[side->dones++ % END_DONES_MAX];
        ck_assert_int_eq(done->code, SL_OK);
        if (side->course.way == WAY_PUSH) {
            notice(side, (uint32_t)done->cookie);
        } else {
            side->open--;
            message_told(side);
            pull_go(side);
        }
    }
}

/* Fabric and memory; the other side gets the right to do `verb`. */
static void side_open(struct side *side, const char *address, enum sl_fabric_verb verb)
{
    bool is_nic = strncmp(address, "rxe", 3) == 0;
    static unsigned char blob[SL_FABRIC_BLOB_MAX];
    struct sl_fabric_options options;
    struct sl_error why = {0};
    uint32_t grant = 0, blob_bytes = 0;
    end_options(&side->end, &options, is_nic ? "verbs" : "tcp");
    *(is_nic ? &options.nic : &options.address) = address;
    options.stall_ns = options.connect_ns = 30 * SL_NS_PER_S;
    ck_assert_msg(end_open(&side->end, &options, MEMORY, 0, &why) == SL_OK, "%s", why.text);
    while (side->end.link != SL_FABRIC_UP || !side->end.registered) {
        turn(side);
    }
    const struct sl_fabric_grant want = {
        .verb = verb, .memory = side->end.memory, .peer = side->end.peer, .length_bytes = MEMORY};
    ck_assert_msg(sl_fabric_grant_add(side->end.fabric, &want, &grant, blob, &blob_bytes, &why) ==
                      SL_OK,
                  "%s", why.text);
    while (side->end.granted == 0) {
        turn(side);
    }
    bool later = blob_bytes == 0;
    say(side, SAID_KEY, 0, 0, later ? side->end.key : blob,
        later ? side->end.key_bytes : blob_bytes);
    say(side, SAID_UP, 0, 0, NULL, 0);
    while (!side->other_up) {
        turn(side);
    }
}

/* fd: -1: it listens in a namespace of its own. */
static void decode_run(int fd)
{
    static struct side side;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int on = 1, listener;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    side.control = fd;
    if (fd < 0) {
        netns_child(NULL);
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
        ck_assert_int_eq(listen(listener, 1), 0);
        side.control = accept(listener, NULL, NULL);
        (void)setsockopt(side.control, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    side_open(&side, fd < 0 ? NETNS_THEIR : "rxe1", SL_FABRIC_WRITE);
    for (;;) {
        turn(&side);
    }
}

static void control_connect(struct side *side)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int on = 1;
    ck_assert_int_eq(inet_pton(AF_INET, NETNS_THEIR, &to.sin_addr), 1);
    for (int i = 0; i < 2000; i++) {
        side->control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(side->control, (struct sockaddr *)&to, sizeof(to)) == 0) {
            (void)setsockopt(side->control, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return;
        }
        close(side->control);
        usleep(5000);
    }
    ck_abort_msg("decode does not listen");
}

struct figure {
    double first_ms, last_ms;
};

static struct figure hand_over(struct side *side, const struct course *course)
{
    side->course = *course;
    side->other_up = false;
    side->next = side->open = side->told = 0;
    side->last_ns = 0;
    say(side, SAID_BEGIN, 0, 0, course, sizeof(*course));
    while (!side->other_up) {
        turn(side);
    }
    for (uint32_t i = 0; i < messages(course); i++) { /* as prefill's swappers do */
        digests_make(side, i, side->digests[i]);
    }
    uint64_t start_ns = sl_clock_monotonic_ns();
    if (course->way == WAY_PUSH) {
        push_go(side);
    }
    for (uint32_t i = 0; course->way == WAY_PULL && i < messages(course); i++) {
        notice(side, i);
    }
    while (side->last_ns == 0 || side->told < messages(course)) {
        turn(side);
    }
    return (struct figure){.first_ms = (double)(side->first_ns - start_ns) / 1e6,
                           .last_ms = (double)(side->last_ns - start_ns) / 1e6};
}

static int by_value(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

static double layer_copy_ms(struct side *side, uint64_t piece_bytes, uint32_t rounds)
{
    double took[PAIRS_MAX];
    unsigned char *to = malloc(BLOCKS * piece_bytes);
    memset(to, 1, BLOCKS * piece_bytes);
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t start_ns = sl_clock_monotonic_ns();
        for (uint32_t block = 0; block < BLOCKS; block++) {
            sl_copy(to + block * piece_bytes, side->end.bytes + block * LAYERS * piece_bytes,
                    piece_bytes);
        }
        took[round] = (double)(sl_clock_monotonic_ns() - start_ns) / 1e6;
    }
    free(to);
    return median(took, rounds);
}

static void measure(struct side *side, uint64_t piece_bytes, uint64_t layers, uint64_t flight,
                    uint32_t pairs)
{
    static const char *const names[WAY_COUNT] = {"push", "pull"};
    double first[WAY_COUNT][PAIRS_MAX], last[WAY_COUNT][PAIRS_MAX];
    double to_first[PAIRS_MAX], to_last[PAIRS_MAX];
    for (uint32_t pair = 0; pair <= pairs; pair++) { /* the first is not counted: cold */
        for (uint32_t i = 0; i < WAY_COUNT; i++) {
            uint32_t way = (i + pair) % WAY_COUNT; /* who goes first changes */
            const struct course course = {
                .way = way, .piece_bytes = piece_bytes, .layers = layers, .flight = flight};
            struct figure figure = hand_over(side, &course);
            first[way][pair > 0 ? pair - 1 : 0] = figure.first_ms;
            last[way][pair > 0 ? pair - 1 : 0] = figure.last_ms;
        }
    }
    for (uint32_t pair = 0; pair < pairs; pair++) {
        to_first[pair] = first[WAY_PULL][pair] / first[WAY_PUSH][pair];
        to_last[pair] = last[WAY_PULL][pair] / last[WAY_PUSH][pair];
    }
    for (uint32_t way = 0; way < WAY_COUNT; way++) {
        printf("%3llu KiB a piece, %llu layers a message, %llu in flight  %s  first %7.2f ms  "
               "last %7.2f ms\n",
               (unsigned long long)(piece_bytes / SL_KIB), (unsigned long long)layers,
               (unsigned long long)flight, names[way], median(first[way], pairs),
               median(last[way], pairs));
    }
    printf("    pull to push, medians of the pairs: first %.2f, last %.2f\n",
           median(to_first, pairs), median(to_last, pairs));
}

static int arguments;
static char **argument;
static bool by_verbs;

START_TEST(figures)
    {
        static struct side side;
        static const uint64_t pieces[] = {16 * SL_KIB, PIECE_MAX}, layers[] = {1, 4};
        uint32_t pairs = arguments > 1 ? (uint32_t)atoi(argument[1]) : 5;
        uint64_t flight = arguments > 2 ? (uint64_t)atoi(argument[2]) : 0;
        ck_assert(pairs >= 1 && pairs < PAIRS_MAX);
        int fds[2] = {-1, -1};
        if (by_verbs) {
            ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        } else {
            netns_enter();
        }
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            decode_run(fds[1]);
        }
        side.control = fds[0];
        if (!by_verbs) {
            netns_join(pid);
            control_connect(&side);
        }
        side_open(&side, by_verbs ? "rxe0" : NETNS_OURS, SL_FABRIC_READ);
        pattern_fill(side.end.bytes, MEMORY, 1);
        for (size_t i = 0; i < SL_COUNT(pieces); i++) {
            printf("the copy of a layer takes %.2f ms\n", layer_copy_ms(&side, pieces[i], pairs));
            for (size_t k = 0; k < SL_COUNT(layers); k++) {
                for (uint64_t n = flight != 0 ? flight : 1; n <= (flight != 0 ? flight : 4);
                     n *= 4) {
                    measure(&side, pieces[i], layers[k], n, pairs);
                    (void)fflush(stdout);
                }
            }
        }
        close(side.control);
        end_close(&side.end);
    }
END_TEST

/* The helpers of the tests assert by Check, and that wants to be inside of one. */
int main(int argc, char **argv)
{
    by_verbs = argc > 3 && strcmp(argv[3], "verbs") == 0;
    const char *missing = by_verbs ? NULL : netns_missing();
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        return 77;
    }
    arguments = argc;
    argument = argv;
    Suite *all = suite_create("direct_bench");
    TCase *tests = tcase_create("figures");
    tcase_add_test(tests, figures);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
