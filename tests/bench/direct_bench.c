/* tests/bench/direct_bench.c - a hand-over by layers from pool to pool, as a push and as a pull, in
 * turns: how long it takes until decode has the first layers, and the last ones, and the CPU time of
 * both sides. Two processes in namespaces of their own, with the fabric by tcp (TLS) between them
 * and a connection beside it, which stands for the control port. Actors are left out: both ways have
 * the same ones.
 *
 *   push  prefill asks for the keys of decode's blocks, writes, and says so; decode digests.
 *   pull  prefill says so, with the keys of its blocks at first; decode reads, and the fabric
 *         digests what comes.
 *
 * A block is a part: a grant and a key, with a place in each layer. Rights are made before the clock
 * starts, for each hand-over anew. Layers become ready one by one. What a message names is digested
 * at decode before it counts. Prints medians and quartiles, with what a copy of one layer and bare
 * connections take; asserts no times.
 *
 *   direct_bench [PAIRS [MIB [verbs]]]
 *
 * With verbs: in verbs-vm's guest (tests/rdma/run), with a socket pair as the control port. A right to
 * read costs nothing there, but is one to the whole region. So a pull makes the tickets of a push
 * beside it: windows or registrations for reading would cost the same. */
#include "runtime/sl_copy.h"
#include "tests/bench/sealed_loop.h"
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
#include <time.h>
#include <unistd.h>

#define PORT      7118
#define LAYERS    32u
#define BLOCKS    128u
#define PIECE_MAX (64 * SL_KIB) /* memory is [layer][block], as an engine's pool */
#define PAIRS_MAX 64u
#define SLICE     (4 * SL_MIB) /* digested in a turn, as by the transporter */
#define BLOB_MAX  SL_MIB

enum way { WAY_PUSH, WAY_PULL, WAY_COUNT };
enum kind {
    SAID_ADDRESS,
    SAID_UP,
    SAID_BEGIN,
    SAID_ASK,
    SAID_KEYS,
    SAID_NOTICE,
    SAID_TAKEN,
    SAID_TOLD,
    SAID_OVER,
    SAID_BARE
};
struct frame {
    uint32_t kind, length_bytes;
    uint64_t a, b, c;
    unsigned char blob[BLOB_MAX];
};
#define HEAD offsetof(struct frame, blob)

struct course { /* of one hand-over */
    uint64_t way, piece_bytes, layers, flight, pace_ns;
};
struct notice {
    struct sl_digest digests[BLOCKS];
    unsigned char pieces[BLOCKS][24]; /* as in PEER_PUSH: part, offset, length */
};
struct side {
    struct fabric_end end;
    int control;
    bool by_nic, gives, other_up, has_keys, is_over;
    uint32_t keys[BLOCKS], dones;
    uint32_t grants[3 * BLOCKS], grant_count;
    unsigned char *key_blob;
    uint32_t key_bytes;
    struct frame in, out;
    size_t have;
    struct course course;
    uint32_t next, open, told; /* messages: to be posted; under way; known to decode */
    uint32_t heard;            /* decode: notices, and of which messages */
    uint32_t order[LAYERS];
    uint32_t check_block; /* decode, push: to be digested next */
    uint64_t start_ns, first_ns, last_ns, cpu_ns, other_cpu_ns, rights_ns, end_ns, open_ns;
    struct notice notices[LAYERS];
};

static uint64_t cpu_now(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (uint64_t)at.tv_sec * SL_NS_PER_S + (uint64_t)at.tv_nsec;
}

static void bytes_send(int fd, const void *bytes, size_t length_bytes)
{
    for (size_t done = 0; done < length_bytes;) {
        ssize_t now = send(fd, (const char *)bytes + done, length_bytes - done, MSG_NOSIGNAL);
        ck_assert(now > 0);
        done += (size_t)now;
    }
}

