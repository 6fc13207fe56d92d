/* tests/node/relay_liar.c - a process of another user at a node's gate, which lets it have engines: it lies.
 * Prints what went otherwise than it should, and "done"; containers_engine_test.py starts it.
 *
 *   relay_liar RUNTIME_DIR      at a node of 1 MiB a user for memory of engines, of which an engine has 512 KiB */
#include "cuda/sl_device.h"
#include "ipc/gate_protocol.h"
#include "ipc/gate_relay.h"
#include "ipc/sl_gate.h"
#include "ipc/sl_msg.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_door.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_NS  (20 * SL_NS_PER_S)
#define PIECE    4096u
#define BLOCKS   16u
#define IS_OVER  (-1)
#define UNHEARD  (-2)
#define NO_TIME  (SL_NS_PER_S * 2)
#define MEMBYTES (BLOCKS * PIECE)

static const char *runtime_dir;
static struct sl_codec *codec;
static struct sl_gate_relay *relay;
static uint64_t seq = 1000;
static struct sl_error why;

static void expect(const char *what, int got, int wanted)
{
    if (got != wanted) {
        (void)printf("%s: %d (%s), expected %d\n", what, got, why.text, wanted);
    }
}

static int memory(uint64_t bytes, int seals)
{
    int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) {
        (void)printf("no memory: %s\n", strerror(errno));
    }
    return fd;
}

/* ---- the connection ---- */

static void begin(void)
{
    int fd = -1;
    sl_gate_relay_close(&relay);
    uint64_t until_ns = sl_deadline_ns(sl_clock_monotonic_ns(), WAIT_NS);
    expect("relay", (int)sl_gate_relay_ask(runtime_dir, until_ns, &fd, &why), SL_OK);
    if (fd < 0 || sl_gate_relay_open(fd, &relay, &why) != SL_OK) {
        (void)printf("no relay: %s\n", why.text);
        exit(1);
    }
}

static sl_err event_send(enum sl_gate_relay_kind kind, uint32_t number, const void *frame,
                         size_t length_bytes, int fd)
{
    const struct sl_gate_relay_event event = {
        .kind = kind, .number = number, .frame = frame, .length_bytes = length_bytes, .fd = fd};
    sl_err err = SL_ERR_LIMIT;
    for (uint32_t i = 0; i < 1000 && err == SL_ERR_LIMIT; i++) {
        err = sl_gate_relay_send(relay, &event);
        if (err == SL_ERR_LIMIT) {
            (void)poll(NULL, 0, 5);
        }
    }
    return err;
}

/* The next answer. Gives its code, IS_OVER or UNHEARD. */
static int hear(struct sl_msg *reply)
{
    uint64_t until_ns = sl_deadline_ns(sl_clock_monotonic_ns(), WAIT_NS);
    for (;;) {
        struct sl_gate_relay_event event;
        sl_err err = sl_gate_relay_receive(relay, &event);
        if (err == SL_OK) {
            err = sl_codec_decode(codec, event.frame, event.length_bytes, reply, &why);
            if (err != SL_OK) {
                (void)printf("an answer that is none: %s\n", why.text);
            }
            if (reply->code != SL_OK) {
                (void)snprintf(why.text, sizeof why.text, "%s",
                               reply->text.at != NULL ? reply->text.at : "");
            }
            return (int)reply->code;
        }
        if (err == SL_ERR_UNREACHABLE) {
            return IS_OVER;
        }
        if (!sl_door_wait(sl_gate_relay_fd(relay), POLLIN, -1, until_ns)) {
            return UNHEARD;
        }
    }
}

/* claimed: the type that the envelope of its body has. */
static bool say_as(enum sl_gate_relay_kind to, struct sl_msg *msg, enum sl_msg_type claimed)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    msg->sender = sl_text_of("registrar"); /* nobody believes it */
    msg->seq = ++seq;
    msg->budget_ns = msg->budget_ns == 0 ? NO_TIME : msg->budget_ns;
    if (sl_codec_encode(codec, msg, &frame, &length_bytes, &why) != SL_OK) {
        (void)printf("encode: %s\n", why.text);
        return false;
    }
    if (claimed != msg->type) { /* behind the heads of both arrays, and the version */
        ((unsigned char *)(uintptr_t)frame)[3] = (unsigned char)claimed;
    }
    return event_send(to, 0, frame, length_bytes, -1) == SL_OK;
}

