/* tests/fault/disk/crash_bed.c - the disk tier under every crash and every fault.
 *
 * A workload is recorded once: values of many sizes, removals, log files closed and reclaimed. Then
 * the power is cut after each of its operations, and within each write at its sectors, with random
 * losses of everything that was not synced; each time a new tierer recovers the rest. Then every
 * call to the disk fails in turn, in every way. Then bits are flipped. Acknowledged values must be
 * found with the right bytes, removed values must not be found, and no wrong bytes are served.
 *
 * SL_DISK_BED_LONG=1: every sector, more seeds, more flips. */
#include "actors/tierer/tierer.h"
#include "ipc/shm/sl_index.h"
#include "tests/fault/disk/tape_disk.h"
#include "tests/support/fake_env.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX  256u
#define TARGET_AT (UINT64_C(8) << 20)
#define NEVER     UINT64_MAX

static struct fake_env fake;
static struct tape_disk disk;
static struct sl_env_ops ops;
static struct sl_arena *arena;
static struct sl_index *index_of_node;
static uint64_t boot_generation, chance = 1;

/* Positions on the tape, in operations, at which a fact about a value became true. */
static struct known {
    uint64_t acked_at; /* durable from then on */
    uint64_t gone_at; /* may be missing: its log file was reclaimed, or its removal was requested */
    uint64_t removed_at; /* must be missing */
    uint32_t segment;
    uint64_t offset;
    bool found;
} known[KEYS_MAX];

/* The list of member disks; each list has a higher epoch than the one before. */
static struct {
    uint64_t epoch;     /* of the last list that was sent */
    uint64_t acked[16]; /* when epoch 1, 2, ... became durable */
    uint64_t told;      /* reported by the last scan */
    bool ended;         /* the disk was emptied: its process ends */
} members;

static bool is_long(void)
{
    return getenv("SL_DISK_BED_LONG") != NULL;
}

/* By what factor to run fewer cases under a sanitizer, which runs the same code in each and takes
 * five times as long. */
static uint32_t thinner(uint32_t by)
{
#ifdef __SANITIZE_ADDRESS__
    return is_long() ? 1 : by;
#else
    (void)by;
    return 1;
#endif
}

static uint64_t next_chance(void)
{
    chance = chance * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return chance >> 24;
}

/* ---- a node ---- */

static sl_err disk_open(struct sl_env *env, const char *directory, uint32_t depth, bool direct,
                        struct sl_disk **out, struct sl_error *why)
{
    (void)env, (void)directory, (void)depth, (void)direct, (void)why;
    *out = &disk.base;
    return SL_OK;
}

static sl_err start_actor(void)
{
    struct sl_error why = {0};
    ops = *fake.env.ops;
    ops.disk_open = disk_open;
    fake.env.ops = &ops;
    return fake_start(&fake, &why);
}

static void node_open_with(const char *disk_bytes)
{
    const char *const settings[] = {"disk",  disk_bytes, "disk_segment", "1MiB", "memory",
                                    "16MiB", NULL};
    bool created = false;
    tape_disk_init(&disk);
    memset(&members, 0, sizeof(members));
    for (size_t i = 0; i < SL_COUNT(members.acked); i++) {
        members.acked[i] = NEVER;
    }
    for (uint32_t n = 0; n < KEYS_MAX; n++) {
        known[n] = (struct known){.acked_at = NEVER, .gone_at = NEVER, .removed_at = NEVER};
    }
    fake_open(&fake, &sl_tierer_actor, settings);
    struct sl_arena_options arena_options = {
        .directory = fake.paths.shm_dir, .data_bytes = 16 << 20, .chunk_bytes = 16 << 20};
    ck_assert_int_eq(sl_arena_open_owner(&arena_options, &created, &arena, NULL), SL_OK);
    while (sl_arena_populate_below(arena, UINT64_MAX, NULL) == SL_OK) {
    }
    struct sl_index_options index_options = {
        .shm_dir = fake.paths.shm_dir, .index_bytes_max = 8 << 20, .arena = arena};
    ck_assert_int_eq(sl_index_open(&index_options, &created, &index_of_node, NULL), SL_OK);
}

static void node_open(void)
{
    node_open_with("3MiB");
}

static void node_close(void)
{
    fake_close(&fake);
    sl_index_close(&index_of_node);
    sl_arena_close(&arena);
    tape_disk_fini(&disk);
}

static void give_job(void)
{
    while (fake.jobs_ended_count > 0) {
        struct sl_msg msg = {.type = SL_MSG_LOCAL_JOB, .code = fake.jobs_ended[0].result};
        msg.body.local_job.cookie = fake.jobs_ended[0].cookie;
        fake.jobs_ended_count--;
        memmove(&fake.jobs_ended[0], &fake.jobs_ended[1],
                fake.jobs_ended_count * sizeof(fake.jobs_ended[0]));
        ck_assert_int_eq(fake.actor->handle(fake.state, &msg), SL_OK);
    }
}

/* Gives the registrar's answers to requests that the tierer makes by itself. */
static bool answer_reclaim(void)
{
    struct sl_msg reclaim, reply = {.code = SL_OK};
    if (!fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim) &&
        !fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM | FAKE_GONE, &reclaim)) {
        return false;
    }
    for (uint32_t n = 0; n < KEYS_MAX; n++) {
        bool there =
            known[n].acked_at != NEVER && known[n].segment == reclaim.body.disk_reclaim.segment;
        known[n].gone_at = there ? SL_MIN(known[n].gone_at, disk.op_count) : known[n].gone_at;
        if (there && reclaim.body.disk_reclaim.gone && known[n].removed_at == NEVER) {
            known[n].removed_at = disk.op_count; /* whenever a crash happens from now on */
        }
    }
    fake_answer(&fake, "registrar", &reclaim, &reply);
    give_job();
    return true;
}

