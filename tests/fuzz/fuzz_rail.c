/* tests/fuzz/fuzz_rail.c - a rail's process under a door that says anything, in numbers that fit and
 * that do not. It goes on whatever comes; it says the end of each transfer once; what it says has the
 * numbers that its door waits for; of a door that is dead nothing is open or mapped any more. */
#include "actors/transporter/rails/handout.h"
#include "actors/transporter/rails/process_internal.h"
#include "ipc/sl_arena.h"
#include "ipc/sl_rails.h"
#include "tests/fuzz/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define MEMORY    (256 * SL_KIB)
#define SLOTS     4u
#define STEPS_MAX 400u

static struct world {
    struct fake_env fake;
    struct sl_fabric_options options;
    struct hostile_input input;
    struct sl_arena *arena;
    struct tr_handout *handout; /* number 1: MEMORY bytes; 2: no memory file */
    struct sl_proc_id door;
    uint64_t life, number, heard; /* of the process's life; orders that went, news that came */
    bool opened, posted[SLOTS], whole;
    uint64_t cookies[SLOTS];
    uint32_t pids;
} world;

static sl_err rail_init(void *state, struct sl_env *env, struct sl_error *why)
{
    return tr_process_open(env, 1, &world.options, state, why);
}
static sl_err rail_handle(void *state, const struct sl_msg *msg)
{
    return tr_process_handle(*(struct tr_process **)state, msg);
}
static sl_err rail_tick(void *state, uint64_t now_ns)
{
    return tr_process_tick(*(struct tr_process **)state, now_ns);
}
static void rail_fini(void *state)
{
    tr_process_close(state);
}
static const struct sl_actor rail_actor = {.role = "transporter.1",
                                           .state_bytes = sizeof(struct tr_process *),
                                           .init = rail_init,
                                           .handle = rail_handle,
                                           .tick = rail_tick,
                                           .fini = rail_fini};

static uint64_t byte(void)
{
    return hostile_byte(&world.input);
}

/* A number of the door's: four of each kind, in two lives. */
static uint64_t handle(void)
{
    uint64_t b = byte();
    return (1 + (b >> 2 & 1)) << 16 | (b & 3) | (b == 255 ? 0xfff0 : 0);
}

static void life_new(uint64_t life)
{
    world.life = life;
    world.number = world.heard = 0;
    world.opened = false;
    memset(world.posted, 0, sizeof(world.posted));
}

static void done_check(const struct sl_body_rail_done *done)
{
    if (world.whole) { /* else the numbers of its transfers were not ours */
        HOSTILE_MUST(done->slot < SLOTS && world.posted[done->slot]);
        HOSTILE_MUST(done->cookie == world.cookies[done->slot]);
        world.posted[done->slot] = false;
    }
}

/* Takes what the process says. */
static void collect(void)
{
    struct sl_msg msg;
    while (fake_take(&world.fake, "transporter.0", 0, &msg)) {
        if (msg.type == SL_MSG_RAIL_HELLO) {
            if (msg.body.rail_hello.life != world.life) {
                life_new(msg.body.rail_hello.life);
            }
        } else if (msg.type == SL_MSG_RAIL_NEWS || msg.type == SL_MSG_RAIL_DONE) {
            const struct sl_body_rail_news *news = &msg.body.rail_news; /* begin alike */
            if (news->life == world.life) {
                HOSTILE_MUST(news->number == ++world.heard);
                if (msg.type == SL_MSG_RAIL_DONE) {
                    done_check(&msg.body.rail_done);
                }
            }
        }
    }
}

/* Now and then a number too many or too few. */
static uint64_t number_next(void)
{
    uint64_t b = byte();
    return b < 240 ? ++world.number : SL_MAX(world.number + (b & 3), UINT64_C(1));
}

