/* tests/unit/actors/coordinator/coordinator_waiting_test.c - load or recompute: how long a load
 * waits whose engine has stated its compute rate. Blocks have 4 tokens and 8 KiB. The disk's page
 * reports 1 byte/us, so reading a block takes 8.2 ms. */
#include "tests/unit/actors/coordinator/coordinator_support.h"

#define BLOCK_BYTES (RANKS * PART_BYTES)
#define SLOW        100u   /* tokens/s: 40 ms a block, which is slower than the disk */
#define FAST        10000u /* 0.4 ms a block */
#define MS          SL_NS_PER_MS

static const char *const disk_settings[] = {"disk", "1GiB", NULL};

/* ---- the tierer's page ---- */

static void page_set(struct sl_metrics *page, const char *name, uint64_t value)
{
    sl_metric_set(page, sl_metric_define(page, name), value);
}

/* Makes the page of a disk that moves bytes_per_us while it is busy, and has a queue. */
static void page_make(struct bed *bed, uint64_t bytes_per_us, uint64_t queue_bytes)
{
    char path[sizeof(bed->fake.paths.shm_dir) + 32];
    struct sl_metrics *page = NULL;
    struct sl_error why = {0};
    (void)snprintf(path, sizeof(path), "%s/metrics.tierer.0", bed->fake.paths.shm_dir);
    struct sl_metrics_options options = {.path = path,
                                         .actor = "tierer.0",
                                         .self = {.pid = 801, .start_time = 1},
                                         .trace_events = 64};
    ck_assert_msg(sl_metrics_open(&options, &page, &why) == SL_OK, "%s", why.text);
    page_set(page, "bytes_read", 1000000 * bytes_per_us);
    page_set(page, "read_busy_ns", SL_NS_PER_S);
    page_set(page, "read_queue_bytes", queue_bytes);
    sl_metrics_close(&page);
}

static uint64_t counted(struct bed *bed, const char *name)
{
    return sl_metric_get(bed->fake.env.metrics, sl_metric_define(bed->fake.env.metrics, name));
}

/* ---- loads ---- */

/* Blocks 0 to 9: m in memory, d on disk, - nowhere. */
static void blocks_put(struct bed *bed, const char *where)
{
    for (uint32_t i = 0; where[i] != '\0'; i++) {
        if (where[i] != '-') {
            index_put(bed, i, where[i] == 'm', PART_BYTES);
        }
    }
}

static struct bed *bed_with(const char *where, uint64_t bytes_per_us, uint64_t queue_bytes)
{
    struct bed *bed = bed_make(disk_settings);
    blocks_put(bed, where);
    if (bytes_per_us > 0) {
        page_make(bed, bytes_per_us, queue_bytes);
    }
    return bed;
}

static uint64_t load_send(struct bed *bed, uint64_t op_id, uint32_t count, uint64_t rate,
                          uint64_t doubles)
{
    static uint32_t tokens[BLOCKS_MAX * 4];
    static uint64_t device[BLOCKS_MAX];
    struct sl_msg msg = {.type = SL_MSG_LOAD, .op_id = op_id, .trace_id = op_id};
    msg.body.load = (struct sl_body_load){.engine_id = ENGINE_ID,
                                          .tokens = {tokens, count * 16ull},
                                          .device_blocks = {device, count},
                                          .prefill_rate = rate,
                                          .prefill_doubles = doubles};
    fake_give(&bed->fake, "client.1.0", &msg);
    return msg.seq;
}

static uint64_t load_begin(struct bed *bed, uint32_t count, uint64_t rate, uint64_t doubles)
{
    uint64_t seq = load_send(bed, 1, count, rate, doubles);
    answer_engine(bed);
    answer_keys(bed);
    return seq;
}

static void copies(struct bed *bed, uint64_t blocks)
{
    for (uint32_t rank = 0; rank < RANKS && blocks > 0; rank++) {
        ck_assert_uint_eq(answer_copy(bed, rank, UINT64_MAX), blocks);
    }
}

