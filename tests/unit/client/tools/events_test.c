/* tests/unit/client/tools/events_test.c - which events are published for blocks, their bytes, and a
 * subscriber's view of them. */
#include "client/tools/events/batch.h"
#include "client/tools/events/publish.h"
#include "runtime/base/sl_digest.h"
#include "tests/support/events_subscribe.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <inttypes.h>

/* ---- golden bytes: made by vLLM 0.32's own classes and msgspec; the model and the incarnation are
 * put in ---- */

static const char golden_map[] =
    "93cb3ff80000000000009481a474797065b0416c6c426c6f636b73436c656172656489a474797065ab426c6f63"
    "6b53746f726564ac626c6f636b5f68617368657392cfffffffffffffffff05b1706172656e745f626c6f636b5f"
    "68617368c0a9746f6b656e5f69647390aa626c6f636b5f73697a6510a76c6f72615f6964c0a66d656469756da3"
    "435055a96c6f72615f6e616d65c0a967726f75705f6964780288a474797065ab426c6f636b53746f726564ac62"
    "6c6f636b5f686173686573920708b1706172656e745f626c6f636b5f68617368fda9746f6b656e5f69647390aa"
    "626c6f636b5f73697a6510a76c6f72615f6964c0a66d656469756da44449534ba96c6f72615f6e616d65c083a4"
    "74797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739109a66d656469756da343505503";
static const char golden_int[] =
    "93cb3ff80000000000009482a474797065b0416c6c426c6f636b73436c6561726564ab696e6361726e6174696f"
    "6ecf0006608b015f30008aa474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cfffff"
    "ffffffffffff05b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f69647390aa626c6f636b5f73"
    "697a6510a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65c0a967726f75705f696478"
    "02a56d6f64656ca16d89a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573920708b170"
    "6172656e745f626c6f636b5f68617368fda9746f6b656e5f69647390aa626c6f636b5f73697a6510a76c6f7261"
    "5f6964c0a66d656469756da44449534ba96c6f72615f6e616d65c0a56d6f64656ca16d84a474797065ac426c6f"
    "636b52656d6f766564ac626c6f636b5f6861736865739109a66d656469756da3435055a56d6f64656ca16d03";
static const char golden_bytes[] =
    "93cb3ff80000000000009482a474797065b0416c6c426c6f636b73436c6561726564ab696e6361726e6174696f"
    "6ecf0006608b015f30008aa474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392c410ff"
    "ffffffffffffffffffffffffffffffc41005050505050505050505050505050505b1706172656e745f626c6f63"
    "6b5f68617368c0a9746f6b656e5f69647390aa626c6f636b5f73697a6510a76c6f72615f6964c0a66d65646975"
    "6da3435055a96c6f72615f6e616d65c0a967726f75705f69647802a56d6f64656ca16d89a474797065ab426c6f"
    "636b53746f726564ac626c6f636b5f68617368657392c41007070707070707070707070707070707c410080808"
    "08080808080808080808080808b1706172656e745f626c6f636b5f68617368c410060606060606060606060606"
    "06060606a9746f6b656e5f69647390aa626c6f636b5f73697a6510a76c6f72615f6964c0a66d656469756da444"
    "49534ba96c6f72615f6e616d65c0a56d6f64656ca16d84a474797065ac426c6f636b52656d6f766564ac626c6f"
    "636b5f68617368657391c41009090909090909090909090909090909a66d656469756da3435055a56d6f64656c"
    "a16d03";
static const char golden_array[] =
    "93cb3ff80000000000009491b0416c6c426c6f636b73436c656172656498ab426c6f636b53746f72656492cfff"
    "ffffffffffffff05c09010c0a3435055c098ab426c6f636b53746f726564920708fd9010c0a44449534bc093ac"
    "426c6f636b52656d6f7665649109a3435055c0";

struct collected {
    uint8_t bytes[1 << 20];
    size_t length;
    uint32_t count;
};
static struct collected collected;

