/* tests/unit/actors/registrar/registrar_prefetch_test.c - BRING with `ahead`: its order, its
 * limits, and how it ends. The test plays the tierer. */
#include "tests/unit/actors/registrar/registrar_support.h"

#define LENGTH (UINT64_C(64) * SL_KIB)
#define KEYS   96u

/* Memory for 64 values, of which at most a quarter may be prefetched and unread. */
static const char *const settings[] = {"disk",   "64MiB",    "memory", "4MiB", "disk_prefetch",
                                       "256KiB", "io_grace", "10s",    NULL};

static const char *key_of(uint32_t n)
{
    static char keys[KEYS][16];
    (void)snprintf(keys[n], sizeof(keys[n]), "k%u", n);
    return keys[n];
}

static bool in_memory(struct node *node, uint32_t n)
{
    struct sl_entry entry;
    return node_entry(node, key_of(n), &entry) && entry.extent.generation != 0;
}

/* Values 0 .. count - 1 are durable; the last ones are also in memory, as many as fit. */
static struct node *node_begun(const char *const *with, uint32_t count)
{
    struct node *node = node_start(with);
    node_client(node, "client.1", 11);
    node_client(node, "client.2", 12);
    tierer_arrive(node, TIERER_PID);
    tierer_ready(node);
    for (uint32_t n = 0; n < count; n++) {
        node_put(node, "client.1", key_of(n), LENGTH);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
    }
    return node;
}

static struct node *node_with(uint32_t count)
{
    return node_begun(settings, count);
}

/* Like node_begun, and all values that may leave memory have left it. */
static struct node *node_on_disk(uint32_t count)
{
    struct node *node = node_with(count);
    struct sl_item_grant grant = node_grant(node, "client.1", "squeeze", 4 * SL_MIB);
    ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);
    ck_assert(!in_memory(node, 0) && !in_memory(node, count - 1));
    return node;
}

static uint64_t ask(struct node *node, bool ahead, const char *sender, uint32_t from,
                    uint32_t count, uint64_t budget_ns)
{
    struct sl_text texts[KEYS];
    struct sl_msg msg = {.type = SL_MSG_BRING, .budget_ns = budget_ns};
    msg.body.bring.ahead = ahead;
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = sl_text_of(key_of(from + i));
    }
    msg.body.bring.keys = (struct sl_texts){.at = texts, .count = count};
    fake_give(&node->fake, sender, &msg);
    return msg.seq;
}

static uint64_t prefetch(struct node *node, uint32_t from, uint32_t count)
{
    return ask(node, true, "client.1", from, count, 2 * SL_NS_PER_S);
}

static uint64_t promote(struct node *node, uint32_t n)
{
    return ask(node, false, "client.2", n, 1, 2 * SL_NS_PER_S);
}

/* SL_ERR_INCOMPLETE: no answer yet. */
static sl_err answer(struct node *node, const char *sender, uint64_t seq, uint32_t index)
{
    static struct sl_msg reply;
    static uint64_t codes[KEYS];
    static uint64_t taken;
    if (taken != seq) {
        if (!fake_take_reply(&node->fake, sender, seq, &reply)) {
            return SL_ERR_INCOMPLETE;
        }
        if (reply.code != SL_OK) {
            return reply.code;
        }
        taken = seq;
        memcpy(codes, reply.body.bring_reply.codes.at,
               reply.body.bring_reply.codes.count * sizeof(*codes));
    }
    return (sl_err)codes[index];
}

static void answer_read(struct node *node, const struct sl_msg *request, uint32_t count)
{
    uint64_t codes[KEYS] = {SL_OK};
    struct sl_msg reply = {.code = SL_OK};
    reply.body.disk_read_reply.codes = (struct sl_u64s){.at = codes, .count = count};
    fake_answer(&node->fake, "tierer.0", request, &reply);
}