/* The registrar brings the first `count` parts of a BRING into memory. */
static void bring(struct bed *bed, const struct sl_msg *promote, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct sl_text *key = &promote->body.bring.keys.at[i];
        struct sl_extent extent = {.generation = sl_arena_next_generation(bed->arena),
                                   .offset_bytes = i * PART_BYTES,
                                   .length_bytes = PART_BYTES};
        struct sl_entry entry;
        sl_ref fresh = 0;
        ck_assert_int_eq(sl_index_find_any(bed->index, key->at, (uint32_t)key->length, &entry),
                         SL_OK);
        ck_assert_int_eq(sl_index_switch(bed->index, entry.ref, &extent, NULL, &fresh), SL_OK);
    }
}

static void promoted(struct bed *bed, const struct sl_msg *promote)
{
    uint64_t codes[BLOCKS_MAX] = {0};
    bring(bed, promote, promote->body.bring.keys.count);
    answer(bed, "registrar", promote,
           (struct sl_msg){.body.bring_reply.codes = {codes, promote->body.bring.keys.count}});
}

static void refused(struct bed *bed, const struct sl_msg *promote, sl_err code)
{
    uint64_t codes[BLOCKS_MAX];
    for (uint64_t i = 0; i < promote->body.bring.keys.count; i++) {
        codes[i] = code;
    }
    answer(bed, "registrar", promote,
           (struct sl_msg){.body.bring_reply.codes = {codes, promote->body.bring.keys.count}});
}

/* The load is answered with `blocks` blocks, and reports how many it left. */
static void ends_with(struct bed *bed, uint64_t seq, uint64_t blocks, uint64_t left)
{
    struct sl_msg reply = reply_to(bed, seq);
    ck_assert_msg(reply.code == SL_OK, "%s", sl_err_text(reply.code));
    ck_assert_uint_eq(reply.body.load_reply.block_count, blocks);
    ck_assert_uint_eq(reply.body.load_reply.not_awaited, left);
    ck_assert_uint_eq(counted(bed, "blocks_not_waited_for"), left);
    ck_assert_uint_eq(counted(bed, "tokens_not_waited_for"), left * 4);
}

/* ---- the plan ---- */

START_TEST(what_is_left_is_prefetched_a_little_at_a_time)
    {
        struct bed *bed = bed_with("dddddddddd", 1, 0); /* 82 ms */

        (void)load_begin(bed, 10, FAST, 0);

        struct sl_msg prefetch = take(bed, "registrar", SL_MSG_BRING | FAKE_PREFETCH);
        ck_assert_uint_eq(prefetch.body.bring.keys.count, 13); /* 53 ms */
        bed_end(bed);
    }
END_TEST

START_TEST(nothing_is_prefetched_beside_loads)
    {
        struct bed *bed = bed_with("dddddddddd", 1, 400000);

        uint64_t seq = load_begin(bed, 10, SLOW, 0);

        ck_assert(!sent(bed, "registrar", SL_MSG_BRING | FAKE_PREFETCH));
        ends_with(bed, seq, 0, 10);
        bed_end(bed);
    }
END_TEST