static void collect(void *context, const void *payload, size_t length_bytes)
{
    struct collected *to = context;
    ck_assert_uint_le(length_bytes, sizeof(to->bytes));
    memcpy(to->bytes, payload, length_bytes);
    to->length = length_bytes;
    to->count++;
}

static struct ev_hash hash_of(uint64_t number, bool is_signed)
{
    struct ev_hash hash = {.number = number, .is_signed = is_signed, .length = 16};
    memset(hash.bytes, (int)(number & 255), 16);
    return hash;
}

static void golden_add(struct ev_batch *batch, bool bytes)
{
    static const int here, there;
    const struct ev_hash first = hash_of(UINT64_MAX, false), five = hash_of(5, false),
                         six = hash_of(bytes ? 6 : (uint64_t)-3, true), seven = hash_of(7, false),
                         eight = hash_of(8, false), nine = hash_of(9, false);
    struct ev_event event = {.type = EV_CLEARED};
    ev_batch_time(batch, 1.5);
    ev_batch_add(batch, &event);
    event = (struct ev_event){.type = EV_STORED,
                              .medium = EV_MEMORY,
                              .hash = &first,
                              .model = "m",
                              .group_index = 2,
                              .family = &here};
    ev_batch_add(batch, &event);
    event.hash = &five; /* together with the one before: neither has a parent */
    ev_batch_add(batch, &event);
    event = (struct ev_event){.type = EV_STORED,
                              .medium = EV_DISK,
                              .hash = &seven,
                              .parent = &six,
                              .model = "m",
                              .group_index = SL_BLOCK_NO_GROUP,
                              .family = &there};
    ev_batch_add(batch, &event);
    event.hash = &eight; /* continues the chain */
    event.parent = &seven;
    ev_batch_add(batch, &event);
    event.type = EV_REMOVED;
    event.medium = EV_MEMORY;
    event.hash = &nine;
    event.parent = NULL;
    ev_batch_add(batch, &event);
    ev_batch_flush(batch, false);
}

static const struct {
    const char *bytes;
    struct ev_form form;
} golden[] = {
    {golden_map, {.block_size = 16, .rank = 3, .media = {"CPU", "DISK"}}},
    {golden_int, {.ours = true, .block_size = 16, .rank = 3, .media = {"CPU", "DISK"}}},
    {golden_bytes,
     {.ours = true, .bytes = true, .block_size = 16, .rank = 3, .media = {"CPU", "DISK"}}},
    {golden_array, {.array = true, .block_size = 16, .rank = EV_NO_RANK, .media = {"CPU", "DISK"}}},
};

START_TEST(messages_are_those_of_vllm_byte_by_byte)
    {
        struct ev_batch *batch = NULL;
        char text[3];
        ck_assert_int_eq(ev_batch_create(&golden[_i].form, UINT64_C(1795000000000000), collect,
                                         &collected, &batch, NULL),
                         SL_OK);

        golden_add(batch, golden[_i].form.bytes);

        ck_assert_uint_eq(collected.count, 1);
        ck_assert_uint_eq(collected.length, strlen(golden[_i].bytes) / 2);
        for (size_t i = 0; i < collected.length; i++) {
            (void)snprintf(text, sizeof(text), "%02x", collected.bytes[i]);
            ck_assert_msg(memcmp(text, golden[_i].bytes + 2 * i, 2) == 0, "byte %zu", i);
        }
        ev_batch_destroy(&batch);
    }
END_TEST

START_TEST(an_empty_message_goes_when_it_is_asked_for)
    {
        struct ev_batch *batch = NULL;
        struct ev_message message;
        ck_assert_int_eq(ev_batch_create(&golden[0].form, 77, collect, &collected, &batch, NULL),
                         SL_OK);
        ev_batch_flush(batch, false);
        ck_assert_uint_eq(collected.count, 0);
        ev_batch_flush(batch, true);
        ck_assert_uint_eq(collected.count, 1);
        ck_assert_int_eq(ev_message_decode(collected.bytes, collected.length, 1, false, NULL, NULL,
                                           &message, NULL),
                         SL_OK);
        ck_assert_uint_eq(message.event_count, 0);
        ev_batch_destroy(&batch);
    }