/* An engine's memory, as the door hands it out, or nearly so. */
static void handed_say(struct sl_body_rail_order *body)
{
    uint64_t what = byte();
    body->arena = body->birth = 0;
    body->handed = what < 160 ? 1 : 1 + what % 3;
    body->handed_bytes = byte() < 200 ? MEMORY : byte() * 8192;
    body->offset_bytes = (byte() & 3) * 4096;
    body->length_bytes = byte() < 200 ? MEMORY - body->offset_bytes : byte() * 8192;
    body->chunk_bytes = byte() < 240 ? 0 : 4096;
    body->stride_bytes = byte() < 240 ? 4096 : byte() * 100;
    body->unread = byte() & 1;
    body->device = byte() > 240;
    body->pid = byte() < 250 ? tr_handout_pid(world.handout) : 1;
    body->socket = byte() < 250 ? tr_handout_socket(world.handout) : byte();
}

static void order(uint64_t kind)
{
    static unsigned char blob[256];
    struct sl_msg msg = {.type = SL_MSG_RAIL_ORDER};
    struct sl_body_rail_order *body = &msg.body.rail_order;
    struct sl_item_rail_place places[2];
    for (size_t i = 0; i < sizeof(blob); i += 16) {
        blob[i] = (unsigned char)byte();
    }
    *body = (struct sl_body_rail_order){.life = byte() == 7 ? 1 : world.life,
                                        .number = number_next(),
                                        .kind = kind,
                                        .handle = handle(),
                                        .peer = handle(),
                                        .memory = handle(),
                                        .verb = byte() % 3,
                                        .arena = byte() == 1 ? 9 : 0,
                                        .birth = sl_arena_birth_generation(world.arena),
                                        .offset_bytes = byte() * 4096,
                                        .length_bytes =
                                            kind == RAIL_MEMORY_ADD ? MEMORY : byte() * 1024,
                                        .chunk_bytes = MEMORY,
                                        .pid = kind == RAIL_OPEN ? world.door.pid : byte(),
                                        .start_time = world.door.start_time,
                                        .cookie = byte()};
    body->blob = (struct sl_bytes){.at = blob, .length = byte()};
    if (kind == RAIL_MEMORY_ADD && (blob[0] & 1) != 0) {
        handed_say(body);
    }
    if (byte() > 200) {
        body->places.at = places;
        body->places.count = 2;
        for (uint32_t i = 0; i < 2; i++) {
            places[i] = (struct sl_item_rail_place){
                .memory = handle(), .offset_bytes = byte() * 512, .length_bytes = 1 + byte() * 16};
        }
    }
    fake_give(&world.fake, "transporter.0", &msg);
}

static void post(void)
{
    struct sl_msg msg = {.type = SL_MSG_RAIL_POST, .budget_ns = 1 + byte() * SL_NS_PER_MS};
    struct sl_body_rail_post *body = &msg.body.rail_post;
    struct sl_item_rail_piece pieces[3];
    struct sl_item_rail_place place = {.memory = handle(), .length_bytes = 4096};
    uint64_t slot = byte() % SLOTS, cookie = byte();
    bool wrong = byte() > 230;
    if (world.posted[slot] && !wrong) {
        return;
    }
    *body = (struct sl_body_rail_post){.life = world.life,
                                       .number = number_next(),
                                       .slot = slot,
                                       .cookie = cookie,
                                       .verb = 1 + byte() % 2,
                                       .peer = handle(),
                                       .more = byte() > 230};
    body->pieces.at = pieces;
    body->pieces.count = byte() % 4;
    body->places.at = &place;
    body->places.count = byte() > 200 ? 1 : 0;
    for (uint32_t i = 0; i < body->pieces.count; i++) {
        pieces[i] = (struct sl_item_rail_piece){.memory = handle(),
                                                .key = handle(),
                                                .offset_bytes = byte() * 4096,
                                                .remote_offset_bytes = byte() * 4096,
                                                .length_bytes = 1 + byte() * 64,
                                                .checked = byte() & 1,
                                                .place_count = body->places.count > 0 && i == 0};
    }
    world.whole = world.whole && !wrong && !body->more;
    world.posted[slot] = true;
    world.cookies[slot] = cookie;
    fake_give(&world.fake, "transporter.0", &msg);
}

static void door_new(void)
{
    world.door = (struct sl_proc_id){.pid = 100 + world.pids++ % 20, .start_time = 1};
    fake_live(&world.fake, world.door);
}

static void door_dies(void)
{
    fake_die(&world.fake, world.door);
    world.fake.living_count = 0;
    fake_pass(&world.fake, SL_NS_PER_MS);
    door_new();
}

