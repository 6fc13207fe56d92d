/* tests/unit/actors/registrar/registrar_engine_test.c - registrations of engines: which are
 * refused, which survive, and what ends them. */
#include "tests/unit/actors/registrar/registrar_support.h"

#define MODEL "0123456789abcdef0123456789abcdef"

/* Two ranks, two pools, two layers each: a valid registration that a test then changes. */
struct engine {
    struct sl_body_engine_register body;
    struct sl_item_pool pools[9];
    struct sl_item_region regions[4096];
};

static struct engine *engine_good(void)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    ck_assert_ptr_nonnull(engine);
    engine->pools[0] = (struct sl_item_pool){.name = sl_text_of("attention"), .kind = 0};
    engine->pools[1] = (struct sl_item_pool){.name = sl_text_of("mamba_conv-1"), .kind = 2};
    uint32_t count = 0;
    for (uint64_t rank = 0; rank < 2; rank++) {
        for (uint64_t pool = 0; pool < 2; pool++) {
            for (uint64_t layer = 0; layer < 2; layer++) {
                engine->regions[count++] = (struct sl_item_region){
                    .rank = rank,
                    .pool = pool,
                    .layer = layer,
                    .handle_kind = 1,
                    .pid = 50,
                    .fd = 3,
                    .offset_bytes = layer * 65536,
                    .length_bytes = 15 * 4096 + 4000,
                    .block_stride_bytes = 4096,
                    .piece_bytes = 4000,
                    .block_count = 16,
                };
            }
        }
    }
    engine->body = (struct sl_body_engine_register){
        .pid = 50,
        .start_time = proc_of(50).start_time,
        .name = sl_text_of("engine"),
        .model = sl_text_of(MODEL),
        .key_format = sl_text_of("sluice"),
        .block_tokens = 16,
        .world = 2,
    };
    engine->body.pools.at = engine->pools;
    engine->body.pools.count = 2;
    engine->body.regions.at = engine->regions;
    engine->body.regions.count = count;
    return engine;
}

static sl_err engine_register(struct node *node, const struct engine *engine, uint64_t *seq,
                              uint64_t *id, char text[256])
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER, .seq = seq != NULL ? *seq : 0}, reply;
    msg.body.engine_register = engine->body;
    fake_give(&node->fake, "client.1", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
    if (seq != NULL) {
        *seq = msg.seq;
    }
    if (id != NULL) {
        *id = reply.body.engine_register_reply.engine_id;
    }
    if (text != NULL) {
        snprintf(text, 256, "%s", reply.text.length > 0 ? reply.text.at : "");
    }
    return reply.code;
}

static sl_err engine_get(struct node *node, uint64_t id, struct sl_msg *reply)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_GET};
    msg.body.engine_get.engine_id = id;
    fake_give(&node->fake, "coordinator", &msg);
    ck_assert(fake_take_reply(&node->fake, "coordinator", msg.seq, reply));
    return reply->code;
}

static struct node *node_with_engine_process(void)
{
    struct node *node = node_start(NULL);
    node_client(node, "client.1", 50);
    return node;
}

START_TEST(a_registration_is_given_back_as_it_was)
    {
        struct node *node = node_with_engine_process();
        struct engine *engine = engine_good();
        struct sl_msg reply;
        uint64_t id;

        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_OK);

        ck_assert_int_eq(engine_get(node, id, &reply), SL_OK);
        const struct sl_body_engine_get_reply *got = &reply.body.engine_get_reply;
        ck_assert_uint_eq(got->engine_id, id);
        ck_assert_str_eq(got->model.at, MODEL);
        ck_assert_uint_eq(got->world, 2);
        ck_assert_uint_eq(got->pools.count, 2);
        ck_assert_str_eq(got->pools.at[1].name.at, "mamba_conv-1");
        ck_assert_uint_eq(got->regions.count, 8);
        ck_assert_uint_eq(got->regions.at[7].rank, 1);
        ck_assert_uint_eq(got->regions.at[7].block_stride_bytes, 4096);
        free(engine);
        node_end(node);
    }
END_TEST

