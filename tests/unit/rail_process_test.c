/* tests/unit/rail_process_test.c - the door and a rail's process, both stepped by hand, with a peer
 * over tcp on the loopback. Whatever frame is lost, comes twice, or is the last that the process
 * sends before it dies: what was asked ends well, by the other rail, and the rail carries again. */
#include "actors/transporter/rails/process_internal.h"
#include "actors/transporter/rails/remote.h"
#include "ipc/sl_arena.h"
#include "runtime/fabric/core/rails.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_env.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void on_granted(void *context, uint32_t grant, const void *bytes, uint32_t length_bytes)
{
    struct fabric_end *end = context;
    (void)grant;
    end->granted++;
    ck_assert_ptr_nonnull(bytes);
    memcpy(key, bytes, length_bytes);
    key_bytes = length_bytes;
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

/* What b may write into a's memory, by the key that granted() brought. */
static uint32_t grant_to_b(uint32_t *opened)
{
    struct sl_error why = {0};
    uint32_t grant = 0, none = 1, before = a.granted;
    unsigned char at_once[SL_FABRIC_BLOB_MAX];
    const struct sl_fabric_grant want = {
        .verb = SL_FABRIC_WRITE, .memory = a.memory, .peer = a.peer, .length_bytes = MEMORY};
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
    tcase_add_test(writes, a_silent_process_is_killed_before_its_grants_count_as_over);
    TCase *lives = case_of(suite, "lives");
    tcase_add_test(lives, a_turn_with_an_older_time_finds_nobody_silent);
    tcase_add_test(lives, a_key_for_reading_is_renewed_when_the_process_is_back);
    tcase_add_loop_test(lives, the_process_drops_everything_when_the_door_dies, 0, 2);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
