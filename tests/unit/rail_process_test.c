/* tests/unit/rail_process_test.c - the door and a rail's process, both stepped by hand, with a peer
 * over tcp on the loopback. Whatever frame is lost, comes twice, or is the last that the process
 * sends before it dies: what was asked ends well, by the other rail, and the rail carries again. */
#include "actors/transporter/rails/handout.h"
#include "actors/transporter/rails/process_internal.h"
#include "actors/transporter/rails/remote.h"
#include "ipc/sl_arena.h"
#include "ipc/sl_rails.h"
#include "runtime/fabric/core/rails.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_env.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY (4 * SL_MIB)
#define PIECES 32u
#define PIECE  (MEMORY / PIECES)
#define TURN   (2 * SL_NS_PER_MS)
#define TWO    "127.0.0.1,127.0.0.2"

/* a has the rails: its first is driven by the door, its second by the process. b has both itself. */
static struct fabric_end a, b;
static struct sl_fabric_options options_a, options_b, options_rail;
static struct fake_env door, rail;
static struct sl_arena *arena;
static uint64_t clock_ns;
static unsigned char key[SL_FABRIC_BLOB_MAX];
static uint32_t key_bytes;
static uint32_t frames;                              /* that passed between door and process */
static uint32_t lose_at, double_at, die_at, stop_at; /* the frame with this number; 0: none */
static bool stopped;                                 /* the process takes no turn */
static uint32_t deaths;

/* ---- the two actors ---- */

struct door_state {
    struct sl_env *env;
    struct tr_remotes remotes;
};

static sl_err door_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct door_state *self = state;
    (void)why;
    self->env = self->remotes.env = env;
    self->remotes.fence_ns = SL_NS_PER_S;
    return SL_OK;
}

static sl_err door_handle(void *state, const struct sl_msg *msg)
{
    struct door_state *self = state;
    if (msg->type == SL_MSG_LOCAL_DIED) {
        (void)tr_remotes_died(&self->remotes, &msg->body.local_died);
    } else {
        (void)tr_remotes_handle(&self->remotes, msg);
    }
    return SL_OK;
}

static sl_err door_tick(void *state, uint64_t now_ns)
{
    struct door_state *self = state;
    if (a.fabric != NULL) {
        sl_fabric_step(a.fabric, now_ns);
        self->env->ops->wake_at(self->env, sl_fabric_wake_at(a.fabric));
    }
    return SL_OK;
}

static void door_fini(void *state)
{
    (void)state;
}

static const struct sl_actor door_actor = {.role = "transporter.0",
                                           .state_bytes = sizeof(struct door_state),
                                           .init = door_init,
                                           .handle = door_handle,
                                           .tick = door_tick,
                                           .fini = door_fini};