START_TEST(prefetch_says_of_each_key_what_became_of_it)
    {
        struct node *node = node_with(66); /* the last 64 are in memory */
        struct sl_text texts[] = {sl_text_of(key_of(0)), sl_text_of(key_of(65)),
                                  sl_text_of("nowhere")};
        struct sl_msg msg = {.type = SL_MSG_BRING};
        msg.body.bring.ahead = true;
        msg.body.bring.keys = (struct sl_texts){.at = texts, .count = SL_COUNT(texts)};
        ck_assert(!in_memory(node, 0) && in_memory(node, 65));

        fake_give(&node->fake, "client.1", &msg);
        ck_assert_int_eq(answer(node, "client.1", msg.seq, 0), SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 0);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);

        ck_assert_int_eq(answer(node, "client.1", msg.seq, 0), SL_OK);
        ck_assert_int_eq(answer(node, "client.1", msg.seq, 1), SL_ERR_EXISTS);
        ck_assert_int_eq(answer(node, "client.1", msg.seq, 2), SL_ERR_NOT_FOUND);
        ck_assert(in_memory(node, 0));
        ck_assert_uint_eq(node_metric(node, "prefetched_count"), 1);
        node_end(node);
    }
END_TEST

START_TEST(prefetch_in_flight_is_bounded_in_bytes)
    {
        struct node *node = node_on_disk(16);
        struct sl_msg first, more;
        uint64_t seq = prefetch(node, 0, 16);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &first));
        ck_assert_uint_eq(first.body.disk_read.items.count, 4); /* 256 KiB */
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &more));
        (void)promote(node, 15);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &more));
        (void)tierer_read(node, SL_OK);
        answer_read(node, &first, 4);

        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 11);
        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_OK);
        ck_assert_int_eq(answer(node, "client.1", seq, 14), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_value_larger_than_the_bound_is_read_alone)
    {
        struct node *node = node_start(settings);
        struct sl_msg request;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put(node, "client.1", key_of(0), 512 * SL_KIB);
        node_put(node, "client.1", key_of(1), LENGTH);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 2);
        struct sl_item_grant grant = node_grant(node, "client.1", "squeeze", 4 * SL_MIB);
        ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);

        uint64_t seq = prefetch(node, 0, 2);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &request));
        ck_assert_uint_eq(request.body.disk_read.items.count, 1);
        answer_read(node, &request, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_demand_load_overtakes_what_is_queued)
    {
        struct node *node = node_on_disk(40);
        struct sl_msg ahead, read;
        uint64_t asked = prefetch(node, 0, 12);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &ahead));

        uint64_t wanted = promote(node, 39);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &read));
        ck_assert_str_eq(read.body.disk_read.items.at[0].key.at, "k39");
        answer_read(node, &read, 1);
        ck_assert_int_eq(answer(node, "client.2", wanted, 0), SL_OK);
        ck_assert_int_eq(answer(node, "client.1", asked, 0), SL_ERR_INCOMPLETE);
        node_end(node);
    }
END_TEST

START_TEST(a_queued_key_that_a_demand_load_wants_is_read_once_and_at_once)
    {
        struct node *node = node_on_disk(12);
        struct sl_msg ahead, read;
        uint64_t asked = prefetch(node, 0, 12);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &ahead));

        uint64_t wanted = promote(node, 11);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &read));
        ck_assert_uint_eq(read.body.disk_read.items.count, 1);
        ck_assert_str_eq(read.body.disk_read.items.at[0].key.at, "k11");
        answer_read(node, &read, 1);
        ck_assert_int_eq(answer(node, "client.2", wanted, 0), SL_OK);
        answer_read(node, &ahead, 4);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 7); /* all but that one */
        ck_assert_int_eq(answer(node, "client.1", asked, 11), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_key_in_flight_that_a_demand_load_wants_is_raised_and_not_read_twice)
    {
        struct node *node = node_on_disk(2);
        struct sl_msg ahead, raise, none;
        (void)prefetch(node, 0, 2);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &ahead));
        uint64_t generation = ahead.body.disk_read.items.at[1].generation;
        struct sl_msg kept = ahead;

        uint64_t wanted = promote(node, 1);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_RAISE, &raise));
        ck_assert_uint_eq(raise.body.disk_read.raise, generation);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &none));
        answer_read(node, &kept, 2);
        ck_assert_int_eq(answer(node, "client.2", wanted, 0), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(unread_prefetched_values_take_a_quarter_of_memory_at_most)
    {
        struct node *node = node_on_disk(64);
        uint64_t seq = prefetch(node, 0, 20);

        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 16); /* 1 of 4 MiB */

        ck_assert_int_eq(answer(node, "client.1", seq, 15), SL_OK);
        ck_assert_int_eq(answer(node, "client.1", seq, 16), SL_ERR_NO_SPACE);
        ck_assert_int_eq(answer(node, "client.1", seq, 19), SL_ERR_NO_SPACE);
        uint64_t wanted = promote(node, 3); /* a client reads one */
        ck_assert_int_eq(answer(node, "client.2", wanted, 0), SL_ERR_EXISTS);
        seq = prefetch(node, 16, 2);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_OK);
        ck_assert_int_eq(answer(node, "client.1", seq, 1), SL_ERR_NO_SPACE);
        ck_assert_uint_eq(node_metric(node, "prefetch_used_count"), 1);
        node_end(node);
    }