/* Passes completions on in any order until no work is left. */
static void pump(void)
{
    struct tape_done done;
    bool more = true;
    while (more) {
        more = tape_disk_take(&disk, next_chance(), &done);
        if (more) {
            struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
            msg.body.local_io.cookie = done.cookie;
            msg.body.local_io.bytes = done.bytes;
            msg.body.local_io.os_code = (uint64_t)done.os_code;
            sl_err err = fake.actor->handle(fake.state, &msg);
            ck_assert(err == SL_OK || (err == SL_ERR_DEVICE && members.ended));
            give_job();
        } else {
            more = answer_reclaim();
        }
    }
}

static void pass(uint64_t ns)
{
    for (uint64_t step = 0; step < 10; step++) {
        fake_advance(&fake, ns / 10);
        give_job();
        pump();
    }
}

/* ---- values ---- */

static uint64_t length_of(uint32_t n)
{
    static const uint64_t lengths[] = {1, 515, 4096, 4097, 20000, 65536, 12288};
    return lengths[n % SL_COUNT(lengths)];
}

static void content(uint32_t n, unsigned char *out, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        out[i] = (unsigned char)((i + 1) * (n * 2654435761u + 12345) >> 11);
    }
}

static struct sl_digest digest_for(uint32_t n)
{
    static struct sl_digest digests[KEYS_MAX];
    static unsigned char bytes[65536];
    if (digests[n].low == 0 && digests[n].high == 0) {
        content(n, bytes, length_of(n));
        digests[n] = sl_digest_of(bytes, length_of(n));
    }
    return digests[n];
}

static const char *key_of(uint32_t n)
{
    static char key[32];
    (void)snprintf(key, sizeof(key), "model/block%u/0/kv", n);
    return key;
}

static uint64_t write_start(uint32_t n)
{
    struct sl_msg msg = {.type = SL_MSG_DISK_WRITE};
    struct sl_digest digest = digest_for(n);
    uint64_t at = (uint64_t)(n % 64) * 65536;
    content(n, sl_arena_at(arena, at, length_of(n)), length_of(n));
    struct sl_item_spill item = {.key = sl_text_of(key_of(n)),
                                 .part_count = 0,
                                 .offset_bytes = at,
                                 .length_bytes = length_of(n),
                                 .generation = n + 1,
                                 .digest_low = digest.low,
                                 .digest_high = digest.high};
    msg.body.disk_write.items.at = &item;
    msg.body.disk_write.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    return msg.seq;
}

/* The code of the write; SL_ERR_TIMEOUT: no answer. */
static sl_err write_end(uint32_t n, uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&fake, "registrar", seq, &reply)) {
        return SL_ERR_TIMEOUT;
    }
    ck_assert_int_eq(reply.code, SL_OK);
    const struct sl_item_spilled *item = &reply.body.disk_write_reply.items.at[0];
    if (item->code == SL_OK) {
        known[n] = (struct known){.acked_at = disk.op_count,
                                  .gone_at = NEVER,
                                  .removed_at = NEVER,
                                  .segment = (uint32_t)item->segment,
                                  .offset = item->disk_offset_bytes};
    }
    return (sl_err)item->code;
}

static uint64_t forget_start(uint32_t n)
{
    struct sl_msg msg = {.type = SL_MSG_DISK_FORGET};
    struct sl_item_forget item = {.key = sl_text_of(key_of(n)),
                                  .segment = known[n].segment,
                                  .disk_offset_bytes = known[n].offset,
                                  .length_bytes = length_of(n)};
    msg.body.disk_forget.items.at = &item;
    msg.body.disk_forget.items.count = 1;
    known[n].gone_at = SL_MIN(known[n].gone_at, disk.op_count);
    fake_give(&fake, "registrar", &msg);
    return msg.seq;
}

static sl_err forget_end(uint32_t n, uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&fake, "registrar", seq, &reply)) {
        return SL_ERR_TIMEOUT;
    }
    sl_err code = (sl_err)reply.body.disk_read_reply.codes.at[0];
    known[n].removed_at = code == SL_OK ? disk.op_count : known[n].removed_at;
    return code;
}

/* Starts another list, or the end of all values. */
static uint64_t members_start(bool empty)
{
    static unsigned char list[3 * 24];
    struct sl_msg msg = {.type = SL_MSG_DISK_MEMBERS};
    members.epoch++;
    members.ended = empty;
    memset(list, (int)members.epoch, sizeof(list));
    msg.body.disk_members.epoch = members.epoch;
    msg.body.disk_members.members = (struct sl_bytes){list, sizeof(list)};
    msg.body.disk_members.empty = empty;
    for (uint32_t n = 0; empty && n < KEYS_MAX; n++) {
        known[n].gone_at = SL_MIN(known[n].gone_at, disk.op_count);
    }
    fake_give(&fake, "registrar", &msg);
    return msg.seq;
}