static sl_err rail_init(void *state, struct sl_env *env, struct sl_error *why)
{
    return tr_process_open(env, 1, &options_rail, state, why);
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

/* ---- the world ---- */

static struct tr_process *process(void)
{
    return *(struct tr_process **)rail.state;
}

static void on_granted(void *context, uint32_t grant, const void *bytes, uint32_t length_bytes,
                       const struct sl_error *why)
{
    struct fabric_end *end = context;
    (void)grant;
    (void)why;
    end->granted++;
    ck_assert_ptr_nonnull(bytes);
    memcpy(key, bytes, length_bytes);
    key_bytes = length_bytes;
}

static struct {
    int fd;
    uint64_t number;
    unsigned char *bytes; /* as the door maps it */
    uint32_t memory;
    bool refused;
} pool;

static void on_registered(void *context, uint32_t memory, uint32_t region_index,
                          const struct sl_error *why)
{
    struct fabric_end *end = context;
    (void)region_index;
    if (memory == end->memory) {
        ck_assert_msg(why->code == SL_OK, "%s", why->text);
        end->registered = true;
    } else {
        ck_assert_uint_eq(memory, pool.memory);
        pool.refused = why->code != SL_OK;
    }
}

static void rail_begin(void)
{
    struct sl_error why = {0};
    struct sl_msg known = {.type = SL_MSG_HELLO_REPLY, .reply_to = 1};
    rail.env.self = (struct sl_proc_id){.pid = 100 + deaths, .start_time = 1};
    rail.env.now_ns = clock_ns;
    fake_live(&door, rail.env.self);
    fake_live(&rail, door.env.self);
    ck_assert_msg(fake_start(&rail, &why) == SL_OK, "%s", why.text);
    known.body.hello_reply.boot_generation = 5;
    fake_give(&rail, "registrar", &known);
}

/* As SIGKILL; the supervisor starts it again. */
static void rail_die(void)
{
    struct sl_proc_id proc = rail.env.self;
    fake_stop(&rail);
    rail.living_count = 0;
    deaths++;
    stopped = false;
    fake_die(&door, proc);
    rail_begin();
}

static void fake_turn(struct fake_env *fake)
{
    fake->wake_ns = 0;
    fake_pass(fake, TURN);
}

/* Frames of one side to the other; false: the process died meanwhile. */
static bool pump(struct fake_env *from, struct fake_env *to, const char *name_from,
                 const char *name_to)
{
    struct sl_msg msg;
    while (fake_take(from, name_to, 0, &msg)) {
        uint32_t number = ++frames;
        if (number == lose_at) {
            continue;
        }
        fake_give(to, name_from, &msg);
        if (number == double_at) {
            fake_give(to, name_from, &msg);
        }
        if (number == stop_at) {
            stopped = true;
            return true;
        }
        if (number == die_at) {
            rail_die();
            return false;
        }
    }
    return true;
}

static void addresses(struct fabric_end *from, struct fabric_end *to)
{
    struct sl_error why = {0};
    if (from->address_bytes > 0) {
        sl_err err =
            sl_fabric_peer_address(to->fabric, to->peer, from->address, from->address_bytes, &why);
        ck_assert_msg(err == SL_OK, "%s", why.text);
        from->address_bytes = 0;
    }
}

static void turn(void)
{
    uint32_t killed = door.killed_count;
    clock_ns += TURN;
    fake_turn(&door);
    if (!stopped) {
        fake_turn(&rail);
    }
    if (door.killed_count > killed) {
        rail_die();
    }
    if (!stopped && pump(&rail, &door, "transporter.1", "transporter.0") && !stopped) {
        (void)pump(&door, &rail, "transporter.0", "transporter.1");
    }
    end_step(&b, 1);
    addresses(&a, &b);
    addresses(&b, &a);
}

#define UNTIL(condition)                                                                    \
    do {                                                                                    \
        uint64_t until_ns = sl_clock_monotonic_ns() + 20 * SL_NS_PER_S;                     \
        while (!(condition)) {                                                              \
            ck_assert_msg(sl_clock_monotonic_ns() < until_ns, "waited for %s", #condition); \
            turn();                                                                         \
        }                                                                                   \
    } while (0)

static enum sl_fabric_link link_at(const struct fabric_end *end, uint32_t index)
{
    const struct rails *rails = end->fabric->rails;
    return sl_fabric_peer_link(rails->at[index].fabric,
                               rails_peer_of(rails, end->peer)->sub[index]);
}

static bool all_up(void)
{
    return link_at(&a, 0) == SL_FABRIC_UP && link_at(&a, 1) == SL_FABRIC_UP &&
           link_at(&b, 0) == SL_FABRIC_UP && link_at(&b, 1) == SL_FABRIC_UP;
}

static void common(struct sl_fabric_options *options)
{
    options->address = TWO;
    options->stall_ns = 300 * SL_NS_PER_MS;
    options->connect_ns = SL_NS_PER_S;
    options->movers = 0;
    options->memories_max = 8;
    options->grants_max = options->keys_max = 64;
    options->transfers_max = 16;
    options->pieces_max = 4096;
    options->places_max = 4096;
}

static bool may_write(void *context, uint64_t cookie, uint64_t offset_bytes, uint64_t length_bytes);
static bool half_is_shut;

static void setup(void)
{
    struct sl_error why = {0};
    bool created = false;
    frames = lose_at = double_at = die_at = stop_at = deaths = key_bytes = 0;
    stopped = false;
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    fake_open(&door, &door_actor, NULL);
    fake_open(&rail, &rail_actor, NULL);
    clock_ns = door.env.now_ns;
    a.now_ns = b.now_ns = &clock_ns;
    const struct sl_arena_options memory = {
        .directory = door.paths.shm_dir, .data_bytes = MEMORY, .chunk_bytes = MEMORY};
    ck_assert_int_eq(sl_arena_open_owner(&memory, &created, &arena, &why), SL_OK);
    while (sl_arena_populate_step(arena, NULL) == SL_OK) {
    }
    rail.env.paths = door.env.paths;
    ck_assert_int_eq(fake_start(&door, &why), SL_OK);

    end_options(&a, &options_a, "tcp");
    end_options(&b, &options_b, "tcp");
    common(&options_a);
    common(&options_b);
    options_rail = options_a;
    options_a.events.granted = on_granted;
    options_a.events.registered = on_registered;
    options_a.events.may_write = may_write;
    half_is_shut = false;
    options_a.rail_open = tr_remote_open;
    options_a.rail_context = &((struct door_state *)door.state)->remotes;
    ck_assert_msg(sl_fabric_open(&options_a, &a.fabric, &why) == SL_OK, "%s", why.text);
    ck_assert_int_eq(sl_fabric_peer_add(a.fabric, &a.peer, &why), SL_OK);
    const struct sl_fabric_memory what = {.at = sl_arena_at(arena, 0, 1),
                                          .length_bytes = MEMORY,
                                          .chunk_bytes = MEMORY,
                                          .arena = 0,
                                          .arena_birth = sl_arena_birth_generation(arena)};
    a.length_bytes = MEMORY;
    a.bytes = what.at;
    ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &what, &a.memory, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options_b, MEMORY, MEMORY, &why), SL_OK);
    rail_begin();
}

static void teardown(void)
{
    a.bytes = NULL; /* the arena's */
    sl_fabric_close(&a.fabric);
    fake_stop(&rail);
    end_close(&b);
    sl_arena_close(&arena);
    (void)sl_segment_remove(door.paths.shm_dir, "arena.0", NULL);
    fake_close(&rail);
    fake_close(&door);
}

/* ---- what is asked ---- */

/* b gives a the right, and a gets the key. */
static uint32_t key_of_b(enum sl_fabric_verb verb)
{
    static unsigned char blob[SL_FABRIC_BLOB_MAX];
    struct sl_error why = {0};
    uint32_t grant = 0, blob_bytes = 0, opened = 0, before = b.granted;
    const struct sl_fabric_grant want = {
        .verb = verb, .memory = b.memory, .peer = b.peer, .length_bytes = MEMORY};
    ck_assert_msg(sl_fabric_grant_add(b.fabric, &want, &grant, blob, &blob_bytes, &why) == SL_OK,
                  "%s", why.text);
    UNTIL(b.granted > before);
    ck_assert_msg(sl_fabric_key_open(a.fabric, a.peer, blob, blob_bytes, &opened, &why) == SL_OK,
                  "%s", why.text);
    return opened;
}