END_TEST

START_TEST(prefetch_takes_the_place_of_the_oldest_that_are_on_disk_alone)
    {
        struct node *node = node_with(66); /* 2 .. 65 in memory, 2 is the oldest */
        struct sl_msg write;
        uint64_t attempts = node_metric(node, "evict_attempt_count"); /* one makes room for both */
        uint64_t successes = node_metric(node, "evict_success_count");
        uint64_t seq = prefetch(node, 0, 2);

        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);

        ck_assert_int_eq(answer(node, "client.1", seq, 1), SL_OK);
        ck_assert(!in_memory(node, 2) && !in_memory(node, 3) && in_memory(node, 4));
        ck_assert_uint_eq(node_metric(node, "evict_attempt_count"), attempts + 1);
        ck_assert_uint_eq(node_metric(node, "evict_success_count"), successes + 1);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &write));
        node_end(node);
    }
END_TEST

/* Reads from disk filled the memory, long after the last commit. */
START_TEST(above_the_watermark_what_was_read_goes_too)
    {
        static const char *const marked[] = {
            "disk", "64MiB",       "memory", "4MiB", "evict_watermark", "0.7", "disk_prefetch",
            "1MiB", "evict_batch", "4",      NULL};
        struct node *node = node_begun(marked, KEYS);
        for (uint32_t round = 0; round < 2; round++) { /* some were in memory in the first */
            for (uint32_t n = 0; n < KEYS; n++) {
                uint64_t seq = _i == 0 ? promote(node, n) : prefetch(node, n, 1);
                (void)(_i == 0 ? tierer_read(node, SL_OK) : tierer_prefetch(node, SL_OK));
                ck_assert_int_ne(answer(node, _i == 0 ? "client.2" : "client.1", seq, 0),
                                 SL_ERR_INCOMPLETE);
            }
        }

        for (uint32_t i = 0; i < 20; i++) {
            fake_advance(&node->fake, 20 * SL_NS_PER_MS);
        }

        ck_assert_uint_le(node_metric(node, "used_bytes"), 4 * SL_MIB * 7 / 10);
        ck_assert(in_memory(node, KEYS - 1)); /* the last that was read */
        node_end(node);
    }
END_TEST

START_TEST(prefetch_evicts_nothing_that_is_not_on_disk)
    {
        struct node *node = node_on_disk(2);
        for (uint32_t n = 10; n < 74; n++) {
            node_put(node, "client.1", key_of(n), LENGTH);
        }

        uint64_t seq = prefetch(node, 0, 2);

        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_ERR_NO_SPACE);
        ck_assert_int_eq(answer(node, "client.1", seq, 1), SL_ERR_NO_SPACE);
        ck_assert_uint_eq(node_metric(node, "prefetch_refused_count"), 2);
        for (uint32_t n = 10; n < 74; n++) {
            ck_assert(in_memory(node, n));
        }
        node_end(node);
    }
END_TEST