static void say(struct side *side, uint32_t kind, const uint64_t *words, const void *blob,
                uint32_t length_bytes)
{
    struct frame *out = &side->out;
    out->kind = kind;
    out->length_bytes = length_bytes;
    memcpy(&out->a, words != NULL ? words : (const uint64_t[3]){0}, 3 * sizeof(*words));
    if (length_bytes > 0) {
        memcpy(out->blob, blob, length_bytes);
    }
    bytes_send(side->control, out, HEAD + length_bytes);
}

static uint32_t messages(const struct course *course)
{
    return LAYERS / (uint32_t)course->layers;
}

static uint64_t offset_of(const struct course *course, uint64_t layer, uint32_t block)
{
    return (layer * BLOCKS + block) * course->piece_bytes;
}

/* Of one block: the layers of a message, or all of them. */
static uint32_t places_of(const struct side *side, uint64_t layer, uint64_t count, uint32_t block,
                          struct sl_fabric_place *out)
{
    for (uint64_t i = 0; i < count; i++) {
        out[i] =
            (struct sl_fabric_place){.memory = side->end.memory,
                                     .offset_bytes = offset_of(&side->course, layer + i, block),
                                     .length_bytes = side->course.piece_bytes};
    }
    return (uint32_t)count;
}

static struct sl_digest digest_make(const struct side *side, uint32_t message, uint32_t block)
{
    static struct sl_digest_stream stream;
    const struct course *course = &side->course;
    sl_digest_start(&stream);
    for (uint64_t i = 0; i < course->layers; i++) {
        uint64_t at = offset_of(course, message * course->layers + i, block);
        sl_digest_feed(&stream, side->end.bytes + at, course->piece_bytes);
    }
    return sl_digest_finish(&stream);
}

static void message_post(struct side *side, enum sl_fabric_verb verb, uint32_t message)
{
    static struct sl_fabric_piece pieces[BLOCKS];
    static struct sl_fabric_place places[BLOCKS][LAYERS];
    const struct course *course = &side->course;
    struct sl_error why = {0};
    for (uint32_t block = 0; block < BLOCKS; block++) {
        pieces[block] = (struct sl_fabric_piece){
            .key = side->keys[block],
            .remote_offset_bytes = message * course->layers * course->piece_bytes,
            .length_bytes = course->layers * course->piece_bytes,
            .places = places[block],
            .place_count =
                places_of(side, message * course->layers, course->layers, block, places[block]),
            .digest = verb == SL_FABRIC_READ ? &side->notices[message].digests[block] : NULL};
    }
    const struct sl_fabric_transfer transfer = {.verb = verb,
                                                .peer = side->end.peer,
                                                .pieces = pieces,
                                                .piece_count = BLOCKS,
                                                .cookie = message,
                                                .deadline_ns = SL_NEVER_NS};
    ck_assert_msg(sl_fabric_post(side->end.fabric, &transfer, &why) == SL_OK, "%s", why.text);
}

/* ---- rights: a grant a block ---- */

static void turn(struct side *side);

static void rights_add(struct side *side, enum sl_fabric_verb verb, bool shown)
{
    static unsigned char blob[SL_FABRIC_BLOB_MAX];
    struct sl_fabric_place places[LAYERS];
    struct sl_error why = {0};
    for (uint32_t block = 0; block < BLOCKS; block++) {
        uint32_t blob_bytes = 0;
        const struct sl_fabric_grant want = {.verb = verb,
                                             .peer = side->end.peer,
                                             .length_bytes = LAYERS * side->course.piece_bytes,
                                             .places = places,
                                             .place_count =
                                                 places_of(side, 0, LAYERS, block, places)};
        ck_assert_msg(sl_fabric_grant_add(side->end.fabric, &want,
                                          &side->grants[side->grant_count++], blob, &blob_bytes,
                                          &why) == SL_OK,
                      "%s", why.text);
        ck_assert(blob_bytes > 0 && side->key_bytes + 4 + blob_bytes <= BLOB_MAX);
        if (shown) {
            memcpy(side->key_blob + side->key_bytes, &blob_bytes, 4);
            memcpy(side->key_blob + side->key_bytes + 4, blob, blob_bytes);
            side->key_bytes += 4 + blob_bytes;
        }
    }
}