static sl_err post_all(struct fabric_end *end, enum sl_fabric_verb verb, uint32_t opened,
                       const unsigned char *source, uint64_t cookie)
{
    static struct sl_fabric_piece pieces[PIECES];
    static struct sl_digest digests[PIECES];
    struct sl_error why = {0};
    for (uint32_t i = 0; i < PIECES; i++) {
        digests[i] = sl_digest_of(source + i * PIECE, PIECE);
        pieces[i] = (struct sl_fabric_piece){.memory = end->memory,
                                             .key = opened,
                                             .offset_bytes = i * PIECE,
                                             .remote_offset_bytes = i * PIECE,
                                             .length_bytes = PIECE,
                                             .digest = verb == SL_FABRIC_READ ? &digests[i] : NULL};
    }
    const struct sl_fabric_transfer transfer = {.verb = verb,
                                                .peer = end->peer,
                                                .pieces = pieces,
                                                .piece_count = PIECES,
                                                .deadline_ns = clock_ns + 60 * SL_NS_PER_S,
                                                .cookie = cookie};
    return sl_fabric_post(end->fabric, &transfer, &why);
}

/* Nothing has landed since all of a's memory was set to this. */
static bool all_are(unsigned char byte)
{
    return a.bytes[0] == byte && memcmp(a.bytes, a.bytes + 1, MEMORY - 1) == 0;
}

static uint64_t rail_read_bytes(void)
{
    struct sl_fabric_stats stats;
    sl_fabric_stats(a.fabric->rails->at[1].fabric, &stats);
    return stats.read_bytes;
}

/* Everything that a reads of b; with what the test does to one of the frames. */
static void read_all(uint64_t seed)
{
    uint32_t opened = key_of_b(SL_FABRIC_READ);
    pattern_fill(b.bytes, MEMORY, seed);
    memset(a.bytes, 0x55, MEMORY);
    uint32_t done = a.done_count;
    ck_assert_int_eq(post_all(&a, SL_FABRIC_READ, opened, b.bytes, seed), SL_OK);
    UNTIL(a.done_count > done);
    ck_assert_int_eq(a.dones[done].code, SL_OK);
    ck_assert_uint_eq(a.dones[done].cookie, seed);
    ck_assert_uint_eq(a.dones[done].moved_bytes, MEMORY);
    ck_assert(pattern_is(a.bytes, MEMORY, seed));
    ck_assert_uint_eq(a.fabric->rails->at[1].out_bytes, 0);
    sl_fabric_key_close(a.fabric, opened);
}

/* ---- reading ---- */

START_TEST(both_rails_carry_a_read)
    {
        UNTIL(all_up());
        read_all(1);
        UNTIL(rail_read_bytes() > 0);
        ck_assert_uint_ge(rail_read_bytes(), MEMORY / 4);
    }
END_TEST

static const struct {
    const char *name;
    uint32_t *at;
} harms[] = {{"lost", &lose_at}, {"twice", &double_at}, {"last", &die_at}, {"stopped", &stop_at}};

#define HARM_FRAMES 24u

/* Each of the first frames, harmed in each way. Then the rail carries again. */
START_TEST(a_read_ends_well_whatever_befalls_a_frame)
    {
        uint32_t round = (uint32_t)_i;
        *harms[round % SL_COUNT(harms)].at = 1 + round / SL_COUNT(harms);
        UNTIL(link_at(&a, 0) == SL_FABRIC_UP && link_at(&b, 0) == SL_FABRIC_UP);
        read_all(2);
        read_all(3);
        if (stopped) { /* nothing was waited for: nobody had to find out */
            rail_die();
        }
        uint64_t before = rail_read_bytes(); /* what a process did not tell died with it */
        for (uint64_t seed = 4; rail_read_bytes() <= before; seed++) {
            ck_assert_uint_lt(seed, 10);
            UNTIL(all_up());
            read_all(seed);
            for (int i = 0; i < 150; i++) {
                turn();
            }
        }
        ck_assert_uint_le(deaths, 2);
    }
END_TEST

START_TEST(a_process_that_is_away_costs_nothing)
    {
        fake_stop(&rail);
        fake_die(&door, rail.env.self);
        rail.living_count = 0;
        stopped = true;
        UNTIL(link_at(&a, 0) == SL_FABRIC_UP && link_at(&b, 0) == SL_FABRIC_UP);
        read_all(5);
        deaths++;
        stopped = false;
        rail_begin();
        UNTIL(all_up());
        read_all(6);
        UNTIL(rail_read_bytes() > 0);
    }
END_TEST

/* ---- writing ---- */

#define COOKIE 4711u

/* As the door's own rail is answered: the first half of the memory is not written any more. */
static bool may_write(void *context, uint64_t cookie, uint64_t offset_bytes, uint64_t length_bytes)
{
    (void)context;
    (void)length_bytes;
    ck_assert_uint_eq(cookie, COOKIE);
    return !half_is_shut || offset_bytes >= MEMORY / 2;
}

static void half_shut(uint32_t grant)
{
    const struct sl_fabric_place half = {.memory = grant, .length_bytes = MEMORY / 2};
    half_is_shut = true;
    sl_fabric_grants_shut(a.fabric, &half, 1);
}

/* What b may write into a's memory, by the key that granted() brought. */
static uint32_t grant_to_b(uint32_t *opened)
{
    struct sl_error why = {0};
    uint32_t grant = 0, none = 1, before = a.granted;
    unsigned char at_once[SL_FABRIC_BLOB_MAX];
    const struct sl_fabric_place half = {.length_bytes = MEMORY / 2};
    const struct sl_fabric_grant want = {.verb = SL_FABRIC_WRITE,
                                         .memory = a.memory,
                                         .peer = a.peer,
                                         .length_bytes = MEMORY,
                                         .cookie = COOKIE,
                                         .shut = half_is_shut ? &half : NULL,
                                         .shut_count = half_is_shut ? 1 : 0};
    ck_assert_msg(sl_fabric_grant_add(a.fabric, &want, &grant, at_once, &none, &why) == SL_OK, "%s",
                  why.text);
    ck_assert_uint_eq(none, 0);
    UNTIL(a.granted > before);
    ck_assert_msg(sl_fabric_key_open(b.fabric, b.peer, key, key_bytes, opened, &why) == SL_OK, "%s",
                  why.text);
    return grant;
}