static bool say(enum sl_gate_relay_kind to, struct sl_msg *msg)
{
    return say_as(to, msg, msg->type);
}

static struct sl_msg heard;

static int ask(enum sl_gate_relay_kind to, struct sl_msg *msg)
{
    heard = (struct sl_msg){0};
    return say(to, msg) ? hear(&heard) : IS_OVER;
}

/* ---- packets ---- */

static void packet_lies(void)
{
    static const char good[8] = {'s', 'l', 'r', 'e', 'l', 'a', 'y', '\n'};
    static unsigned char packet[sizeof(struct sl_gate_relay_head) + 40000];
    static const struct {
        const char *what;
        uint32_t kind, total, at;
        size_t length;
        bool bad_magic;
    } lies[] = {{"another magic", 1, 8, 0, 32, true},
                {"half a head", 1, 8, 0, 12, false},
                {"another kind", 9, 8, 0, 32, false},
                {"no kind", 0, 8, 0, 32, false},
                {"a frame of nothing", 1, 0, 0, 24, false},
                {"a piece of nothing", 1, 8, 0, 24, false},
                {"a long frame", 1, UINT32_MAX, 0, 32, false},
                {"the middle", 1, 64, 8, 32, false},
                {"more than all", 1, 4, 0, 32, false},
                {"a long packet", 1, 40000, 0, 40024, false},
                {"no message", 2, 8, 0, 32, false},
                {"bytes behind memory", 3, 8, 0, 32, false},
                {"memory without one", 3, 0, 0, 24, false}};
    for (uint32_t i = 0; i < SL_COUNT(lies); i++) {
        struct sl_gate_relay_head head = {
            .kind = lies[i].kind, .total_bytes = lies[i].total, .at_bytes = lies[i].at};
        memcpy(head.magic, good, sizeof head.magic);
        head.magic[0] = lies[i].bad_magic ? 'x' : 's';
        memcpy(packet, &head, sizeof head);
        begin();
        (void)send(sl_gate_relay_fd(relay), packet, lies[i].length, MSG_NOSIGNAL);
        expect(lies[i].what, hear(&heard), IS_OVER);
    }
}

/* ---- messages ---- */

static int simple(enum sl_gate_relay_kind to, enum sl_msg_type type)
{
    struct sl_msg msg = {.type = type};
    if (type == SL_MSG_HELLO) {
        msg.body.hello.role = sl_text_of("registrar");
        msg.body.hello.name = sl_text_of("registrar");
        msg.body.hello.pid = 1;
    } else if (type == SL_MSG_WITHDRAW) {
        msg.body.withdraw.name = sl_text_of("name");
    } else if (type == SL_MSG_ENGINE_GET) {
        msg.body.engine_get.engine_id = 1;
    }
    return ask(to, &msg);
}

struct lie {
    uint64_t kind, fd, offset, length;
    uint64_t pool_kind, team;
};

static int enlist_with(enum sl_gate_relay_kind to, struct lie lie)
{
    const struct sl_item_pool pool = {.name = sl_text_of("kv"), .kind = lie.pool_kind};
    const struct sl_item_region region = {.handle_kind = lie.kind,
                                          .pid = (uint64_t)getppid(),
                                          .fd = lie.fd,
                                          .offset_bytes = lie.offset,
                                          .length_bytes = lie.length,
                                          .block_stride_bytes = PIECE,
                                          .piece_bytes = PIECE,
                                          .block_count = BLOCKS};
    struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER};
    struct sl_body_engine_register *body = &msg.body.engine_register;
    body->pid = 1;
    body->name = sl_text_of("liar");
    body->model = sl_text_of("00112233445566778899aabbccddeeff");
    body->key_format = sl_text_of("sluice");
    body->block_tokens = 16;
    body->world = 1;
    body->pools.at = &pool;
    body->pools.count = 1;
    body->regions.at = &region;
    body->regions.count = 1;
    body->team = lie.team;
    return ask(to, &msg);
}

