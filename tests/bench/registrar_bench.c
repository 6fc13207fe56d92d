/* tests/bench/registrar_bench.c - the registrar's CPU time for each value that is committed into
 * full memory, with the policies lru and density in turns.
 *
 *   registrar_bench [BLOCKS] [--turns N] [--shape NAME] [--policies A B] [--json]
 *
 * Two registrars, one for each policy (lru and density; the same twice shows the noise), run in
 * a fake environment: BLOCKS values of 4 KiB fill the memory of each (default 16384). Before the
 * measurement, enough values are evicted that density has all of its ghosts. Then each turn puts
 * the same keys to both, and the first changes from turn to turn. The bench measures this
 * thread's CPU time from the frame of a RESERVE or COMMIT to the frame of its reply: decoding,
 * evicting and encoding, without mailboxes and copies of values, less the time of reading the
 * clock. It prints medians over the turns, and the difference as the median of pairs.
 *
 * Shapes: objects without a block; the same, with every fourth evicted some time ago; blocks of
 * one part in chains: a batch is a chain, and so are 64 batches of one. */
#include "tests/unit/actors/registrar/registrar_support.h"

#include "runtime/base/sl_digest.h"

#include <inttypes.h>
#include <time.h>

#define KEY_BYTES   128u
#define VALUE_BYTES 4096u
#define BATCH_MAX   1000u
#define TURN_VALUES 4000u /* a turn; in batches of one a fourth of it */
#define TURNS_MAX   1000u
#define CHAIN       64u
#define GHOSTS      4u /* ghosts a unit; and at least GHOSTS_MIN */
#define GHOSTS_MIN  65536u
#define FRAME_BYTES (8 * SL_MIB)

enum shape { SHAPE_OBJECTS, SHAPE_AGAIN, SHAPE_CHAINS, SHAPE_COUNT };
static const char *const shape_names[SHAPE_COUNT] = {"objects", "objects_again", "chains"};
static const char *policies[2] = {"lru", "density"}; /* lru twice shows the noise */

struct side {
    struct fake_env fake;
    uint64_t cpu_ns, committed; /* in this turn */
    struct sl_index_stats index;
};

struct bench {
    struct side sides[2];
    struct sl_codec *codec; /* the sender's */
    uint64_t block_count;
    uint32_t turn_count;
    uint64_t clock_ns; /* time that reading the clock takes */
    char keys[2][BATCH_MAX][KEY_BYTES];
    struct sl_item_want wants[BATCH_MAX];
    struct sl_item_group groups[BATCH_MAX];
    struct sl_item_claim claims[BATCH_MAX];
};

struct figures {
    enum shape shape;
    uint32_t batch;
    double ns[2], difference_ns, index_bytes[2];
    uint64_t committed[2];
};

static struct bench bench;
static bool json;
static const char *only;    /* this shape; NULL: all */
static uint32_t only_batch; /* batches of this size only; 0: all */
static uint64_t index_keys; /* number of keys that the table is made for; 0: the number of keys
                             * used */

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void check(sl_err err, const struct sl_error *why)
{
    if (err != SL_OK) {
        fprintf(stderr, "registrar_bench: %s: %s\n", sl_err_name(err), why->text);
        exit(1);
    }
}