START_TEST(both_rails_take_a_write_and_nothing_lands_after_its_grant)
    {
        uint32_t opened = 0;
        UNTIL(all_up());
        uint32_t grant = grant_to_b(&opened);
        pattern_fill(b.bytes, MEMORY, 7);
        ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 7), SL_OK);
        UNTIL(b.done_count == 1);
        ck_assert_int_eq(b.dones[0].code, SL_OK);
        ck_assert(pattern_is(a.bytes, MEMORY, 7));

        ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
        UNTIL(a.grants_ended == 1);
        memset(a.bytes, 0x11, MEMORY);
        ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 8), SL_OK);
        UNTIL(b.done_count == 2);

        ck_assert_int_eq(b.dones[1].code, SL_ERR_PERMISSION);
        ck_assert(all_are(0x11));
    }
END_TEST

static bool first_half_is(unsigned char with)
{
    for (uint64_t i = 0; i < MEMORY / 2; i++) {
        if (a.bytes[i] != with) {
            return false;
        }
    }
    return true;
}

/* 0: it was written before; 1: the grant begins so. */
START_TEST(no_rail_takes_a_write_to_what_was_shut)
    {
        uint32_t opened = 0;
        UNTIL(all_up());
        half_is_shut = _i == 1;
        uint32_t grant = grant_to_b(&opened);
        pattern_fill(b.bytes, MEMORY, 7);
        if (_i == 0) {
            ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 7), SL_OK);
            UNTIL(b.done_count == 1);
            ck_assert_int_eq(b.dones[0].code, SL_OK);
            half_shut(grant);
        }
        UNTIL(!sl_fabric_grant_recheck(a.fabric, grant));
        memset(a.bytes, 0x11, MEMORY);
        uint32_t done = b.done_count;

        for (uint32_t round = 0; round < 4; round++) { /* each piece goes by another rail, too */
            ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 8), SL_OK);
            UNTIL(b.done_count == done + round + 1);
            ck_assert_int_eq(b.dones[done + round].code, SL_ERR_PERMISSION);
        }

        ck_assert(first_half_is(0x11));
        ck_assert_mem_eq(a.bytes + MEMORY / 2, b.bytes + MEMORY / 2, MEMORY / 2);
    }
END_TEST

/* When sl_fabric_grant_recheck says that nothing lands any more in it, nothing does. */
START_TEST(what_is_on_its_way_by_any_rail_is_refused_as_well)
    {
        uint32_t opened = 0;
        unsigned char *then = malloc(MEMORY / 2);
        ck_assert_ptr_nonnull(then);
        UNTIL(all_up());
        uint32_t grant = grant_to_b(&opened);
        pattern_fill(b.bytes, MEMORY, 7);
        memset(a.bytes, 0, MEMORY);
        ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 7), SL_OK);
        for (int i = 0; i < _i; i++) {
            turn();
        }

        half_shut(grant);
        UNTIL(!sl_fabric_grant_recheck(a.fabric, grant));
        memcpy(then, a.bytes, MEMORY / 2);
        UNTIL(b.done_count == 1);

        ck_assert_mem_eq(then, a.bytes, MEMORY / 2);
        ck_assert_mem_eq(a.bytes + MEMORY / 2, b.bytes + MEMORY / 2, MEMORY / 2);
        free(then);
    }
END_TEST

/* A stopped process cannot say that nothing lands: it is killed, and only then that counts. */
START_TEST(a_silent_process_is_killed_before_what_was_shut_counts)
    {
        uint32_t opened = 0;
        UNTIL(all_up());
        uint32_t grant = grant_to_b(&opened);
        stopped = true;
        half_shut(grant);
        while (door.killed_count == 0) {
            ck_assert(sl_fabric_grant_recheck(a.fabric, grant));
            turn();
        }
        UNTIL(!sl_fabric_grant_recheck(a.fabric, grant));
        ck_assert_uint_eq(deaths, 1);
    }
END_TEST

/* The process dies while b writes: b's other rail carries all, and the end of the grant is told. */
START_TEST(a_write_survives_the_death_of_a_process)
    {
        uint32_t opened = 0;
        UNTIL(all_up());
        uint32_t grant = grant_to_b(&opened);
        pattern_fill(b.bytes, MEMORY, 9);
        ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 9), SL_OK);
        for (int i = 0; i < _i; i++) {
            turn();
        }
        rail_die();
        UNTIL(b.done_count == 1);
        ck_assert_int_eq(b.dones[0].code, SL_OK);
        ck_assert(pattern_is(a.bytes, MEMORY, 9));
        UNTIL(all_up());
        ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 10), SL_OK);
        UNTIL(b.done_count == 2); /* what the new process refuses goes by the other */
        ck_assert_int_eq(b.dones[1].code, SL_OK);
        ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
        UNTIL(a.grants_ended == 1);
    }
END_TEST

/* A stopped process says nothing of the end of a grant: it is killed, and only then it is told. */
START_TEST(a_silent_process_is_killed_before_its_grants_count_as_over)
    {
        uint32_t opened = 0;
        UNTIL(all_up());
        uint32_t grant = grant_to_b(&opened);
        stopped = true;
        ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
        for (uint64_t start_ns = clock_ns; clock_ns < start_ns + 150 * SL_NS_PER_MS;) {
            turn();
            ck_assert_uint_eq(a.grants_ended, 0);
            ck_assert_uint_eq(door.killed_count, 0);
        }
        UNTIL(a.grants_ended == 1);
        ck_assert_uint_eq(door.killed_count, 1);
        ck_assert_uint_eq(deaths, 1);
        UNTIL(all_up());
    }