static sl_err members_end(uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&fake, "registrar", seq, &reply)) {
        return SL_ERR_TIMEOUT;
    }
    if (reply.code == SL_OK) {
        members.acked[members.epoch] = disk.op_count;
    }
    for (uint32_t n = 0; reply.code == SL_OK && members.ended && n < KEYS_MAX; n++) {
        known[n].removed_at = disk.op_count;
    }
    return reply.code;
}

/* SL_OK only with the right bytes; SL_ERR_TIMEOUT: no answer. */
static sl_err read_value(uint32_t n)
{
    static unsigned char want[65536];
    sl_ref ref = 0;
    struct sl_digest digest = digest_for(n);
    struct sl_entry claim = {.kind = SL_RECORD_PROMOTING,
                             .key = key_of(n),
                             .key_length = (uint16_t)strlen(key_of(n)),
                             .owner = fake.env.self,
                             .writer = fake.env.self};
    claim.extent = (struct sl_extent){.generation = sl_arena_next_generation(arena),
                                      .offset_bytes = TARGET_AT,
                                      .length_bytes = length_of(n)};
    ck_assert_int_eq(sl_index_claim(index_of_node, &claim, &ref, NULL), SL_OK);
    struct sl_msg reply, msg = {.type = SL_MSG_DISK_READ};
    struct sl_item_fill item = {.key = sl_text_of(key_of(n)),
                                .segment = known[n].segment,
                                .disk_offset_bytes = known[n].offset,
                                .length_bytes = length_of(n),
                                .digest_low = digest.low,
                                .digest_high = digest.high,
                                .offset_bytes = TARGET_AT,
                                .ref = ref,
                                .generation = claim.extent.generation};
    msg.body.disk_read.items.at = &item;
    msg.body.disk_read.items.count = 1;
    memset(sl_arena_at(arena, TARGET_AT, length_of(n)), 0x77, length_of(n));
    fake_give(&fake, "registrar", &msg);
    pump();
    sl_err code = SL_ERR_TIMEOUT;
    if (fake_take_reply(&fake, "registrar", msg.seq, &reply)) {
        code = (sl_err)reply.body.disk_read_reply.codes.at[0];
    }
    if (code == SL_OK) {
        content(n, want, length_of(n));
        ck_assert_msg(memcmp(want, sl_arena_at(arena, TARGET_AT, length_of(n)), length_of(n)) == 0,
                      "wrong bytes of value %u were served", n);
    }
    sl_index_set_kind(index_of_node, ref, SL_RECORD_FREE);
    return code;
}

/* ---- a new start after a crash ---- */

/* A new registrar sends HELLO: the tierer reports its values. */
static void scan(void)
{
    struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
    hello.body.hello_reply.boot_generation = ++boot_generation;
    fake_give(&fake, "registrar", &hello);
    pump(); /* writes of an earlier life are made durable first */
    for (bool last = false; !last;) {
        struct sl_msg found;
        uint64_t codes[4096] = {0};
        while (!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found)) {
            fake_advance(&fake, SL_NS_PER_US);
            give_job();
        }
        last = found.body.disk_found.last;
        if (found.body.disk_found.first) {
            const struct sl_bytes *told = &found.body.disk_found.members;
            ck_assert_uint_ge(told->length, 24);
            memcpy(&members.told, (const unsigned char *)told->at + 16, sizeof(members.told));
            ck_assert_uint_eq(told->length, members.told == 0 ? 24 : 4 * 24);
        }
        for (uint64_t i = 0; i < found.body.disk_found.items.count; i++) {
            const struct sl_item_found *item = &found.body.disk_found.items.at[i];
            unsigned n = KEYS_MAX;
            ck_assert_int_eq(sscanf(item->key.at, "model/block%u/0/kv", &n), 1);
            ck_assert_uint_lt(n, KEYS_MAX);
            ck_assert_uint_eq(item->length_bytes, length_of(n));
            known[n].found = true;
            known[n].segment = (uint32_t)item->segment;
            known[n].offset = item->disk_offset_bytes;
        }
        struct sl_msg reply = {.code = SL_OK};
        reply.body.disk_found_reply.codes =
            (struct sl_u64s){codes, found.body.disk_found.items.count};
        fake_answer(&fake, "registrar", &found, &reply);
        give_job();
    }
    pump();
}

static void recover(void)
{
    for (uint32_t n = 0; n < KEYS_MAX; n++) {
        known[n].found = false;
    }
    ck_assert_int_eq(start_actor(), SL_OK);
    scan();
}

/* Counts the values that must exist at operation `at` and do not; served bytes are always
 * compared. */
static uint32_t lost_at(uint64_t at, bool removals)
{
    uint32_t lost = 0;
    for (uint64_t epoch = members.told + 1; epoch < SL_COUNT(members.acked); epoch++) {
        ck_assert_msg(members.acked[epoch] == NEVER || members.acked[epoch] > at,
                      "list %ju was durable, list %ju is there (operation %ju)", (uintmax_t)epoch,
                      (uintmax_t)members.told, (uintmax_t)at);
    }
    for (uint32_t n = 0; n < KEYS_MAX; n++) {
        const struct known *value = &known[n];
        ck_assert_msg(!removals || value->removed_at == NEVER || value->removed_at > at ||
                          !value->found,
                      "value %u was removed and is back (operation %ju)", n, (uintmax_t)at);
        bool right = value->found && read_value(n) == SL_OK;
        bool due = value->acked_at <= at && value->gone_at > at;
        lost += due && !right;
    }
    return lost;
}

/* ---- the workload ---- */