END_TEST

START_TEST(a_message_of_the_release_before_is_read)
    {
        static const uint8_t with_incarnation[] = {0x94, 0xcb, 0x3f, 0xf8, 0,    0, 0,
                                                   0,    0,    0,    0x90, 0xc0, 77};
        struct ev_message message;
        ck_assert_int_eq(ev_message_decode(with_incarnation, sizeof(with_incarnation), 1, false,
                                           NULL, NULL, &message, NULL),
                         SL_OK);
        ck_assert_double_eq(message.time_s, 1.5);
    }
END_TEST

/* ---- a mirror: what a subscriber believes ---- */

#define MIRROR_MAX 4096u
struct mirror {
    struct {
        uint64_t number;
        char medium[64];
        bool there;
    } rows[MIRROR_MAX];
    uint32_t count, events, twice;
};

static void mirror_take(void *context, const struct ev_heard *heard)
{
    struct mirror *mirror = context;
    uint32_t at = 0;
    mirror->events++;
    if (heard->type == EV_CLEARED) {
        mirror->count = 0;
        return;
    }
    while (at < mirror->count && (mirror->rows[at].number != heard->hash.number ||
                                  strcmp(mirror->rows[at].medium, heard->medium) != 0)) {
        at++;
    }
    if (heard->type == EV_REMOVED) {
        mirror->twice += at == mirror->count;
        if (at < mirror->count) {
            mirror->rows[at] = mirror->rows[--mirror->count];
        }
        return;
    }
    mirror->twice += at < mirror->count;
    if (at == mirror->count) {
        ck_assert_uint_lt(mirror->count, MIRROR_MAX);
        mirror->rows[at].number = heard->hash.number;
        (void)snprintf(mirror->rows[at].medium, sizeof(mirror->rows[at].medium), "%s",
                       heard->medium);
        mirror->count++;
    }
}

static bool mirror_has(const struct mirror *mirror, uint64_t number, const char *medium)
{
    for (uint32_t i = 0; i < mirror->count; i++) {
        if (mirror->rows[i].number == number && strcmp(mirror->rows[i].medium, medium) == 0) {
            return true;
        }
    }
    return false;
}

static void mirror_message(void *context, const void *payload, size_t length_bytes)
{
    struct ev_message message;
    struct sl_error why = {0};
    ck_assert_sl_ok(
        ev_message_decode(payload, length_bytes, 1, false, mirror_take, context, &message, &why),
        why);
}

/* A table of blocks whose events go through messages to a mirror. */
struct bench {
    struct ev_blocks *blocks;
    struct ev_batch *batch;
    struct mirror *mirror;
};

static struct bench bench_make(struct mirror *mirror, const char *model)
{
    const struct ev_form form = {.rank = EV_NO_RANK, .media = {"CPU", "DISK"}};
    struct bench bench = {.mirror = mirror};
    ck_assert_int_eq(ev_blocks_create(model, &bench.blocks, NULL), SL_OK);
    ck_assert_int_eq(ev_batch_create(&form, 1, mirror_message, mirror, &bench.batch, NULL), SL_OK);
    return bench;
}

static void bench_remove(struct bench *bench)
{
    ev_blocks_destroy(&bench->blocks);
    ev_batch_destroy(&bench->batch);
}

static void settle(struct bench *bench)
{
    ev_blocks_settle(bench->blocks, ev_batch_add, bench->batch);
    ev_batch_flush(bench->batch, false);
}

static void key_is(struct bench *bench, const char *key, bool there, bool memory, bool disk)
{
    struct sl_index_change change = {.id = sl_key_id(key, (uint32_t)strlen(key)), .there = there};
    if (there) {
        change.memory = memory;
        change.disk = disk;
        change.key = key;
        change.key_length = (uint32_t)strlen(key);
    }
    ck_assert(ev_blocks_change(bench->blocks, &change));
}