static const struct {
    const char *where;
    uint64_t rate, doubles, queue_bytes, bytes_per_us;
    uint32_t taken, left;
} plans[] = {
    {"mmdddddddd", FAST, 0, 0, 1, 2, 8},        /* each is faster to compute than to read */
    {"dddddddddd", FAST, 0, 0, 1, 0, 10},       /* the first as well */
    {"mmdddddddd", SLOW, 0, 0, 1, 10, 0},       /* or sooner read */
    {"mmdmmmmmmm", 2000, 0, 0, 1, 10, 0},       /* 8.5 ms save 16 ms of work: memory follows */
    {"mmdddmmmmm", 2000, 0, 0, 1, 2, 8},        /* 25 ms save 16 ms */
    {"mmdmmmmddd", 2000, 0, 0, 1, 7, 3},        /* the cut is in the middle */
    {"mmdddd----", FAST, 0, 0, 1, 2, 4},        /* missing blocks do not count as left */
    {"mmdddddddd", SLOW, 0, 400000, 1, 2, 8},   /* a queue of 0.4 s exceeds 0.32 s of work */
    {"mmdddddddd", SLOW, 0, 100000, 1, 10, 0},  /* 0.1 s are not */
    {"mmdddddddd", FAST, 0, 400000, 100, 2, 8}, /* 4 ms of queue, and 0.65 of reading */
    {"mmdddddddd", FAST, 0, 0, 100, 10, 0},     /* a faster disk */
    {"mmdddddddd", FAST, 1, 0, 1, 10, 0},       /* attention makes later tokens more work */
    {"mmmmmmmmmm", FAST, 0, 0, 1, 10, 0},       /* blocks in memory are never left */
    {"mmdddddddd", FAST, 0, 0, 0, 10, 0},       /* the disk's speed is unknown: it is tried */
    {"mmdddddddd", 0, 0, 400000, 1, 10, 0},     /* no rate: all is waited for */
};
START_TEST(the_cut_makes_the_first_token_soonest)
    {
        struct bed *bed =
            bed_with(plans[_i].where, plans[_i].bytes_per_us, plans[_i].queue_bytes); /* arrange */

        uint64_t seq = load_begin(bed, 10, plans[_i].rate, plans[_i].doubles); /* act */
        struct sl_msg promote;
        if (fake_take(&bed->fake, "registrar", SL_MSG_BRING, &promote)) {
            promoted(bed, &promote);
        }
        copies(bed, plans[_i].taken);

        ends_with(bed, seq, plans[_i].taken, plans[_i].left); /* assert */
        ck_assert_uint_eq(counted(bed, "soft_deadlines_missed"), 0);
        ck_assert((counted(bed, "waiting_saved_us") > 0) == (plans[_i].left > 0));
        bed_end(bed);
    }
END_TEST

START_TEST(what_is_left_is_prefetched)
    {
        struct bed *bed = bed_with("mddd", 1, 0);

        uint64_t seq = load_begin(bed, 4, FAST, 0);

        struct sl_msg prefetch = take(bed, "registrar", SL_MSG_BRING | FAKE_PREFETCH);
        ck_assert_uint_eq(prefetch.body.bring.keys.count, 3 * RANKS);
        ck_assert_str_eq(prefetch.body.bring.keys.at[0].at, MODEL "/b1/0/attn");
        ck_assert(!sent(bed, "registrar", SL_MSG_BRING));
        copies(bed, 1);
        ends_with(bed, seq, 1, 3);
        bed_end(bed);
    }
END_TEST

START_TEST(one_prefetch_is_in_flight)
    {
        struct bed *bed = bed_with("dd", 1, 0);
        (void)load_begin(bed, 2, FAST, 0);
        for (uint64_t op = 2; op < 20; op++) {
            (void)load_send(bed, op, 2, FAST, 0);
            answer_keys(bed);
        }
        struct sl_msg prefetch = {0};
        uint32_t count = 0;
        while (fake_take(&bed->fake, "registrar", SL_MSG_BRING | FAKE_PREFETCH, &prefetch)) {
            count++;
        }
        ck_assert_uint_eq(count, 1);

        uint64_t codes[2 * RANKS] = {0};
        answer(bed, "registrar", &prefetch,
               (struct sl_msg){.body.bring_reply.codes = {codes, SL_COUNT(codes)}});
        (void)load_send(bed, 20, 2, FAST, 0);
        answer_keys(bed);

        ck_assert(sent(bed, "registrar", SL_MSG_BRING | FAKE_PREFETCH)); /* room for another */
        bed_end(bed);
    }
END_TEST