START_TEST(prefetch_evicts_nothing_that_is_pinned)
    {
        struct node *node = node_start(settings);
        struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                          .name = "client.1",
                                          .self = proc_of(11),
                                          .slot_count = 128,
                                          .access_count = 16,
                                          .pinned_bytes_max = 64 * SL_MIB};
        struct sl_pins *pins = NULL;
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_OK);
        ck_assert_int_eq(node_hello_pins(node, "client.1", "client", 11, "pins.client.1"), SL_OK);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        for (uint32_t n = 0; n < 66; n++) {
            node_put(node, "client.1", key_of(n), LENGTH);
            ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        }
        sl_pin pin[3];
        for (uint32_t n = 2; n < 5; n++) { /* the oldest in memory */
            struct sl_entry entry;
            ck_assert(node_entry(node, key_of(n), &entry));
            ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin[n - 2]), SL_OK);
        }

        (void)prefetch(node, 0, 1);

        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        ck_assert(in_memory(node, 2) && in_memory(node, 3) && in_memory(node, 4));
        ck_assert(!in_memory(node, 5) && in_memory(node, 6));
        sl_pins_release(pins, pin[1]);
        (void)prefetch(node, 1, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        ck_assert(in_memory(node, 2) && !in_memory(node, 3) && in_memory(node, 4));
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(prefetch_ends_at_its_deadline)
    {
        struct node *node = node_on_disk(12);
        struct sl_msg ahead, more;
        uint64_t seq = ask(node, true, "client.1", 0, 12, 50 * SL_NS_PER_MS);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &ahead));

        fake_advance(&node->fake, 51 * SL_NS_PER_MS);

        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_ERR_TIMEOUT);
        ck_assert_int_eq(answer(node, "client.1", seq, 11), SL_ERR_TIMEOUT);
        answer_read(node, &ahead, 4);
        ck_assert(in_memory(node, 0)); /* it was in flight */
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &more));
        node_end(node);
    }
END_TEST

START_TEST(prefetch_waits_for_who_waits_for_memory)
    {
        struct node *node = node_on_disk(2);
        static struct grants grants;
        struct want want = {.key = "large", .length = 3 * SL_MIB};
        struct reserve_ask ask = {
            .sender = "client.2", .op_id = 1, .wants = &want, .count = 1, .wait = true};
        struct sl_msg none;
        for (uint32_t n = 10; n < 40; n++) { /* half of memory, not on disk yet */
            node_put(node, "client.1", key_of(n), LENGTH);
        }
        ck_assert(!node_reserve(node, &ask, &grants));

        uint64_t seq = prefetch(node, 0, 2);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &none));
        (void)tierer_write(node, 1, SL_OK);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);
        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(prefetch_of_a_dead_tierer_goes_on_with_its_successor)
    {
        struct node *node = node_on_disk(2);
        struct found found[2];
        for (uint32_t n = 0; n < 2; n++) {
            struct sl_entry entry;
            ck_assert(node_entry(node, key_of(n), &entry));
            found[n] = (struct found){.key = key_of(n),
                                      .length = LENGTH,
                                      .segment = 1,
                                      .offset = entry.disk.offset_bytes};
        }
        uint64_t seq = prefetch(node, 0, 2);
        struct sl_msg lost;
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &lost));
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, found, 2, true, true, NULL);

        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);

        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_OK);
        ck_assert_int_eq(answer(node, "client.1", seq, 1), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(prefetches_leave_room_for_promotions)
    {
        struct node *node = node_on_disk(2);
        struct sl_msg reply;
        sl_err last = SL_ERR_INCOMPLETE;
        for (uint32_t i = 0; i < 1024; i++) {
            uint64_t seq = prefetch(node, 0, 1);
            if (fake_take_reply(&node->fake, "client.1", seq, &reply)) {
                last = (sl_err)reply.code;
            }
        }
        ck_assert_int_eq(last, SL_ERR_LIMIT);

        uint64_t wanted = promote(node, 1);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);

        ck_assert_int_eq(answer(node, "client.2", wanted, 0), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_node_without_a_disk_says_what_it_has)
    {
        static const char *const none[] = {"memory", "4MiB", NULL};
        struct node *node = node_start(none);
        node_client(node, "client.1", 11);
        node_put(node, "client.1", key_of(0), 100);

        uint64_t seq = prefetch(node, 0, 2);

        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_ERR_EXISTS);
        ck_assert_int_eq(answer(node, "client.1", seq, 1), SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

/* A request that it cannot fulfil must not look successful. */
START_TEST(what_is_for_nodes_is_refused)
    {
        const struct sl_text key = sl_text_of(key_of(0));
        const struct sl_item_group group = {.key = key, .part_count = 1};
        const struct sl_item_slot slot = {.engine_id = 1};
        struct sl_body_bring asked[] = {
            {.groups = {&group, 1}}, {.slots = {&slot, 1}}, {.chain = true}, {.sure = true}};
        struct node *node = node_on_disk(1);
        struct sl_msg msg = {.type = SL_MSG_BRING, .budget_ns = SL_NS_PER_S}, reply;
        msg.body.bring = asked[_i];
        msg.body.bring.keys = (struct sl_texts){.at = &key, .count = 1};

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 0);
        node_end(node);
    }
END_TEST

/* ---- write-back ---- */

static uint32_t writes_taken(struct node *node, struct sl_msg *last)
{
    uint32_t count = 0;
    struct sl_msg request;
    while (fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request)) {
        *last = request;
        count++;
    }
    return count;
}