END_TEST

/* The process's loop gives a turn a time that is older than that of the message before it. */
START_TEST(a_turn_with_an_older_time_finds_nobody_silent)
    {
        UNTIL(all_up());
        uint32_t opened = key_of_b(SL_FABRIC_READ);
        ck_assert_int_eq(post_all(&a, SL_FABRIC_READ, opened, b.bytes, 1), SL_OK);
        sl_fabric_step(a.fabric, clock_ns);
        struct sl_body_rail_news pong = {0};
        process_news(process(), RAIL_PONG, &pong);
        door.env.now_ns = clock_ns + TURN / 2; /* of the message */
        (void)pump(&rail, &door, "transporter.1", "transporter.0");
        sl_fabric_step(a.fabric, clock_ns + TURN / 4);
        ck_assert_uint_eq(door.killed_count, 0);
        UNTIL(a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
    }
END_TEST

/* A key of reading comes again with the part of the new process, and the peer renews what it has. */
START_TEST(a_key_for_reading_is_renewed_when_the_process_is_back)
    {
        struct sl_error why = {0};
        uint32_t grant = 0, none = 1, opened = 0;
        const struct sl_fabric_grant want = {
            .verb = SL_FABRIC_READ, .memory = a.memory, .peer = a.peer, .length_bytes = MEMORY};
        UNTIL(all_up());
        ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, key, &none, &why), SL_OK);
        UNTIL(a.granted == 1);
        ck_assert_int_eq(sl_fabric_key_open(b.fabric, b.peer, key, key_bytes, &opened, &why),
                         SL_OK);
        pattern_fill(a.bytes, MEMORY, 11);
        rail_die();
        UNTIL(all_up() && a.granted >= 2);
        uint64_t before = 0;
        for (uint32_t round = 0; round < 2; round++) { /* with the old key, and with the new */
            struct sl_fabric_stats stats;
            sl_fabric_stats(b.fabric->rails->at[1].fabric, &stats);
            before = stats.read_bytes;
            memset(b.bytes, 0, MEMORY);
            ck_assert_int_eq(post_all(&b, SL_FABRIC_READ, opened, a.bytes, round), SL_OK);
            UNTIL(b.done_count == round + 1);
            ck_assert_int_eq(b.dones[round].code, SL_OK);
            ck_assert(pattern_is(b.bytes, MEMORY, 11));
            sl_fabric_stats(b.fabric->rails->at[1].fabric, &stats);
            ck_assert_int_eq(stats.read_bytes > before, round == 1);
            ck_assert_int_eq(sl_fabric_key_renew(b.fabric, opened, key, key_bytes, &why), SL_OK);
        }
    }
END_TEST

/* ---- the door's death ---- */

START_TEST(the_process_drops_everything_when_the_door_dies)
    {
        uint32_t opened = 0;
        struct sl_msg fence = {.type = SL_MSG_FENCE}, reply;
        static const struct sl_item_claim item = {.ref = 1, .generation = 1};
        fence.body.fence.items.at = &item;
        fence.body.fence.items.count = 1;
        UNTIL(all_up());
        (void)grant_to_b(&opened);
        memset(a.bytes, 0x22, MEMORY);
        ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, 12), SL_OK);
        sl_fabric_close(&a.fabric); /* and with it the door's own rail */
        if (_i == 0) {
            fake_die(&rail, door.env.self);
        } else { /* a registrar's fence is here first */
            rail.living_count = 0;
        }
        fake_give(&rail, "registrar", &fence);
        ck_assert(fake_take_reply(&rail, "registrar", fence.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        memset(a.bytes, 0x33, MEMORY);
        for (int i = 0; i < 200; i++) { /* b goes on for a while */
            clock_ns += TURN;
            fake_turn(&rail);
            end_step(&b, 1);
        }
        ck_assert(all_are(0x33));
        ck_assert_ptr_nonnull(process());
    }
END_TEST

/* ---- pools of engines ---- */

#define POOL_BEGIN 8192u /* in the descriptor */
#define POOL       (MEMORY / 2)
#define POOL_NAME  "pool-of-the-rail-test"

static struct tr_handout *handout(void)
{
    return ((struct door_state *)door.state)->remotes.handout;
}

/* The descriptor has `bytes`; the door says that POOL of it, from POOL_BEGIN on, is a pool. */
static sl_err pool_add(uint64_t bytes)
{
    struct sl_error why = {0};
    if (handout() == NULL) {
        ck_assert_int_eq(tr_handout_open(door.paths.runtime_dir, 8,
                                         &((struct door_state *)door.state)->remotes.handout, &why),
                         SL_OK);
    }
    pool.fd = memfd_create(POOL_NAME, MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(pool.fd, (off_t)(POOL_BEGIN + POOL)), 0);
    ck_assert_int_eq(tr_handout_add(handout(), pool.fd, POOL_BEGIN + POOL, &pool.number, &why),
                     SL_OK);
    void *base = mmap(NULL, POOL_BEGIN + POOL, PROT_READ | PROT_WRITE, MAP_SHARED, pool.fd, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    ck_assert_int_eq(ftruncate(pool.fd, (off_t)bytes), 0);
    pool.bytes = (unsigned char *)base + POOL_BEGIN;
    const struct sl_fabric_memory what = {.at = pool.bytes,
                                          .length_bytes = POOL,
                                          .stride_bytes = 4096,
                                          .unread = true,
                                          .handed = pool.number,
                                          .handed_bytes = POOL_BEGIN + POOL,
                                          .handed_offset_bytes = POOL_BEGIN};
    return sl_fabric_memory_add(a.fabric, &what, &pool.memory, &why);
}

static void pool_close(void)
{
    (void)munmap(pool.bytes - POOL_BEGIN, POOL_BEGIN + POOL);
    (void)close(pool.fd);
    tr_handout_close(&((struct door_state *)door.state)->remotes.handout);
}

/* Mappings of the pool in this process: the door's, which is the test's, and the rail's. */
static uint32_t pool_mappings(void)
{
    char line[512];
    uint32_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, POOL_NAME) != NULL ? 1 : 0;
    }
    (void)fclose(maps);
    return count;
}