static int enlist(struct lie lie)
{
    return enlist_with(SL_GATE_RELAY_REGISTRAR, lie);
}

static int op(bool store, uint64_t engine_id, uint64_t handover_id)
{
    static const unsigned char hash[32] = {1};
    static const uint64_t blocks[1] = {0};
    struct sl_msg msg = {.type = store ? SL_MSG_STORE : SL_MSG_LOAD, .op_id = seq};
    if (store) {
        msg.body.store.engine_id = engine_id;
        msg.body.store.hashes = (struct sl_bytes){.at = hash, .length = sizeof hash};
        msg.body.store.hash_bytes = sizeof hash;
        msg.body.store.device_blocks = (struct sl_u64s){.at = blocks, .count = 1};
        msg.body.store.handover_id = handover_id;
    } else {
        msg.body.load.engine_id = engine_id;
        msg.body.load.hashes = (struct sl_bytes){.at = hash, .length = sizeof hash};
        msg.body.load.hash_bytes = sizeof hash;
        msg.body.load.device_blocks = (struct sl_u64s){.at = blocks, .count = 1};
        msg.body.load.handover_id = handover_id;
    }
    return ask(SL_GATE_RELAY_COORDINATOR, &msg);
}

/* A body is another one's: nobody reads it, unless that type may be said. */
static void body_lies(void)
{
    static const struct {
        enum sl_msg_type claimed;
        int wanted;
    } lies[] = {{SL_MSG_HELLO, SL_ERR_PERMISSION},
                {SL_MSG_RESERVE, SL_ERR_PERMISSION},
                {SL_MSG_ENGINE_REGISTER, IS_OVER}};
    for (uint32_t i = 0; i < SL_COUNT(lies); i++) {
        struct sl_msg end = {.type = SL_MSG_ENGINE_END};
        end.body.engine_end.engine_id = 1;
        begin();
        heard = (struct sl_msg){0};
        expect("say", say_as(SL_GATE_RELAY_REGISTRAR, &end, lies[i].claimed), true);
        expect("another one's body", hear(&heard), lies[i].wanted);
    }
}

static void message_lies(void)
{
    static const enum sl_msg_type to_registrar[] = {
        SL_MSG_HELLO, SL_MSG_WITHDRAW, SL_MSG_ENGINE_GET, SL_MSG_PING,
        SL_MSG_DRAIN, SL_MSG_ENGINES,  SL_MSG_FENCE,      SL_MSG_FLUSH};
    begin();
    for (uint32_t i = 0; i < SL_COUNT(to_registrar); i++) {
        expect(sl_msg_name(to_registrar[i]), simple(SL_GATE_RELAY_REGISTRAR, to_registrar[i]),
               SL_ERR_PERMISSION);
    }
    for (uint32_t i = 0; i < SL_COUNT(to_registrar); i++) {
        expect(sl_msg_name(to_registrar[i]), simple(SL_GATE_RELAY_COORDINATOR, to_registrar[i]),
               SL_ERR_PERMISSION);
    }
    const struct lie lie = {.kind = SL_MEMORY_SHARED_FD, .length = MEMBYTES};
    expect("a registration with the coordinator", enlist_with(SL_GATE_RELAY_COORDINATOR, lie),
           SL_ERR_PERMISSION);
    for (uint64_t id = 1; id < 200; id++) { /* some of them are others' */
        expect("a store of another one's engine", op(true, id, 0), SL_ERR_NOT_FOUND);
        struct sl_msg end = {.type = SL_MSG_ENGINE_END};
        end.body.engine_end.engine_id = id;
        expect("the end of another one's engine", ask(SL_GATE_RELAY_REGISTRAR, &end),
               SL_ERR_NOT_FOUND);
    }
    expect("a hand-over", op(true, 1, 7), SL_ERR_UNSUPPORTED);
    expect("decode's", op(false, 1, 7), SL_ERR_UNSUPPORTED);
    expect("a team that is not there", op(false, SL_TEAM_FIRST + 1, 0) != SL_OK, true);
    struct sl_msg layers = {.type = SL_MSG_LAYER_READY};
    layers.body.layer_ready.target_op = 1;
    layers.body.layer_ready.rank_layers = 1;
    layers.body.layer_ready.member = 1;
    expect("layers of another one", ask(SL_GATE_RELAY_COORDINATOR, &layers), SL_ERR_NOT_FOUND);
}