static void workload(uint32_t count)
{
    uint64_t seqs[3];
    for (uint32_t n = 0; n + 3 <= count; n += 3) {
        for (uint32_t i = 0; i < 3; i++) {
            seqs[i] = write_start(n + i);
        }
        pump();
        if (disk.room_bytes != 0) {
            pass(SL_NS_PER_S); /* refused space is requested once more */
        }
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_eq(write_end(n + i, seqs[i]), SL_OK);
        }
        if (n % 15 == 12) {
            uint64_t seq = forget_start(n - 4);
            pump();
            ck_assert_int_eq(forget_end(n - 4, seq), SL_OK);
        }
        if (n % 30 == 3 && members.epoch < 4) { /* while values are being written */
            uint64_t list = members_start(false);
            pump();
            ck_assert_int_eq(members_end(list), SL_OK);
        }
    }
}

static void record_workload(uint32_t count)
{
    node_open();
    ck_assert_int_eq(start_actor(), SL_OK);
    scan();
    disk.recording = true;
    workload(count);
    pass(SL_NS_PER_S); /* acknowledgements are recorded with a delay */
    ck_assert_uint_le(disk.real_bytes_peak, UINT64_C(3) << 20);
    disk.recording = false;
    fake_stop(&fake);
}

/* ---- cutting the power ---- */

/* The image that is certain to be left, and later writes that were not synced. */
struct cut {
    struct tape_image whole, durable, tried;
    uint64_t loose[512]; /* operations */
    uint32_t loose_count;
    uint64_t prefixes, torn, mixed;
};

static void cut_advance(struct cut *cut, uint64_t at)
{
    const struct tape_op *op = &disk.ops[at];
    tape_play(&cut->whole, op, NEVER / TAPE_SECTOR);
    if (op->verb == TAPE_WRITE || op->verb == TAPE_RESIZE) {
        ck_assert_uint_lt(cut->loose_count, SL_COUNT(cut->loose));
        cut->loose[cut->loose_count++] = at;
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cut->loose_count; i++) {
        const struct tape_op *earlier = &disk.ops[cut->loose[i]];
        if (op->verb == TAPE_SYNC && strcmp(earlier->name, op->name) == 0) {
            tape_play(&cut->durable, earlier, NEVER / TAPE_SECTOR);
        } else {
            cut->loose[kept++] = cut->loose[i];
        }
    }
    cut->loose_count = kept;
    if (op->verb != TAPE_SYNC) {
        tape_play(&cut->durable, op, 0); /* names are durable at once */
    }
}

static void cut_check(const struct tape_image *image, uint64_t at, const char *how)
{
    tape_image_copy(&disk.image, image);
    recover();
    uint32_t lost = lost_at(at, true);
    ck_assert_msg(lost == 0, "%u durable values lost: power cut at operation %ju, %s", lost,
                  (uintmax_t)at, how);
    fake_stop(&fake);
}

/* Each write that was not synced survives in full, up to some sector, or not at all. */
static void cut_mix(struct cut *cut, uint64_t at)
{
    tape_image_copy(&cut->tried, &cut->durable);
    for (uint32_t i = 0; i < cut->loose_count; i++) {
        const struct tape_op *op = &disk.ops[cut->loose[i]];
        uint64_t sectors = op->length_bytes / TAPE_SECTOR;
        uint64_t coin = next_chance() % 3;
        if (coin > 0) {
            tape_play(&cut->tried, op, coin == 1 ? sectors : next_chance() % (sectors + 1));
        }
    }
    cut_check(&cut->tried, at, "some of what was not synced");
    cut->mixed++;
}

static void cut_tear(struct cut *cut, uint64_t at, uint64_t step)
{
    const struct tape_op *op = &disk.ops[at];
    uint64_t sectors = op->verb == TAPE_WRITE ? op->length_bytes / TAPE_SECTOR : 0;
    for (uint64_t n = 1; n < sectors; n += step) {
        tape_image_copy(&cut->tried, &cut->whole);
        tape_play(&cut->tried, op, n);
        cut_check(&cut->tried, at, "within a write");
        cut->torn++;
    }
}

/* Cuts the power at each operation of the tape from `from` on. */
static void cut_everywhere(const char *what, uint64_t from)
{
    static struct cut cut;
    uint64_t step = is_long() ? 1 : 29 * thinner(4);
    uint32_t seeds = is_long() ? 8 : 2 / thinner(2);
    for (uint64_t k = 0; k <= disk.op_count; k++) {
        if (k >= from) {
            cut_check(&cut.whole, k, "everything before it done");
            cut.prefixes++;
        }
        for (uint32_t seed = 0; k >= from && seed < seeds && cut.loose_count > 0; seed++) {
            cut_mix(&cut, k);
        }
        if (k >= from && k < disk.op_count) {
            cut_tear(&cut, k, step);
        }
        if (k < disk.op_count) {
            cut_advance(&cut, k);
        }
    }
    printf(
        "%s: crash points tried %ju (%ju after an operation, %ju within a write, %ju with chance "
        "about what was not synced), durable objects lost 0, wrong bytes 0\n",
        what, (uintmax_t)(cut.prefixes + cut.torn + cut.mixed), (uintmax_t)cut.prefixes,
        (uintmax_t)cut.torn, (uintmax_t)cut.mixed);
    tape_image_free(&cut.whole);
    tape_image_free(&cut.durable);
    tape_image_free(&cut.tried);
}