/* Slices of 4 blocks: waiting for the queue pays only if all later slices are counted. */
START_TEST(a_plan_is_of_all_slices)
    {
        const char *const settings[] = {"disk", "1GiB", "client_pins_max", "32", NULL};
        struct bed *bed = bed_make(settings);
        blocks_put(bed, "dddddddddd");
        page_make(bed, 1, 150000); /* 0.15 s; 4 blocks are 0.16 s of work, 10 are 0.4 */

        uint64_t seq = load_begin(bed, 10, SLOW, 0);

        for (uint32_t slice = 0; slice < 3; slice++) {
            struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
            page_make(bed, 1, 0); /* the queue has been read */
            promoted(bed, &promote);
            copies(bed, slice < 2 ? 4 : 2);
        }
        ends_with(bed, seq, 10, 0);
        bed_end(bed);
    }
END_TEST

/* ---- the soft deadline ---- */

/* 8 blocks on a disk that promises 0.65 ms; computing takes 3.2 ms, or 320 ms. No block arrives. */
static const struct {
    uint64_t rate, bytes_per_us, early_ns, late_ns;
} waits[] = {
    {FAST, 100, 2 * MS, 4 * MS},
    {SLOW, 100, 250 * MS, 330 * MS},
    {FAST, 0, 2 * MS, 4 * MS}, /* the disk's speed is unknown */
};
START_TEST(a_load_waits_no_longer_than_computing_takes)
    {
        struct bed *bed = bed_with("mmdddddddd", waits[_i].bytes_per_us, 0);
        struct sl_msg reply;

        uint64_t seq = load_begin(bed, 10, waits[_i].rate, 0);

        ck_assert(sent(bed, "registrar", SL_MSG_BRING));
        fake_advance(&bed->fake, waits[_i].early_ns);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        ck_assert(!fake_take_reply(&bed->fake, "client.1.0", seq, &reply));
        fake_advance(&bed->fake, waits[_i].late_ns - waits[_i].early_ns);
        copies(bed, 2);
        ends_with(bed, seq, 2, 8);
        ck_assert_uint_eq(counted(bed, "soft_deadlines_missed"), 1);
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(without_a_rate_it_waits_to_its_deadline)
    {
        struct bed *bed = bed_with("mmdddddddd", 100, 0);
        struct sl_msg reply;

        uint64_t seq = load_begin(bed, 10, 0, 0);

        struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
        fake_advance(&bed->fake, SL_NS_PER_S);
        ck_assert(!fake_take_reply(&bed->fake, "client.1.0", seq, &reply));
        promoted(bed, &promote);
        copies(bed, 10);
        ends_with(bed, seq, 10, 0);
        bed_end(bed);
    }
END_TEST

START_TEST(the_prefix_that_came_by_then_is_taken)
    {
        struct bed *bed = bed_with("mmdddddddd", 100, 0);
        uint64_t seq = load_begin(bed, 10, FAST, 0);
        struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
        bring(bed, &promote, 5); /* blocks 2 and 3, and half of 4 */

        fake_advance(&bed->fake, 4 * MS);

        copies(bed, 4);
        ends_with(bed, seq, 4, 6);
        ck_assert_uint_eq(counted(bed, "soft_deadlines_missed"), 1);
        bed_end(bed);
    }
END_TEST

/* The registrar then drops reads it has not begun; its late answer changes nothing. */
START_TEST(the_promote_ends_with_the_soft_deadline)
    {
        struct bed *bed = bed_with("mmdddddddd", 100, 0);
        uint64_t seq = load_begin(bed, 10, FAST, 0);

        struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);

        ck_assert_uint_lt(promote.budget_ns, 25 * MS);
        fake_advance(&bed->fake, 4 * MS);
        promoted(bed, &promote);
        copies(bed, 2);
        ends_with(bed, seq, 2, 8);
        bed_end(bed);
    }
END_TEST