/* ---- memory ---- */

static void lend(uint32_t number, int fd)
{
    expect("lend", (int)event_send(SL_GATE_RELAY_MEMORY, number, NULL, 0, fd), SL_OK);
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int memory_with_holes(void)
{
    int fd = memory(MEMBYTES, F_SEAL_SHRINK);
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PIECE, PIECE);
    return fd;
}

static int arena_of_the_node(void)
{
    struct sl_gate *gate = NULL;
    int fd = -1;
    uint64_t until_ns = sl_deadline_ns(sl_clock_monotonic_ns(), WAIT_NS);
    if (sl_gate_open(runtime_dir, until_ns, &gate, &why) == SL_OK) {
        expect("open arena.0",
               (int)sl_gate_segment_open(sl_gate_directory(gate), "arena.0", false, &fd, &why),
               SL_OK);
        sl_gate_close(&gate, false);
    }
    return fd;
}

/* Whoever could write it may have given it to read. */
static int memory_to_read(void)
{
    char path[64];
    int fd = memory(MEMBYTES, F_SEAL_SHRINK);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int given = open(path, O_RDONLY | O_CLOEXEC);
    (void)close(fd);
    return given;
}

static void memory_lies(void)
{
    const struct lie whole = {.kind = SL_MEMORY_SHARED_FD, .length = MEMBYTES};
    struct lie lie = whole;
    int sealed = F_SEAL_SHRINK, fd = -1;
    begin();
    expect("memory that is not lent", enlist(whole), SL_ERR_INVALID);
    lie.fd = 3;
    expect("a descriptor of the node's process", enlist(lie), SL_ERR_INVALID);
    lie.fd = UINT32_MAX;
    expect("a number beyond all", enlist(lie), SL_ERR_INVALID);
    lend(0, memory(MEMBYTES, 0));
    lend(1, arena_of_the_node());
    lend(2, open("/dev/null", O_RDWR | O_CLOEXEC));
    fd = memory(MEMBYTES, sealed | F_SEAL_WRITE);
    lend(3, fd);
    lend(4, memory(2 * SL_MIB, sealed));
    lend(6, memory_to_read());
    lie.fd = 6;
    expect("memory that was given to read", enlist(lie), SL_ERR_UNSUPPORTED);
    lend(7, memory_with_holes());
    lie.fd = 7;
    expect("memory with holes", enlist(lie), SL_ERR_UNSUPPORTED);
    for (uint32_t i = 0; i < 5; i++) {
        static const char *const what[] = {"memory that may be cut short", "the node's arena",
                                           "no memory", "memory that is read-only",
                                           "more than a user may"};
        lie = whole;
        lie.fd = i;
        expect(what[i], enlist(lie), i == 4 ? SL_ERR_LIMIT : SL_ERR_UNSUPPORTED);
    }
    fd = memory(MEMBYTES, sealed);
    expect("lend", (int)event_send(SL_GATE_RELAY_MEMORY, 5, NULL, 0, fd), SL_OK);
    lie = whole;
    lie.fd = 5;
    lie.offset = 1;
    expect("a region over its end", enlist(lie), SL_ERR_INVALID);
    lie.offset = UINT64_MAX;
    expect("a region that wraps", enlist(lie), SL_ERR_INVALID);
    lie.offset = 0;
    lie.kind = SL_MEMORY_PROCESS;
    expect("memory of a process", enlist(lie), SL_ERR_UNSUPPORTED);
    lie.kind = SL_MEMORY_CUDA_IPC;
    expect("memory of a GPU", enlist(lie), SL_ERR_UNSUPPORTED);
    lie.kind = whole.kind;
    lie.pool_kind = SL_POOL_LENT;
    expect("a buffer", enlist(lie), SL_ERR_UNSUPPORTED);
    lie.pool_kind = 0;
    expect("what is right", enlist(lie), SL_OK);
    uint64_t id = heard.body.engine_register_reply.engine_id;
    expect("cut short", ftruncate(fd, 0) != 0, true);
    expect("a store", op(true, id, 0), SL_OK);
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MEMBYTES);
    expect("a store of holes", op(true, id, 0), SL_OK);
    expect("a load into holes", op(false, id, 0), SL_OK);
    (void)event_send(SL_GATE_RELAY_FORGET, 5, NULL, 0, -1);
    lend(5, memory(MEMBYTES, sealed)); /* which the engine has yet */
    expect("a number that is in use", hear(&heard), IS_OVER);
}