START_TEST(every_crash_point_is_survived)
    {
        record_workload(is_long() ? 240 : 90);
        cut_everywhere("values, removals and lists of disks", 0);
        node_close();
    }
END_TEST

/* The disk had been missing. From the answer on, none of its old values returns, wherever the power
 * is cut, even while log files are being removed and new values written. */
START_TEST(emptied_disk_brings_nothing_back)
    {
        node_open();
        ck_assert_int_eq(start_actor(), SL_OK);
        scan();
        disk.recording = true;
        workload(30);
        uint64_t from = disk.op_count;
        uint64_t seq = members_start(true);
        pump();
        ck_assert_int_eq(members_end(seq), SL_OK);
        fake_stop(&fake);
        recover(); /* a new process */
        members.ended = false;
        for (uint32_t n = 0; n < 30; n++) {
            ck_assert(!known[n].found);
        }
        for (uint32_t n = 100; n < 112; n++) {
            seq = write_start(n);
            pump();
            ck_assert_int_eq(write_end(n, seq), SL_OK);
        }
        disk.recording = false;
        fake_stop(&fake);
        ck_assert_uint_le(disk.real_bytes_peak, UINT64_C(3) << 20);
        cut_everywhere("a disk that is emptied", from);
        node_close();
    }
END_TEST

/* ---- failing calls ---- */

static void settle(uint32_t count, const uint64_t *seqs, sl_err *codes)
{
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = write_end(i, seqs[i]);
    }
}

/* Writes and reads six values, and removes one. Every request is answered in the end. */
static void scenario(uint32_t *failures)
{
    uint64_t seqs[6];
    sl_err codes[6];
    for (uint32_t n = 0; n < 6; n++) {
        seqs[n] = write_start(n);
        if (n == 2) {
            pump();
        }
    }
    pump();
    pass(20 * SL_NS_PER_S); /* until the disk is tried again */
    settle(6, seqs, codes);
    for (uint32_t n = 0; n < 6; n++) {
        ck_assert_msg(codes[n] != SL_ERR_TIMEOUT,
                      "write %u was never answered, call %ju of %ju failed", n,
                      (uintmax_t)disk.fail_from, (uintmax_t)disk.calls);
        *failures += codes[n] != SL_OK;
        if (codes[n] == SL_OK) {
            sl_err read = read_value(n);
            ck_assert_msg(read != SL_ERR_TIMEOUT, "a read was never answered");
            *failures += read != SL_OK;
        }
    }
    if (known[1].acked_at != NEVER) {
        uint64_t seq = forget_start(1);
        pump();
        pass(20 * SL_NS_PER_S);
        sl_err code = forget_end(1, seq);
        ck_assert_msg(code != SL_ERR_TIMEOUT, "a removal was never answered");
        *failures += code != SL_OK;
    }
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t seq = members_start(false);
        pump();
        pass(3 * SL_NS_PER_S);
        sl_err code = members_end(seq);
        ck_assert_msg(code != SL_ERR_TIMEOUT, "a list was never answered");
        *failures += code != SL_OK;
    }
}

/* False: the scenario ended before that call. */
static bool fault_run(uint64_t n, uint64_t length, enum tape_fault fault)
{
    uint32_t failures = 0;
    node_open();
    disk.fail_from = n;
    disk.fail_to = n + length - 1;
    disk.fault = fault;
    if (start_actor() != SL_OK) { /* the supervisor restarts it as often as needed */
        fake_stop(&fake);
        disk.fail_from = 0;
        ck_assert_int_eq(start_actor(), SL_OK);
    }
    scan();
    scenario(&failures);
    bool reached = disk.calls >= n;
    disk.fail_from = 0;
    pass(10 * SL_NS_PER_S);
    /* The disk works again, and the tier recovers by itself. */
    uint64_t seq = write_start(100);
    pump();
    pass(10 * SL_NS_PER_S);
    ck_assert_int_eq(write_end(100, seq), SL_OK);
    ck_assert_int_eq(read_value(100), SL_OK);
    fake_stop(&fake);
    recover();
    ck_assert_uint_eq(lost_at(NEVER - 1, true), 0);
    fake_stop(&fake);
    node_close();
    return reached;
}

START_TEST(any_failing_call_is_an_answer_and_heals)
    {
        static const char *const names[] = {"EIO", "ENOSPC", "EROFS", "short"};
        static const uint64_t lengths[] = {1, 12};
        for (size_t l = 0; l < SL_COUNT(lengths); l++) {
            uint64_t n = 1;
            while (fault_run(n, lengths[l], (enum tape_fault)_i)) {
                n++;
            }
            printf("%s: calls 1..%ju failed in turn, %ju at a time, durable objects lost 0, wrong "
                   "bytes 0\n",
                   names[_i], (uintmax_t)n - 1, (uintmax_t)lengths[l]);
        }
    }
END_TEST

/* ---- a disk that stops answering ---- */