static void fence(void)
{
    static const struct sl_item_claim item = {.ref = 1, .generation = 1};
    struct sl_msg msg = {.type = SL_MSG_FENCE}, reply;
    msg.body.fence.items.at = &item;
    msg.body.fence.items.count = 1;
    fake_give(&world.fake, "registrar", &msg);
    HOSTILE_MUST(fake_take_reply(&world.fake, "registrar", msg.seq, &reply));
    HOSTILE_MUST(reply.code == SL_OK);
}

static void step(void)
{
    uint64_t what = byte();
    if (what < 16) {
        order(RAIL_OPEN);
    } else if (what < 150) {
        order(2 + what % 11);
    } else if (what < 210) {
        post();
    } else if (what < 240) {
        fake_pass(&world.fake, 1 + byte() * SL_NS_PER_MS);
    } else if (what < 248) {
        fence();
    } else {
        door_dies();
    }
    collect();
}

static void handout_open(void)
{
    struct sl_error why = {0};
    uint64_t number = 0;
    int fd = memfd_create("pool", MFD_CLOEXEC), pair[2];
    HOSTILE_MUST(fd >= 0 && ftruncate(fd, MEMORY) == 0 && pipe(pair) == 0);
    HOSTILE_MUST(tr_handout_open(world.fake.paths.runtime_dir, 2, &world.handout, &why) == SL_OK);
    HOSTILE_MUST(tr_handout_add(world.handout, fd, MEMORY, &number, &why) == SL_OK && number == 1);
    HOSTILE_MUST(tr_handout_add(world.handout, pair[0], 1, &number, &why) == SL_OK && number == 2);
    (void)close(fd);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void world_open(void)
{
    static const char *const settings[] = {"memory", "4MiB", NULL};
    struct sl_error why = {0};
    bool created = false;
    fake_open(&world.fake, &rail_actor, settings);
    const struct sl_arena_options arena = {
        .directory = world.fake.paths.shm_dir, .data_bytes = MEMORY, .chunk_bytes = MEMORY};
    HOSTILE_MUST(sl_arena_open_owner(&arena, &created, &world.arena, &why) == SL_OK);
    handout_open();
    sl_fabric_options_init(&world.options, "tcp");
    world.options.address = "127.0.0.1,127.0.0.1";
    world.options.movers = 0;
    world.options.lanes = 1;
    world.options.depth = 2;
    world.options.peers_max = world.options.memories_max = world.options.grants_max = 4;
    world.options.keys_max = world.options.transfers_max = SLOTS;
    world.options.pieces_max = 16;
    world.options.places_max = 16;
    HOSTILE_MUST(fake_start(&world.fake, &why) == SL_OK);
    struct sl_msg known = {.type = SL_MSG_HELLO_REPLY, .reply_to = 1};
    known.body.hello_reply.boot_generation = 5;
    door_new();
    fake_give(&world.fake, "registrar", &known);
    fake_pass(&world.fake, SL_NS_PER_MS);
    collect();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    memset(&world, 0, sizeof(world));
    world.input = (struct hostile_input){.at = bytes, .end = bytes + length_bytes};
    world.whole = true;
    world_open();
    for (uint32_t i = 0; i < STEPS_MAX && world.input.at < world.input.end; i++) {
        step();
    }
    door_dies();
    collect();
    const struct tr_process *process = *(struct tr_process **)world.fake.state;
    HOSTILE_MUST(!process->opened && process->posts_out == 0 && process->memories_leaving == 0);
    for (uint32_t i = 0; i < process->memories.count; i++) {
        HOSTILE_MUST(process->handed[i].users == 0 && process->handed[i].base == NULL);
    }
    struct sl_proc_id noted[SL_RAILS_MAX];
    fake_live(&world.fake, world.fake.env.self);
    HOSTILE_MUST(sl_rails_noted(&world.fake.env, 2, noted) == 0);
    fake_stop(&world.fake);
    tr_handout_close(&world.handout);
    sl_arena_close(&world.arena);
    (void)sl_segment_remove(world.fake.paths.shm_dir, "arena.0", NULL);
    fake_close(&world.fake);
    return 0;
}