/* Its log file is being reclaimed, which may take seconds. */
START_TEST(what_cannot_be_read_at_the_moment_is_soon_left)
    {
        struct bed *bed = bed_with("mdd", 1, 0);
        uint64_t seq = load_begin(bed, 3, SLOW, 0);
        struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
        refused(bed, &promote, SL_ERR_BUSY);
        copies(bed, 1);

        for (uint32_t i = 0; i < 3; i++) {
            promote = take(bed, "registrar", SL_MSG_BRING);
            refused(bed, &promote, SL_ERR_BUSY);
            fake_advance(&bed->fake, 10 * MS);
        }

        ends_with(bed, seq, 1, 2);
        bed_end(bed);
    }
END_TEST

/* It arrived after all: later blocks are as useful as before. */
START_TEST(what_came_by_the_last_try_ends_no_load)
    {
        struct bed *bed = bed_with("dd", 1, 0);
        uint64_t seq = load_begin(bed, 2, SLOW, 0);
        for (uint32_t i = 0; i < 3; i++) {
            struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
            bring(bed, &promote, i == 2 ? RANKS : 0);
            refused(bed, &promote, SL_ERR_BUSY);
            fake_advance(&bed->fake, 10 * MS);
        }
        copies(bed, 1);

        struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
        promoted(bed, &promote);
        copies(bed, 1);

        ends_with(bed, seq, 2, 0);
        bed_end(bed);
    }
END_TEST

/* The first block had arrived and was evicted again: that counts as lack of space. */
START_TEST(what_is_refused_behind_the_first_block_ends_no_load)
    {
        struct bed *bed = bed_with("dd", 1, 0);
        uint64_t seq = load_begin(bed, 2, SLOW, 0);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t codes[2 * RANKS] = {SL_ERR_BUSY, SL_ERR_BUSY, SL_ERR_BUSY, SL_ERR_BUSY};
            struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
            ck_assert_uint_le(promote.body.bring.keys.count, SL_COUNT(codes));
            for (uint32_t rank = 0; rank < RANKS && i == 2; rank++) {
                codes[rank] = SL_OK;
            }
            answer(
                bed, "registrar", &promote,
                (struct sl_msg){.body.bring_reply.codes = {codes, promote.body.bring.keys.count}});
            fake_advance(&bed->fake, 10 * MS);
        }

        struct sl_msg reply = reply_to(bed, seq);

        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 0);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "no room"));
        bed_end(bed);
    }
END_TEST

START_TEST(a_rest_that_comes_at_once_is_waited_for)
    {
        struct bed *bed = bed_with("mmdddddddd", 1, 0); /* 66 ms promised, 320 to compute */
        uint64_t seq = load_begin(bed, 10, SLOW, 0);
        struct sl_msg promote = take(bed, "registrar", SL_MSG_BRING);
        bring(bed, &promote, 14); /* all but the last block */

        fake_advance(&bed->fake, 100 * MS); /* it is late: 8 ms by 1.5 are less than 40 */

        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        uint64_t codes[BLOCKS_MAX] = {0};
        for (uint64_t i = 14; i < 16; i++) {
            struct sl_msg one = promote;
            const struct sl_texts keys = {.at = &promote.body.bring.keys.at[i], .count = 1};
            one.body.bring.keys = keys;
            bring(bed, &one, 1);
        }
        answer(bed, "registrar", &promote, (struct sl_msg){.body.bring_reply.codes = {codes, 16}});
        copies(bed, 10);
        ends_with(bed, seq, 10, 0);
        ck_assert_uint_eq(counted(bed, "soft_deadlines_missed"), 0);
        bed_end(bed);
    }
END_TEST

/* After a broken promise, a disk's figures are trusted only after a while. */
START_TEST(a_disk_that_was_slower_is_believed_less)
    {
        struct bed *bed = bed_with("mmdddddddd", 100, 0); /* 0.95 ms promised */
        (void)load_begin(bed, 10, FAST, 0);
        ck_assert(sent(bed, "registrar", SL_MSG_BRING));
        fake_advance(&bed->fake, 4 * MS); /* 3.2 ms of wasted work */
        copies(bed, 2);

        (void)load_send(bed, 2, 10, FAST, 0);
        answer_keys(bed);

        ck_assert(!sent(bed, "registrar", SL_MSG_BRING));

        fake_advance(&bed->fake, 6 * SL_NS_PER_S);
        (void)load_send(bed, 7, 10, FAST, 0);
        answer_keys(bed);

        ck_assert(sent(bed, "registrar", SL_MSG_BRING));
        bed_end(bed);
    }