static bool pool_is_ready(void)
{
    const struct rails *rails = a.fabric->rails;
    return rails_memory_is_ready(rails, rails_memory_of(rails, pool.memory));
}

/* b's first POOL bytes into the pool: pieces of two places each, in the reverse order. */
static sl_err pool_read(uint32_t opened, uint64_t cookie)
{
    static struct sl_fabric_piece pieces[PIECES];
    static struct sl_digest digests[PIECES];
    static struct sl_fabric_place places[PIECES][2];
    struct sl_error why = {0};
    const uint64_t piece = POOL / PIECES, half = piece / 2;
    for (uint32_t i = 0; i < PIECES; i++) {
        digests[i] = sl_digest_of(b.bytes + i * piece, piece);
        for (uint32_t k = 0; k < 2; k++) {
            places[i][k] = (struct sl_fabric_place){.memory = pool.memory,
                                                    .offset_bytes = POOL - (2 * i + k + 1) * half,
                                                    .length_bytes = half};
        }
        pieces[i] = (struct sl_fabric_piece){.key = opened,
                                             .remote_offset_bytes = i * piece,
                                             .length_bytes = piece,
                                             .digest = &digests[i],
                                             .places = places[i],
                                             .place_count = 2};
    }
    const struct sl_fabric_transfer transfer = {.verb = SL_FABRIC_READ,
                                                .peer = a.peer,
                                                .pieces = pieces,
                                                .piece_count = PIECES,
                                                .deadline_ns = clock_ns + 60 * SL_NS_PER_S,
                                                .cookie = cookie};
    return sl_fabric_post(a.fabric, &transfer, &why);
}

static void pool_reads(uint32_t opened, uint64_t seed)
{
    const uint64_t half = POOL / PIECES / 2;
    uint32_t done = a.done_count;
    pattern_fill(b.bytes, MEMORY, seed);
    memset(pool.bytes, 0x55, POOL);
    ck_assert_int_eq(pool_read(opened, seed), SL_OK);
    UNTIL(a.done_count > done);
    ck_assert_int_eq(a.dones[done].code, SL_OK);
    for (uint32_t i = 0; i < 2 * PIECES; i++) {
        ck_assert_mem_eq(pool.bytes + POOL - (i + 1) * half, b.bytes + i * half, half);
    }
}

static bool rail_reads_more_than(uint64_t bytes)
{
    for (int i = 0; i < 150 && rail_read_bytes() <= bytes; i++) {
        turn();
    }
    return rail_read_bytes() > bytes;
}

START_TEST(a_pool_is_read_into_by_the_process_and_by_the_next_one)
    {
        UNTIL(all_up());
        uint32_t opened = key_of_b(SL_FABRIC_READ);
        ck_assert_int_eq(pool_add(POOL_BEGIN + POOL), SL_OK);
        UNTIL(pool_is_ready());
        ck_assert_uint_eq(pool_mappings(), 2);
        pool_reads(opened, 20);
        ck_assert(rail_reads_more_than(0));
        rail_die();
        UNTIL(all_up());
        uint64_t before = rail_read_bytes();
        pool_reads(opened, 21);
        ck_assert(rail_reads_more_than(before));
        pool_close();
    }
END_TEST

/* A ticket for places of a pool, and its end; the memory goes from the process before it is gone. */
START_TEST(nothing_lands_in_a_pool_after_its_grant_and_it_is_unmapped_when_it_is_gone)
    {
        struct sl_error why = {0};
        uint32_t opened = 0, grant = 0, none = 1;
        unsigned char at_once[SL_FABRIC_BLOB_MAX];
        UNTIL(all_up());
        ck_assert_int_eq(pool_add(POOL_BEGIN + POOL), SL_OK);
        UNTIL(pool_is_ready());
        const struct sl_fabric_place places[] = {
            {.memory = pool.memory, .offset_bytes = POOL / 2, .length_bytes = POOL / 2},
            {.memory = pool.memory, .offset_bytes = 0, .length_bytes = POOL / 2}};
        const struct sl_fabric_grant want = {.verb = SL_FABRIC_WRITE,
                                             .peer = a.peer,
                                             .length_bytes = POOL,
                                             .places = places,
                                             .place_count = 2};
        ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, at_once, &none, &why), SL_OK);
        UNTIL(a.granted == 1);
        ck_assert_int_eq(sl_fabric_key_open(b.fabric, b.peer, key, key_bytes, &opened, &why),
                         SL_OK);
        pattern_fill(b.bytes, MEMORY, 22);
        const struct sl_fabric_piece all = {
            .memory = b.memory, .key = opened, .length_bytes = POOL};
        const struct sl_fabric_piece halves[] = {
            {.memory = b.memory, .key = opened, .length_bytes = POOL / 2},
            {.memory = b.memory,
             .key = opened,
             .offset_bytes = POOL / 2,
             .remote_offset_bytes = POOL / 2,
             .length_bytes = POOL / 2}};
        struct sl_fabric_transfer write = {.verb = SL_FABRIC_WRITE,
                                           .peer = b.peer,
                                           .pieces = halves,
                                           .piece_count = 2,
                                           .deadline_ns = clock_ns + 60 * SL_NS_PER_S,
                                           .cookie = 1};
        ck_assert_int_eq(sl_fabric_post(b.fabric, &write, &why), SL_OK);
        UNTIL(b.done_count == 1);
        ck_assert_int_eq(b.dones[0].code, SL_OK);
        ck_assert_mem_eq(pool.bytes + POOL / 2, b.bytes, POOL / 2);
        ck_assert_mem_eq(pool.bytes, b.bytes + POOL / 2, POOL / 2);

        bool gone = false;
        ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool.memory, &gone), SL_ERR_BUSY);
        ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
        UNTIL(a.grants_ended == 1);
        memset(pool.bytes, 0x77, POOL);
        write.pieces = &all;
        write.piece_count = 1;
        write.cookie = 2;
        ck_assert_int_eq(sl_fabric_post(b.fabric, &write, &why), SL_OK);
        UNTIL(b.done_count == 2);
        ck_assert_int_ne(b.dones[1].code, SL_OK);
        ck_assert(pool.bytes[0] == 0x77 && memcmp(pool.bytes, pool.bytes + 1, POOL - 1) == 0);

        UNTIL(sl_fabric_memory_remove_step(a.fabric, pool.memory, &gone) != SL_OK || gone);
        ck_assert(gone);
        ck_assert_uint_eq(pool_mappings(), 1);
        pool_close();
    }