START_TEST(silent_disk_is_noticed_and_comes_back)
    {
        node_open();
        ck_assert_int_eq(start_actor(), SL_OK);
        scan();
        uint64_t seq = write_start(0);
        pump();
        ck_assert_int_eq(write_end(0, seq), SL_OK);

        disk.stuck = true;
        uint64_t stuck = write_start(1); /* never completes */
        pass(10 * SL_NS_PER_S);
        uint64_t late = write_start(2);
        pass(10 * SL_NS_PER_S);
        ck_assert_int_eq(write_end(1, stuck), SL_ERR_IO);
        ck_assert_int_eq(write_end(2, late), SL_ERR_IO);
        ck_assert_int_eq(read_value(0), SL_ERR_UNREACHABLE); /* a miss at once, not a loss */

        disk.stuck = false;
        for (uint32_t i = 0; i < disk.pending_count; i++) { /* its requests complete after all */
            disk.pending[i].os_code = EIO;
        }
        pump();
        pass(10 * SL_NS_PER_S);
        uint64_t again = write_start(1);
        pump();
        pass(10 * SL_NS_PER_S);
        ck_assert_int_eq(write_end(1, again), SL_OK);
        ck_assert_int_eq(read_value(0), SL_OK);
        ck_assert_int_eq(read_value(1), SL_OK);
        fake_stop(&fake);
        recover();
        ck_assert_uint_eq(lost_at(NEVER - 1, true), 0);
        fake_stop(&fake);
        node_close();
    }
END_TEST

/* ---- the byte limit ---- */

/* Writes `count` values of 64 KiB in one request. Three frames of four values leave enough free
 * space in a log file of 1 MiB that it is truncated; frames of one value fill it. */
static void write_large(uint32_t first, uint32_t count)
{
    static char keys[4][32];
    struct sl_item_spill items[4];
    struct sl_msg reply, msg = {.type = SL_MSG_DISK_WRITE};
    for (uint32_t i = 0; i < count; i++) {
        unsigned char *at = sl_arena_at(arena, i * UINT64_C(65536), 65536);
        content(first + i, at, 65536);
        struct sl_digest digest = sl_digest_of(at, 65536);
        (void)snprintf(keys[i], sizeof(keys[i]), "large%u", first + i);
        items[i] = (struct sl_item_spill){.key = sl_text_of(keys[i]),
                                          .offset_bytes = i * UINT64_C(65536),
                                          .length_bytes = 65536,
                                          .generation = first + i + 1,
                                          .digest_low = digest.low,
                                          .digest_high = digest.high};
    }
    msg.body.disk_write.items.at = items;
    msg.body.disk_write.items.count = count;
    fake_give(&fake, "registrar", &msg);
    pump();
    pass(SL_NS_PER_S);
    ck_assert(fake_take_reply(&fake, "registrar", msg.seq, &reply));
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(reply.body.disk_write_reply.items.at[i].code, SL_OK);
    }
}

/* Truncated files are reclaimed while full ones are written: five full ones exceed the limit. */
START_TEST(ceiling_holds_when_short_segments_are_used_again)
    {
        node_open_with("5000000");
        ck_assert_int_eq(start_actor(), SL_OK);
        scan();
        for (uint32_t first = 0; first < 200;) {
            uint32_t count = first < 80 ? 4 : 1;
            write_large(first, count);
            first += count;
            ck_assert_uint_le(disk.real_bytes_peak, 5000000);
        }
        fake_stop(&fake);
        node_close();
    }
END_TEST

/* ---- log files without live values ---- */

static void forget_all_of(uint32_t segment, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        if (known[n].segment == segment && known[n].removed_at == NEVER) {
            uint64_t seq = forget_start(n);
            pump();
            ck_assert_int_eq(forget_end(n, seq), SL_OK);
        }
    }
    pass(SL_NS_PER_S);
}

/* A file in the middle loses its values, the oldest is removed; other values and the effect of
 * tombstones remain. */
START_TEST(segments_without_live_values_give_their_room_back)
    {
        uint32_t live = 0;
        node_open_with("12MiB");
        ck_assert_int_eq(start_actor(), SL_OK);
        scan();
        disk.recording = true;
        workload(210);
        ck_assert_uint_gt(known[209].segment, 3);
        uint64_t from = disk.op_count;
        forget_all_of(2, 210);
        ck_assert_uint_gt(disk.punched_bytes, UINT64_C(3) << 18);
        ck_assert_uint_lt(disk.punched_bytes, UINT64_C(1) << 20);
        forget_all_of(1, 210);
        disk.recording = false;
        for (uint32_t i = 0; i < TAPE_FILES_MAX; i++) {
            ck_assert_str_ne(disk.image.files[i].name, "segment.0000000001");
        }
        fake_stop(&fake);
        recover();
        for (uint32_t n = 0; n < 210; n++) {
            live += known[n].found;
            ck_assert(!known[n].found || known[n].segment > 2);
        }
        ck_assert_uint_gt(live, 60);
        fake_stop(&fake);
        cut_everywhere("segments that are reclaimed",
                       is_long() ? from : from + (disk.op_count - from) / 3);
        node_close();
    }
END_TEST

/* ---- a file system that is full ---- */

static const int room_codes[] = {ENOSPC, EDQUOT};

/* Log files of 1 MiB under a limit of 12 MiB, in a file system of room_bytes. */
static void node_open_in(uint64_t room_bytes, int code)
{
    node_open_with("12MiB");
    disk.room_bytes = room_bytes;
    disk.room_code = code;
    ck_assert_int_eq(start_actor(), SL_OK);
    scan();
}

static sl_err write_value(uint32_t n)
{
    uint64_t seq = write_start(n);
    pump();
    return write_end(n, seq);
}

static enum sl_health page_health(char *reason)
{
    char path[sizeof(fake.paths.shm_dir) + 32];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary;
    (void)snprintf(path, sizeof(path), "%s/metrics.fake", fake.paths.shm_dir);
    ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
    sl_metrics_view_summary(view, &summary);
    sl_metrics_view_close(&view);
    memcpy(reason, summary.reason, sizeof(summary.reason));
    return summary.health;
}