static void rights_make(struct side *side)
{
    uint64_t begun_ns = sl_clock_monotonic_ns();
    side->end.granted = side->end.grants_ended = side->grant_count = side->key_bytes = 0;
    if (side->course.way == WAY_PUSH || side->by_nic) {
        rights_add(side, SL_FABRIC_WRITE, side->course.way == WAY_PUSH);
    }
    side->rights_ns = 0;
    while (side->end.granted < side->grant_count) {
        turn(side);
    }
    side->rights_ns = sl_clock_monotonic_ns() - begun_ns;
    if (side->course.way == WAY_PULL) {
        rights_add(side, SL_FABRIC_READ, true);
    }
    while (side->end.granted < side->grant_count) {
        turn(side);
    }
    side->rights_ns = side->by_nic ? side->rights_ns : sl_clock_monotonic_ns() - begun_ns;
}

static void rights_end(struct side *side)
{
    uint64_t begun_ns = sl_clock_monotonic_ns();
    for (uint32_t i = 0; i < side->grant_count; i++) {
        ck_assert_int_eq(sl_fabric_grant_end(side->end.fabric, side->grants[i]), SL_OK);
    }
    while (side->end.grants_ended < side->grant_count) {
        turn(side);
    }
    side->end_ns = sl_clock_monotonic_ns() - begun_ns;
}

static void keys_open(struct side *side, const unsigned char *at)
{
    uint64_t begun_ns = sl_clock_monotonic_ns();
    struct sl_error why = {0};
    for (uint32_t block = 0; block < BLOCKS; block++) {
        uint32_t length_bytes = 0;
        memcpy(&length_bytes, at, 4);
        ck_assert_msg(sl_fabric_key_open(side->end.fabric, side->end.peer, at + 4, length_bytes,
                                         &side->keys[block], &why) == SL_OK,
                      "%s", why.text);
        at += 4 + length_bytes;
    }
    side->has_keys = true;
    side->open_ns = sl_clock_monotonic_ns() - begun_ns;
}

static void keys_close(struct side *side)
{
    for (uint32_t block = 0; block < BLOCKS; block++) {
        sl_fabric_key_close(side->end.fabric, side->keys[block]);
    }
    side->has_keys = false;
}

/* ---- the two ways ---- */

/* Decode has it, and it is right. */
static void message_told(struct side *side)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    side->first_ns = side->told == 0 ? now_ns : side->first_ns;
    side->last_ns = now_ns;
    side->told++;
    say(side, SAID_TAKEN, NULL, NULL, 0);
    if (side->told == messages(&side->course)) {
        const uint64_t words[3] = {side->first_ns, side->last_ns, cpu_now() - side->cpu_ns};
        const uint64_t more[3] = {side->rights_ns, side->open_ns, 0};
        say(side, SAID_TOLD, words, more, sizeof(more));
    }
}

static void pull_go(struct side *side)
{
    for (; side->next < side->heard && side->open < side->course.flight; side->next++) {
        side->open++;
        message_post(side, SL_FABRIC_READ, side->next);
    }
}

static bool check_is_due(const struct side *side)
{
    return !side->gives && side->course.way == WAY_PUSH && side->told < side->heard;
}

/* Decode, push: what was named is digested where it lies, a slice a turn. */
static void check_step(struct side *side)
{
    uint64_t left_bytes = SLICE, block_bytes = side->course.layers * side->course.piece_bytes;
    while (check_is_due(side) && left_bytes > 0) {
        uint32_t message = side->order[side->told];
        struct sl_digest found = digest_make(side, message, side->check_block);
        ck_assert(sl_digest_equal(found, side->notices[message].digests[side->check_block]));
        left_bytes -= SL_MIN(left_bytes, block_bytes);
        if (++side->check_block == BLOCKS) {
            side->check_block = 0;
            message_told(side);
        }
    }
}

static uint64_t ready_at(const struct side *side, uint32_t message)
{
    return side->start_ns + message * side->course.layers * side->course.pace_ns;
}