#define H48  "0123456789abcdef0123456789abcdef0123456789abcdef"
#define RANK "m@tp_rank:%u@pcp0@dcp0@pp_rank:0@group:0@" H48 "%016" PRIx64
static const char *vllm_key(uint32_t rank, uint64_t number)
{
    static char key[256];
    (void)snprintf(key, sizeof(key), RANK, rank, number);
    return key;
}

static struct mirror mirror, late;

START_TEST(a_block_is_told_when_its_last_part_is_there)
    {
        struct bench bench = bench_make(&mirror, "");
        key_is(&bench, vllm_key(0, 1), true, true, false);
        key_is(&bench, vllm_key(1, 1), true, true, false); /* so the family has two parts */
        key_is(&bench, vllm_key(0, 2), true, true, false);
        settle(&bench);
        ck_assert(mirror_has(&mirror, 1, "CPU"));
        ck_assert(!mirror_has(&mirror, 2, "CPU"));

        key_is(&bench, vllm_key(1, 2), true, true, false);
        settle(&bench);
        ck_assert(mirror_has(&mirror, 2, "CPU"));

        key_is(&bench, vllm_key(0, 2), false, false, false);
        settle(&bench);
        ck_assert(!mirror_has(&mirror, 2, "CPU"));
        ck_assert_uint_eq(mirror.twice, 0);
        ck_assert_uint_eq(mirror.events, 4); /* with CLEARED at the start */
        bench_remove(&bench);
    }
END_TEST

START_TEST(a_block_is_in_each_tier_that_has_all_of_it)
    {
        struct bench bench = bench_make(&mirror, "");
        key_is(&bench, vllm_key(0, 1), true, true, true);
        key_is(&bench, vllm_key(1, 1), true, true, false);
        settle(&bench);
        ck_assert(mirror_has(&mirror, 1, "CPU") && !mirror_has(&mirror, 1, "DISK"));
        key_is(&bench, vllm_key(1, 1), true, true, true);
        settle(&bench);
        ck_assert(mirror_has(&mirror, 1, "CPU") && mirror_has(&mirror, 1, "DISK"));
        key_is(&bench, vllm_key(0, 1), true, false, true);
        settle(&bench);
        ck_assert(!mirror_has(&mirror, 1, "CPU") && mirror_has(&mirror, 1, "DISK"));
        bench_remove(&bench);
    }
END_TEST

START_TEST(a_part_that_no_block_has_any_more_is_not_waited_for)
    {
        struct bench bench = bench_make(&mirror, "");
        for (uint64_t number = 1; number <= 3; number++) {
            key_is(&bench, vllm_key(0, number), true, true, false);
        }
        key_is(&bench, vllm_key(1, 1), true, true, false);
        settle(&bench);
        ck_assert_uint_eq(mirror.count, 1);
        key_is(&bench, vllm_key(1, 1), false, false, false);
        settle(&bench);
        ck_assert_uint_eq(mirror.count, 3);
        bench_remove(&bench);
    }
END_TEST

START_TEST(the_end_of_all_blocks_is_one_event)
    {
        struct bench bench = bench_make(&mirror, "");
        for (uint64_t number = 1; number <= 100; number++) {
            key_is(&bench, vllm_key(0, number), true, true, number % 2 == 0);
        }
        settle(&bench);
        ck_assert_uint_eq(mirror.count, 150);
        uint32_t before = mirror.events;
        for (uint64_t number = 1; number <= 100; number++) {
            key_is(&bench, vllm_key(0, number), false, false, false);
        }
        settle(&bench);
        ck_assert_uint_eq(mirror.count, 0);
        ck_assert_uint_eq(mirror.events, before + 1);
        bench_remove(&bench);
    }
END_TEST