static int order(const void *a, const void *b)
{
    double one = *(const double *)a;
    double other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median(double *all, uint32_t count)
{
    qsort(all, count, sizeof(*all), order);
    return all[count / 2];
}

static void clock_measure(void)
{
    double all[1001];
    for (uint32_t i = 0; i < SL_COUNT(all); i++) {
        uint64_t began = cpu_ns();
        all[i] = (double)(cpu_ns() - began);
    }
    bench.clock_ns = (uint64_t)median(all, SL_COUNT(all));
}

/* ---- messages ---- */

/* From the frame to the reply's frame. */
static void ask(struct side *side, struct sl_msg *msg, struct sl_msg *reply)
{
    struct sl_error why = {0};
    struct sl_msg decoded;
    const void *frame;
    size_t length;
    msg->sender = sl_text_of("client.1");
    msg->seq = ++side->fake.seq;
    msg->budget_ns = 2 * SL_NS_PER_S;
    check(sl_codec_encode(bench.codec, msg, &frame, &length, &why), &why);
    side->fake.env.now_ns += SL_NS_PER_US;
    uint64_t began = cpu_ns();
    sl_err err = sl_codec_decode(side->fake.give_codec, frame, length, &decoded, &why);
    if (err == SL_OK) {
        decoded.received_ns = side->fake.env.now_ns;
        err = side->fake.actor->handle(side->fake.state, &decoded);
    }
    uint64_t took = cpu_ns() - began;
    check(err, &why);
    side->cpu_ns += took - SL_MIN(took, bench.clock_ns);
    ck_assert(fake_take_reply(&side->fake, "client.1", msg->seq, reply));
    ck_assert_int_eq(reply->code, SL_OK);
}

static void put(struct side *side, const struct sl_body_reserve *want)
{
    static const struct sl_error none = {0};
    struct sl_msg msg = {.type = SL_MSG_RESERVE}, reply;
    uint32_t count = 0;
    msg.body.reserve = *want;
    msg.op_id = want->groups.count > 0 ? side->fake.seq : 0;
    ask(side, &msg, &reply);
    for (uint64_t i = 0; i < reply.body.reserve_reply.items.count; i++) {
        const struct sl_item_grant *grant = &reply.body.reserve_reply.items.at[i];
        /* busy: the same value twice in one batch */
        if (grant->code != SL_OK && grant->code != SL_ERR_EXISTS && grant->code != SL_ERR_BUSY) {
            check((sl_err)grant->code, &none);
        }
        if (grant->code == SL_OK) {
            bench.claims[count++] = (struct sl_item_claim){
                .ref = grant->ref, .generation = grant->generation, .digest_low = i};
        }
    }
    if (count == 0) {
        return;
    }
    struct sl_msg commit = {.type = SL_MSG_COMMIT};
    commit.body.commit.tail_first = want->groups.count > 0;
    commit.body.commit.items.at = bench.claims;
    commit.body.commit.items.count = count;
    ask(side, &commit, &reply);
    for (uint64_t i = 0; i < reply.body.commit_reply.codes.count; i++) {
        check((sl_err)reply.body.commit_reply.codes.at[i], &none);
    }
    side->committed += count;
}

/* ---- what is put ---- */

static struct sl_text key_make(char *out, uint64_t number, bool part)
{
    int length = snprintf(out, KEY_BYTES,
                          "0123456789abcdef0123456789abcdef/%016" PRIx64 "%016" PRIx64 "%016" PRIx64
                          "%016" PRIx64 "%s",
                          mix(number), mix(number + 1), mix(number + 2), mix(number + 3),
                          part ? "/0/kv" : "");
    return (struct sl_text){.at = out, .length = (uint64_t)length};
}

static struct sl_text object_key_make(char *out, uint64_t number)
{
    int length =
        snprintf(out, KEY_BYTES, "model/%016" PRIx64 "%016" PRIx64, mix(number), mix(number + 1));
    return (struct sl_text){.at = out, .length = (uint64_t)length};
}

/* Every fourth value has a key that was used long ago, so that most of those have left memory. */
static uint64_t again(uint64_t number)
{
    uint64_t back = bench.block_count + mix(number) % (2 * bench.block_count);
    return number % 4 == 3 && number > back ? number - back : number;
}

static uint64_t hash_before(uint64_t number, uint32_t batch)
{
    char key[KEY_BYTES];
    uint64_t place = number % (batch == 1 ? CHAIN : batch);
    struct sl_text text = key_make(key, number - 1, false);
    return place == 0 ? 0 : sl_key_hash(text.at, text.length);
}

/* Values number first and on. */
static void request_make(enum shape shape, uint64_t first, uint32_t batch,
                         struct sl_body_reserve *out)
{
    *out = (struct sl_body_reserve){0};
    for (uint32_t i = 0; i < batch; i++) {
        uint64_t number = shape == SHAPE_AGAIN ? again(first + i) : first + i;
        bench.wants[i] = (struct sl_item_want){.length_bytes = VALUE_BYTES};
        if (shape != SHAPE_CHAINS) {
            bench.wants[i].key = object_key_make(bench.keys[0][i], number);
            continue;
        }
        bench.wants[i].key = key_make(bench.keys[0][i], number, true);
        bench.wants[i].group = i + 1;
        bench.groups[i] = (struct sl_item_group){.key = key_make(bench.keys[1][i], number, false),
                                                 .part_count = 1,
                                                 .parent_hash = hash_before(number, batch),
                                                 .stored_count = batch,
                                                 .cut = i + 1 == batch && batch > 1};
    }
    out->items.at = bench.wants;
    out->items.count = batch;
    out->groups.at = bench.groups;
    out->groups.count = shape == SHAPE_CHAINS ? batch : 0;
}

static void turn(enum shape shape, uint32_t batch, uint32_t values, uint64_t *next, uint32_t who)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct side *side = &bench.sides[(i + who) % 2];
        side->cpu_ns = 0;
        side->committed = 0;
        for (uint64_t at = 0; at < values; at += batch) {
            struct sl_body_reserve want;
            request_make(shape, *next + at, batch, &want);
            put(side, &want);
        }
        fake_advance(&side->fake, 200 * SL_NS_PER_MS);
    }
    *next += values;
}