/* A node whose memory is full of durable values, and of others. */
static struct node *node_writing(uint32_t count, bool wanted, bool ahead)
{
    struct node *node = node_with(66); /* 0 and 1 are only on disk */
    if (wanted || ahead) {
        (void)(wanted ? promote(node, 0) : prefetch(node, 0, 1));
    }
    for (uint32_t n = 0; n < count; n++) {
        node_put(node, "client.1", key_of(KEYS - 1 - n), LENGTH);
    }
    return node;
}

START_TEST(write_back_has_the_disk_when_nothing_is_read)
    {
        struct sl_msg last;
        struct node *node = node_writing(13, false, false);

        ck_assert_uint_eq(writes_taken(node, &last), 13); /* one value each */
        node_end(node);
    }
END_TEST

START_TEST(write_back_yields_to_reads)
    {
        struct sl_msg last;

        struct node *node = node_writing(13, _i == 0, _i == 1);

        uint32_t yielding = writes_taken(node, &last);
        ck_assert_uint_ge(yielding, 1); /* never none */
        ck_assert_uint_le(yielding, 2);
        (void)(_i == 0 ? tierer_read(node, SL_OK) : tierer_prefetch(node, SL_OK));
        ck_assert_uint_ge(writes_taken(node, &last), 1);
        node_end(node);
    }
END_TEST

START_TEST(who_waits_for_memory_or_for_the_disk_raises_write_back)
    {
        struct sl_msg last;
        static struct grants grants;
        struct want want = {.key = "large", .length = 7 * SL_MIB / 2};
        struct reserve_ask ask = {
            .sender = "client.2", .op_id = 1, .wants = &want, .count = 1, .wait = true};
        struct node *node = node_writing(13, true, false);
        ck_assert_uint_le(writes_taken(node, &last), 2);

        if (_i == 0) {
            ck_assert(!node_reserve(node, &ask, &grants));
        } else {
            struct sl_msg flush = {.type = SL_MSG_FLUSH};
            fake_give(&node->fake, "client.2", &flush);
        }

        ck_assert_uint_ge(writes_taken(node, &last), 1);
        node_end(node);
    }
END_TEST

START_TEST(a_backlog_raises_write_back)
    {
        struct sl_msg last;
        struct node *node = node_writing(20, true, false); /* more than a quarter of memory */

        ck_assert_uint_gt(writes_taken(node, &last), 2);
        node_end(node);
    }
END_TEST

/* ---- for sessions that come back ---- */

/* Sends the first BRING of a chain that has chain_bytes only on disk. */
static uint64_t chain_returning(struct node *node, uint32_t from, uint32_t count, uint64_t for_ns,
                                uint64_t chain_bytes)
{
    struct sl_text texts[KEYS];
    struct sl_msg msg = {.type = SL_MSG_BRING, .budget_ns = 2 * SL_NS_PER_S};
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = sl_text_of(key_of(from + i));
    }
    msg.body.bring = (struct sl_body_bring){.keys = {.at = texts, .count = count},
                                            .ahead = true,
                                            .for_ns = for_ns,
                                            .worth = UINT64_C(1) << 50,
                                            .chain_bytes = chain_bytes};
    fake_give(&node->fake, "client.1", &msg);
    return msg.seq;
}