/* Waits for a layer that never comes. */
static bool layered_store_say(uint64_t engine_id, uint64_t op_id)
{
    static const unsigned char hash[32] = {7};
    static const uint64_t blocks[1] = {0}, ends[1] = {1};
    struct sl_msg msg = {.type = SL_MSG_STORE, .op_id = op_id};
    msg.body.store.engine_id = engine_id;
    msg.body.store.hashes = (struct sl_bytes){.at = hash, .length = sizeof hash};
    msg.body.store.hash_bytes = sizeof hash;
    msg.body.store.layered_blocks = (struct sl_u64s){.at = blocks, .count = 1};
    msg.body.store.layer_ends = (struct sl_u64s){.at = ends, .count = 1};
    return say(SL_GATE_RELAY_COORDINATOR, &msg);
}

/* Actors know an op by its own number: each would be another one. */
static void again_lies(void)
{
    const struct lie lie = {.kind = SL_MEMORY_SHARED_FD, .length = MEMBYTES};
    for (uint32_t differs = 0; differs < 3; differs++) {
        begin();
        lend(0, memory(MEMBYTES, F_SEAL_SHRINK));
        expect("an engine", enlist(lie), SL_OK);
        uint64_t id = heard.body.engine_register_reply.engine_id;
        expect("a store by layers", layered_store_say(id, 77), true);
        seq--;
        expect("it again",
               layered_store_say(differs == 2 ? SL_TEAM_FIRST + 1 : id, 77 + differs % 2), true);
        expect(differs == 0 ? "the same op again" : "another op under its number", hear(&heard),
               differs == 0 ? SL_ERR_TIMEOUT : IS_OVER);
    }
}

/* The answer to the message of that number; what comes before it is dropped. */
static int hear_of(uint64_t number)
{
    int code = IS_OVER;
    do {
        heard = (struct sl_msg){0};
        code = hear(&heard);
    } while (code >= 0 && heard.reply_to != number);
    return code;
}

static bool end_say(uint64_t engine_id)
{
    struct sl_msg end = {.type = SL_MSG_ENGINE_END};
    end.body.engine_end.engine_id = engine_id;
    return say(SL_GATE_RELAY_REGISTRAR, &end);
}

/* An engine ends once, however often it is said; what is said of it behind its end is of nobody's. */
static void end_lies(void)
{
    const struct lie lie = {.kind = SL_MEMORY_SHARED_FD, .length = MEMBYTES};
    begin();
    for (uint32_t turn = 0; turn < 40; turn++) { /* more than one client, or user, may have */
        lend(turn % 8, memory(MEMBYTES, F_SEAL_SHRINK));
        struct lie here = lie;
        here.fd = turn % 8;
        expect("an engine", enlist(here), SL_OK);
        uint64_t id = heard.body.engine_register_reply.engine_id;
        expect("its end", end_say(id), true);
        seq--;
        expect("its end once more", end_say(id),
               true); /* before that one is answered, or behind it */
        expect("the answer to its end", hear_of(seq), SL_OK);
        expect("its end by another number", end_say(id), true);
        expect("the answer to that", hear_of(seq), SL_ERR_NOT_FOUND);
        expect("a load behind its end", op(false, id, 0), SL_ERR_NOT_FOUND);
        (void)event_send(SL_GATE_RELAY_FORGET, turn % 8, NULL, 0, -1);
    }
}