/* ---- all ---- */

static void side_open(struct side *side, const char *policy, enum shape shape)
{
    static const char *const none[] = {NULL};
    char text[32];
    struct sl_error why = {0};
    uint64_t keys = bench.block_count * (shape == SHAPE_CHAINS ? 2 : 1);
    struct sl_msg hello = {.type = SL_MSG_HELLO}, reply;
    struct sl_proc_id proc = {.pid = 7, .start_time = 1007};
    fake_open(&side->fake, &sl_registrar_actor, none);
    snprintf(text, sizeof(text), "%" PRIu64, sl_align_up(bench.block_count * VALUE_BYTES, SL_MIB));
    fake_set(&side->fake, "memory", text);
    fake_set(&side->fake, "memory_chunk", text);
    snprintf(text, sizeof(text), "%" PRIu64,
             sl_align_up((keys + index_keys / 40) * 400 + 4 * SL_MIB, SL_MIB));
    fake_set(&side->fake, "index_memory", text);
    snprintf(text, sizeof(text), "%" PRIu64, index_keys != 0 ? index_keys : keys);
    fake_set(&side->fake, "index_keys", text);
    fake_set(&side->fake, "reservations_max", "4096");
    fake_set(&side->fake, "disk", "0");
    fake_set(&side->fake, "evict_policy", policy);
    check(fake_start(&side->fake, &why), &why);
    fake_process_add(&side->fake, proc);
    hello.body.hello = (struct sl_body_hello){.role = sl_text_of("client"),
                                              .name = sl_text_of("client.1"),
                                              .pid = proc.pid,
                                              .start_time = proc.start_time};
    fake_give(&side->fake, "client.1", &hello);
    ck_assert(fake_take_reply(&side->fake, "client.1", hello.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
}

static void side_close(struct side *side)
{
    struct sl_index_view *view = NULL;
    struct sl_error why = {0};
    check(sl_index_view_open(side->fake.paths.shm_dir, &view, &why), &why);
    sl_index_view_stats(view, &side->index);
    sl_index_view_close(&view);
    fake_close(&side->fake);
}

static void measure_shape(struct figures *out)
{
    static double ns[2][TURNS_MAX], differences[TURNS_MAX];
    uint64_t next = BATCH_MAX;
    uint64_t fill = bench.block_count + SL_MAX(bench.block_count * GHOSTS, GHOSTS_MIN);
    uint32_t values = out->batch == 1 ? TURN_VALUES / 4 : TURN_VALUES;
    for (uint32_t i = 0; i < 2; i++) {
        side_open(&bench.sides[i], policies[i], out->shape);
    }
    while (next < fill) {
        turn(out->shape, BATCH_MAX, TURN_VALUES, &next, 0);
    }
    for (uint32_t at = 0; at < bench.turn_count; at++) {
        turn(out->shape, out->batch, values, &next, at);
        for (uint32_t i = 0; i < 2; i++) {
            ns[i][at] = (double)bench.sides[i].cpu_ns / (double)bench.sides[i].committed;
            out->committed[i] += bench.sides[i].committed;
        }
        differences[at] = ns[1][at] - ns[0][at];
    }
    out->difference_ns = median(differences, bench.turn_count);
    for (uint32_t i = 0; i < 2; i++) {
        out->ns[i] = median(ns[i], bench.turn_count);
        side_close(&bench.sides[i]);
        const struct sl_index_stats *index = &bench.sides[i].index;
        out->index_bytes[i] =
            (double)index->mapped_bytes / (double)(index->key_count + index->group_count);
    }
}

static void print(const struct figures *at, bool first)
{
    if (json) {
        printf("%s{\"shape\": \"%s\", \"batch\": %u, \"lru_ns\": %.0f, \"density_ns\": %.0f, "
               "\"difference_ns\": %.0f, \"ratio\": %.3f, \"lru_index_bytes_a_key\": %.1f, "
               "\"density_index_bytes_a_key\": %.1f, \"commits\": %" PRIu64 "}",
               first ? "" : ", ", shape_names[at->shape], at->batch, at->ns[0], at->ns[1],
               at->difference_ns, at->ns[1] / at->ns[0], at->index_bytes[0], at->index_bytes[1],
               at->committed[1]);
    } else {
        printf("%-14s batches of %4u: %s %5.0f ns, %s %5.0f ns a commit: %+5.0f ns (ratio "
               "%.2f); index %.0f and %.0f bytes a key\n",
               shape_names[at->shape], at->batch, policies[0], at->ns[0], policies[1], at->ns[1],
               at->difference_ns, at->ns[1] / at->ns[0], at->index_bytes[0], at->index_bytes[1]);
    }
    fflush(stdout);
}

/* The fake environment checks its own steps with Check, so it runs as a test. */
START_TEST(measure)
    {
        const uint32_t batches[] = {only_batch != 0 ? only_batch : BATCH_MAX, 1};
        struct sl_error why = {0};
        check(sl_codec_create(FRAME_BYTES, &bench.codec, &why), &why);
        clock_measure();
        if (json) {
            printf("{\"bench\": \"registrar\", \"blocks\": %" PRIu64 ", \"turns\": %u, \"rows\": [",
                   bench.block_count, bench.turn_count);
        }
        bool first = true;
        for (uint32_t i = 0; i < SL_COUNT(batches) * SHAPE_COUNT; i++) {
            struct figures figures = {.shape = (enum shape)(i / SL_COUNT(batches)),
                                      .batch = batches[i % SL_COUNT(batches)]};
            bool asked = only_batch == 0 || only_batch == figures.batch;
            if (asked && (only == NULL || strcmp(only, shape_names[figures.shape]) == 0)) {
                measure_shape(&figures);
                print(&figures, first);
                first = false;
            }
        }
        printf(json ? "]}\n" : "");
        sl_codec_destroy(&bench.codec);
    }
END_TEST

int main(int argc, char **argv)
{
    bench.block_count = 16384;
    bench.turn_count = 41;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--turns") == 0 && i + 1 < argc) {
            bench.turn_count = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--policies") == 0 && i + 2 < argc) {
            policies[0] = argv[++i];
            policies[1] = argv[++i];
        } else if (strcmp(argv[i], "--shape") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--batch") == 0 && i + 1 < argc) {
            only_batch = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--index-keys") == 0 && i + 1 < argc) {
            index_keys = strtoull(argv[++i], NULL, 10);
        } else {
            bench.block_count = strtoull(argv[i], NULL, 10);
        }
    }
    if (only_batch > BATCH_MAX || bench.block_count < 2048 || bench.block_count > 1048576 ||
        bench.turn_count < 1 || bench.turn_count > TURNS_MAX) {
        fprintf(stderr,
                "usage: registrar_bench [BLOCKS (2048..1048576)] [--turns N (1..%u)] "
                "[--json]\n",
                TURNS_MAX);
        return 2;
    }
    TCase *tcase = tcase_create("registrar_bench");
    Suite *suite = suite_create("registrar_bench");
    tcase_add_test(tcase, measure);
    tcase_set_timeout(tcase, 0);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