static void notice_say(struct side *side, uint32_t message)
{
    bool first = side->course.way == WAY_PULL && message == 0;
    if (first) {
        say(side, SAID_KEYS, NULL, side->key_blob, side->key_bytes);
    }
    say(side, SAID_NOTICE, (const uint64_t[3]){message}, &side->notices[message],
        sizeof(side->notices[message]));
}

/* Prefill: what is ready goes. */
static void give_go(struct side *side)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    while (side->start_ns != 0 && side->next < messages(&side->course) &&
           ready_at(side, side->next) <= now_ns) {
        if (side->course.way == WAY_PULL) {
            notice_say(side, side->next++);
        } else if (side->has_keys && side->open < side->course.flight) {
            side->open++;
            message_post(side, SL_FABRIC_WRITE, side->next++);
        } else {
            return;
        }
    }
}

static void begin(struct side *side, const struct course *course)
{
    side->course = *course;
    side->next = side->open = side->told = side->heard = side->check_block = 0;
    side->first_ns = side->last_ns = side->start_ns = 0;
    side->other_up = side->is_over = side->has_keys = false;
}

static void bare_receive(struct side *side, const struct frame *in)
{
    if (in->b == 1) {
        ck_assert(sealed_receive(side->control, side->end.bytes, in->a, SL_MIB));
    }
    for (uint64_t done = 0; in->b == 0 && done < in->a;) {
        ssize_t now = recv(side->control, side->end.bytes + done, in->a - done, 0);
        ck_assert(now > 0);
        done += (uint64_t)now;
    }
    say(side, SAID_TOLD, (const uint64_t[3]){0, sl_clock_monotonic_ns(), 0}, NULL, 0);
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
    case SAID_UP:
        side->other_up = true;
        break;
    case SAID_BEGIN: {
        struct course course;
        memcpy(&course, in->blob, sizeof(course));
        begin(side, &course);
        memset(side->end.bytes, 0, LAYERS * BLOCKS * course.piece_bytes);
        if (course.way == WAY_PUSH) {
            rights_make(side);
        }
        side->cpu_ns = cpu_now();
        say(side, SAID_UP, NULL, NULL, 0);
        break;
    }
    case SAID_ASK:
        say(side, SAID_KEYS, NULL, side->key_blob, side->key_bytes);
        break;
    case SAID_KEYS:
        keys_open(side, in->blob);
        break;
    case SAID_NOTICE:
        memcpy(&side->notices[in->a], in->blob, sizeof(side->notices[in->a]));
        side->order[side->heard++] = (uint32_t)in->a;
        if (side->course.way == WAY_PULL) {
            pull_go(side); /* what comes behind it need not be heard before */
        }
        break;
    case SAID_TAKEN: /* prefill */
        side->told++;
        side->open -= side->course.way == WAY_PUSH ? 1 : 0;
        break;
    case SAID_TOLD: {
        uint64_t more[3] = {0};
        side->first_ns = in->a;
        side->last_ns = in->b;
        side->other_cpu_ns = in->c;
        memcpy(more, in->blob, SL_MIN(in->length_bytes, sizeof(more)));
        if (side->course.way == WAY_PUSH) {
            side->rights_ns = more[0];
        } else {
            side->open_ns = more[1];
        }
        break;
    }
    case SAID_OVER:
        side->is_over = true;
        side->end_ns = in->a;
        if (side->gives) {
            break;
        }
        if (side->course.way == WAY_PUSH) {
            rights_end(side);
        } else {
            keys_close(side);
        }
        say(side, SAID_OVER, (const uint64_t[3]){side->end_ns}, NULL, 0);
        break;
    case SAID_BARE:
        bare_receive(side, in);
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

static struct timespec wait_of(const struct side *side)
{
    uint64_t now_ns = sl_clock_monotonic_ns(), at_ns = sl_fabric_wake_at(side->end.fabric);
    bool waits = side->gives && side->start_ns != 0 && side->next < messages(&side->course);
    if (waits && ready_at(side, side->next) > now_ns) {
        at_ns = SL_MIN(at_ns, ready_at(side, side->next));
    }
    uint64_t left_ns = check_is_due(side) || at_ns <= now_ns ? 0 : at_ns - now_ns;
    return (struct timespec){.tv_nsec = (long)SL_MIN(left_ns, 20 * SL_NS_PER_MS)};
}

static void turn(struct side *side)
{
    struct timespec wait = wait_of(side);
    struct pollfd ready[2] = {{.fd = sl_fabric_fd(side->end.fabric), .events = POLLIN},
                              {.fd = side->control, .events = POLLIN}};
    (void)ppoll(ready, 2, &wait, NULL);
    sl_fabric_step(side->end.fabric, sl_clock_monotonic_ns());
    if (side->end.address_bytes > 0) {
        say(side, SAID_ADDRESS, NULL, side->end.address, side->end.address_bytes);
        side->end.address_bytes = 0;
    }
    while (side->dones < side->end.done_count) {
        const struct end_done *done = &side->end.dones[side->dones++ % END_DONES_MAX];
        ck_assert_int_eq(done->code, SL_OK);
        if (side->course.way == WAY_PUSH) {
            notice_say(side, (uint32_t)done->cookie);
        } else {
            side->open--;
            message_told(side);
        }
    }
    if (ready[1].revents != 0) {
        control_read(side);
    }
    check_step(side);
    if (side->gives) {
        give_go(side);
    } else if (side->course.way == WAY_PULL) {
        pull_go(side);
    }
}

/* ---- the two sides ---- */

static void side_open(struct side *side, const char *address, uint64_t length_bytes)
{
    struct sl_fabric_options options;
    struct sl_error why = {0};
    side->by_nic = strncmp(address, "rxe", 3) == 0;
    side->key_blob = malloc(BLOB_MAX);
    end_options(&side->end, &options, side->by_nic ? "verbs" : "tcp");
    *(side->by_nic ? &options.nic : &options.address) = address;
    options.stall_ns = options.connect_ns = 30 * SL_NS_PER_S;
    ck_assert_msg(end_open(&side->end, &options, length_bytes, 0, &why) == SL_OK, "%s", why.text);
    while (side->end.link != SL_FABRIC_UP || !side->end.registered) {
        turn(side);
    }
    say(side, SAID_UP, NULL, NULL, 0);
    while (!side->other_up) {
        turn(side);
    }
}

/* fd: -1: it listens in a namespace of its own. */
static void decode_run(int fd, uint64_t length_bytes)
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
    side_open(&side, fd < 0 ? NETNS_THEIR : "rxe1", length_bytes);
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

/* ---- figures ---- */

enum what { FIRST_MS, LAST_MS, GIVES_CPU, TAKES_CPU, RIGHTS_MS, OPEN_MS, END_MS, KEY_KIB, WHATS };
struct figures {
    double of[WAY_COUNT][WHATS][PAIRS_MAX];
};

static void hand_over(struct side *side, const struct course *course, struct figures *out,
                      uint32_t at)
{
    begin(side, course);
    for (uint32_t message = 0; message < messages(course);
         message++) { /* as prefill's swappers do */
        for (uint32_t block = 0; block < BLOCKS; block++) {
            side->notices[message].digests[block] = digest_make(side, message, block);
        }
    }
    if (course->way == WAY_PULL) {
        rights_make(side);
    }
    say(side, SAID_BEGIN, NULL, course, sizeof(*course));
    while (!side->other_up) {
        turn(side);
    }
    uint64_t cpu_ns = cpu_now(), start_ns = sl_clock_monotonic_ns();
    side->start_ns = start_ns;
    if (course->way == WAY_PUSH) {
        say(side, SAID_ASK, NULL, NULL, 0);
    }
    give_go(side);
    while (side->last_ns == 0 || side->told < messages(course)) {
        turn(side);
    }
    cpu_ns = cpu_now() - cpu_ns;
    double gb = (double)(LAYERS * BLOCKS * course->piece_bytes) / 1e9;
    double(*to)[PAIRS_MAX] = out->of[course->way];
    to[FIRST_MS][at] = (double)(side->first_ns - start_ns) / 1e6;
    to[LAST_MS][at] = (double)(side->last_ns - start_ns) / 1e6;
    to[GIVES_CPU][at] = (double)cpu_ns / 1e9 / gb;
    to[TAKES_CPU][at] = (double)side->other_cpu_ns / 1e9 / gb;
    to[RIGHTS_MS][at] = (double)side->rights_ns / 1e6;
    to[OPEN_MS][at] = (double)side->open_ns / 1e6;
    to[KEY_KIB][at] = side->key_bytes / 1024.0;
    say(side, SAID_OVER, NULL, NULL, 0);
    while (!side->is_over) {
        turn(side);
    }
    if (course->way == WAY_PUSH) {
        keys_close(side);
    } else {
        rights_end(side);
    }
    to[END_MS][at] = (double)side->end_ns / 1e6;
    side->start_ns = 0;
}

static int by_value(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double quartile(const double *values, uint32_t count, uint32_t which)
{
    double sorted[PAIRS_MAX];
    memcpy(sorted, values, count * sizeof(*values));
    qsort(sorted, count, sizeof(*sorted), by_value);
    return sorted[(count - 1) * which / 4];
}

/* Gives how long a layer takes by push, when all are ready at once. */
static double measure(struct side *side, const struct course *like, uint32_t pairs)
{
    static const char *const names[WAY_COUNT] = {"push", "pull"};
    static struct figures figures;
    double loses[2][PAIRS_MAX];
    for (uint32_t pair = 0; pair <= pairs; pair++) { /* the first is not counted: cold */
        for (uint32_t i = 0; i < WAY_COUNT; i++) {
            struct course course = *like;
            course.way = (i + pair) % WAY_COUNT; /* who goes first changes */
            hand_over(side, &course, &figures, pair > 0 ? pair - 1 : 0);
        }
    }
    printf("%3llu KiB a piece, %llu layers a message, %llu in flight, a layer each %.2f ms\n",
           (unsigned long long)(like->piece_bytes / SL_KIB), (unsigned long long)like->layers,
           (unsigned long long)like->flight, (double)like->pace_ns / 1e6);
    for (uint32_t way = 0; way < WAY_COUNT; way++) {
        double(*of)[PAIRS_MAX] = figures.of[way];
        printf(
            "    %s  first %7.2f (%7.2f..%7.2f) ms  last %7.2f (%7.2f..%7.2f) ms  CPU s/GB %.2f + "
            "%.2f  rights %.2f ms (%.0f KiB), opened %.2f ms, ended %.2f ms\n",
            names[way], quartile(of[FIRST_MS], pairs, 2), quartile(of[FIRST_MS], pairs, 1),
            quartile(of[FIRST_MS], pairs, 3), quartile(of[LAST_MS], pairs, 2),
            quartile(of[LAST_MS], pairs, 1), quartile(of[LAST_MS], pairs, 3),
            quartile(of[GIVES_CPU], pairs, 2), quartile(of[TAKES_CPU], pairs, 2),
            quartile(of[RIGHTS_MS], pairs, 2), quartile(of[KEY_KIB], pairs, 2),
            quartile(of[OPEN_MS], pairs, 2), quartile(of[END_MS], pairs, 2));
    }
    for (uint32_t pair = 0; pair < pairs; pair++) {
        for (uint32_t i = 0; i < 2; i++) { /* FIRST_MS, LAST_MS */
            loses[i][pair] = figures.of[WAY_PULL][i][pair] - figures.of[WAY_PUSH][i][pair];
        }
    }
    printf("    pull later by, medians of the pairs: first %.2f (%.2f..%.2f) ms, last %.2f "
           "(%.2f..%.2f) ms\n",
           quartile(loses[0], pairs, 2), quartile(loses[0], pairs, 1), quartile(loses[0], pairs, 3),
           quartile(loses[1], pairs, 2), quartile(loses[1], pairs, 1),
           quartile(loses[1], pairs, 3));
    (void)fflush(stdout);
    return quartile(figures.of[WAY_PUSH][LAST_MS], pairs, 2) / LAYERS;
}

static double layer_copy_ms(struct side *side, uint64_t piece_bytes, uint32_t rounds)
{
    double took[PAIRS_MAX];
    unsigned char *to = malloc(BLOCKS * piece_bytes);
    memset(to, 1, BLOCKS * piece_bytes);
    for (uint32_t round = 0; round < rounds; round++) {
        const unsigned char *from = side->end.bytes + round % LAYERS * BLOCKS * piece_bytes;
        uint64_t start_ns = sl_clock_monotonic_ns();
        for (uint32_t block = 0; block < BLOCKS; block++) {
            sl_copy(to + block * piece_bytes, from + block * piece_bytes, piece_bytes);
        }
        took[round] = (double)(sl_clock_monotonic_ns() - start_ns) / 1e6;
    }
    free(to);
    return quartile(took, rounds, 2);
}

/* A connection without a fabric: send and recv; or records that are sealed, opened and digested. */
static double bare_ms(struct side *side, uint64_t length_bytes, bool sealed, uint32_t rounds)
{
    double took[PAIRS_MAX];
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t start_ns = sl_clock_monotonic_ns();
        side->last_ns = 0;
        say(side, SAID_BARE, (const uint64_t[3]){length_bytes, sealed}, NULL, 0);
        if (sealed) {
            ck_assert(sealed_seal_and_send(side->control, side->end.bytes, length_bytes));
        } else {
            bytes_send(side->control, side->end.bytes, length_bytes);
        }
        while (side->last_ns == 0) {
            turn(side);
        }
        took[round] = (double)(side->last_ns - start_ns) / 1e6;
    }
    return quartile(took, rounds, 2);
}

static void limits(struct side *side, uint64_t piece_bytes, uint32_t pairs)
{
    uint64_t length_bytes = LAYERS * BLOCKS * piece_bytes;
    double plain = side->by_nic ? 0 : bare_ms(side, length_bytes, false, pairs);
    double sealed = side->by_nic ? 0 : bare_ms(side, length_bytes, true, pairs);
    printf("%llu MiB: the copy of a layer %.2f ms; all of it by a bare connection %.1f ms, sealed, "
           "opened and digested by libcrypto %.1f ms\n",
           (unsigned long long)(length_bytes / SL_MIB), layer_copy_ms(side, piece_bytes, pairs),
           plain, sealed);
}

static int arguments;
static char **argument;
static bool by_verbs;

START_TEST(figures)
    {
        static struct side side;
        static const uint64_t layers[] = {1, 4}, flights[] = {1, 4};
        uint32_t pairs = arguments > 1 ? (uint32_t)atoi(argument[1]) : 5;
        uint64_t length_bytes = (arguments > 2 ? (uint64_t)atoi(argument[2]) : 64) * SL_MIB;
        uint64_t piece_bytes = length_bytes / BLOCKS / LAYERS;
        ck_assert(pairs >= 1 && pairs < PAIRS_MAX && piece_bytes <= PIECE_MAX);
        int fds[2] = {-1, -1};
        if (by_verbs) {
            ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        } else {
            netns_enter();
        }
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            decode_run(fds[1], length_bytes);
        }
        side.control = fds[0];
        side.gives = true;
        if (!by_verbs) {
            netns_join(pid);
            control_connect(&side);
        }
        side_open(&side, by_verbs ? "rxe0" : NETNS_OURS, length_bytes);
        pattern_fill(side.end.bytes, length_bytes, 1);
        limits(&side, piece_bytes, pairs);
        for (size_t i = 0; i < SL_COUNT(layers); i++) {
            for (size_t k = 0; k < SL_COUNT(flights); k++) {
                struct course course = {
                    .piece_bytes = piece_bytes, .layers = layers[i], .flight = flights[k]};
                course.pace_ns = (uint64_t)(measure(&side, &course, pairs) * 1e6);
                (void)measure(&side, &course, pairs);
            }
        }
        limits(&side, piece_bytes, pairs);
        close(side.control);
        end_close(&side.end);
        free(side.key_blob);
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