START_TEST(other_models_are_left_out_where_one_is_named)
    {
        struct bench bench = bench_make(&mirror, "n");
        key_is(&bench, vllm_key(0, 1), true, true, false);
        settle(&bench);
        ck_assert_uint_eq(mirror.count, 0);
        key_is(&bench, "n@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H48 "0000000000000001", true,
               true, false);
        settle(&bench);
        ck_assert_uint_eq(mirror.count, 1);
        bench_remove(&bench);
    }
END_TEST

/* Blocks of engines name the block before them. */
struct chain {
    uint64_t numbers[8], parents[8], committed_ns;
    uint32_t count;
};

static void chain_take(void *context, const struct ev_event *event)
{
    struct chain *chain = context;
    if (event->type == EV_STORED) {
        ck_assert_uint_lt(chain->count, 8);
        chain->numbers[chain->count] = event->hash->number;
        chain->committed_ns = event->committed_ns;
        chain->parents[chain->count++] = event->parent != NULL ? event->parent->number : 0;
    }
}

#define MODEL "00112233445566778899aabbccddeeff"
static void part_comes(struct ev_blocks *blocks, uint64_t number, uint64_t parent)
{
    char key[200], before[200];
    int block = snprintf(key, sizeof(key), MODEL "/" H48 "%016" PRIx64, number);
    (void)snprintf(before, sizeof(before), MODEL "/" H48 "%016" PRIx64, parent);
    int length = block + snprintf(key + block, sizeof(key) - (size_t)block, "/0/kv");
    const struct sl_index_change change = {
        .id = sl_key_id(key, (uint32_t)length),
        .there = true,
        .memory = true,
        .key = key,
        .key_length = (uint32_t)length,
        .block_length = (uint32_t)block,
        .committed_ns = 4711,
        .parent_hash = parent != 0 ? sl_key_hash(before, strlen(before)) : 0};
    ck_assert(ev_blocks_change(blocks, &change));
}

START_TEST(parents_are_told_before_their_children)
    {
        struct ev_blocks *blocks = NULL;
        struct chain chain = {0};
        ck_assert_int_eq(ev_blocks_create("", &blocks, NULL), SL_OK);
        part_comes(blocks, 3, 2);
        part_comes(blocks, 1, 0);
        part_comes(blocks, 2, 1);
        part_comes(blocks, 9, 8); /* whose parent is missing */
        part_comes(blocks, 5, 5); /* its own hash: a chain that ends in itself */
        ev_blocks_settle(blocks, chain_take, &chain);

        ck_assert_uint_eq(chain.count, 5);
        for (uint32_t i = 0; i < chain.count; i++) {
            uint64_t number = chain.numbers[i];
            uint64_t want = number == 1 || number == 9 ? 0 : number == 5 ? 5 : number - 1;
            ck_assert_uint_eq(chain.parents[i], want);
            bool before = want == 0 || want == number;
            for (uint32_t j = 0; j < i; j++) {
                before = before || chain.numbers[j] == want;
            }
            ck_assert_msg(before, "block %" PRIu64 " came before its parent", number);
        }
        ck_assert_uint_eq(chain.committed_ns, 0); /* its age is unknown */
        chain.count = 0;
        part_comes(blocks, 10, 9);
        ev_blocks_settle(blocks, chain_take, &chain);
        ck_assert_uint_eq(chain.count, 1);
        ck_assert_uint_eq(chain.committed_ns, 4711);
        ev_blocks_destroy(&blocks);
    }
END_TEST

/* Keys of two families are added, moved and removed; a mirror's view follows the index, and a
 * mirror that starts late has the same view. */