END_TEST

static const struct fabric_backend *real_ops;
static const struct sl_error no_windows = {.code = SL_ERR_OS, .text = "no windows"};

/* Later, as by a NIC that runs out of windows half-way. */
static sl_err grant_fails_later(struct sl_fabric *fabric, struct fabric_grant *grant, void *at,
                                uint32_t *at_bytes, struct sl_error *why)
{
    sl_err err = real_ops->grant_add(fabric, grant, at, at_bytes, why);
    *at_bytes = 0;
    grant->why = &no_windows;
    return err;
}

static uint32_t process_grants(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < process()->grants.count; i++) {
        count += process()->grants.rows[i].used ? 1 : 0;
    }
    return count;
}

/* To the door it is over by the reason. The process ends it by itself, so it keeps no slot. */
START_TEST(a_grant_that_fails_in_the_process_is_left_to_the_others)
    {
        struct sl_error why = {0};
        static struct fabric_backend failing;
        uint32_t opened = 0, grant = 0, none = 1;
        UNTIL(all_up());
        real_ops = process()->fabric->ops;
        failing = *real_ops;
        failing.grant_add = grant_fails_later;
        for (uint32_t round = 1; round <= 3; round++) {
            process()->fabric->ops = round == 3 ? real_ops : &failing;
            const struct sl_fabric_grant want = {.verb = SL_FABRIC_WRITE,
                                                 .memory = a.memory,
                                                 .peer = a.peer,
                                                 .length_bytes = MEMORY};
            uint32_t before = process_grants();
            ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, key, &none, &why), SL_OK);
            UNTIL(a.granted == round);
            ck_assert_uint_eq(process_grants(), round == 3 ? before + 1 : before);
            ck_assert_int_eq(sl_fabric_key_open(b.fabric, b.peer, key, key_bytes, &opened, &why),
                             SL_OK);
            pattern_fill(b.bytes, MEMORY, round);
            ck_assert_int_eq(post_all(&b, SL_FABRIC_WRITE, opened, b.bytes, round), SL_OK);
            UNTIL(b.done_count == round);
            ck_assert_int_eq(b.dones[round - 1].code, SL_OK);
            ck_assert(pattern_is(a.bytes, MEMORY, round));
            ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
            UNTIL(a.grants_ended == round);
            ck_assert_uint_eq(process_grants(), before);
            sl_fabric_key_close(b.fabric, opened);
        }
    }
END_TEST

/* All rails have a memory, or none has: a new one that the process cannot map is refused. */
START_TEST(a_pool_that_the_process_cannot_map_is_refused)
    {
        UNTIL(all_up());
        ck_assert_int_eq(pool_add(POOL), SL_OK); /* shorter than what is said */
        UNTIL(pool.refused);
        ck_assert_uint_eq(pool_mappings(), 1);
        ck_assert_uint_eq(deaths, 0);
        pool_close();
    }
END_TEST

/* One that is registered already, and that the next process cannot map, goes by the other rails. */
START_TEST(what_a_later_process_cannot_map_goes_by_the_others)
    {
        UNTIL(all_up());
        uint32_t opened = key_of_b(SL_FABRIC_READ);
        ck_assert_int_eq(pool_add(POOL_BEGIN + POOL), SL_OK);
        UNTIL(pool_is_ready());
        /* The last page goes: the door's mapping is not touched there. */
        ck_assert_int_eq(ftruncate(pool.fd, (off_t)(POOL_BEGIN + POOL - 4096)), 0);
        rail_die();
        UNTIL(all_up());
        ck_assert_uint_eq(pool_mappings(), 1);
        ck_assert_int_eq(ftruncate(pool.fd, (off_t)(POOL_BEGIN + POOL)), 0);
        pool_reads(opened, 23);
        ck_assert_uint_eq(rail_read_bytes(), 0);
        ck_assert_uint_eq(deaths, 1);
        bool gone = false;
        UNTIL(sl_fabric_memory_remove_step(a.fabric, pool.memory, &gone) != SL_OK || gone);
        ck_assert(gone);
        pool_close();
    }
END_TEST

/* A process that is stopped while it registers, or gives up, a pool is killed: nobody waits for it. */
START_TEST(a_silent_process_is_killed_before_a_pool_is_waited_for)
    {
        bool gone = false;
        UNTIL(all_up());
        if (_i == 0) {
            stopped = true;
            ck_assert_int_eq(pool_add(POOL_BEGIN + POOL), SL_OK);
            UNTIL(pool_is_ready());
        } else {
            ck_assert_int_eq(pool_add(POOL_BEGIN + POOL), SL_OK);
            UNTIL(pool_is_ready());
            stopped = true;
            UNTIL(sl_fabric_memory_remove_step(a.fabric, pool.memory, &gone) != SL_OK || gone);
            ck_assert(gone);
        }
        ck_assert_uint_eq(door.killed_count, 1);
        UNTIL(all_up());
        ck_assert_uint_eq(pool_mappings(), _i == 0 ? 2 : 1);
        pool_close();
    }