END_TEST

/* Other loads are ahead in the queue, whether the tierer's page shows them yet or not. */
START_TEST(loads_ahead_count)
    {
        struct bed *bed = bed_with("ddddddddddmmdd", 1, 0);
        (void)load_begin(bed, 10, 0, 0); /* 82 ms of reading */
        ck_assert(sent(bed, "registrar", SL_MSG_BRING));

        uint64_t seq = load_send(bed, 2, 14, 600, 0); /* 14 blocks are 93 ms of work */
        answer_keys(bed);

        ck_assert(!sent(bed, "registrar", SL_MSG_BRING)); /* 164 + 16 ms */
        ends_with(bed, seq, 0, 14);
        bed_end(bed);
    }
END_TEST

/* ---- other nodes ---- */

static const struct {
    const char *what;
    bool answered; /* else the transporter does not answer */
    uint64_t came, taken;
} slow_nodes[] = {{"it is unknown whether they exist", false, 0, 2},
                  {"none came in time", true, 0, 2},
                  {"some came in time", true, 3, 5}};
START_TEST(other_nodes_are_waited_for_as_long)
    {
        struct bed *bed = bed_with("mm", 0, 0);
        sl_index_set_remote(bed->index, true);
        uint64_t codes[8 * RANKS], seq = load_begin(bed, 10, FAST, 0);

        struct sl_msg fetch = take(bed, "transporter.0", SL_MSG_BRING);

        ck_assert_uint_le(fetch.budget_ns, 4 * MS); /* 8 blocks in 3.2 ms */
        fake_advance(&bed->fake, 3 * MS);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        for (uint32_t i = 0; i < SL_COUNT(codes); i++) {
            codes[i] = i < slow_nodes[_i].came * RANKS ? SL_OK : SL_ERR_TIMEOUT;
        }
        for (uint32_t i = 0; i < slow_nodes[_i].came; i++) {
            index_put(bed, 2 + i, true, PART_BYTES);
        }
        if (slow_nodes[_i].answered) {
            answer(bed, "transporter.0", &fetch,
                   (struct sl_msg){.body.bring_reply.codes = {codes, SL_COUNT(codes)}});
        } else {
            fake_advance(&bed->fake, MS);
        }
        copies(bed, slow_nodes[_i].taken);
        ends_with(bed, seq, slow_nodes[_i].taken, 0);
        ck_assert_uint_eq(counted(bed, "soft_deadlines_missed"), 1);
        bed_end(bed);
    }
END_TEST

START_TEST(what_goes_straight_into_pools_is_waited_for_as_long)
    {
        struct bed *bed = bed_straight();
        uint64_t codes[8 * RANKS];
        blocks_put(bed, "mm");
        uint64_t seq = load_begin(bed, 10, FAST, 0);

        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);

        ck_assert_uint_le(pull.budget_ns, 4 * MS);
        fake_advance(&bed->fake, 3 * MS);
        for (uint32_t i = 0; i < SL_COUNT(codes); i++) {
            codes[i] = SL_ERR_TIMEOUT;
        }
        answer(bed, "transporter.0", &pull,
               (struct sl_msg){.body.bring_reply.codes = {codes, SL_COUNT(codes)}});
        copies(bed, 2);
        ends_with(bed, seq, 2, 0);
        ck_assert_uint_eq(counted(bed, "soft_deadlines_missed"), 1);
        bed_end(bed);
    }
END_TEST