#define RANDOM_RANKS  3u
#define RANDOM_BLOCKS 40u
#define RANDOM_STEPS  3000u
START_TEST(a_mirror_is_what_is_there_after_any_order)
    {
        uint64_t seed = random_seed("events");
        static uint8_t tiers[2][RANDOM_RANKS]
                            [RANDOM_BLOCKS]; /* 0: not there; 1 memory, 2 disk; + 4 */
        struct bench bench = bench_make(&mirror, "");
        for (uint32_t step = 0; step < RANDOM_STEPS; step++) {
            for (uint64_t n = 1 + random_next(&seed) % 4; n > 0; n--) {
                uint32_t family = (uint32_t)(random_next(&seed) % 2);
                uint32_t rank = (uint32_t)(random_next(&seed) % RANDOM_RANKS);
                uint32_t block = (uint32_t)(random_next(&seed) % RANDOM_BLOCKS);
                uint8_t now = (uint8_t)(random_next(&seed) % 4);
                bool sweep = random_next(&seed) % 500 == 0; /* all are removed */
                for (uint32_t f = 0; f < 2 * RANDOM_RANKS * RANDOM_BLOCKS; f++) {
                    uint8_t *at = &tiers[0][0][0] + f;
                    bool meant = at == &tiers[family][rank][block];
                    if (!meant && !(sweep && *at != 0)) {
                        continue;
                    }
                    *at = sweep ? 0 : (uint8_t)(now == 0 ? 0 : now | 4);
                    char key[300];
                    (void)snprintf(key, sizeof(key), "%s%s",
                                   f / (RANDOM_RANKS * RANDOM_BLOCKS) == 0 ? "a" : "b",
                                   vllm_key(f / RANDOM_BLOCKS % RANDOM_RANKS,
                                            f % RANDOM_BLOCKS + 1 +
                                                1000 * (f / (RANDOM_RANKS * RANDOM_BLOCKS))));
                    key_is(&bench, key, *at != 0, (*at & 1) != 0, (*at & 2) != 0);
                }
            }
            settle(&bench);
            uint32_t there = 0;
            for (uint32_t family = 0; family < 2; family++) {
                uint32_t parts = 0; /* that some block has */
                for (uint32_t rank = 0; rank < RANDOM_RANKS; rank++) {
                    bool live = false;
                    for (uint32_t block = 0; block < RANDOM_BLOCKS; block++) {
                        live = live || tiers[family][rank][block] != 0;
                    }
                    parts += live;
                }
                for (uint32_t block = 0; block < RANDOM_BLOCKS; block++) {
                    for (uint8_t bit = 1; bit <= 2; bit++) {
                        uint32_t have = 0;
                        for (uint32_t rank = 0; rank < RANDOM_RANKS; rank++) {
                            have += (tiers[family][rank][block] & bit) != 0;
                        }
                        bool whole = parts > 0 && have == parts;
                        there += whole;
                        ck_assert_int_eq(mirror_has(&mirror, block + 1 + 1000 * family,
                                                    bit == 1 ? "CPU" : "DISK"),
                                         whole);
                    }
                }
            }
            ck_assert_uint_eq(mirror.count, there);
            if (step % 100 == 0) {
                const struct ev_form form = {.rank = EV_NO_RANK, .media = {"CPU", "DISK"}};
                struct ev_batch *batch = NULL;
                ck_assert_int_eq(ev_batch_create(&form, 1, mirror_message, &late, &batch, NULL),
                                 SL_OK);
                ev_blocks_report_all(bench.blocks, ev_batch_add, batch);
                ev_batch_flush(batch, true);
                ck_assert_uint_eq(late.count, mirror.count);
                for (uint32_t i = 0; i < mirror.count; i++) {
                    ck_assert(mirror_has(&late, mirror.rows[i].number, mirror.rows[i].medium));
                }
                ev_batch_destroy(&batch);
            }
        }
        ck_assert_uint_eq(mirror.twice, 0); /* nothing was reported twice */
        bench_remove(&bench);
    }
END_TEST

/* ---- requests ---- */

static const struct {
    uint64_t asked, first, next;
    bool snapshot;
} plans[] = {
    {0, 100, 200, true},                                  /* all that there is */
    {99, 100, 200, true},                                 /* not kept any more */
    {100, 100, 200, false},       {200, 100, 200, false}, /* it has all */
    {201, 100, 200, true},                                /* of another life */
    {UINT64_MAX, 100, 200, true}, {100, 100, 100, false}, /* nothing is kept, and none was missed */
};