/* Ops of teams of which the client has no rank wait for one: for as long as they say, and so few at once. */
static void stranger_lies(void)
{
    enum { MORE = 12, STRANGERS = 4 };
    static const unsigned char hash[32] = {9};
    static const uint64_t blocks[1] = {0};
    uint32_t refused = 0;
    begin();
    for (uint32_t i = 0; i < MORE; i++) {
        struct sl_msg msg = {.type = SL_MSG_LOAD, .op_id = 9000 + i, .budget_ns = 5 * SL_NS_PER_S};
        msg.body.load.engine_id = SL_TEAM_FIRST + 100 + i;
        msg.body.load.hashes = (struct sl_bytes){.at = hash, .length = sizeof hash};
        msg.body.load.hash_bytes = sizeof hash;
        msg.body.load.device_blocks = (struct sl_u64s){.at = blocks, .count = 1};
        expect("a load of a team that is not there", say(SL_GATE_RELAY_COORDINATOR, &msg), true);
    }
    for (uint32_t i = 0; i < MORE; i++) {
        heard = (struct sl_msg){0};
        int code = hear(&heard);
        expect("its answer", code, i < MORE - STRANGERS ? SL_ERR_LIMIT : SL_ERR_NOT_FOUND);
        refused += code == SL_ERR_LIMIT;
    }
    expect("refused", (int)refused, MORE - STRANGERS);
    expect("one of the others, afterwards", op(false, SL_TEAM_FIRST + 100, 0), SL_ERR_NOT_FOUND);
}

static void many_lies(void)
{
    struct lie lie = {.kind = SL_MEMORY_SHARED_FD, .length = MEMBYTES};
    begin();
    lend(0, memory(MEMBYTES, F_SEAL_SHRINK));
    int code = SL_OK;
    uint32_t count = 0;
    for (; count < 64 && code == SL_OK; count++) {
        code = enlist(lie);
        lie.offset = 0;
        lie.team = SL_TEAM_FIRST + count + 1; /* else they are the same */
    }
    expect("engines without an end", code, SL_ERR_LIMIT);
    expect("how many", count <= 17, true);
    seq -= 2; /* that of the last one that stands */
    lie.team = SL_TEAM_FIRST + count - 2;
    expect("the last one again", enlist(lie), SL_OK);
    begin();
    for (uint32_t i = 0; i < 20000; i++) { /* answers that nobody reads */
        struct sl_msg msg = {.type = SL_MSG_OP_FENCED};
        msg.body.op_fenced.target_op = i + 1;
        const void *frame = NULL;
        size_t length_bytes = 0;
        msg.sender = sl_text_of("x");
        msg.seq = ++seq;
        msg.budget_ns = SL_NS_PER_S;
        if (sl_codec_encode(codec, &msg, &frame, &length_bytes, &why) == SL_OK) {
            const struct sl_gate_relay_event event = {.kind = SL_GATE_RELAY_COORDINATOR,
                                                      .frame = frame,
                                                      .length_bytes = length_bytes,
                                                      .fd = -1};
            if (sl_gate_relay_send(relay, &event) != SL_OK) {
                break;
            }
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 2 || sl_codec_create(32 * SL_MIB, &codec, &why) != SL_OK) {
        return 2;
    }
    runtime_dir = argv[1];
    packet_lies();
    body_lies();
    message_lies();
    memory_lies();
    again_lies();
    end_lies();
    stranger_lies();
    many_lies();
    sl_gate_relay_close(&relay);
    sl_codec_destroy(&codec);
    (void)printf("done\n");
    return 0;
}