/* A node that is repeatedly too slow is tried again after a long pause. */
START_TEST(nodes_of_which_nothing_came_in_time_are_seldom_asked)
    {
        struct bed *bed = bed_with("mm", 0, 0);
        sl_index_set_remote(bed->index, true);
        uint64_t seq = load_begin(bed, 10, FAST, 0);
        uint32_t asked = 0;
        for (uint32_t i = 0; i < 25; i++) {
            if (sent(bed, "transporter.0", SL_MSG_BRING)) {
                asked++;
                fake_advance(&bed->fake, 4 * MS);
            }
            copies(bed, 2);
            ends_with(bed, seq, 2, 0);
            seq = load_send(bed, 2 + i, 10, FAST, 0);
            answer_keys(bed);
        }

        ck_assert_uint_eq(asked, 4);
        bed_end(bed);
    }
END_TEST

START_TEST(nodes_that_are_slower_than_computing_are_not_asked)
    {
        struct bed *bed = bed_with("mm", 0, 0);
        sl_index_set_remote(bed->index, true);
        (void)load_begin(bed, 3, 0, 0);
        struct sl_msg fetch = take(bed, "transporter.0", SL_MSG_BRING);
        fake_advance(&bed->fake, 10 * MS); /* for a block */
        index_put(bed, 2, true, PART_BYTES);
        uint64_t codes[RANKS] = {0};
        answer(bed, "transporter.0", &fetch,
               (struct sl_msg){.body.bring_reply.codes = {codes, RANKS}});
        copies(bed, 3);

        uint64_t seq = load_send(bed, 2, 10, FAST, 0);
        answer_keys(bed);

        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING));
        copies(bed, 3);
        ends_with(bed, seq, 3, 0);
        ck_assert_uint_eq(counted(bed, "fetches_spared"), 1);
        bed_end(bed);
    }
END_TEST

static Suite *waiting_suite(void)
{
    Suite *suite = suite_create("coordinator_waiting");
    TCase *plan = tcase_create("plan");
    tcase_add_loop_test(plan, the_cut_makes_the_first_token_soonest, 0, SL_COUNT(plans));
    tcase_add_test(plan, what_is_left_is_prefetched);
    tcase_add_test(plan, what_is_left_is_prefetched_a_little_at_a_time);
    tcase_add_test(plan, nothing_is_prefetched_beside_loads);
    tcase_add_test(plan, one_prefetch_is_in_flight);
    tcase_add_test(plan, a_plan_is_of_all_slices);
    tcase_add_test(plan, loads_ahead_count);
    suite_add_tcase(suite, plan);
    TCase *soft = tcase_create("soft deadline");
    tcase_add_loop_test(soft, a_load_waits_no_longer_than_computing_takes, 0, SL_COUNT(waits));
    tcase_add_test(soft, without_a_rate_it_waits_to_its_deadline);
    tcase_add_test(soft, the_prefix_that_came_by_then_is_taken);
    tcase_add_test(soft, the_promote_ends_with_the_soft_deadline);
    tcase_add_test(soft, what_cannot_be_read_at_the_moment_is_soon_left);
    tcase_add_test(soft, what_came_by_the_last_try_ends_no_load);
    tcase_add_test(soft, what_is_refused_behind_the_first_block_ends_no_load);
    tcase_add_test(soft, a_rest_that_comes_at_once_is_waited_for);
    tcase_add_test(soft, a_disk_that_was_slower_is_believed_less);
    suite_add_tcase(suite, soft);
    TCase *nodes = tcase_create("nodes");
    tcase_add_loop_test(nodes, other_nodes_are_waited_for_as_long, 0, SL_COUNT(slow_nodes));
    tcase_add_test(nodes, what_goes_straight_into_pools_is_waited_for_as_long);
    tcase_add_test(nodes, nodes_of_which_nothing_came_in_time_are_seldom_asked);
    tcase_add_test(nodes, nodes_that_are_slower_than_computing_are_not_asked);
    suite_add_tcase(suite, nodes);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(waiting_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