START_TEST(registering_again_gives_the_same_engine_and_ids_are_not_reused)
    {
        struct node *node = node_with_engine_process();
        struct engine *engine = engine_good();
        struct sl_msg end = {.type = SL_MSG_ENGINE_END}, reply;
        uint64_t seq = 0, first, again, other, later;
        ck_assert_int_eq(engine_register(node, engine, &seq, &first, NULL), SL_OK);

        ck_assert_int_eq(engine_register(node, engine, &seq, &again, NULL),
                         SL_OK); /* the same frame */
        ck_assert_uint_eq(again, first);
        ck_assert_int_eq(engine_register(node, engine, NULL, &again, NULL),
                         SL_OK); /* the same content */
        ck_assert_uint_eq(again, first);
        engine->body.name = sl_text_of("another");
        ck_assert_int_eq(engine_register(node, engine, NULL, &other, NULL), SL_OK);
        ck_assert_uint_ne(other, first);

        end.body.engine_end.engine_id = other;
        fake_give(&node->fake, "client.1", &end);
        ck_assert(fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_int_eq(engine_get(node, other, &reply), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(engine_register(node, engine, NULL, &later, NULL), SL_OK);
        ck_assert_uint_ne(later, other);
        free(engine);
        node_end(node);
    }
END_TEST

/* Takes the notice into *over; false: there was none. */
static bool over_told(struct node *node, const char *to, uint64_t id, struct sl_msg *over)
{
    bool told = fake_take(&node->fake, to, SL_MSG_ENGINE_OVER, over);
    ck_assert(!told || over->body.engine_over.engine_id == id);
    return told;
}

static struct node *node_with_swappers(uint64_t *id)
{
    struct node *node = node_with_engine_process();
    struct engine *engine = engine_good();
    node_client(node, "client.1", 50);
    ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 60), SL_OK);
    ck_assert_int_eq(node_hello(node, "swapper.1", "swapper", 61), SL_OK);
    ck_assert_int_eq(node_hello(node, "swapper.2", "swapper", 62), SL_OK);
    ck_assert_int_eq(engine_register(node, engine, NULL, id, NULL), SL_OK);
    free(engine);
    return node;
}