static uint64_t returning(struct node *node, uint32_t from, uint32_t count, uint64_t for_ns)
{
    return chain_returning(node, from, count, for_ns, 0);
}

/* Puts new values, for which all others may leave memory. */
static void fill(struct node *node, uint32_t count)
{
    static uint32_t number;
    for (uint32_t i = 0; i < count; i++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "new%u", number++);
        node_put(node, "client.1", key, LENGTH);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
    }
}

static const struct {
    uint64_t for_ns;
    bool stays;
} returns[] = {
    {.for_ns = 60 * SL_NS_PER_S, .stays = true},
    {.for_ns = 0, .stays = false}, /* a client wants them at some time */
};

START_TEST(values_of_a_session_stay_in_memory_until_it_returns)
    {
        struct node *node = node_on_disk(8);
        uint64_t seq = returning(node, 0, 4, returns[_i].for_ns);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 4);
        ck_assert_int_eq(answer(node, "client.1", seq, 3), SL_OK);

        fill(node, 130);

        ck_assert_int_eq(in_memory(node, 0) && in_memory(node, 3), returns[_i].stays);
        ck_assert_uint_eq(node_metric(node, "prefetch_lost_count"), returns[_i].stays ? 0 : 4);
        ck_assert_uint_eq(node_metric(node, "prefetch_used_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(when_its_time_is_over_it_goes_as_all_others)
    {
        struct node *node = node_on_disk(8);
        (void)returning(node, 0, 4, 5 * SL_NS_PER_S);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 4);

        fake_advance(&node->fake, 7 * SL_NS_PER_S);
        fill(node, 200);

        ck_assert(!in_memory(node, 0) && !in_memory(node, 3));
        node_end(node);
    }
END_TEST

START_TEST(sessions_have_half_of_memory_and_what_does_not_fit_is_not_begun)
    {
        struct node *node = node_on_disk(60);
        uint64_t seq = returning(node, 0, 40, 60 * SL_NS_PER_S); /* of 64 values */

        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_ERR_NO_SPACE);
        ck_assert_int_eq(answer(node, "client.1", seq, 39), SL_ERR_NO_SPACE);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 0);

        seq = returning(node, 0, 20, 60 * SL_NS_PER_S); /* more than may be unread otherwise */
        while (tierer_prefetch(node, SL_OK) > 0) {
        }
        ck_assert_int_eq(answer(node, "client.1", seq, 19), SL_OK);
        ck_assert(in_memory(node, 0) && in_memory(node, 19));
        seq = returning(node, 20, 20, 60 * SL_NS_PER_S);
        ck_assert_int_eq(answer(node, "client.1", seq, 0), SL_ERR_NO_SPACE);
        node_end(node);
    }
END_TEST

/* How full the answer reports the space, in thousandths. */
static uint64_t full_of(struct node *node, uint64_t seq)
{
    struct sl_msg reply;
    ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    return reply.body.bring_reply.full;
}

/* With space for 32, after a session of 16. A chain that never fits must not delay others. */
static const struct {
    uint32_t count, chain;
    uint64_t full;
} asked_for[] = {{4, 0, 625},  {20, 0, 1000}, {40, 0, 500},
                 {4, 16, 625}, {4, 20, 1000}, {4, 40, 500}};

START_TEST(the_room_is_as_full_as_it_would_be_with_what_was_refused)
    {
        struct node *node = node_on_disk(60);
        uint64_t seq = returning(node, 0, 16, 60 * SL_NS_PER_S);
        while (tierer_prefetch(node, SL_OK) > 0) {
        }
        ck_assert_uint_eq(full_of(node, seq), 500);

        seq = chain_returning(node, 16, asked_for[_i].count, 60 * SL_NS_PER_S,
                              asked_for[_i].chain * sl_extent_space(LENGTH));
        while (tierer_prefetch(node, SL_OK) > 0) {
        }

        ck_assert_uint_eq(full_of(node, seq), asked_for[_i].full);
        node_end(node);
    }
END_TEST