/* The oldest values are dropped to make space, and the power may be cut at any point. */
START_TEST(full_file_system_below_the_ceiling_is_survived_at_every_crash_point)
    {
        node_open_in(UINT64_C(7) << 19, room_codes[_i]);
        disk.recording = true;
        workload(240);
        pass(SL_NS_PER_S);
        disk.recording = false;
        ck_assert_uint_le(disk.real_bytes_peak, UINT64_C(7) << 19);
        ck_assert_uint_ne(known[1].gone_at, NEVER);
        fake_stop(&fake);
        cut_everywhere("a full file system", is_long() ? 0 : disk.op_count * 5 / 6);
        node_close();
    }
END_TEST

static uint32_t warnings;

void __real_sl_log_write(struct sl_log *log, enum sl_log_level level, uint64_t trace_id,
                         const char *format, ...);
void __wrap_sl_log_write(struct sl_log *log, enum sl_log_level level, uint64_t trace_id,
                         const char *format, ...);
void __wrap_sl_log_write(struct sl_log *log, enum sl_log_level level, uint64_t trace_id,
                         const char *format, ...)
{
    warnings += level == SL_LOG_WARN;
    __real_sl_log_write(log, level, trace_id, "%s", format);
}

/* The tierer tries again once a minute, and is refused each time. */
START_TEST(a_full_file_system_is_warned_of_once_an_hour)
    {
        node_open_in(UINT64_C(7) << 19, ENOSPC);
        warnings = 0;
        for (uint32_t i = 0; i < 4; i++) {
            workload(240);
        }
        ck_assert_uint_eq(warnings, 1);
        pass(3600 * SL_NS_PER_S);
        workload(240);
        ck_assert_uint_eq(warnings, 2);
        fake_stop(&fake);
        node_close();
    }
END_TEST

/* Another program takes the free space and releases it again. */
START_TEST(room_that_others_take_and_give_back_is_done_without_and_used_again)
    {
        char reason[SL_METRICS_REASON_BYTES];
        node_open_in(UINT64_C(20) << 20, room_codes[_i]);
        workload(120);
        uint64_t before = disk.real_bytes_peak;
        disk.room_bytes = before - (UINT64_C(1) << 19);
        workload(240);
        ck_assert_uint_eq(disk.real_bytes_peak, before);
        ck_assert_int_eq(page_health(reason), SL_HEALTH_READY);
        ck_assert_ptr_nonnull(strstr(reason, "file system is full"));

        disk.room_bytes = UINT64_C(20) << 20;
        pass(61 * SL_NS_PER_S);
        workload(240);
        ck_assert_uint_gt(disk.real_bytes_peak, before + (UINT64_C(1) << 20));
        ck_assert_int_eq(page_health(reason), SL_HEALTH_READY);
        ck_assert_str_eq(reason, "");
        fake_stop(&fake);
        node_close();
    }
END_TEST

/* There is no space for even two files: values on disk are served and may be removed, none is
 * accepted. */
START_TEST(room_for_one_file_is_a_full_disk_that_reads_and_removes)
    {
        char reason[SL_METRICS_REASON_BYTES];
        node_open_in(UINT64_C(3) << 19, room_codes[_i]);
        ck_assert_int_eq(write_value(5), SL_OK);
        pass(SL_NS_PER_S);
        ck_assert_int_eq(write_value(6), SL_ERR_NO_SPACE); /* at once: no time has passed */
        ck_assert_int_eq(page_health(reason), SL_HEALTH_DEGRADED);
        ck_assert_ptr_nonnull(strstr(reason, "full"));
        ck_assert_int_eq(read_value(5), SL_OK);
        pass(61 * SL_NS_PER_S);
        ck_assert_int_eq(write_value(6), SL_ERR_NO_SPACE);
        uint64_t seq = forget_start(5);
        pump();
        ck_assert_int_eq(forget_end(5, seq), SL_OK);

        disk.room_bytes = UINT64_C(20) << 20;
        pass(61 * SL_NS_PER_S);
        ck_assert_int_eq(page_health(reason), SL_HEALTH_READY);
        ck_assert_int_eq(write_value(6), SL_OK);
        fake_stop(&fake);
        recover();
        ck_assert(!known[5].found && known[6].found);
        fake_stop(&fake);
        node_close();
    }
END_TEST

/* ---- flipped bits ---- */

START_TEST(flipped_bits_are_never_served)
    {
        struct tape_image whole = {0};
        uint32_t flips = is_long() ? 50000 : 1500 / thinner(5);
        uint32_t most = 0, costly = 0;
        record_workload(60);
        tape_image_copy(&whole, &disk.image);
        for (uint32_t i = 0; i < flips; i++) {
            tape_image_copy(&disk.image, &whole);
            struct tape_file *file = &disk.image.files[next_chance() % TAPE_FILES_MAX];
            while (file->name[0] == '\0') {
                file = &disk.image.files[next_chance() % TAPE_FILES_MAX];
            }
            uint64_t at = next_chance() % file->bytes;
            if (i % 4 == 0) { /* the pages that most depends on */
                at = next_chance() % 4 < 2 ? at % SL_PAGE_BYTES
                                           : file->bytes - 1 - at % SL_PAGE_BYTES;
            }
            file->now[at] ^= (unsigned char)(1u << next_chance() % 8);
            recover();
            uint32_t lost = lost_at(disk.op_count, true); /* compares all bytes that are served */
            most = SL_MAX(most, lost);
            costly += lost > 0;
            ck_assert_msg(lost <= 1, "one bit of '%s' at %ju cost %u values", file->name,
                          (uintmax_t)at, lost);
            fake_stop(&fake);
        }
        printf("bits flipped: flips tried %u, of which %u cost a value (at most %u each), wrong "
               "bytes 0\n",
               flips, costly, most);
        tape_image_free(&whole);
        node_close();
    }