END_TEST

/* The door that ordered is dead; the next one answers for nothing before the process has closed. */
START_TEST(a_new_door_waits_until_the_rails_of_the_earlier_are_over)
    {
        UNTIL(all_up());
        struct tr_remotes next = {.env = &door.env, .count = 2, .fence_ns = SL_NS_PER_S};
        ck_assert(!tr_remotes_earlier_over(&next));
        door.env.now_ns += SL_NS_PER_S / 2 - 1;
        ck_assert(!tr_remotes_earlier_over(&next));
        ck_assert_uint_eq(door.killed_count, 0);
        if (_i == 0) { /* it hears of the death */
            fake_die(&rail, door.env.self);
            fake_turn(&rail);
        } else { /* it does not, and is killed */
            door.env.now_ns += 1;
            ck_assert(!tr_remotes_earlier_over(&next));
            ck_assert(!tr_remotes_earlier_over(&next));
            ck_assert_uint_eq(door.killed_count, 1);
            ck_assert_uint_eq(door.killed[0].pid, rail.env.self.pid);
            fake_die(&door, rail.env.self);
        }
        ck_assert(tr_remotes_earlier_over(&next));
        ck_assert(tr_remotes_earlier_over(&next)); /* also when it serves again */
        door.killed_count = 0;
    }
END_TEST

/* A note of another boot, of nothing, or of a process that is gone is none. */
START_TEST(notes_of_nobody_hold_nothing_up)
    {
        static const char *const texts[] = {"", "x", "0-0 1 1\n", "%n%n%n%n 4294967295 1"};
        struct sl_proc_id procs[SL_RAILS_MAX];
        char path[1200];
        (void)snprintf(path, sizeof(path), "%s/rail.2", door.paths.runtime_dir);
        for (size_t i = 0; i < SL_COUNT(texts); i++) {
            FILE *file = fopen(path, "we");
            ck_assert_ptr_nonnull(file);
            ck_assert_int_ge(fputs(texts[i], file), 0);
            ck_assert_int_eq(fclose(file), 0);
            ck_assert_uint_eq(sl_rails_noted(&door.env, 16, procs) & 4, 0);
        }
        struct sl_env gone = door.env;
        gone.self.pid = 4711;
        ck_assert_int_eq(sl_rail_note(&gone, 2, NULL), SL_OK);
        ck_assert_uint_eq(sl_rails_noted(&door.env, 16, procs) & 4, 0);
        fake_live(&door, gone.self);
        ck_assert_uint_eq(sl_rails_noted(&door.env, 16, procs) & 4, 4);
        ck_assert_uint_eq(procs[2].pid, 4711);
        ck_assert_uint_eq(sl_rails_noted(&door.env, 2, procs) & 4, 0);
        sl_rail_note_remove(&gone, 2);
        ck_assert_uint_eq(sl_rails_noted(&door.env, 16, procs) & 4, 0);
    }
END_TEST

static TCase *case_of(Suite *suite, const char *name)
{
    TCase *made = tcase_create(name);
    tcase_add_checked_fixture(made, setup, teardown);
    tcase_set_timeout(made, 60);
    suite_add_tcase(suite, made);
    return made;
}

int main(void)
{
    Suite *suite = suite_create("rail_process");
    TCase *reads = case_of(suite, "reads");
    tcase_add_test(reads, both_rails_carry_a_read);
    tcase_add_test(reads, a_process_that_is_away_costs_nothing);
    TCase *harm = case_of(suite, "harm");
    tcase_add_loop_test(harm, a_read_ends_well_whatever_befalls_a_frame, 0,
                        (int)(HARM_FRAMES * SL_COUNT(harms)));
    TCase *writes = case_of(suite, "writes");
    tcase_add_test(writes, both_rails_take_a_write_and_nothing_lands_after_its_grant);
    tcase_add_loop_test(writes, a_write_survives_the_death_of_a_process, 0, 12);
    tcase_add_loop_test(writes, no_rail_takes_a_write_to_what_was_shut, 0, 2);
    tcase_add_loop_test(writes, what_is_on_its_way_by_any_rail_is_refused_as_well, 0, 12);
    tcase_add_test(writes, a_silent_process_is_killed_before_what_was_shut_counts);
    tcase_add_test(writes, a_silent_process_is_killed_before_its_grants_count_as_over);
    TCase *pools = case_of(suite, "pools");
    tcase_add_test(pools, a_pool_is_read_into_by_the_process_and_by_the_next_one);
    tcase_add_test(pools,
                   nothing_lands_in_a_pool_after_its_grant_and_it_is_unmapped_when_it_is_gone);
    tcase_add_test(pools, a_pool_that_the_process_cannot_map_is_refused);
    tcase_add_test(pools, what_a_later_process_cannot_map_goes_by_the_others);
    tcase_add_loop_test(pools, a_silent_process_is_killed_before_a_pool_is_waited_for, 0, 2);
    TCase *lives = case_of(suite, "lives");
    tcase_add_loop_test(lives, a_new_door_waits_until_the_rails_of_the_earlier_are_over, 0, 2);
    tcase_add_test(lives, notes_of_nobody_hold_nothing_up);
    tcase_add_test(lives, a_turn_with_an_older_time_finds_nobody_silent);
    tcase_add_test(lives, a_key_for_reading_is_renewed_when_the_process_is_back);
    tcase_add_test(lives, a_grant_that_fails_in_the_process_is_left_to_the_others);
    tcase_add_loop_test(lives, the_process_drops_everything_when_the_door_dies, 0, 2);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