enum how { IT_WAITS, IT_CAME_BACK, ITS_TIME_IS_OVER };
static const struct {
    enum how how;
    bool comes;
} rooms[] = {{IT_WAITS, false}, {IT_CAME_BACK, true}, {ITS_TIME_IS_OVER, true}};

START_TEST(the_room_of_a_session_that_came_back_is_the_next_ones)
    {
        struct node *node = node_on_disk(60);
        (void)returning(node, 0, 20, 60 * SL_NS_PER_S);
        while (tierer_prefetch(node, SL_OK) > 0) {
        }
        ck_assert(in_memory(node, 0) && in_memory(node, 19));
        for (uint32_t n = 0; rooms[_i].how == IT_CAME_BACK && n < 20; n++) {
            uint64_t used = promote(node, n); /* like a reader's note of it */
            ck_assert_int_eq(answer(node, "client.2", used, 0), SL_ERR_EXISTS);
        }
        fake_advance(&node->fake, (rooms[_i].how == ITS_TIME_IS_OVER ? 61 : 1) * SL_NS_PER_S);

        uint64_t seq = returning(node, 20, 20, 60 * SL_NS_PER_S);

        while (tierer_prefetch(node, SL_OK) > 0) {
        }
        ck_assert_int_eq(answer(node, "client.1", seq, 0),
                         rooms[_i].comes ? SL_OK : SL_ERR_NO_SPACE);
        ck_assert_int_eq(in_memory(node, 20), rooms[_i].comes);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_prefetch");
    TCase *tcase = tcase_create("prefetch");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, prefetch_says_of_each_key_what_became_of_it);
    tcase_add_test(tcase, prefetch_in_flight_is_bounded_in_bytes);
    tcase_add_test(tcase, a_value_larger_than_the_bound_is_read_alone);
    tcase_add_test(tcase, a_demand_load_overtakes_what_is_queued);
    tcase_add_test(tcase, a_queued_key_that_a_demand_load_wants_is_read_once_and_at_once);
    tcase_add_test(tcase, a_key_in_flight_that_a_demand_load_wants_is_raised_and_not_read_twice);
    tcase_add_test(tcase, unread_prefetched_values_take_a_quarter_of_memory_at_most);
    tcase_add_test(tcase, prefetch_takes_the_place_of_the_oldest_that_are_on_disk_alone);
    tcase_add_loop_test(tcase, above_the_watermark_what_was_read_goes_too, 0, 2);
    tcase_add_test(tcase, prefetch_evicts_nothing_that_is_not_on_disk);
    tcase_add_test(tcase, prefetch_evicts_nothing_that_is_pinned);
    tcase_add_test(tcase, prefetch_ends_at_its_deadline);
    tcase_add_test(tcase, prefetch_waits_for_who_waits_for_memory);
    tcase_add_test(tcase, prefetch_of_a_dead_tierer_goes_on_with_its_successor);
    tcase_add_test(tcase, prefetches_leave_room_for_promotions);
    tcase_add_test(tcase, a_node_without_a_disk_says_what_it_has);
    tcase_add_loop_test(tcase, what_is_for_nodes_is_refused, 0, 4);
    tcase_add_test(tcase, write_back_has_the_disk_when_nothing_is_read);
    tcase_add_loop_test(tcase, write_back_yields_to_reads, 0, 2);
    tcase_add_loop_test(tcase, who_waits_for_memory_or_for_the_disk_raises_write_back, 0, 2);
    tcase_add_test(tcase, a_backlog_raises_write_back);
    tcase_add_loop_test(tcase, values_of_a_session_stay_in_memory_until_it_returns, 0,
                        (int)SL_COUNT(returns));
    tcase_add_test(tcase, when_its_time_is_over_it_goes_as_all_others);
    tcase_add_test(tcase, sessions_have_half_of_memory_and_what_does_not_fit_is_not_begun);
    tcase_add_loop_test(tcase, the_room_is_as_full_as_it_would_be_with_what_was_refused, 0,
                        SL_COUNT(asked_for));
    tcase_add_loop_test(tcase, the_room_of_a_session_that_came_back_is_the_next_ones, 0,
                        SL_COUNT(rooms));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