END_TEST

/* ---- larger damage than one bit ---- */

static void page_wipe(struct tape_file *file, uint64_t at)
{
    memset(file->now + at, 0x5a, SL_MIN((uint64_t)SL_PAGE_BYTES, file->bytes - at));
}

/* Destroys a part of one file. */
static void damage(struct tape_file *file)
{
    uint64_t pages = file->bytes / SL_PAGE_BYTES;
    uint64_t from = next_chance() % pages;
    switch (next_chance() % 6) {
    case 0: /* a run of pages */
        for (uint64_t i = 0, run = 1 + next_chance() % 48; i < run && from + i < pages; i++) {
            page_wipe(file, (from + i) * SL_PAGE_BYTES);
        }
        return;
    case 1: /* both pages that identify the file */
        page_wipe(file, 0);
        page_wipe(file, (pages - 1) * SL_PAGE_BYTES);
        return;
    case 2: /* the page that closes it, and some before it */
        page_wipe(file, (pages - 1) * SL_PAGE_BYTES);
        for (uint64_t i = 0; i < 8; i++) {
            page_wipe(file, next_chance() % pages * SL_PAGE_BYTES);
        }
        return;
    case 3:
        file->bytes = next_chance() % 3 == 0 ? 0 : from * SL_PAGE_BYTES;
        return;
    case 4:
        file->name[0] = '\0';
        return;
    default:
        memcpy(disk.bad_name, file->name, sizeof(disk.bad_name));
        disk.bad_from = next_chance() % 2 == 0 ? 0 : from * SL_PAGE_BYTES;
        disk.bad_to = disk.bad_from + (1 + next_chance() % 64) * SL_PAGE_BYTES;
        if (next_chance() % 3 == 0) {
            disk.bad_from = 0;
            disk.bad_to = NEVER;
        }
        return;
    }
}

/* Whatever happens to one log file, removed values are not found, even if it becomes readable
 * again, and the disk serves. */
START_TEST(a_segment_that_is_damaged_brings_nothing_back)
    {
        struct tape_image whole = {0};
        uint32_t runs = is_long() ? 20000 : 100 / thinner(4);
        uint32_t voids = 0;
        record_workload(15 + 15 * (uint32_t)_i);
        tape_image_copy(&whole, &disk.image);
        for (uint32_t i = 0; i < runs; i++) {
            tape_image_copy(&disk.image, &whole);
            struct tape_file *file = NULL;
            while (file == NULL || strncmp(file->name, "segment.", 8) != 0) {
                file = &disk.image.files[next_chance() % TAPE_FILES_MAX];
            }
            damage(file);
            recover();
            voids += lost_at(disk.op_count, true) > 20;
            uint64_t seq = write_start(200); /* what it acknowledges from now on holds as well */
            pump();
            ck_assert_int_eq(write_end(200, seq), SL_OK);
            fake_stop(&fake);
            if (disk.bad_name[0] != '\0') {
                disk.bad_name[0] = '\0';
                recover();
                (void)lost_at(disk.op_count, true);
                ck_assert(known[200].found);
                fake_stop(&fake);
            }
            recover();
            (void)lost_at(disk.op_count, true);
            ck_assert(known[200].found);
            fake_stop(&fake);
            known[200] = (struct known){.acked_at = NEVER, .gone_at = NEVER, .removed_at = NEVER};
        }
        printf("damaged segments: %u tried, %u cost more than 20 values, removed ones back 0\n",
               runs, voids);
        tape_image_free(&whole);
        node_close();
    }
END_TEST

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    Suite *suite = suite_create("crash bed");
    TCase *bed = tcase_create("bed");
    tcase_set_timeout(bed, is_long() ? 7200 : 600);
    tcase_add_test(bed, every_crash_point_is_survived);
    tcase_add_test(bed, emptied_disk_brings_nothing_back);
    tcase_add_loop_test(bed, any_failing_call_is_an_answer_and_heals, 0, TAPE_FAULTS);
    tcase_add_test(bed, ceiling_holds_when_short_segments_are_used_again);
    tcase_add_test(bed, segments_without_live_values_give_their_room_back);
    tcase_add_loop_test(bed, full_file_system_below_the_ceiling_is_survived_at_every_crash_point, 0,
                        SL_COUNT(room_codes));
    tcase_add_test(bed, a_full_file_system_is_warned_of_once_an_hour);
    tcase_add_loop_test(bed, room_that_others_take_and_give_back_is_done_without_and_used_again, 0,
                        SL_COUNT(room_codes));
    tcase_add_loop_test(bed, room_for_one_file_is_a_full_disk_that_reads_and_removes, 0,
                        SL_COUNT(room_codes));
    tcase_add_test(bed, silent_disk_is_noticed_and_comes_back);
    tcase_add_test(bed, flipped_bits_are_never_served);
    tcase_add_loop_test(bed, a_segment_that_is_damaged_brings_nothing_back, 1, 5);
    suite_add_tcase(suite, bed);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