START_TEST(an_end_is_answered_when_swappers_have_let_go)
    {
        uint64_t id;
        struct node *node = node_with_swappers(&id);
        struct sl_msg end = {.type = SL_MSG_ENGINE_END}, reply, over;
        end.body.engine_end.engine_id = id;

        fake_give(&node->fake, "client.1", &end);

        ck_assert(!over_told(node, "swapper.2", id, &over)); /* it has no rank of it */
        ck_assert(over_told(node, "swapper.0", id, &over));
        ck_assert_int_eq(engine_get(node, id, &reply), SL_ERR_NOT_FOUND); /* no longer mappable */
        struct sl_msg done = {.code = SL_OK};
        fake_answer(&node->fake, "swapper.0", &over, &done);
        ck_assert(!fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        fake_give(&node->fake, "client.1", &end); /* sent again: no second notice */
        ck_assert(!fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert(over_told(node, "swapper.1", id, &over));
        struct sl_msg unknown = {.code = SL_ERR_UNSUPPORTED}; /* of the release before */
        fake_answer(&node->fake, "swapper.1", &over, &unknown);
        ck_assert(fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!over_told(node, "swapper.0", id, &over));
        node_end(node);
    }
END_TEST

START_TEST(a_swapper_that_does_not_answer_costs_the_deadline)
    {
        uint64_t id;
        struct node *node = node_with_swappers(&id);
        struct sl_msg end = {.type = SL_MSG_ENGINE_END, .budget_ns = SL_NS_PER_S}, reply, over;
        end.body.engine_end.engine_id = id;
        fake_give(&node->fake, "client.1", &end);
        ck_assert(over_told(node, "swapper.1", id, &over));

        fake_advance(&node->fake, SL_NS_PER_S + SL_NS_PER_MS);

        ck_assert(fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        fake_give(&node->fake, "client.1", &end); /* an unknown engine: all swappers are notified */
        while (!over_told(node, "swapper.2", id, &over)) {
        }
        node_end(node);
    }
END_TEST

START_TEST(dead_swappers_are_not_waited_for)
    {
        uint64_t id;
        struct node *node = node_with_swappers(&id);
        struct sl_msg end = {.type = SL_MSG_ENGINE_END}, reply;
        fake_process_end(&node->fake, proc_of(60));
        fake_process_end(&node->fake, proc_of(61));
        end.body.engine_end.engine_id = id;

        fake_give(&node->fake, "client.1", &end);

        ck_assert(fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_end(node);
    }
END_TEST

/* ---- transporters, which register the memory with a NIC ---- */

static struct sl_msg engines_list(struct node *node)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINES}, reply;
    fake_give(&node->fake, "transporter.0", &msg);
    ck_assert(fake_take_reply(&node->fake, "transporter.0", msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    return reply;
}

START_TEST(a_transporter_hears_of_engines)
    {
        struct node *node = node_with_engine_process();
        struct engine *engine = engine_good();
        uint64_t first = 0, second = 0;
        ck_assert_int_eq(engine_register(node, engine, NULL, &first, NULL), SL_OK);
        engine->body.name = sl_text_of("another");
        ck_assert_int_eq(engine_register(node, engine, NULL, &second, NULL), SL_OK);

        struct sl_msg reply = engines_list(node);

        const struct sl_u64s *ids = &reply.body.engines_reply.engine_ids;
        ck_assert_uint_eq(ids->count, 2);
        ck_assert(ids->at[0] + ids->at[1] == first + second && ids->at[0] != ids->at[1]);
        ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", 70), SL_OK);
        engine->body.name = sl_text_of("a third");
        (void)snprintf(node->fake.unreachable, sizeof(node->fake.unreachable), "transporter.0");
        ck_assert_int_eq(engine_register(node, engine, NULL, &second, NULL), SL_OK);
        node->fake.unreachable[0] = '\0'; /* the first connection takes a moment */
        fake_advance(&node->fake, 10 * SL_NS_PER_MS);
        ck_assert(fake_take(&node->fake, "transporter.0", SL_MSG_ENGINE_ADDED, &reply));
        ck_assert_uint_eq(reply.body.engine_added.engine_id, second);
        fake_process_end(&node->fake, proc_of(50));
        reply = engines_list(node);
        ck_assert_uint_eq(reply.body.engines_reply.engine_ids.count, 0);
        free(engine);
        node_end(node);
    }
END_TEST

START_TEST(an_end_is_answered_when_the_transporter_has_let_go)
    {
        uint64_t id;
        struct node *node = node_with_swappers(&id);
        struct sl_msg end = {.type = SL_MSG_ENGINE_END}, reply, over;
        struct sl_msg done = {.code = SL_OK};
        ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", 70), SL_OK);
        fake_process_end(&node->fake, proc_of(60));
        fake_process_end(&node->fake, proc_of(61));
        end.body.engine_end.engine_id = id;

        fake_give(&node->fake, "client.1", &end);

        ck_assert(!fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert(over_told(node, "transporter.0", id, &over));
        fake_answer(&node->fake, "transporter.0", &over, &done);
        ck_assert(fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_end(node);
    }
END_TEST

/* Otherwise a NIC would have memory that its device has unmapped. */
START_TEST(swappers_unmap_when_all_nics_have_let_go)
    {
        uint64_t id;
        struct node *node = node_with_swappers(&id);
        struct sl_msg end = {.type = SL_MSG_ENGINE_END}, reply, over[2];
        struct sl_msg done = {.code = SL_OK};
        ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", 70), SL_OK);
        end.body.engine_end.engine_id = id;

        fake_give(&node->fake, "client.1", &end);

        ck_assert(over_told(node, "transporter.0", id, &over[0]));
        ck_assert(!over_told(node, "swapper.0", id, &reply));
        fake_answer(&node->fake, "transporter.0", &over[0], &done);
        ck_assert(over_told(node, "swapper.0", id, &over[0]));
        ck_assert(over_told(node, "swapper.1", id, &over[1]));
        fake_answer(&node->fake, "swapper.0", &over[0], &done);
        ck_assert(!fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        fake_answer(&node->fake, "swapper.1", &over[1], &done);
        ck_assert(fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_end(node);
    }
END_TEST

/* Swappers are notified in any case; the engine gets no report that its memory is free. */
START_TEST(a_nic_that_does_not_let_go_is_no_end)
    {
        uint64_t id;
        struct node *node = node_with_swappers(&id);
        struct sl_msg end = {.type = SL_MSG_ENGINE_END, .budget_ns = SL_NS_PER_S}, reply, over;
        struct sl_msg done = {.code = SL_OK};
        ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", 70), SL_OK);
        end.body.engine_end.engine_id = id;
        fake_give(&node->fake, "client.1", &end);
        ck_assert(over_told(node, "transporter.0", id, &over));

        fake_advance(&node->fake, 800 * SL_NS_PER_MS);

        for (uint32_t i = 0; i < 2; i++) {
            char swapper[16];
            (void)snprintf(swapper, sizeof(swapper), "swapper.%u", i);
            ck_assert(!fake_take_reply(&node->fake, "client.1", end.seq, &reply));
            ck_assert(over_told(node, swapper, id, &over));
            fake_answer(&node->fake, swapper, &over, &done);
        }
        ck_assert(fake_take_reply(&node->fake, "client.1", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        node_end(node);
    }
END_TEST

START_TEST(only_who_registered_ends_a_registration)
    {
        struct node *node = node_with_engine_process();
        struct engine *engine = engine_good();
        struct sl_msg end = {.type = SL_MSG_ENGINE_END}, reply;
        uint64_t id;
        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_OK);
        end.body.engine_end.engine_id = id;

        fake_give(&node->fake, "client.2", &end);

        ck_assert(fake_take_reply(&node->fake, "client.2", end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_PERMISSION);
        free(engine);
        node_end(node);
    }
END_TEST

START_TEST(the_death_of_the_engine_process_ends_its_registrations)
    {
        struct node *node = node_start(NULL);
        struct engine *engine = engine_good();
        struct sl_msg reply;
        uint64_t id;
        node_client(node, "client.1", 11); /* registers for process 50, which is no client itself */
        fake_process_add(&node->fake, proc_of(50));
        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_OK);
        ck_assert(fake_is_watched(&node->fake, proc_of(50)));

        fake_process_end(&node->fake, proc_of(50));

        ck_assert_int_eq(engine_get(node, id, &reply), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_ERR_PEER_DIED);
        free(engine);
        node_end(node);
    }
END_TEST

START_TEST(the_close_of_a_client_ends_its_registrations)
    {
        struct node *node = node_start(NULL);
        struct engine *engine = engine_good();
        const struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                                .name = "client.1",
                                                .slot_count = 1,
                                                .access_count = 1,
                                                .self = proc_of(50)};
        struct sl_pins *pins = NULL;
        struct sl_msg reply;
        uint64_t id, other;
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_OK);
        ck_assert_int_eq(node_hello_pins(node, "client.1", "client", 50, "pins.client.1"), SL_OK);
        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_OK);
        fake_process_add(&node->fake, proc_of(51));
        engine->body.start_time = proc_of(51).start_time;
        engine->body.pid = 51; /* registered for another process, and ends with that one */
        ck_assert_int_eq(engine_register(node, engine, NULL, &other, NULL), SL_OK);

        sl_pins_end(&pins);
        node_client(node, "client.3", 52);

        ck_assert_int_eq(engine_get(node, id, &reply), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(engine_get(node, other, &reply), SL_OK);
        ck_assert(!fake_is_watched(&node->fake, proc_of(50)));
        free(engine);
        node_end(node);
    }
END_TEST

START_TEST(registrations_survive_a_restart_of_the_registrar)
    {
        struct node *node = node_with_engine_process();
        struct engine *engine = engine_good();
        struct sl_msg reply;
        uint64_t id, again;
        uint32_t count = 0;
        for (uint64_t layer = 0; layer < 1000; layer++) { /* more than one note holds */
            for (uint64_t rank = 0; rank < 2; rank++) {
                for (uint64_t pool = 0; pool < 2; pool++) {
                    engine->regions[count] = engine->regions[0];
                    engine->regions[count].rank = rank;
                    engine->regions[count].pool = pool;
                    engine->regions[count++].layer = layer;
                }
            }
        }
        engine->body.regions.count = count;
        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_OK);

        node_restart(node);

        ck_assert_int_eq(engine_get(node, id, &reply), SL_OK);
        ck_assert_uint_eq(reply.body.engine_get_reply.regions.count, 4000);
        ck_assert_uint_eq(reply.body.engine_get_reply.regions.at[3999].layer, 999);
        ck_assert_int_eq(engine_register(node, engine, NULL, &again, NULL), SL_OK);
        ck_assert_uint_eq(again, id);
        fake_stop(&node->fake);
        fake_process_end(&node->fake, proc_of(50));
        struct sl_error why;
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);
        ck_assert_int_eq(engine_get(node, id, &reply), SL_ERR_NOT_FOUND);
        free(engine);
        node_end(node);
    }
END_TEST

START_TEST(more_engines_than_engines_max_are_refused)
    {
        static const char *const settings[] = {"engines_max", "1", NULL};
        struct node *node = node_start(settings);
        struct engine *engine = engine_good();
        uint64_t id;
        node_client(node, "client.1", 50);
        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_OK);
        engine->body.name = sl_text_of("another");

        ck_assert_int_eq(engine_register(node, engine, NULL, &id, NULL), SL_ERR_LIMIT);

        free(engine);
        node_end(node);
    }
END_TEST

/* ---- what is refused ---- */

static void spoil_rank(struct engine *engine)
{
    engine->regions[3].rank = 2;
}
static void spoil_pool(struct engine *engine)
{
    engine->regions[3].pool = 2;
}
static void spoil_stride(struct engine *engine)
{
    engine->regions[3].block_stride_bytes = 3999;
}
static void spoil_length(struct engine *engine)
{
    engine->regions[3].length_bytes--;
}
static void spoil_product(struct engine *engine)
{
    engine->regions[3].block_stride_bytes = UINT64_MAX / 2;
}
static void spoil_sum(struct engine *engine)
{
    engine->regions[3].block_stride_bytes = UINT64_MAX / 15;
    engine->regions[3].piece_bytes = 1u << 20;
}
static void spoil_offset(struct engine *engine)
{
    engine->regions[3].offset_bytes = UINT64_MAX - 100;
}
static void spoil_kind(struct engine *engine)
{
    engine->regions[3].handle_kind = 0;
}
static void spoil_kind_high(struct engine *engine)
{
    engine->regions[3].handle_kind = 6;
}
static void spoil_process(struct engine *engine) /* memory of a process of any age */
{
    engine->regions[3].handle_kind = 5;
}
static void spoil_part_number(struct engine *engine)
{
    engine->pools[1].part_count = 2;
    engine->regions[3].part = 2;
}
static void spoil_part_ranks(struct engine *engine) /* parts are ranks there */
{
    engine->regions[3].part = 1;
}
static void spoil_parts(struct engine *engine)
{
    engine->pools[1].part_count = 2;
}
static void spoil_fragments(struct engine *engine)
{
    engine->regions[3].fragment_bytes = 3000;
    engine->regions[3].fragment_stride_bytes = 3000;
}
static void spoil_fragments_overlap(struct engine *engine)
{
    engine->regions[3].fragment_bytes = 1000;
    engine->regions[3].fragment_stride_bytes = 999;
}
static void spoil_fragments_beyond(struct engine *engine)
{
    engine->regions[3].fragment_bytes = 1000;
    engine->regions[3].fragment_stride_bytes = 1033;
}
static void spoil_fragments_product(struct engine *engine)
{
    engine->regions[3].fragment_bytes = 1000;
    engine->regions[3].fragment_stride_bytes = UINT64_MAX / 2;
}
static void spoil_fragments_end(struct engine *engine)
{
    engine->regions[3].fragment_bytes = 1000;
    engine->regions[3].fragment_stride_bytes = 1032;
}
static void spoil_team(struct engine *engine)
{
    engine->body.team = SL_TEAM_FIRST - 1;
}
static void spoil_team_empty(struct engine *engine)
{
    engine->body.team = SL_TEAM_FIRST;
    engine->body.regions.count = 0;
}
static void spoil_ipc(struct engine *engine)
{
    engine->regions[3].handle_kind = 2;
}
static void spoil_fd_pid(struct engine *engine)
{
    engine->regions[3].pid = 0;
}
static void spoil_hole(struct engine *engine)
{
    engine->regions[1].layer = 2;
}
static void spoil_twice(struct engine *engine)
{
    engine->regions[1].layer = 0;
}
static void spoil_missing(struct engine *engine)
{
    engine->body.regions.count = 6;
}
static void spoil_no_region(struct engine *engine)
{
    engine->body.regions.count = 0;
}
static void spoil_name(struct engine *engine)
{
    engine->regions[3].handle_kind = 4;
    engine->regions[3].pid = 1;
    engine->regions[3].handle =
        (struct sl_bytes){.at = (const unsigned char *)"short", .length = 5};
}
static void spoil_no_pool(struct engine *engine)
{
    engine->body.pools.count = 0;
}
static void spoil_pool_name(struct engine *engine)
{
    engine->pools[1].name = sl_text_of("a/b");
}
static void spoil_pool_twice(struct engine *engine)
{
    engine->pools[1].name = sl_text_of("attention");
}
static void spoil_model(struct engine *engine)
{
    engine->body.model = sl_text_of("0123456789abcdef0123456789abcdeX");
}
static void spoil_id(struct engine *engine)
{
    engine->body.engine_id = 5;
}
static void spoil_part(struct engine *engine)
{
    for (uint32_t i = 0; i < 2; i++) { /* two layers of 600 MiB: a part over 1 GiB */
        engine->regions[i].piece_bytes = 600 * SL_MIB;
        engine->regions[i].block_stride_bytes = 600 * SL_MIB;
        engine->regions[i].length_bytes = 16 * 600 * SL_MIB;
    }
}

static const struct {
    void (*spoil)(struct engine *engine);
    const char *named;
} spoilt[] = {
    {spoil_rank, "regions[3].rank"},
    {spoil_pool, "regions[3].pool"},
    {spoil_stride, "regions[3].block_stride_bytes"},
    {spoil_length, "regions[3].length_bytes"},
    {spoil_product, "regions[3].length_bytes"},
    {spoil_sum, "regions[3].length_bytes"},
    {spoil_offset, "regions[3].offset_bytes"},
    {spoil_kind, "regions[3].handle_kind"},
    {spoil_kind_high, "regions[3].handle_kind"},
    {spoil_ipc, "regions[3].handle"},
    {spoil_name, "regions[3].handle"},
    {spoil_fd_pid, "regions[3].pid"},
    {spoil_hole, "lacks layer 1"},
    {spoil_twice, "regions[1].layer"},
    {spoil_missing, "rank 1, pool 1 has no layer"},
    {spoil_no_region, "has no layer"},
    {spoil_no_pool, "pools"},
    {spoil_pool_name, "pools[1].name"},
    {spoil_pool_twice, "pools[1].name"},
    {spoil_model, "model"},
    {spoil_id, "engine_id"},
    {spoil_part, "piece_bytes"},
    {spoil_process, "regions[3].start_time"},
    {spoil_part_number, "regions[3].part"},
    {spoil_part_ranks, "regions[3].part"},
    {spoil_parts, "lacks part 1"},
    {spoil_fragments, "regions[3].fragment_bytes"},
    {spoil_fragments_overlap, "regions[3].fragment_bytes"},
    {spoil_fragments_beyond, "regions[3].fragment_bytes"},
    {spoil_fragments_product, "regions[3].fragment_bytes"},
    {spoil_fragments_end, "regions[3].length_bytes"},
    {spoil_team, "team"},
    {spoil_team_empty, "has no layer"},
};

START_TEST(a_bad_registration_is_refused_by_name)
    {
        struct node *node = node_with_engine_process();
        struct engine *engine = engine_good();
        char text[256];
        spoilt[_i].spoil(engine);

        sl_err code = engine_register(node, engine, NULL, NULL, text);

        ck_assert_int_eq(code, SL_ERR_INVALID);
        ck_assert_msg(strstr(text, spoilt[_i].named) != NULL, "'%s' does not name %s", text,
                      spoilt[_i].named);
        ck_assert_uint_eq(node_metric(node, "engine_count"), 0);
        free(engine);
        node_end(node);
    }
END_TEST

/* ---- teams ---- */

#define TEAM (SL_TEAM_FIRST + 7)

/* The registration of one rank of the valid engine. */
static struct engine *engine_of_rank(uint32_t rank)
{
    struct engine *engine = engine_good();
    engine->body.team = TEAM;
    engine->body.pid = 50 + rank;
    engine->body.start_time = proc_of(50 + rank).start_time;
    memmove(engine->regions, &engine->regions[4 * (size_t)rank], 4 * sizeof(engine->regions[0]));
    engine->body.regions.count = 4;
    for (uint32_t i = 0; i < 4; i++) {
        engine->regions[i].handle_kind = 5;
        engine->regions[i].pid = 50 + rank;
        engine->regions[i].start_time = engine->body.start_time;
        engine->regions[i].gpu = (struct sl_bytes){
            .at = rank == 0 ? "0000000000000000" : "1111111111111111", .length = 16};
    }
    return engine;
}

static struct node *node_with_ranks(void)
{
    struct node *node = node_start(NULL);
    node_client(node, "client.1", 50);
    fake_process_add(&node->fake, proc_of(51));
    return node;
}

START_TEST(a_team_is_one_engine_when_all_ranks_are_there)
    {
        struct node *node = node_with_ranks();
        struct engine *ranks[2] = {engine_of_rank(0), engine_of_rank(1)};
        struct engine *other = engine_good(); /* read between them, and no part of it */
        struct sl_msg reply;
        uint64_t ids[2], id;
        ck_assert_int_eq(engine_register(node, ranks[1], NULL, &ids[1], NULL), SL_OK);
        ck_assert_int_eq(engine_get(node, TEAM, &reply), SL_ERR_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "rank 0"));
        ck_assert_int_eq(engine_register(node, other, NULL, &id, NULL), SL_OK);
        ck_assert_int_eq(engine_register(node, ranks[0], NULL, &ids[0], NULL), SL_OK);

        for (int life = 0; life < 2; life++) {
            ck_assert_int_eq(engine_get(node, TEAM, &reply), SL_OK);

            const struct sl_body_engine_get_reply *got = &reply.body.engine_get_reply;
            ck_assert_uint_eq(got->engine_id, TEAM);
            ck_assert_str_eq(got->model.at, MODEL);
            ck_assert_uint_eq(got->regions.count, 8);
            for (uint32_t i = 0; i < 8; i++) {
                const struct sl_item_region *region = &got->regions.at[i];
                ck_assert_uint_eq(region->member, ids[region->rank]);
                ck_assert_uint_eq(region->pid, 50 + region->rank);
                ck_assert_mem_eq(region->gpu.at, region->rank == 0 ? "0000" : "1111", 4);
            }
            ck_assert_int_eq(engine_get(node, ids[1], &reply), SL_OK); /* as its swapper asks */
            ck_assert_uint_eq(reply.body.engine_get_reply.regions.count, 4);
            node_restart(node);
        }
        free(ranks[0]);
        free(ranks[1]);
        free(other);
        node_end(node);
    }
END_TEST

START_TEST(a_team_loses_and_regains_a_rank)
    {
        struct node *node = node_with_ranks();
        struct engine *ranks[2] = {engine_of_rank(0), engine_of_rank(1)};
        struct sl_msg reply;
        uint64_t first, second;
        ck_assert_int_eq(engine_register(node, ranks[0], NULL, NULL, NULL), SL_OK);
        ck_assert_int_eq(engine_register(node, ranks[1], NULL, &first, NULL), SL_OK);

        fake_process_end(&node->fake, proc_of(51));

        ck_assert_int_eq(engine_get(node, TEAM, &reply), SL_ERR_NOT_FOUND);
        ranks[1]->body.pid = 52;
        ranks[1]->body.start_time = proc_of(52).start_time;
        fake_process_add(&node->fake, proc_of(52));
        ck_assert_int_eq(engine_register(node, ranks[1], NULL, &second, NULL), SL_OK);
        ck_assert_int_eq(engine_get(node, TEAM, &reply), SL_OK);
        ck_assert_uint_ne(second, first);
        free(ranks[0]);
        free(ranks[1]);
        node_end(node);
    }
END_TEST

/* Its successor may register before its death is reported. */
START_TEST(a_rank_that_is_dead_is_in_nobodys_way)
    {
        struct node *node = node_with_ranks();
        struct engine *ranks[2] = {engine_of_rank(0), engine_of_rank(1)};
        struct sl_msg reply;
        uint64_t second;
        ck_assert_int_eq(engine_register(node, ranks[0], NULL, NULL, NULL), SL_OK);
        ck_assert_int_eq(engine_register(node, ranks[1], NULL, NULL, NULL), SL_OK);
        ck_assert(sl_proc_id_equal(node->fake.living[node->fake.living_count - 1], proc_of(51)));
        node->fake.living_count--; /* not reported yet */

        ck_assert_int_eq(engine_get(node, TEAM, &reply), SL_ERR_NOT_FOUND);
        ranks[1]->body.pid = 52;
        ranks[1]->body.start_time = proc_of(52).start_time;
        fake_process_add(&node->fake, proc_of(52));
        ck_assert_int_eq(engine_register(node, ranks[1], NULL, &second, NULL), SL_OK);

        for (unsigned i = 0; i < 2; i++) {
            ck_assert_int_eq(engine_get(node, TEAM, &reply), SL_OK);
            ck_assert_uint_eq(reply.body.engine_get_reply.regions.count, 8);
            for (uint32_t k = 0; k < 8; k++) {
                const struct sl_item_region *region = &reply.body.engine_get_reply.regions.at[k];
                ck_assert(region->rank == 0 || region->member == second);
            }
            fake_process_end(&node->fake, proc_of(51)); /* now it is */
        }
        free(ranks[0]);
        free(ranks[1]);
        node_end(node);
    }
END_TEST

static void unlike_model(struct engine *engine)
{
    engine->body.model = sl_text_of("ffffffffffffffffffffffffffffffff");
}
static void unlike_parts(struct engine *engine)
{
    engine->pools[0].part_count = 1;
}
static void unlike_world(struct engine *engine)
{
    engine->body.world = 3;
}
static void unlike_nothing_but_rank(struct engine *engine)
{
    for (uint32_t i = 0; i < 4; i++) {
        engine->regions[i].rank = 0;
    }
}
static const struct {
    void (*change)(struct engine *engine);
    sl_err code;
} unlike[] = {
    {unlike_model, SL_ERR_INVALID},
    {unlike_parts, SL_ERR_INVALID},
    {unlike_world, SL_ERR_INVALID},
    {unlike_nothing_but_rank, SL_ERR_EXISTS},
};

START_TEST(who_does_not_fit_the_team_is_refused)
    {
        struct node *node = node_with_ranks();
        struct engine *ranks[2] = {engine_of_rank(0), engine_of_rank(1)};
        char text[256];
        unlike[_i].change(ranks[1]);
        ck_assert_int_eq(engine_register(node, ranks[0], NULL, NULL, NULL), SL_OK);

        ck_assert_int_eq(engine_register(node, ranks[1], NULL, NULL, text), unlike[_i].code);

        ck_assert_msg(strstr(text, "team") != NULL, "'%s'", text);
        ck_assert_uint_eq(node_metric(node, "engine_count"), 1);
        free(ranks[0]);
        free(ranks[1]);
        node_end(node);
    }
END_TEST

/* Rank `rank` of `world`, with `layers` layers of a pool, whose handles have maximum length. */
static struct engine *engine_wide(uint32_t rank, uint32_t world, uint32_t layers)
{
    static const unsigned char handle[64] = {1};
    struct engine *engine = engine_of_rank(0);
    ck_assert_uint_le(layers, SL_COUNT(engine->regions));
    engine->body.world = world;
    engine->body.pools.count = 1;
    engine->body.regions.count = layers;
    for (uint32_t i = 0; i < layers; i++) {
        engine->regions[i] = engine->regions[0];
        engine->regions[i].rank = rank;
        engine->regions[i].layer = i;
        engine->regions[i].handle = (struct sl_bytes){.at = handle, .length = sizeof(handle)};
        engine->regions[i].offset_bytes = UINT64_C(1) << 40;
    }
    return engine;
}

static const struct {
    uint32_t world, layers;
    const char *message_bytes_max, *refused; /* NULL: everything is accepted and reported */
} wide_teams[] = {
    {64, 1024, "32MiB", NULL},
    {64, 1025, "32MiB", "65600 with those of the team's other ranks, at most 65536"},
    {8, 60, "128KiB", NULL},
    {8, 200, "128KiB", "setting message_bytes_max is 131072"},
    {2, 1000, "128KiB", ""},
};

START_TEST(a_team_that_no_message_can_tell_is_refused_when_it_registers)
    {
        const char *const settings[] = {"message_bytes_max", wide_teams[_i].message_bytes_max,
                                        "index_memory", "128MiB", NULL};
        struct node *node = node_start(settings);
        sl_err err = SL_OK;
        char text[256] = "";
        node_client(node, "client.1", 50);

        for (uint32_t rank = 0; err == SL_OK && rank < wide_teams[_i].world; rank++) {
            struct engine *engine = engine_wide(rank, wide_teams[_i].world, wide_teams[_i].layers);
            err = engine_register(node, engine, NULL, NULL, text);
            free(engine);
        }

        if (wide_teams[_i].refused != NULL) {
            ck_assert_int_eq(err, SL_ERR_LIMIT);
            ck_assert_msg(strstr(text, wide_teams[_i].refused) != NULL, "'%s'", text);
        } else {
            struct sl_msg reply;
            ck_assert_msg(err == SL_OK, "%d: '%s'", (int)err, text);
            ck_assert_int_eq(engine_get(node, TEAM, &reply), SL_OK);
            ck_assert_uint_eq(reply.body.engine_get_reply.regions.count,
                              wide_teams[_i].world * (uint64_t)wide_teams[_i].layers);
        }
        node_end(node);
    }
END_TEST

static Suite *engine_suite(void)
{
    Suite *suite = suite_create("registrar_engine");
    TCase *engines = tcase_create("engines");
    tcase_set_timeout(engines, 60);
    tcase_add_test(engines, a_registration_is_given_back_as_it_was);
    tcase_add_test(engines, registering_again_gives_the_same_engine_and_ids_are_not_reused);
    tcase_add_test(engines, only_who_registered_ends_a_registration);
    tcase_add_test(engines, an_end_is_answered_when_swappers_have_let_go);
    tcase_add_test(engines, a_swapper_that_does_not_answer_costs_the_deadline);
    tcase_add_test(engines, dead_swappers_are_not_waited_for);
    tcase_add_test(engines, a_transporter_hears_of_engines);
    tcase_add_test(engines, an_end_is_answered_when_the_transporter_has_let_go);
    tcase_add_test(engines, swappers_unmap_when_all_nics_have_let_go);
    tcase_add_test(engines, a_nic_that_does_not_let_go_is_no_end);
    tcase_add_test(engines, the_death_of_the_engine_process_ends_its_registrations);
    tcase_add_test(engines, the_close_of_a_client_ends_its_registrations);
    tcase_add_test(engines, registrations_survive_a_restart_of_the_registrar);
    tcase_add_test(engines, more_engines_than_engines_max_are_refused);
    tcase_add_loop_test(engines, a_bad_registration_is_refused_by_name, 0, SL_COUNT(spoilt));
    tcase_add_test(engines, a_team_is_one_engine_when_all_ranks_are_there);
    tcase_add_test(engines, a_team_loses_and_regains_a_rank);
    tcase_add_test(engines, a_rank_that_is_dead_is_in_nobodys_way);
    tcase_add_loop_test(engines, who_does_not_fit_the_team_is_refused, 0, SL_COUNT(unlike));
    tcase_add_loop_test(engines, a_team_that_no_message_can_tell_is_refused_when_it_registers, 0,
                        SL_COUNT(wide_teams));
    suite_add_tcase(suite, engines);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(engine_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