START_TEST(what_is_not_kept_is_answered_by_a_snapshot)
    {
        struct ev_replay_plan plan =
            ev_replay_plan(plans[_i].asked, plans[_i].first, plans[_i].next);
        ck_assert_int_eq(plan.snapshot, plans[_i].snapshot);
    }
END_TEST

START_TEST(other_frames_are_no_request)
    {
        const uint8_t bytes[] = {0, 0, 0, 0, 0, 0, 1, 2, 3};
        const void *frames[] = {bytes, bytes, bytes, bytes};
        uint64_t asked = 0;
        ck_assert(ev_request_parse(frames, (const size_t[]){5, 0, 8}, 3, &asked));
        ck_assert_uint_eq(asked, 258);
        ck_assert(!ev_request_parse(frames, (const size_t[]){5, 0, 7}, 3, &asked));
        ck_assert(!ev_request_parse(frames, (const size_t[]){5, 0, 9}, 3, &asked));
        ck_assert(!ev_request_parse(frames, (const size_t[]){5, 1, 8}, 3, &asked));
        ck_assert(!ev_request_parse(frames, (const size_t[]){0, 0, 8}, 3, &asked));
        ck_assert(!ev_request_parse(frames, (const size_t[]){5, 8}, 2, &asked));
        ck_assert(!ev_request_parse(frames, (const size_t[]){5, 0, 8, 1}, 4, &asked));
    }
END_TEST

static void ignore(void *context, const struct ev_heard *heard)
{
    (void)context, (void)heard;
}

/* Some messages claim more elements than they have bytes. If memory for those is missing, the
 * unpacker returns an error. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=64";
}

START_TEST(any_bytes_are_a_message_or_an_error)
    {
        uint64_t seed = random_seed("events");
        struct ev_batch *batch = NULL;
        struct ev_message message;
        ck_assert_int_eq(ev_batch_create(&golden[_i].form, 1, collect, &collected, &batch, NULL),
                         SL_OK);
        golden_add(batch, golden[_i].form.bytes);
        for (uint32_t round = 0; round < 100000; round++) {
            size_t length = collected.length - random_next(&seed) % 4;
            uint8_t *bytes = malloc(length);
            memcpy(bytes, collected.bytes, length);
            for (uint64_t n = random_next(&seed) % 5; n > 0; n--) {
                bytes[random_next(&seed) % length] = (uint8_t)random_next(&seed);
            }
            (void)ev_message_decode(bytes, length, 1, false, ignore, NULL, &message, NULL);
            free(bytes);
        }
        ev_batch_destroy(&batch);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("events");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, messages_are_those_of_vllm_byte_by_byte, 0, SL_COUNT(golden));
    tcase_add_test(tcase, an_empty_message_goes_when_it_is_asked_for);
    tcase_add_test(tcase, a_message_of_the_release_before_is_read);
    tcase_add_test(tcase, a_block_is_told_when_its_last_part_is_there);
    tcase_add_test(tcase, a_block_is_in_each_tier_that_has_all_of_it);
    tcase_add_test(tcase, a_part_that_no_block_has_any_more_is_not_waited_for);
    tcase_add_test(tcase, the_end_of_all_blocks_is_one_event);
    tcase_add_test(tcase, other_models_are_left_out_where_one_is_named);
    tcase_add_test(tcase, parents_are_told_before_their_children);
    tcase_add_test(tcase, a_mirror_is_what_is_there_after_any_order);
    tcase_add_loop_test(tcase, what_is_not_kept_is_answered_by_a_snapshot, 0, SL_COUNT(plans));
    tcase_add_test(tcase, other_frames_are_no_request);
    tcase_add_loop_test(tcase, any_bytes_are_a_message_or_an_error, 0, SL_COUNT(golden));
    return suite_run(tcase, "events");
}
