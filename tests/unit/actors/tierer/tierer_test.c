/* tests/unit/actors/tierer/tierer_test.c - the tierer on a disk that loses, tears and fails:
 * acknowledged values stay, wrong bytes are never served. */
#include "actors/tierer/internal.h"
#include "actors/tierer/staging.h"
#include "actors/tierer/tierer.h"
#include "ipc/shm/sl_index.h"
#include "tests/support/fake_env.h"
#include "tests/support/mem_disk.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define KEYS_MAX   512u
#define TARGET_AT  (UINT64_C(8) << 20) /* where reads go, in the arena */
#define DISK_BYTES (UINT64_C(8) << 20)
/* Values from this number on have several pieces. */
#define LARGE       KEYS_MAX
#define LARGE_BYTES (3 * (UINT64_C(1) << 20) + 20001)
#define LARGE_ROOM  (UINT64_C(4) << 20)

static struct fake_env fake;
static struct mem_disk disk;
static struct sl_env_ops ops;
static struct sl_arena *arena;
static struct sl_index *index_of_node;
static uint64_t boot_generation;

struct known {
    uint64_t length;
    uint32_t segment;
    uint64_t offset;
    bool acknowledged, found;
};
static struct known known[KEYS_MAX + 8];

static sl_err disk_open(struct sl_env *env, const char *directory, uint32_t depth, bool direct,
                        struct sl_disk **out, struct sl_error *why)
{
    (void)env, (void)directory, (void)depth, (void)direct, (void)why;
    *out = &disk.base;
    return SL_OK;
}

static sl_err start_try(struct sl_error *why)
{
    ops = *fake.env.ops;
    ops.disk_open = disk_open;
    fake.env.ops = &ops;
    return fake_start(&fake, why);
}

static void start_actor(void)
{
    struct sl_error why = {0};
    sl_err err = start_try(&why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

static void open_node_with(const char *const *settings, uint64_t arena_bytes)
{
    bool created = false;
    mem_disk_init(&disk);
    memset(known, 0, sizeof(known));
    fake_open(&fake, &sl_tierer_actor, settings);
    struct sl_arena_options arena_options = {
        .directory = fake.paths.shm_dir, .data_bytes = arena_bytes, .chunk_bytes = arena_bytes};
    ck_assert_int_eq(sl_arena_open_owner(&arena_options, &created, &arena, NULL), SL_OK);
    while (sl_arena_populate_below(arena, UINT64_MAX, NULL) == SL_OK) {
    }
    struct sl_index_options index_options = {
        .shm_dir = fake.paths.shm_dir, .index_bytes_max = 8 << 20, .arena = arena};
    ck_assert_int_eq(sl_index_open(&index_options, &created, &index_of_node, NULL), SL_OK);
    start_actor();
}

static void open_node(void)
{
    static const char *const settings[] = {
        "disk", "8MiB", "disk_segment", "1MiB", "memory", "16MiB", "disk_staging", "1MiB", NULL};
    open_node_with(settings, 16 << 20);
}

static void open_large_node(void)
{
    static const char *const settings[] = {
        "disk", "64MiB", "disk_segment", "16MiB", "memory", "64MiB", "disk_staging", "64MiB", NULL};
    open_node_with(settings, 64 << 20);
}

static void open_narrow_node(void)
{
    static const char *const settings[] = {
        "disk", "64MiB", "disk_segment", "16MiB", "memory", "64MiB", "disk_staging", "2MiB", NULL};
    open_node_with(settings, 64 << 20);
}

static void open_many_node(void)
{
    static const char *const settings[] = {
        "disk", "144MiB", "disk_segment", "36MiB", "memory", "16MiB", "disk_staging", "1MiB", NULL};
    open_node_with(settings, 16 << 20);
}

static void close_node(void)
{
    fake_close(&fake);
    sl_index_close(&index_of_node);
    sl_arena_close(&arena);
    mem_disk_fini(&disk);
}

static void hand_over(const struct mem_done *done)
{
    const struct tierer *self = fake.state;
    struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
    msg.body.local_io.cookie = done->cookie;
    msg.body.local_io.bytes = done->bytes;
    msg.body.local_io.os_code = (uint64_t)done->os_code;
    sl_err err = fake.actor->handle(fake.state, &msg);
    ck_assert_int_eq(err, self->members.emptied ? SL_ERR_DEVICE : SL_OK);
}

/* Hands completions to the actor until none is left, at most `most` of them. */
static void pump(uint64_t most)
{
    struct sl_msg gone, reply = {.code = SL_OK};
    struct mem_done done;
    while (most-- > 0 && mem_disk_take_done(&disk, &done)) {
        hand_over(&done);
    }
    if (fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM | FAKE_GONE, &gone)) {
        fake_answer(&fake, "registrar", &gone, &reply);
    }
}

static uint64_t length_of(uint32_t n)
{
    static const uint64_t lengths[] = {1, 515, 4095, 4096, 4097, 8192, 20000, 65536};
    return n < LARGE ? lengths[n % SL_COUNT(lengths)] : LARGE_BYTES + n;
}

static uint64_t target_of(uint32_t n)
{
    return TARGET_AT + (n < LARGE ? n % 64 * UINT64_C(65536) : (n - LARGE) * LARGE_ROOM);
}

static void content(uint32_t n, unsigned char *out, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        out[i] = (unsigned char)((i + 1) * (n * 2654435761u + 12345) >> 11);
    }
}

static struct sl_digest digest_for(uint32_t n)
{
    static unsigned char bytes[LARGE_ROOM];
    content(n, bytes, length_of(n));
    return sl_digest_of(bytes, length_of(n));
}

/* Sends value n to be written; returns the request's number. */
static uint64_t write_start(uint32_t n, bool lie)
{
    char key[32];
    char group[32];
    struct sl_msg msg = {.type = SL_MSG_DISK_WRITE};
    struct sl_digest digest = digest_for(n);
    uint64_t at = n < LARGE ? n % 64 * UINT64_C(65536) : 0;
    content(n, sl_arena_at(arena, at, length_of(n)), length_of(n));
    (void)snprintf(key, sizeof(key), "model/block%u/0/kv", n);
    (void)snprintf(group, sizeof(group), "model/block%u", n);
    struct sl_item_spill item = {.key = sl_text_of(key),
                                 .group_key = sl_text_of(group),
                                 .part_count = 1,
                                 .offset_bytes = at,
                                 .length_bytes = length_of(n),
                                 .generation = n + 1,
                                 .digest_low = digest.low ^ lie,
                                 .digest_high = digest.high};
    msg.body.disk_write.items.at = &item;
    msg.body.disk_write.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    return msg.seq;
}

static sl_err write_end(uint32_t n, uint64_t seq);

/* The registrar asks again and overtakes the answer: the value is not written twice. */
START_TEST(a_repeated_write_gets_the_same_answer)
    {
        uint64_t seq = write_start(1, false);
        pump(UINT64_MAX);
        ck_assert_int_eq(write_end(1, seq), SL_OK);
        struct known first = known[1];

        fake.seq = seq - 1; /* the next request has the number of this one */
        ck_assert_uint_eq(write_start(1, false), seq);
        pump(UINT64_MAX);

        ck_assert_int_eq(write_end(1, seq), SL_OK);
        ck_assert_uint_eq(known[1].segment, first.segment);
        ck_assert_uint_eq(known[1].offset, first.offset);
    }
END_TEST

static sl_err write_end(uint32_t n, uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&fake, "registrar", seq, &reply)) {
        return SL_ERR_TIMEOUT;
    }
    ck_assert_uint_eq(reply.body.disk_write_reply.items.count, 1);
    const struct sl_item_spilled *item = &reply.body.disk_write_reply.items.at[0];
    if (item->code == SL_OK) {
        known[n] = (struct known){.length = length_of(n),
                                  .segment = (uint32_t)item->segment,
                                  .offset = item->disk_offset_bytes,
                                  .acknowledged = true};
    }
    return (sl_err)item->code;
}

static sl_err write_value(uint32_t n)
{
    uint64_t seq = write_start(n, false);
    pump(UINT64_MAX);
    return write_end(n, seq);
}

/* Claims an extent for value n at target_of(n); returns the item to request. The key is valid until
 * the next call. */
static struct sl_item_fill read_item(uint32_t n, sl_ref *ref)
{
    static char key[32];
    int length = snprintf(key, sizeof(key), "model/block%u/0/kv", n);
    struct sl_digest digest = digest_for(n);
    struct sl_entry claim = {.kind = SL_RECORD_PROMOTING,
                             .key = key,
                             .key_length = (uint16_t)length,
                             .owner = fake.env.self,
                             .writer = fake.env.self};
    claim.extent = (struct sl_extent){.generation = sl_arena_next_generation(arena),
                                      .offset_bytes = target_of(n),
                                      .length_bytes = length_of(n)};
    ck_assert_int_eq(sl_index_claim(index_of_node, &claim, ref, NULL), SL_OK);
    return (struct sl_item_fill){.key = sl_text_of(key),
                                 .segment = known[n].segment,
                                 .disk_offset_bytes = known[n].offset,
                                 .length_bytes = length_of(n),
                                 .digest_low = digest.low,
                                 .digest_high = digest.high,
                                 .offset_bytes = target_of(n),
                                 .ref = *ref,
                                 .generation = claim.extent.generation};
}

/* Reads value n back into an extent of its own; SL_OK only with the right bytes. */
static sl_err read_value(uint32_t n, uint32_t segment, uint64_t offset)
{
    static unsigned char want[LARGE_ROOM];
    sl_ref ref = 0;
    struct sl_msg msg = {.type = SL_MSG_DISK_READ};
    struct sl_item_fill item = read_item(n, &ref);
    item.segment = segment;
    item.disk_offset_bytes = offset;
    msg.body.disk_read.items.at = &item;
    msg.body.disk_read.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    pump(UINT64_MAX);
    struct sl_msg reply;
    ck_assert(fake_take_reply(&fake, "registrar", msg.seq, &reply));
    ck_assert_uint_eq(reply.body.disk_read_reply.codes.count, 1);
    sl_err code = (sl_err)reply.body.disk_read_reply.codes.at[0];
    if (code == SL_OK) {
        content(n, want, length_of(n));
        ck_assert_msg(memcmp(want, sl_arena_at(arena, target_of(n), length_of(n)), length_of(n)) ==
                          0,
                      "wrong bytes of value %u were served", n);
    }
    sl_index_set_kind(index_of_node, ref, SL_RECORD_FREE);
    return code;
}

/* The registrar asks again before it has the answer, while the claim still exists. A second read
 * would arrive when the extent belongs to another value. */
START_TEST(a_repeated_read_gets_the_same_answer_and_reads_nothing)
    {
        sl_ref ref = 0;
        struct sl_msg reply;
        ck_assert_int_eq(write_value(1), SL_OK);
        struct sl_msg msg = {.type = SL_MSG_DISK_READ};
        struct sl_item_fill item = read_item(1, &ref);
        item.segment = known[1].segment;
        item.disk_offset_bytes = known[1].offset;
        msg.body.disk_read.items.at = &item;
        msg.body.disk_read.items.count = 1;
        fake_give(&fake, "registrar", &msg);
        uint64_t seq = msg.seq;
        pump(UINT64_MAX);
        ck_assert(fake_take_reply(&fake, "registrar", seq, &reply));
        unsigned char *target = sl_arena_at(arena, target_of(1), length_of(1));
        memset(target, 0x5a, length_of(1));

        fake.seq = seq - 1; /* the next request has the number of this one */
        fake_give(&fake, "registrar", &msg);
        pump(UINT64_MAX);

        ck_assert(fake_take_reply(&fake, "registrar", seq, &reply));
        ck_assert_uint_eq(reply.body.disk_read_reply.codes.count, 1);
        ck_assert_uint_eq(reply.body.disk_read_reply.codes.at[0], SL_OK);
        for (uint64_t i = 0; i < length_of(1); i++) {
            ck_assert_uint_eq(target[i], 0x5a);
        }
        sl_index_set_kind(index_of_node, ref, SL_RECORD_FREE);
    }
END_TEST

/* Takes the next part of the tierer's report: one slice a turn. */
static void found_take(struct sl_msg *found)
{
    for (uint32_t turns = 0; !fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, found); turns++) {
        ck_assert_uint_lt(turns, 100);
        fake_jobs_report(&fake); /* segments are read */
        fake_advance(&fake, SL_NS_PER_US);
    }
}

static uint64_t known_fence; /* as the last scan says */

/* A new registrar sends HELLO: the actor reports its values, into known[].found and places. */
static void scan(void)
{
    struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
    hello.body.hello_reply.boot_generation = ++boot_generation;
    fake_give(&fake, "registrar", &hello);
    pump(UINT64_MAX); /* what an earlier life wrote is made durable first */
    for (bool last = false; !last;) {
        struct sl_msg found;
        uint64_t codes[4096] = {0};
        found_take(&found);
        ck_assert_uint_eq(found.body.disk_found.boot_generation, boot_generation);
        known_fence = found.body.disk_found.known_fence;
        last = found.body.disk_found.last;
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
    }
}

static void restart(void)
{
    fake_stop(&fake);
    for (uint32_t n = 0; n < KEYS_MAX; n++) {
        known[n].found = false;
    }
    start_actor();
    scan();
}

/* After a restart: every acknowledged value is found with the right bytes, and no wrong bytes are
 * served. */
static void check_all(bool all)
{
    for (uint32_t n = 0; n < KEYS_MAX; n++) {
        ck_assert_msg(!all || !known[n].acknowledged || known[n].found,
                      "value %u was acknowledged and is gone", n);
        if (known[n].found) {
            sl_err code = read_value(n, known[n].segment, known[n].offset);
            ck_assert_msg(!all || !known[n].acknowledged || code == SL_OK,
                          "value %u was acknowledged: %s", n, sl_err_text(code));
        }
    }
}

START_TEST(what_comes_behind_a_fence_of_everything_is_not_done)
    {
        struct sl_msg fence = {.type = SL_MSG_FENCE}, reply;
        fake_give(&fake, "registrar", &fence);
        ck_assert(fake_take_reply(&fake, "registrar", fence.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);

        struct sl_msg late = {.type = SL_MSG_DISK_FORGET, .seq = fence.seq - 1};
        struct sl_item_forget item = {.key = sl_text_of("k"), .segment = 1, .length_bytes = 1};
        late.body.disk_forget.items.at = &item;
        late.body.disk_forget.items.count = 1;
        uint64_t requests = disk.requests;
        fake_give(&fake, "registrar", &late); /* of an earlier registrar */
        pump(UINT64_MAX);

        ck_assert_uint_eq(disk.requests, requests);
        ck_assert(fake_take_reply(&fake, "registrar", late.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert_int_eq(write_value(4), SL_OK); /* later requests are carried out */
        scan();
        ck_assert_uint_eq(known_fence, fence.seq + 1);
    }
END_TEST

/* A registrar had no space for all of it. */
START_TEST(a_scan_is_repeated_after_a_fence_of_everything)
    {
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY}, fence = {.type = SL_MSG_FENCE}, reply;
        ck_assert_int_eq(write_value(4), SL_OK);
        scan();
        known[4].found = false;
        hello.body.hello_reply.boot_generation = boot_generation--;
        fake_give(&fake, "registrar", &hello);
        pump(UINT64_MAX);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &reply));

        fake_give(&fake, "registrar", &fence);
        ck_assert(fake_take_reply(&fake, "registrar", fence.seq, &reply));
        scan(); /* with the same boot_generation */

        ck_assert(known[4].found);
        hello.body.hello_reply.boot_generation = boot_generation;
        fake_give(&fake, "registrar", &fence); /* the same one once more */
        fake_give(&fake, "registrar", &hello);
        pump(UINT64_MAX);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &reply));
    }
END_TEST

START_TEST(what_was_never_synced_is_made_durable_before_it_is_told)
    {
        (void)write_start(5, false);
        fake_stop(&fake); /* killed between the write and its sync */
        start_actor();
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY}, found;
        hello.body.hello_reply.boot_generation = ++boot_generation;
        fake_give(&fake, "registrar", &hello);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found));
        scan();
        ck_assert(known[5].found);
        mem_disk_crash(&disk, 1);
        restart();
        ck_assert(known[5].found);
        ck_assert_int_eq(read_value(5, known[5].segment, known[5].offset), SL_OK);
    }
END_TEST

/* Every read fails twice in a row before it succeeds. */
static uint32_t reads_asked;
static sl_err (*mem_read)(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                          uint64_t length_bytes, uint64_t *got, struct sl_error *why);
static sl_err read_stumbles(struct sl_disk *base, int file, void *memory, uint64_t offset_bytes,
                            uint64_t length_bytes, uint64_t *got, struct sl_error *why)
{
    static const uint32_t stumbles = 5; /* of the first reads of a start */
    if (reads_asked++ / 3 < stumbles && reads_asked % 3 != 0) {
        return sl_fail_os(why, EIO, "read");
    }
    return mem_read(base, file, memory, offset_bytes, length_bytes, got, why);
}

START_TEST(reads_that_fail_for_a_moment_at_the_start_cost_nothing)
    {
        for (uint32_t n = 0; n < 24; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        const struct sl_disk_ops *fine = disk.base.ops;
        struct sl_disk_ops stumbling = *fine;
        mem_read = fine->read_now;
        stumbling.read_now = read_stumbles;
        fake_stop(&fake);
        disk.base.ops = &stumbling;
        reads_asked = 0;
        start_actor();
        scan();
        check_all(true);
        disk.base.ops = fine;
    }
END_TEST

/* From number reads_fail_from on, reads_fail_count reads of a start fail, except those that the
 * kernel can serve: of pages that were never written, and of one file. Or only reads of some pages
 * fail. */
static uint32_t reads_fail_from, reads_fail_count;
static int cached_file = -1, members_fails_file = -1;
static int page_fails_file;
static uint64_t page_fails_offset, page_fails_bytes = SL_PAGE_BYTES;
static bool unwritten(const unsigned char *bytes, uint64_t length)
{
    return length > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

static sl_err read_fails(struct sl_disk *base, int file, void *memory, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *got, struct sl_error *why)
{
    bool page = (file == page_fails_file && offset_bytes < page_fails_offset + page_fails_bytes &&
                 page_fails_offset < offset_bytes + length_bytes) ||
                (file == members_fails_file && offset_bytes == 0);
    uint32_t number = reads_asked++;
    bool out = number >= reads_fail_from && number - reads_fail_from < reads_fail_count;
    sl_err err = mem_read(base, file, memory, offset_bytes, length_bytes, got, why);
    bool known_still = file == cached_file || unwritten(memory, *got);
    return page || (out && !known_still) ? sl_fail_os(why, EIO, "read") : err;
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void)pause, (void)left;
    return 0;
}

static sl_err start_count(uint32_t *segments, uint64_t *values)
{
    struct sl_error why = {0};
    reads_asked = 0;
    sl_err err = start_try(&why);
    const struct tierer *self = fake.state;
    *segments = err == SL_OK ? self->segment_count : 0;
    *values = err == SL_OK ? ti_entries_live_count(self->entries) : 0;
    fake_stop(&fake);
    return err;
}

static uint64_t forget_start(uint32_t n);
static void forget_value(uint32_t n);
static void list_members(void);
static uint32_t write_up_to(uint32_t number, uint32_t from);

/* Some log files, all but the last with footers, the second with a tombstone; nothing was
 * stopped. */
static struct sl_disk_ops failing;
static void reads_fail_setup(uint32_t segments, bool tombstone)
{
    scan();
    list_members();
    uint32_t n = write_up_to(2, 0);
    if (tombstone) {
        forget_value(3);
    }
    (void)write_up_to(segments, n);
    pump(UINT64_MAX);
    fake_stop(&fake);
    failing = *disk.base.ops;
    mem_read = failing.read_now;
    failing.read_now = read_fails;
    disk.base.ops = &failing;
    page_fails_file = -1;
}

/* A disk that fails for a moment, or from some moment on, has lost nothing at the next start. */
START_TEST(an_outage_while_the_log_is_read_costs_nothing)
    {
        static const uint32_t lengths[] = {5, 6, 9, 40, UINT32_MAX};
        uint32_t want_segments = 0, segments = 0, ended = 0;
        uint64_t want_values = 0, values = 0;
        reads_fail_setup(3,
                         _i % 2 == 0); /* without one a single page of members was written, twice */
        ck_assert_int_eq(start_count(&want_segments, &want_values), SL_OK);
        uint32_t reads = reads_asked;
        ck_assert_uint_gt(want_values, 0);
        for (uint32_t from = 0; from < reads; from++) {
            reads_fail_from = from;
            reads_fail_count = lengths[_i / 2];
            sl_err err = start_count(&segments, &values);
            ended += err != SL_OK;
            reads_fail_count = 0;
            if (err != SL_OK) {
                ck_assert_int_eq(start_count(&segments, &values), SL_OK);
            }
            ck_assert_msg(segments == want_segments && values == want_values,
                          "from read %u on: %u segments, %lu values", from, segments,
                          (unsigned long)values);
        }
        ck_assert(ended > 0 || _i / 2 == 0);
    }
END_TEST

static int members_file(void)
{
    int file = -1;
    uint64_t bytes = 0;
    ck_assert_int_eq(
        disk.base.ops->open(&disk.base, TI_MEMBERS_NAME, false, 0, &file, &bytes, NULL), SL_OK);
    return file;
}

/* Buffered i/o: the page of members is in memory. */
START_TEST(an_outage_that_the_page_of_members_does_not_show_costs_nothing)
    {
        uint32_t want_segments = 0, segments = 0;
        uint64_t want_values = 0, values = 0;
        reads_fail_setup(7, true);
        ck_assert_int_eq(start_count(&want_segments, &want_values), SL_OK);
        cached_file = members_file();
        disk.base.direct = false;
        uint32_t outages[64] = {UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                UINT32_MAX, UINT32_MAX, UINT32_MAX};
        for (uint32_t i = 6; i < SL_COUNT(outages); i++) {
            outages[i] =
                (uint32_t)(4 * (SL_COUNT(outages) - i)); /* one after it names the tombstone */
        }
        for (uint32_t i = 0; i < SL_COUNT(outages); i++) {
            reads_fail_from = i % 6;
            reads_fail_count = outages[i];
            if (start_count(&segments, &values) == SL_OK) {
                ck_assert_uint_gt(i, 6);
                break; /* so few were unreadable that they may be bad */
            }
            reads_fail_count = 0;
            ck_assert_int_eq(start_count(&segments, &values), SL_OK);
            ck_assert_uint_eq(segments, want_segments);
            ck_assert_uint_eq(values, want_values);
        }
    }
END_TEST

/* Different with direct i/o, where the disk has just returned another page: bad log files are lost,
 * the rest stays. */
START_TEST(many_bad_segments_keep_no_disk_from_its_start)
    {
        uint32_t whole = 0, segments = 0;
        uint64_t values = 0;
        reads_fail_setup(7, false);
        ck_assert_int_eq(start_count(&whole, &values), SL_OK);
        cached_file = members_file();
        reads_fail_from = 0;
        for (reads_fail_count = 200; start_count(&segments, &values) == SL_ERR_IO;) {
            ck_assert_uint_gt(reads_fail_count -= 5, 0);
        }
        ck_assert_uint_gt(segments, 0);
        ck_assert_uint_gt(whole - segments, TI_UNREADABLE_MAX);
        reads_fail_count = 0;
        ck_assert_int_eq(start_count(&segments, &values), SL_OK);
    }
END_TEST

START_TEST(a_bad_page_at_the_start_costs_what_lies_there)
    {
        uint32_t want_segments = 0, segments = 0;
        uint64_t want_values = 0, values = 0;
        reads_fail_setup(3, true);
        members_fails_file =
            _i == 1 ? members_file() : -1; /* and one copy of its page that counts */
        ck_assert_int_eq(start_count(&want_segments, &want_values), SL_OK);
        for (uint32_t number = 1; number <= 3; number++) {
            char name[40];
            uint64_t bytes = 0;
            (void)snprintf(name, sizeof(name), TI_SEGMENT_NAME_FORMAT, number);
            ck_assert_int_eq(
                disk.base.ops->open(&disk.base, name, false, 0, &page_fails_file, &bytes, NULL),
                SL_OK);
            for (page_fails_offset = 0; page_fails_offset < bytes;
                 page_fails_offset += SL_PAGE_BYTES) {
                ck_assert_int_eq(start_count(&segments, &values), SL_OK);
                ck_assert_uint_eq(segments, want_segments);
                ck_assert_uint_ge(values + 1, want_values);
            }
        }
    }
END_TEST

static sl_err open_refused(struct sl_disk *base, const char *name, bool create,
                           uint64_t allocate_bytes, int *file, uint64_t *size_bytes,
                           struct sl_error *why)
{
    (void)base, (void)create, (void)allocate_bytes, (void)file, (void)size_bytes;
    return sl_fail_os(why, strcmp(name, TI_MEMBERS_NAME) == 0 ? ENOENT : EMFILE, "open '%s'", name);
}

START_TEST(a_disk_with_more_files_than_descriptors_says_what_helps)
    {
        struct sl_error why = {0};
        reads_fail_setup(3, true);
        failing.open = open_refused;
        ck_assert_int_ne(start_try(&why), SL_OK);
        ck_assert_ptr_nonnull(strstr(why.text, "3 log files: raise the hard limit"));
    }
END_TEST

static uint64_t forget_start(uint32_t n)
{
    char key[32];
    (void)snprintf(key, sizeof(key), "model/block%u/0/kv", n);
    struct sl_msg msg = {.type = SL_MSG_DISK_FORGET};
    struct sl_item_forget item = {.key = sl_text_of(key), .length_bytes = length_of(n)};
    msg.body.disk_forget.items.at = &item;
    msg.body.disk_forget.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    return msg.seq;
}

START_TEST(tombstone_without_a_place_forgets_what_is_there_by_then)
    {
        ck_assert_int_eq(write_value(7), SL_OK);
        struct sl_msg reply;
        uint64_t seq = forget_start(7);
        pump(UINT64_MAX);
        ck_assert(fake_take_reply(&fake, "registrar", seq, &reply));
        ck_assert_uint_eq(reply.body.disk_forget_reply.codes.at[0], SL_OK);
        restart();
        ck_assert(!known[7].found);
    }
END_TEST

/* The registrar gave up an unanswered write, and its value was removed: frames end in any order,
 * and the tombstone must not be done before that write. */
START_TEST(tombstone_waits_for_the_write_that_is_under_way)
    {
        static struct mem_done held[64];
        uint32_t held_count = 0;
        struct sl_msg reply;
        scan();
        ck_assert_int_eq(write_value(0), SL_OK); /* there is a segment with a header */
        uint64_t write_seq = write_start(1, false);
        while (mem_disk_take_done(&disk, &held[held_count])) {
            ck_assert_uint_lt(++held_count, SL_COUNT(held));
        }
        ck_assert_uint_gt(held_count, 0);

        uint64_t forget_seq = forget_start(1);
        for (uint32_t i = 0; i < 5; i++) {
            pump(UINT64_MAX);
            fake_advance(&fake, 100 * SL_NS_PER_MS); /* a sync of what is written is due */
        }
        for (uint32_t i = 0; i < held_count; i++) {
            hand_over(&held[i]);
        }
        pump(UINT64_MAX);

        ck_assert_int_eq(write_end(1, write_seq), SL_OK);
        ck_assert(fake_take_reply(&fake, "registrar", forget_seq, &reply));
        ck_assert_uint_eq(reply.body.disk_forget_reply.codes.at[0], SL_OK);
        scan(); /* of a new registrar */
        ck_assert(known[0].found && !known[1].found);
        restart();
        ck_assert(known[0].found && !known[1].found);
    }
END_TEST

/* Removed, and put again with the same bytes before the tombstone is durable. */
START_TEST(a_value_that_is_being_forgotten_is_written_again)
    {
        struct sl_msg reply;
        ck_assert_int_eq(write_value(3), SL_OK);
        uint64_t forget_seq = forget_start(3);
        uint64_t write_seq = write_start(3, false);
        pump(UINT64_MAX);

        ck_assert(fake_take_reply(&fake, "registrar", forget_seq, &reply));
        ck_assert_int_eq(write_end(3, write_seq), SL_OK);
        ck_assert_int_eq(read_value(3, known[3].segment, known[3].offset), SL_OK);
        restart();
        ck_assert(known[3].found);
    }
END_TEST

START_TEST(written_values_of_all_sizes_are_read_back)
    {
        for (uint32_t n = 0; n < 24; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        for (uint32_t n = 0; n < 24; n++) {
            ck_assert_int_eq(read_value(n, known[n].segment, known[n].offset), SL_OK);
        }
    }
END_TEST

START_TEST(nothing_is_acknowledged_before_its_sync)
    {
        uint64_t seq = write_start(3, false);

        pump(2); /* header of the segment, header of the frame; the value and the sync are still to
                    come */

        ck_assert_int_eq(write_end(3, seq), SL_ERR_TIMEOUT);
        pump(UINT64_MAX);
        ck_assert_int_eq(write_end(3, seq), SL_OK);
    }
END_TEST

/* Unanswered requests are repeated: a late copy of an answered one must not move the value, since
 * the registrar only knows the first place. */
START_TEST(repeated_write_keeps_the_place)
    {
        ck_assert_int_eq(write_value(3), SL_OK);
        uint32_t segment = known[3].segment;
        uint64_t offset = known[3].offset;

        ck_assert_int_eq(write_value(3), SL_OK);

        ck_assert_uint_eq(known[3].segment, segment);
        ck_assert_uint_eq(known[3].offset, offset);
        ck_assert_int_eq(read_value(3, segment, offset), SL_OK);
    }
END_TEST

/* On disk it would be lost, and eviction would rely on it. */
START_TEST(a_value_that_could_never_be_read_is_not_written)
    {
        scan();
        ck_assert_int_eq(write_value(LARGE), SL_ERR_UNSUPPORTED); /* not LIMIT: too much at once */
        ck_assert_int_eq(write_value(1), SL_OK);
        ck_assert_int_eq(read_value(1, known[1].segment, known[1].offset), SL_OK);
    }
END_TEST

START_TEST(bytes_that_are_not_what_was_announced_stay_out)
    {
        uint64_t seq = write_start(3, true);
        pump(UINT64_MAX);
        ck_assert_int_eq(write_end(3, seq), SL_ERR_CORRUPT);
    }
END_TEST

START_TEST(only_the_registrar_is_served)
    {
        static const uint32_t types[] = {SL_MSG_DISK_WRITE, SL_MSG_DISK_FORGET, SL_MSG_DISK_READ,
                                         SL_MSG_FENCE, SL_MSG_DISK_MEMBERS};
        struct sl_msg reply;
        uint64_t requests = disk.requests;
        for (uint32_t i = 0; i < SL_COUNT(types); i++) {
            struct sl_msg msg = {.type = types[i], .seq = 1000000 + i};
            msg.body.disk_members.epoch = types[i] == SL_MSG_DISK_MEMBERS;
            fake_give(&fake, "client.7", &msg);
            ck_assert(fake_take_reply(&fake, "client.7", msg.seq, &reply));
            ck_assert_int_eq(reply.code, SL_ERR_PERMISSION);
        }
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
        hello.body.hello_reply.boot_generation = boot_generation + 1000;
        fake_give(&fake, "client.7", &hello);
        fake_advance(&fake, SL_NS_PER_S);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &reply));
        ck_assert_uint_eq(disk.requests, requests);
        ck_assert_int_eq(write_value(1), SL_OK);
    }
END_TEST

START_TEST(read_of_another_place_or_key_is_refused)
    {
        ck_assert_int_eq(write_value(3), SL_OK);
        ck_assert_int_eq(write_value(11), SL_OK); /* the same length */

        ck_assert_int_eq(read_value(3, known[11].segment, known[11].offset), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(read_value(3, 77, known[3].offset), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(read_value(5, known[3].segment, known[3].offset), SL_ERR_NOT_FOUND);
    }
END_TEST

/* The registrar asks this after its own restart: the tierer may be reading at that moment. */
START_TEST(fence_waits_for_reads_in_flight)
    {
        struct sl_msg fence = {.type = SL_MSG_FENCE};
        struct sl_msg reply;
        struct sl_msg read = {.type = SL_MSG_DISK_READ};
        ck_assert_int_eq(write_value(4), SL_OK);
        sl_ref ref = 0;
        struct sl_item_fill item = read_item(4, &ref);
        read.body.disk_read.items.at = &item;
        read.body.disk_read.items.count = 1;
        fake_give(&fake, "registrar", &read);

        fake_give(&fake, "registrar", &fence);
        ck_assert(!fake_take_reply(&fake, "registrar", fence.seq, &reply));
        pump(UINT64_MAX);
        ck_assert(fake_take_reply(&fake, "registrar", fence.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);

        struct sl_msg idle = {.type = SL_MSG_FENCE};
        fake_give(&fake, "registrar", &idle);
        ck_assert(fake_take_reply(&fake, "registrar", idle.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

START_TEST(clean_restart_finds_everything)
    {
        for (uint32_t n = 0; n < 100; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        restart();
        check_all(true);
    }
END_TEST

/* Numbers grow forever: a file that claims to be the last one must not make them start again. */
START_TEST(file_with_a_number_that_no_segment_has_is_left_alone)
    {
        static const char *const names[] = {"segment.4294967295", "segment.4294967294",
                                            "segment.0000000000"};
        int file = 0;
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < SL_COUNT(names); i++) {
            ck_assert_int_eq(
                disk.base.ops->open(&disk.base, names[i], true, 4096, &file, &bytes, NULL), SL_OK);
        }
        fake_stop(&fake);
        start_actor();
        ck_assert_int_eq(write_value(1), SL_OK);
        ck_assert_uint_eq(known[1].segment, 1);
        for (uint32_t i = 0; i < SL_COUNT(names); i++) {
            ck_assert_int_eq(
                disk.base.ops->open(&disk.base, names[i], false, 0, &file, &bytes, NULL), SL_OK);
        }
    }
END_TEST

START_TEST(power_cut_after_any_write_loses_nothing_acknowledged)
    {
        uint32_t points = 0;
        for (uint64_t cut = 1;; cut++) {
            close_node();
            open_node();
            scan();
            disk.power_cut_after = cut;
            for (uint32_t n = 0; n < 12;
                 n += 3) { /* three requests share a batch and a sync, now and then */
                uint64_t seqs[3];
                uint64_t before = disk.requests;
                for (uint32_t i = 0; i < 3; i++) {
                    seqs[i] = write_start(n + i, false);
                }
                pump(UINT64_MAX);
                for (uint32_t i = 0; i < 3; i++) {
                    sl_err code = write_end(n + i, seqs[i]);
                    if (disk.requests > cut &&
                        code == SL_OK) { /* answered after the power cut: the time is unknown */
                        known[n + i].acknowledged =
                            before > cut ? false
                                         : known[n + i].acknowledged && disk.requests <= cut;
                    }
                }
            }
            bool over = disk.requests <= cut;
            mem_disk_crash(&disk, cut * 7919 + (uint64_t)_i);
            restart();
            check_all(true);
            points++;
            if (over) {
                break;
            }
        }
        printf("crash points tried: %u (seed %d)\n", points, _i);
    }
END_TEST

START_TEST(flipped_bits_are_never_served)
    {
        uint64_t seed = 1;
        for (uint32_t n = 0; n < 16; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        struct mem_file *file = &disk.files[0];
        for (uint32_t flips = 0; flips < 400; flips++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            uint64_t at =
                SL_PAGE_BYTES + (seed >> 20) % (300 << 10); /* a bad first page costs the segment */
            unsigned char bit = (unsigned char)(1u << (seed >> 60 & 7));
            file->now[at] = file->now[at] ^ bit;
            restart();
            check_all(false); /* read_value compares every byte that is served */
            file->now[at] = file->now[at] ^ bit;
        }
    }
END_TEST

static uint64_t metric(const char *name)
{
    return sl_metric_get(fake.env.metrics, sl_metric_define(fake.env.metrics, name));
}

/* In bytes, or in log files: each needs a descriptor, and some are for other uses. */
START_TEST(ceiling_holds_and_the_oldest_segment_goes)
    {
        struct sl_msg reclaim;
        uint32_t reclaimed = 0;
        if (_i == 1) {
            struct rlimit few = {.rlim_cur = 40, .rlim_max = 40};
            ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
            fake_stop(&fake);
            start_actor();
            struct tierer *self = fake.state;
            ck_assert_uint_eq(self->segments_max, 30);
            self->segments_max = 3;
        }
        scan();
        for (uint32_t n = 0; n < KEYS_MAX; n++) {
            uint64_t seq = write_start(n, false);
            pump(UINT64_MAX);
            sl_err code = write_end(n, seq);
            while (code == SL_ERR_TIMEOUT &&
                   fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim)) {
                struct sl_msg reply = {.code = SL_OK};
                for (uint32_t k = 0; k < n; k++) {
                    if (known[k].segment == reclaim.body.disk_reclaim.segment) {
                        known[k].acknowledged = false;
                    }
                }
                fake_answer(&fake, "registrar", &reclaim, &reply);
                pump(UINT64_MAX);
                fake_advance(&fake, SL_NS_PER_US); /* its entries are freed */
                pump(UINT64_MAX);
                code = write_end(n, seq);
                reclaimed++;
            }
            ck_assert_int_eq(code, SL_OK);
            ck_assert_uint_le(disk.bytes_peak, DISK_BYTES);
            ck_assert_uint_le(metric("segments"), _i == 1 ? 3 : 8);
        }
        ck_assert_uint_ge(reclaimed, 1);
        restart();
        check_all(true);
    }
END_TEST

/* Values of one byte, all at the same offset of the arena: writes 60 from this number on. */
static uint64_t bytes_write(uint32_t from)
{
    struct sl_item_spill items[60];
    char keys[SL_COUNT(items)][16];
    struct sl_digest digest = digest_for(0);
    struct sl_msg msg = {.type = SL_MSG_DISK_WRITE};
    content(0, sl_arena_at(arena, 0, length_of(0)), length_of(0));
    for (uint32_t i = 0; i < SL_COUNT(items); i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "v%u", from + i);
        items[i] = (struct sl_item_spill){.key = sl_text_of(keys[i]),
                                          .length_bytes = length_of(0),
                                          .generation = 1,
                                          .digest_low = digest.low,
                                          .digest_high = digest.high};
    }
    msg.body.disk_write.items.at = items;
    msg.body.disk_write.items.count = SL_COUNT(items);
    fake_give(&fake, "registrar", &msg);
    pump(UINT64_MAX);
    return msg.seq;
}

/* The log file that has them; 0: no answer. */
static uint32_t bytes_written(uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&fake, "registrar", seq, &reply)) {
        return 0;
    }
    ck_assert_uint_eq(reply.body.disk_write_reply.items.at[0].code, SL_OK);
    return (uint32_t)reply.body.disk_write_reply.items.at[0].segment;
}

static void bytes_forget(uint32_t from, uint32_t to)
{
    static struct sl_item_forget forgets[1000];
    static char keys[SL_COUNT(forgets)][16];
    while (from < to) {
        struct sl_msg msg = {.type = SL_MSG_DISK_FORGET};
        uint32_t count = SL_MIN(to - from, (uint32_t)SL_COUNT(forgets));
        for (uint32_t i = 0; i < count; i++) {
            (void)snprintf(keys[i], sizeof(keys[i]), "v%u", from + i);
            forgets[i] = (struct sl_item_forget){.key = sl_text_of(keys[i]), .length_bytes = 1};
        }
        msg.body.disk_forget.items.at = forgets;
        msg.body.disk_forget.items.count = count;
        fake_give(&fake, "registrar", &msg);
        pump(UINT64_MAX);
        from += count;
    }
}

#define MANY 9000u /* more than a turn looks at, and than one message holds */

/* A large index must not delay loads: of thousands of records without a place, and of thousands of
 * values, each turn handles a part. */
START_TEST(a_scan_tells_many_records_in_slices)
    {
        struct sl_msg found, reply = {.code = SL_OK};
        uint64_t codes[4096] = {0};
        uint64_t told = 0;
        bytes_forget(0, MANY);
        for (uint32_t n = 0; n < 600; n += 60) {
            (void)bytes_write(n);
        }
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
        hello.body.hello_reply.boot_generation = ++boot_generation;

        fake_give(&fake, "registrar", &hello);

        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found));
        do {
            found_take(&found);
            ck_assert_uint_le(found.body.disk_found.items.count, TI_FOUND_ITEMS_MAX);
            told += found.body.disk_found.items.count;
            reply.body.disk_found_reply.codes =
                (struct sl_u64s){codes, found.body.disk_found.items.count};
            fake_answer(&fake, "registrar", &found, &reply);
        } while (!found.body.disk_found.last);
        ck_assert_uint_eq(told, 600);
    }
END_TEST

static bool no_memory; /* for records: the linker leads the calls here (--wrap) */
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return no_memory && fd < 0 ? MAP_FAILED : __real_mmap(at, bytes, protection, flags, fd, offset);
}
void *__real_mremap(void *at, size_t before, size_t bytes, int flags);
void *__wrap_mremap(void *at, size_t before, size_t bytes, int flags);
void *__wrap_mremap(void *at, size_t before, size_t bytes, int flags)
{
    return no_memory ? MAP_FAILED : __real_mremap(at, before, bytes, flags);
}

/* Such a log file gets no footer. A failed frame in it does not end writing, and it is not reported
 * as empty. */
START_TEST(a_segment_without_memory_for_its_records_costs_nothing)
    {
        const struct tierer *self = fake.state;
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY}, found;
        scan();
        no_memory = _i == 0; /* for the first of them, or where they grow */
        ck_assert_int_eq(write_value(1), SL_OK);
        no_memory = true;
        bytes_forget(0, 1000);
        ck_assert(self->segments[0].records_lost);
        no_memory = false;
        ck_assert_int_eq(write_value(2), SL_OK);
        disk.fail_request = disk.requests + 1;
        disk.fail_os_code = EIO;
        ck_assert_int_eq(write_value(400), SL_ERR_IO);
        disk.fail_request = 0;
        fake_advance(&fake, 10 * SL_NS_PER_S);
        pump(UINT64_MAX);

        ck_assert_int_eq(write_value(401), SL_OK);
        ck_assert_uint_gt(known[401].segment, known[1].segment);
        no_memory = true;
        hello.body.hello_reply.boot_generation = ++boot_generation;
        fake_give(&fake, "registrar", &hello);
        fake_advance(&fake, 10 * SL_NS_PER_S);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found));
        no_memory = false;
        scan();
        check_all(true);
        restart();
        check_all(true);
    }
END_TEST

/* As in a small container, or next to other memory that a node needs after a kill. */
START_TEST(a_start_without_memory_for_records_takes_over_all_that_is_there)
    {
        scan();
        for (uint32_t n = 0; n < 20; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        (void)forget_start(3);
        pump(UINT64_MAX);
        known[3].acknowledged = false;
        fake_stop(&fake);
        no_memory = true;
        start_actor();
        no_memory = false;
        ck_assert(((const struct tierer *)fake.state)->segments[0].records_lost);
        scan();
        check_all(true);
        ck_assert(!known[3].found);
        restart(); /* its frames are read again, and now it gets its footer */
        check_all(true);
    }
END_TEST

/* Two log files of thousands of values are reclaimed one after the other. Meanwhile their places do
 * not count: a value written again gets a new place. */
START_TEST(segments_leave_in_slices_while_their_keys_are_written_again)
    {
        const struct tierer *self = fake.state;
        struct sl_msg reclaim, reply = {.code = SL_OK};
        uint32_t begins[8] = {0}; /* number of the first value of each segment */
        uint32_t segment = 1, oldest = 0, n = 0, turns = 0;
        uint64_t seq = 0;
        scan();
        for (; !fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim); n += 60) {
            seq = bytes_write(n);
            uint32_t now = bytes_written(seq);
            if (now > segment) {
                begins[segment = now] = n;
            }
            if (begins[3] != 0 && oldest == 0) { /* the second has no live value before the first */
                oldest = begins[2];
                bytes_forget(begins[2], begins[3]);
            }
        }
        ck_assert_uint_gt(begins[2], 8192);
        ck_assert_uint_gt(begins[3] - begins[2], 8192);
        ck_assert_uint_eq(reclaim.body.disk_reclaim.segment, 1);

        fake_answer(&fake, "registrar", &reclaim, &reply);
        pump(UINT64_MAX);
        ck_assert_uint_ne(bytes_written(seq), 0);
        for (; self->left != 0; turns++) {
            ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim));
            uint32_t again = bytes_written(bytes_write(turns * 60));
            ck_assert_uint_gt(again, 3);
            ck_assert_uint_eq(bytes_written(bytes_write(turns * 60)), again);
            fake_advance(&fake, 0); /* one turn */
            pump(UINT64_MAX);
        }
        ck_assert_uint_ge(turns, 3);
        ck_assert_uint_eq(
            sl_metric_get(fake.env.metrics, sl_metric_define(fake.env.metrics, "live_values")),
            ti_entries_live_count(self->entries));

        for (uint32_t i = 0; !fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim); i++) {
            ck_assert_uint_lt(i, 10);
            fake_advance(&fake, SL_NS_PER_US);
        }
        ck_assert_uint_eq(reclaim.body.disk_reclaim.segment, 2);
        fake_answer(&fake, "registrar", &reclaim, &reply);
        for (uint32_t i = 0; i < 10; i++) {
            pump(UINT64_MAX);
            fake_advance(&fake, SL_NS_PER_US);
        }
        ck_assert_uint_eq(self->left, 0);
        ck_assert_uint_eq(self->segments[0].number, 3);
        ck_assert_uint_eq(ti_entries_live_count(self->entries), n - begins[3] + turns * 60);
    }
END_TEST

/* No place of a reclaimed log file counts from the start on, even if most of them are still to be
 * freed. */
START_TEST(entries_of_a_segment_leave_in_slices)
    {
        struct ti_entries *entries = NULL;
        ti_entry_ref lists[2] = {0};
        ck_assert_int_eq(ti_entries_create(1, MANY * 2, &entries, NULL), SL_OK);
        for (uint64_t i = 0; i < MANY + 100; i++) {
            struct ti_entry want = {.hash = {i, i}, .length_bytes = 1, .segment = i < MANY ? 1 : 2};
            ck_assert_int_eq(ti_entries_put(entries, &want, &lists[i < MANY ? 0 : 1]), SL_OK);
        }

        ck_assert(!ti_entries_drop(entries, &lists[0], MANY - 1));

        for (uint64_t i = 0; i < MANY + 100; i++) {
            const struct ti_entry *there = ti_entries_find(entries, (struct ti_key_hash){i, i});
            ck_assert_int_eq(there != NULL, i >= MANY);
        }
        const struct ti_entry again = {.hash = {0, 0}, .length_bytes = 1, .segment = 2};
        ck_assert_int_eq(ti_entries_put(entries, &again, &lists[1]), SL_OK);
        ck_assert_uint_eq(ti_entries_live_count(entries), 101); /* the last one of the list */
        ck_assert(ti_entries_drop(entries, &lists[0], 1));
        ck_assert_ptr_nonnull(ti_entries_find(entries, again.hash));
        ck_assert_uint_eq(ti_entries_live_count(entries), 101);
        ti_entries_destroy(&entries);
    }
END_TEST

START_TEST(forgotten_value_does_not_come_back)
    {
        struct sl_item_forget item = {.length_bytes = length_of(3)};
        struct sl_msg msg = {.type = SL_MSG_DISK_FORGET};
        struct sl_msg reply;
        ck_assert_int_eq(write_value(3), SL_OK);
        ck_assert_int_eq(write_value(4), SL_OK);
        item.key = sl_text_of("model/block3/0/kv");
        item.segment = known[3].segment;
        item.disk_offset_bytes = known[3].offset;
        msg.body.disk_forget.items.at = &item;
        msg.body.disk_forget.items.count = 1;

        fake_give(&fake, "registrar", &msg);
        pump(UINT64_MAX);

        ck_assert(fake_take_reply(&fake, "registrar", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.disk_forget_reply.codes.at[0], SL_OK);
        ck_assert_int_eq(read_value(3, known[3].segment, known[3].offset), SL_ERR_NOT_FOUND);
        restart();
        ck_assert(!known[3].found);
        ck_assert(known[4].found);
    }
END_TEST

/* The previous registrar's requests are reported to its successor, even if they became durable
 * after the successor's HELLO. */
START_TEST(a_scan_tells_of_the_batch_that_was_under_way)
    {
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY}, found;
        ck_assert_int_eq(write_value(1), SL_OK);
        (void)write_start(2, false);
        pump(1);

        hello.body.hello_reply.boot_generation = ++boot_generation;
        fake_give(&fake, "registrar", &hello);
        bool two = false;
        for (bool last = false; !last;) {
            uint64_t codes[8] = {0};
            while (!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found)) {
                pump(1);
                fake_advance(&fake, SL_NS_PER_US);
            }
            last = found.body.disk_found.last;
            for (uint64_t i = 0; i < found.body.disk_found.items.count; i++) {
                two = two ||
                      strcmp(found.body.disk_found.items.at[i].key.at, "model/block2/0/kv") == 0;
            }
            struct sl_msg reply = {.code = SL_OK};
            reply.body.disk_found_reply.codes =
                (struct sl_u64s){codes, found.body.disk_found.items.count};
            fake_answer(&fake, "registrar", &found, &reply);
        }

        ck_assert(two);
    }
END_TEST

START_TEST(any_failed_call_is_an_answer_and_heals)
    {
        for (uint64_t n = 1; n <= 20; n++) {
            close_node();
            open_node();
            scan();
            disk.fail_request = n;
            disk.fail_os_code = _i == 0 ? EIO : ENOSPC;
            uint32_t failures = 0;
            for (uint32_t value = 0; value < 6; value++) {
                sl_err code = write_value(value);
                failures += code != SL_OK;
                ck_assert(code == SL_OK || code == (_i == 0 ? SL_ERR_IO : SL_ERR_NO_SPACE));
                fake_advance(&fake, 3 * SL_NS_PER_S);
            }
            ck_assert_uint_le(failures, 1);
            disk.fail_request = 0;
            ck_assert_int_eq(write_value(7), SL_OK);
            restart();
            check_all(true);
        }
    }
END_TEST

/* ---- a disk that is ill, or is it one place of it? ---- */

static enum sl_health health(void)
{
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary;
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/metrics.fake", fake.paths.shm_dir);
    ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
    sl_metrics_view_summary(view, &summary);
    sl_metrics_view_close(&view);
    return summary.health;
}

static void pass_and_pump(uint64_t ns)
{
    fake_advance(&fake, ns);
    pump(UINT64_MAX);
}

static void spoil_place_of(uint32_t n)
{
    char name[40];
    uint64_t bytes = 0;
    (void)snprintf(name, sizeof(name), "segment.%010u", known[n].segment);
    disk.bad_place = true;
    disk.bad_offset = known[n].offset;
    ck_assert_int_eq(disk.base.ops->open(&disk.base, name, false, 0, &disk.bad_file, &bytes, NULL),
                     SL_OK);
}

START_TEST(a_place_that_stays_unreadable_is_given_up)
    {
        scan();
        for (uint32_t n = 0; n < 4; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        spoil_place_of(1);

        uint32_t failures = 0;
        sl_err code = SL_OK;
        while ((code = read_value(1, known[1].segment, known[1].offset)) == SL_ERR_IO) {
            failures++;
            ck_assert_uint_le(failures, 10);
            ck_assert_int_eq(write_value(10 + failures), SL_OK); /* a bad place delays no other */
            ck_assert_int_eq(read_value(0, known[0].segment, known[0].offset), SL_OK);
            pass_and_pump(2 * SL_NS_PER_S);
            ck_assert_int_eq(health(), SL_HEALTH_READY);
        }

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_ge(failures, 3);
        ck_assert_uint_eq(metric("unreadable_places"), 1);
        known[1].acknowledged = false;
        restart();
        check_all(true);
    }
END_TEST

START_TEST(a_place_that_can_be_read_again_is_not_given_up)
    {
        scan();
        ck_assert_int_eq(write_value(1), SL_OK);
        for (uint32_t round = 0; round < 10; round++) { /* two failures, then all is well */
            spoil_place_of(1);
            for (uint32_t i = 0; i < 2; i++) {
                ck_assert_int_eq(read_value(1, known[1].segment, known[1].offset), SL_ERR_IO);
                pass_and_pump(2 * SL_NS_PER_S);
            }
            disk.bad_place = false;
            ck_assert_int_eq(read_value(1, known[1].segment, known[1].offset), SL_OK);
        }
        ck_assert_uint_eq(metric("unreadable_places"), 0);
    }
END_TEST

START_TEST(a_disk_that_reads_nothing_is_left_alone_until_a_probe_succeeds)
    {
        scan();
        for (uint32_t n = 0; n < 4; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        disk.fail_reads = EIO;

        ck_assert_int_eq(read_value(0, known[0].segment, known[0].offset), SL_ERR_IO);
        ck_assert_int_eq(health(), SL_HEALTH_DEGRADED);
        uint64_t reads = disk.reads;
        for (uint32_t i = 0; i < 100; i++) { /* a miss at once, without a read from the disk */
            ck_assert_int_eq(read_value(i % 4, known[i % 4].segment, known[i % 4].offset),
                             SL_ERR_UNREACHABLE);
        }
        ck_assert_uint_eq(disk.reads, reads);
        for (uint32_t i = 0; i < 20; i++) {
            pass_and_pump(2 * SL_NS_PER_S);
            ck_assert_int_eq(read_value(0, known[0].segment, known[0].offset), SL_ERR_UNREACHABLE);
            ck_assert_int_eq(health(), SL_HEALTH_DEGRADED);
        }
        ck_assert_uint_gt(disk.reads, reads); /* it is checked */
        disk.fail_reads = 0;
        pass_and_pump(2 * SL_NS_PER_S);

        ck_assert_int_eq(health(), SL_HEALTH_READY);
        for (uint32_t n = 0; n < 4; n++) {
            known[n].found = true;
        }
        check_all(true); /* nothing was given up: the disk failed, not the place */
    }
END_TEST

static int open_code; /* errno of open_refuses */

static sl_err open_refuses(struct sl_disk *at, const char *name, bool create,
                           uint64_t allocate_bytes, int *file, uint64_t *size_bytes,
                           struct sl_error *why)
{
    (void)at, (void)create, (void)allocate_bytes, (void)file, (void)size_bytes;
    return sl_fail_os(why, open_code, "open '%s'", name);
}

START_TEST(a_failure_with_nothing_left_to_write_is_over_by_itself)
    {
        const struct sl_disk_ops *fine = disk.base.ops;
        struct sl_disk_ops full = *fine;
        full.open = open_refuses;
        open_code = ENOSPC;
        scan();
        disk.base.ops = &full;
        uint64_t seq = write_start(0, false);
        pass_and_pump(SL_NS_PER_S); /* refused once more: it is full */
        ck_assert_int_eq(health(), SL_HEALTH_DEGRADED);
        for (uint32_t i = 0; i < 3; i++) {
            pass_and_pump(2 * SL_NS_PER_S);
        }
        ck_assert_int_eq(write_end(0, seq), SL_ERR_NO_SPACE);
        disk.base.ops = fine;

        for (uint32_t i = 0; i < 6; i++) {
            pass_and_pump(2 * SL_NS_PER_S);
        }

        ck_assert_int_eq(health(), SL_HEALTH_READY);
        ck_assert_int_eq(write_value(0), SL_OK);
    }
END_TEST

/* How often the actor is woken until then; the disk answers when `answers`. */
static uint32_t ticks(uint64_t ns, bool answers)
{
    uint64_t until_ns = fake.env.now_ns + ns;
    uint32_t count = 0;
    while (fake.wake_ns <= until_ns && count < 10000) {
        uint64_t ahead_ns = fake.wake_ns > fake.env.now_ns ? fake.wake_ns - fake.env.now_ns : 1;
        fake_advance(&fake, ahead_ns);
        pump(answers ? UINT64_MAX : 0);
        count++;
    }
    return count;
}

static const struct {
    bool reads, answers;
} sick[] = {{true, true}, {true, false}, {false, true}, {false, false}};

START_TEST(a_disk_that_is_not_well_is_looked_at_about_once_a_second)
    {
        scan();
        ck_assert_int_eq(write_value(0), SL_OK);
        if (sick[_i].reads) {
            disk.fail_reads = EIO;
            ck_assert_int_eq(read_value(0, known[0].segment, known[0].offset), SL_ERR_IO);
        } else {
            disk.fail_request = disk.requests + 1;
            disk.fail_os_code = EIO;
            (void)write_start(1, false);
            pump(sick[_i].answers ? UINT64_MAX : 1);
        }
        ck_assert_uint_le(ticks(60 * SL_NS_PER_S, sick[_i].answers), 60 * 10);
    }
END_TEST

START_TEST(loads_do_not_wait_behind_write_back)
    {
        const struct sl_disk_ops *fine = disk.base.ops;
        struct sl_disk_ops full = *fine;
        full.open = open_refuses;
        open_code = EIO;
        scan();
        ck_assert_int_eq(write_value(0), SL_OK);
        disk.base.ops = &full;
        disk.fail_request = disk.requests + 1;
        disk.fail_os_code = EIO;
        ck_assert_int_eq(write_value(1), SL_ERR_IO); /* ends its log file, and there is no other */
        uint64_t first = write_start(2, false), second = write_start(3, false);

        ck_assert_int_eq(read_value(0, known[0].segment, known[0].offset), SL_OK);

        ck_assert_int_eq(write_end(2, first), SL_ERR_TIMEOUT); /* they still wait */
        ck_assert_int_eq(write_end(3, second), SL_ERR_TIMEOUT);
        disk.base.ops = fine;
        pass_and_pump(2 * SL_NS_PER_S + 1);
        ck_assert_int_eq(write_end(2, first), SL_OK);
        ck_assert_int_eq(write_end(3, second), SL_OK);
    }
END_TEST

/* ---- priorities ---- */

#define SUBMITTED_MAX 256u
static struct {
    struct sl_disk_ops ops;
    const struct sl_disk_ops *fine;
    struct {
        bool read;
        uint64_t offset;
    } order[SUBMITTED_MAX];
    uint32_t count;
} narrow;

/* A disk that accepts one request at a time. */
static sl_err submit_one(struct sl_disk *base, const struct sl_disk_request *request,
                         struct sl_error *why)
{
    if (disk.done_count > 0) {
        return SL_ERR_LIMIT;
    }
    ck_assert_uint_lt(narrow.count, SUBMITTED_MAX);
    narrow.order[narrow.count].read = request->verb == SL_DISK_READ;
    narrow.order[narrow.count++].offset = request->offset_bytes;
    return narrow.fine->submit(base, request, why);
}

static void disk_narrow(void)
{
    narrow.fine = disk.base.ops;
    narrow.ops = *disk.base.ops;
    narrow.ops.submit = submit_one;
    narrow.count = 0;
    disk.base.ops = &narrow.ops;
}

/* When value n was read; UINT32_MAX: it was not. */
static uint32_t read_at(uint32_t n)
{
    for (uint32_t i = 0; i < narrow.count; i++) {
        if (narrow.order[i].read && narrow.order[i].offset == known[n].offset) {
            return i;
        }
    }
    return UINT32_MAX;
}

static uint32_t writes_before(uint32_t at)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < at && i < narrow.count; i++) {
        count += !narrow.order[i].read;
    }
    return count;
}

/* Asks for value n; returns the number of the request, and the generation of the extent. */
static uint64_t read_start(uint32_t n, bool ahead, uint64_t *generation)
{
    sl_ref ref = 0;
    struct sl_msg msg = {.type = SL_MSG_DISK_READ};
    struct sl_item_fill item = read_item(n, &ref);
    *generation = item.generation;
    msg.body.disk_read.items.at = &item;
    msg.body.disk_read.items.count = 1;
    msg.body.disk_read.ahead = ahead;
    fake_give(&fake, "registrar", &msg);
    return msg.seq;
}

static void read_is_fine(uint64_t seq)
{
    struct sl_msg reply;
    ck_assert(fake_take_reply(&fake, "registrar", seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    const struct sl_u64s *codes = &reply.body.disk_read_reply.codes;
    ck_assert_uint_eq(codes->count, 1);
    ck_assert_uint_eq(codes->at[0], SL_OK);
}

static void write_values(uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        ck_assert_int_eq(write_value(n), SL_OK);
    }
}

START_TEST(demand_goes_before_prefetch_and_prefetch_before_write_back)
    {
        uint64_t generation, ahead[4], demand[4];
        uint32_t writes = 0;
        scan();
        write_values(8);
        disk_narrow();
        uint64_t write = write_start(40, false); /* one of its requests is at the disk */
        for (uint32_t i = 0; i < 4; i++) {
            ahead[i] = read_start(i, true, &generation);
        }
        for (uint32_t i = 0; i < 4; i++) {
            demand[i] = read_start(4 + i, false, &generation);
        }

        pump(UINT64_MAX);

        for (uint32_t i = 0; i < 4; i++) {
            read_is_fine(ahead[i]);
            read_is_fine(demand[i]);
            for (uint32_t k = 0; k < 4; k++) {
                ck_assert_uint_lt(read_at(4 + i), read_at(k));
            }
            writes = SL_MAX(writes, writes_before(read_at(i)));
        }
        ck_assert_uint_le(writes, 1 + 8 / 4 + 1); /* the running ones, and their share */
        ck_assert_int_eq(write_end(40, write), SL_OK);
    }
END_TEST

START_TEST(a_prefetch_that_somebody_waits_for_goes_with_the_others)
    {
        uint64_t generation, raised, ahead[3];
        scan();
        write_values(8);
        disk_narrow();
        ahead[0] = read_start(0, true, &generation); /* at the disk */
        ahead[1] = read_start(1, true, &generation);
        ahead[2] = read_start(2, true, &raised);
        struct sl_msg raise = {.type = SL_MSG_DISK_READ}, reply;
        raise.body.disk_read.raise = raised;
        fake_give(&fake, "registrar", &raise);
        ck_assert(fake_take_reply(&fake, "registrar", raise.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        sl_ref ref = 0;
        struct sl_item_fill other = read_item(4, &ref);
        raise.body.disk_read.items.at = &other;
        raise.body.disk_read.items.count = 1;
        raise.seq = 0;
        fake_give(&fake, "registrar", &raise);
        ck_assert(fake_take_reply(&fake, "registrar", raise.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        uint64_t demand = read_start(3, false, &generation);

        pump(UINT64_MAX);

        read_is_fine(demand);
        for (uint32_t i = 0; i < 3; i++) {
            read_is_fine(ahead[i]);
        }
        ck_assert_uint_lt(read_at(2), read_at(3));
        ck_assert_uint_lt(read_at(3), read_at(1));
    }
END_TEST

/* ---- values of several pieces ---- */

/* Completes the requests at the disk in reverse order. */
static void pump_backwards(void)
{
    struct mem_done done[64];
    uint32_t count = 0;
    while (mem_disk_take_done(&disk, &done[count])) {
        ck_assert_uint_lt(++count, SL_COUNT(done));
    }
    while (count > 0) {
        hand_over(&done[--count]);
    }
}

START_TEST(pieces_may_end_in_any_order)
    {
        uint64_t generation;
        ck_assert_int_eq(write_value(LARGE), SL_OK);
        uint64_t before = disk.reads;
        uint64_t seq = read_start(LARGE, false, &generation);
        while (disk.done_count > 0) {
            pump_backwards();
        }
        read_is_fine(seq);
        ck_assert_uint_eq(disk.reads - before, 4);
        ck_assert_int_eq(read_value(LARGE, known[LARGE].segment, known[LARGE].offset), SL_OK);
    }
END_TEST

/* The next reads would lack memory that a read does not release: all of the staging is for them. */
START_TEST(a_piece_that_cannot_be_read_costs_its_value_alone)
    {
        for (uint32_t n = LARGE; n < LARGE + 2; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        const struct known *bad = &known[LARGE], *good = &known[LARGE + 1];
        spoil_place_of(LARGE);
        disk.bad_offset += (uint64_t)_i * TI_READ_PIECE_BYTES;
        for (uint32_t again = 0; again < 2; again++) {
            ck_assert_int_eq(read_value(LARGE, bad->segment, bad->offset), SL_ERR_IO);
            ck_assert_int_eq(read_value(LARGE + 1, good->segment, good->offset), SL_OK);
        }
        disk.bad_place = false;
        ck_assert_int_eq(read_value(LARGE, bad->segment, bad->offset), SL_OK);
    }
END_TEST

START_TEST(a_wrong_byte_in_any_piece_is_seen)
    {
        ck_assert_int_eq(write_value(LARGE), SL_OK);
        uint64_t at = SL_MIN((uint64_t)_i * TI_READ_PIECE_BYTES + 70000, length_of(LARGE) - 1);
        spoil_place_of(LARGE); /* gives its file */
        disk.bad_place = false;
        disk.files[disk.bad_file].now[disk.bad_offset + at] ^= 4;
        ck_assert_int_eq(read_value(LARGE, known[LARGE].segment, known[LARGE].offset),
                         SL_ERR_CORRUPT);
    }
END_TEST

/* A disk that gets all pieces completes them all at once, and is then idle while they are
 * copied. */
START_TEST(the_disk_has_a_few_pieces_at_a_time_in_their_order)
    {
        uint64_t generation, seqs[3];
        scan();
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_eq(write_value(LARGE + i), SL_OK);
        }
        for (uint32_t i = 0; i < 3; i++) {
            seqs[i] = read_start(LARGE + i, false, &generation);
        }
        for (uint32_t i = 0; i < 3; i++) {
            struct sl_msg reply;
            for (uint32_t piece = 0; piece < 4; piece++) {
                ck_assert_uint_le(disk.done_count, TI_READ_WINDOW_BYTES / TI_READ_PIECE_BYTES + 1);
                ck_assert(!fake_take_reply(&fake, "registrar", seqs[i], &reply));
                pump(1);
            }
            read_is_fine(seqs[i]);
        }
    }
END_TEST

START_TEST(the_page_tells_what_is_waited_for_and_how_long_was_read)
    {
        uint64_t generation, raised;
        scan();
        write_values(3);
        disk_narrow();
        (void)read_start(0, true, &raised); /* no load waits for it, */
        uint64_t ahead_bytes = metric("read_queue_bytes");
        (void)read_start(1, false, &generation);
        uint64_t one_bytes = metric("read_queue_bytes");
        struct sl_msg raise = {.type = SL_MSG_DISK_READ};
        raise.body.disk_read.raise = raised;
        fake_give(&fake, "registrar", &raise); /* until one does */
        uint64_t two_bytes = metric("read_queue_bytes");

        fake_advance(&fake, 5 * SL_NS_PER_MS);
        pump(UINT64_MAX);
        fake_advance(&fake, 7 * SL_NS_PER_MS); /* idle */
        (void)read_start(2, false, &generation);
        fake_advance(&fake, 3 * SL_NS_PER_MS);
        pump(UINT64_MAX);

        ck_assert_uint_eq(ahead_bytes, 0);
        ck_assert_uint_eq(one_bytes, length_of(1));
        ck_assert_uint_eq(two_bytes, known[0].length + length_of(1));
        ck_assert_uint_eq(metric("read_queue_bytes"), 0);
        ck_assert_uint_eq(metric("read_busy_ns"), 8 * SL_NS_PER_MS);
    }
END_TEST

START_TEST(nothing_starves_under_demand)
    {
        uint64_t generation;
        scan();
        write_values(2);
        disk_narrow();
        uint64_t ahead = read_start(0, true, &generation);
        uint64_t busy = read_start(1, false, &generation);
        uint64_t late = read_start(0, true, &generation);
        uint64_t write = write_start(40, false);
        struct sl_msg reply;
        bool read = false;
        bool written = false;
        (void)busy;
        for (uint32_t i = 0; i < 100 && !(read && written); i++) {
            (void)read_start(1, false, &generation); /* more than the disk does */
            pump(1);
            read = read || fake_take_reply(&fake, "registrar", late, &reply);
            written = written || write_end(40, write) == SL_OK;
        }
        ck_assert(read && written);
        read_is_fine(ahead);
        pump(UINT64_MAX);
    }
END_TEST

START_TEST(a_repeated_prefetch_is_read_once)
    {
        uint64_t generation;
        scan();
        write_values(2);
        disk_narrow();
        uint64_t seq = read_start(1, true, &generation);
        fake.seq = seq - 1;
        ck_assert_uint_eq(read_start(1, true, &generation), seq);

        pump(UINT64_MAX);

        ck_assert_uint_eq(narrow.count, 1);
        read_is_fine(seq);
    }
END_TEST

/* ---- a tombstone that cannot be read ---- */

static uint64_t members_epoch;

static void start_again(void)
{
    for (uint32_t n = 0; n < KEYS_MAX; n++) {
        known[n].found = false;
    }
    start_actor();
    scan();
}

static void list_members(void)
{
    struct sl_msg reply, msg = {.type = SL_MSG_DISK_MEMBERS};
    msg.body.disk_members.epoch = ++members_epoch;
    fake_give(&fake, "registrar", &msg);
    pump(UINT64_MAX);
    ck_assert(fake_take_reply(&fake, "registrar", msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
}

static void forget_value(uint32_t n)
{
    struct sl_msg reply;
    uint64_t seq = forget_start(n);
    pump(UINT64_MAX);
    ck_assert(fake_take_reply(&fake, "registrar", seq, &reply));
    ck_assert_uint_eq(reply.body.disk_forget_reply.codes.at[0], SL_OK);
    known[n].acknowledged = false;
}

/* A file that a helper thread reads exists until the read ends. */
START_TEST(a_segment_that_is_being_removed_is_not_read_for_a_new_registrar)
    {
        struct sl_msg reclaim, found, reply = {.code = SL_OK};
        uint32_t oldest = 0;
        scan();
        do {
            ck_assert_int_eq(write_value(oldest), SL_OK);
        } while (known[oldest++].segment == known[0].segment);
        for (uint32_t n = 0; n + 1 < oldest; n++) {
            forget_value(n);
        }
        ck_assert(fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim));
        ck_assert_uint_eq(reclaim.body.disk_reclaim.segment, known[0].segment);
        fake_answer(&fake, "registrar", &reclaim, &reply);

        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
        hello.body.hello_reply.boot_generation = ++boot_generation;
        fake.job_held = true;
        fake_give(&fake, "registrar", &hello);
        pump(UINT64_MAX); /* the file no longer exists */

        ck_assert_ptr_null(fake.held_job);
        found_take(&found);
        ck_assert_uint_eq(found.body.disk_found.items.count, 1); /* the one that lives */
    }
END_TEST

static bool read_only;

static sl_err disk_prepare(struct sl_disk *base, const char *from, const char *name, uint64_t bytes,
                           struct sl_error *why)
{
    (void)base;
    if (read_only) {
        return sl_fail_os(why, EROFS, "rename");
    }
    return mem_disk_prepare(&disk, from, name, bytes, why);
}

/* The two oldest log files have no live value. The first is reclaimed, and its file is renamed by a
 * job that is held. */
static void rename_held(void)
{
    static struct sl_disk_ops renames; /* it ends after the test */
    struct sl_msg reclaim, reply = {.code = SL_OK};
    uint32_t n = 0;
    scan();
    while (n == 0 || known[n - 1].segment <= known[0].segment + 1) {
        ck_assert_int_eq(write_value(n++), SL_OK);
    }
    while (n-- > 0) { /* those of the oldest last */
        if (known[n].segment <= known[0].segment + 1) {
            forget_value(n);
        }
    }
    ck_assert(fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim));
    ck_assert_uint_eq(reclaim.body.disk_reclaim.segment, known[0].segment);
    renames = *disk.base.ops;
    renames.prepare = disk_prepare;
    disk.base.ops = &renames;
    fake.job_held = true;
    fake_answer(&fake, "registrar", &reclaim, &reply);
    pump(UINT64_MAX);
    ck_assert_ptr_nonnull(fake.held_job);
    fake.job_held = false;
}

/* Under its old name the next start would find the file intact, but the registrar relies on the
 * removal of one log file when the next is reported. */
START_TEST(no_segment_is_named_while_the_file_of_the_one_before_is_renamed)
    {
        struct sl_msg reclaim;

        rename_held();

        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim));
        fake_job_run(&fake, 1);
        pass_and_pump(SL_NS_PER_S);
        ck_assert(fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim));
        ck_assert_uint_eq(reclaim.body.disk_reclaim.segment, known[0].segment + 1);
    }
END_TEST

/* Whether the last message of a scan has arrived. Answers all that have. */
static bool scan_ends(void)
{
    struct sl_msg found, reply = {.code = SL_OK};
    uint64_t codes[4096] = {0};
    bool last = false;
    fake_jobs_report(&fake);
    while (fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found)) {
        last = last || found.body.disk_found.last;
        reply.body.disk_found_reply.codes =
            (struct sl_u64s){codes, found.body.disk_found.items.count};
        fake_answer(&fake, "registrar", &found, &reply);
        fake_jobs_report(&fake);
    }
    return last;
}

static void hello_new(void)
{
    struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
    hello.body.hello_reply.boot_generation = ++boot_generation;
    fake_give(&fake, "registrar", &hello);
}

/* Values that are not reported are forgotten, and so are the other parts of their blocks. */
START_TEST(a_scan_waits_for_a_disk_that_cannot_be_read)
    {
        reads_fail_setup(3, true);
        cached_file = _i == 1 ? members_file() : -1;
        disk.base.direct = _i == 0;
        start_actor();
        scan();
        const struct tierer *self = fake.state;
        (void)write_up_to(self->segment_count + 1, 200);
        reads_fail_from = 0;
        reads_fail_count = UINT32_MAX;
        disk.fail_reads = EIO;
        hello_new();
        for (uint32_t i = 0; i < 20; i++) {
            ck_assert(!scan_ends());
            pass_and_pump(2 * SL_NS_PER_S);
        }
        ck_assert_int_eq(health(), SL_HEALTH_DEGRADED);
        ck_assert(!self->unsettled);
        reads_fail_count = 0;
        disk.fail_reads = 0;
        pass_and_pump(4 * SL_NS_PER_S);
        while (!scan_ends()) {
            pass_and_pump(SL_NS_PER_S);
        }
        ck_assert_int_eq(health(), SL_HEALTH_READY);
        restart();
        check_all(true);
    }
END_TEST

/* Otherwise a new registrar would believe that it knows all values of the disk. */
START_TEST(a_scan_does_not_end_while_the_file_of_a_segment_is_renamed)
    {
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
        rename_held();
        hello.body.hello_reply.boot_generation = ++boot_generation;

        fake_give(&fake, "registrar", &hello);
        for (uint32_t i = 0; i < 10; i++) {
            pass_and_pump(SL_NS_PER_MS);
            ck_assert(!scan_ends());
        }

        fake_job_run(&fake, 1);
        bool ended = false;
        for (uint32_t i = 0; i < 10; i++) {
            pass_and_pump(SL_NS_PER_MS);
            ended = ended || scan_ends();
        }
        ck_assert(ended);
    }
END_TEST

/* The rest of it is not reported: a disk that cannot be written to still serves. */
START_TEST(a_scan_ends_though_the_file_of_a_segment_cannot_be_renamed)
    {
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY}, gone;
        rename_held();
        read_only = true;
        disk.fail_request = disk.requests + 1;
        disk.fail_os_code = EROFS;
        fake_job_run(&fake, 1);
        fake_jobs_report(&fake);
        pump(UINT64_MAX);
        hello.body.hello_reply.boot_generation = ++boot_generation;

        fake_give(&fake, "registrar", &hello);

        bool ended = false;
        for (uint32_t i = 0; i < 10; i++) {
            fake_advance(&fake, SL_NS_PER_MS);
            ended = ended || scan_ends();
        }
        ck_assert(ended);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM | FAKE_GONE, &gone));
        read_only = false;
    }
END_TEST

START_TEST(a_file_that_has_gone_is_told_until_the_registrar_knows_it)
    {
        struct sl_msg gone, busy = {.code = SL_ERR_BUSY}, ok = {.code = SL_OK};
        rename_held();
        fake_job_run(&fake, 1);
        ck_assert(fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM | FAKE_GONE, &gone));
        uint64_t seq = gone.seq;
        fake_answer(&fake, "registrar", &gone, &busy);

        for (uint32_t i = 0; i < 100 && gone.seq == seq; i++) {
            fake_advance(&fake, 100 * SL_NS_PER_MS);
            (void)fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM | FAKE_GONE, &gone);
        }

        ck_assert_uint_ne(gone.seq, seq);
        ck_assert_uint_eq(gone.body.disk_reclaim.segment, known[0].segment);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &gone));
        fake_answer(&fake, "registrar", &gone, &ok);
    }
END_TEST

/* Asks to remove the first value at its place. */
static void first_forget(void)
{
    struct sl_msg msg = {.type = SL_MSG_DISK_FORGET}, reply;
    struct sl_item_forget item = {.key = sl_text_of("model/block0/0/kv"),
                                  .segment = known[0].segment,
                                  .disk_offset_bytes = known[0].offset,
                                  .length_bytes = length_of(0)};
    msg.body.disk_forget.items.at = &item;
    msg.body.disk_forget.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    pump(UINT64_MAX);
    ck_assert(fake_take_reply(&fake, "registrar", msg.seq, &reply));
    ck_assert_uint_eq(reply.body.disk_forget_reply.codes.at[0], SL_OK);
}

/* It names a log file that is no longer in the list. */
START_TEST(a_tombstone_is_written_while_its_file_is_renamed)
    {
        rename_held();
        uint64_t before = metric("tombstones_written");

        first_forget();

        ck_assert_uint_eq(metric("tombstones_written"), before + 1);
        fake_job_run(&fake, 1);
        pass_and_pump(SL_NS_PER_MS); /* the registrar knows that it is removed */
        first_forget();
        ck_assert_uint_eq(metric("tombstones_written"), before + 1);
    }
END_TEST

START_TEST(a_segment_that_cannot_be_removed_keeps_its_values)
    {
        struct sl_msg reclaim, reply = {.code = SL_OK};
        static struct sl_disk_ops renames;
        uint32_t n = 0;
        scan();
        while (!fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim)) {
            if (known[n].acknowledged || write_value(n) == SL_OK) {
                n++;
            }
        }
        if (_i == 1) { /* nor renamed */
            renames = *disk.base.ops;
            renames.prepare = disk_prepare;
            disk.base.ops = &renames;
            read_only = true;
        }
        disk.fail_request = disk.requests + 1;
        disk.fail_os_code = EIO;

        fake_answer(&fake, "registrar", &reclaim, &reply);
        fake_jobs_report(&fake);
        pump(UINT64_MAX);
        read_only = false;

        ck_assert_int_eq(read_value(0, known[0].segment, known[0].offset), SL_OK);
        ck_assert(!fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM | FAKE_GONE, &reclaim));
        for (uint32_t i = 0;
             i < 100 && !fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim); i++) {
            pass_and_pump(100 * SL_NS_PER_MS);
        }
        ck_assert_uint_eq(reclaim.body.disk_reclaim.segment, known[0].segment);
        fake_answer(&fake, "registrar", &reclaim, &reply);
        pump(UINT64_MAX);
        ck_assert_int_eq(read_value(0, known[0].segment, known[0].offset), SL_ERR_NOT_FOUND);
    }
END_TEST

static struct mem_file *segment_file(uint32_t number)
{
    char name[40];
    (void)snprintf(name, sizeof(name), "segment.%010u", number);
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        if (strcmp(disk.files[i].name, name) == 0) {
            return &disk.files[i];
        }
    }
    return NULL;
}

/* Writes values 0 .. until one is in log file `number`. */
static uint32_t write_up_to(uint32_t number, uint32_t from)
{
    uint32_t n = from;
    do {
        ck_assert_int_eq(write_value(n), SL_OK);
    } while (known[n++].segment < number);
    return n;
}

static void wipe(struct mem_file *file, uint64_t from, uint64_t to)
{
    memset(file->now + from, 0x5a, to - from);
}

static void wipe_ends(struct mem_file *file)
{
    wipe(file, 0, SL_PAGE_BYTES);
    wipe(file, file->bytes - SL_PAGE_BYTES, file->bytes);
}

static void wipe_all(struct mem_file *file)
{
    wipe(file, 0, file->bytes);
}

static void cut_off(struct mem_file *file)
{
    file->bytes = 0;
}

static void cut_half(struct mem_file *file)
{
    file->bytes = 8 * SL_PAGE_BYTES;
}

static void take_away(struct mem_file *file)
{
    ck_assert_int_eq(disk.base.ops->remove(&disk.base, file->name, NULL), SL_OK);
}

static void (*const losses[])(struct mem_file *file) = {wipe_ends, wipe_all, cut_off, cut_half,
                                                        take_away};

#define FOOTER_TAIL (64 * SL_KIB) /* recover.c: read at once at the end of a file */
static bool no_memory_for_footers;
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return no_memory_for_footers && bytes == FOOTER_TAIL ? NULL
                                                         : __real_aligned_alloc(alignment, bytes);
}

/* The newest log file was truncated for its footer, which is damaged, or intact. */
START_TEST(a_start_without_memory_to_look_at_a_footer_ends_and_gives_up_nothing)
    {
        scan();
        (void)write_up_to(2, 0);
        restart();
        pass_and_pump(10 * SL_NS_PER_S);
        fake_stop(&fake);
        struct mem_file *file = segment_file(2);
        struct sl_error why = {0};
        wipe(file, _i == 0 ? file->bytes - SL_PAGE_BYTES : file->bytes, file->bytes);
        no_memory = _i == 0;
        no_memory_for_footers = _i == 1;
        ck_assert_int_ne(start_try(&why), SL_OK);
        no_memory = no_memory_for_footers = false;
        ck_assert_ptr_nonnull(strstr(why.text, "no memory for its records"));
        fake_stop(&fake);

        start_again();

        check_all(true);
        ck_assert_uint_eq(metric("given_up_segments"), 0);
    }
END_TEST

/* The newest log file has the tombstone, and no later one mentions it. */
START_TEST(a_lost_newest_segment_with_tombstones_voids_what_is_older)
    {
        scan();
        list_members();
        uint32_t count = write_up_to(2, 0);
        forget_value(3);
        pass_and_pump(SL_NS_PER_S);
        fake_stop(&fake);
        losses[_i](segment_file(2));
        start_again();
        for (uint32_t n = 0; n < count; n++) {
            ck_assert_msg(!known[n].found, "value %u exists", n);
        }
        ck_assert_uint_ge(metric("given_up_segments"), 1);
        for (uint32_t n = 0; n < count; n++) {
            known[n].acknowledged = false;
        }
        ck_assert_int_eq(write_value(400), SL_OK); /* and the disk serves */
        restart();
        check_all(true);
        ck_assert(!known[3].found);
    }
END_TEST

/* A later log file records that it had tombstones. */
START_TEST(a_lost_segment_with_tombstones_voids_what_is_older)
    {
        scan();
        uint32_t first = write_up_to(2, 0);
        forget_value(3);
        uint32_t second = write_up_to(3, first);
        fake_stop(&fake);
        losses[_i](segment_file(2));
        start_again();
        for (uint32_t n = 0; n < KEYS_MAX; n++) {
            bool stays = n + 1 == second;
            ck_assert_msg(known[n].found == stays, "value %u", n);
            known[n].acknowledged = stays;
        }
        restart(); /* it stays so */
        check_all(true);
        ck_assert(!known[3].found && known[second - 1].found);
    }
END_TEST

START_TEST(a_lost_segment_without_tombstones_costs_itself)
    {
        scan();
        list_members();
        ck_assert_int_eq(write_value(300), SL_OK);
        forget_value(300);
        uint32_t first = write_up_to(2, 0);
        uint32_t second = write_up_to(3, first);
        pass_and_pump(SL_NS_PER_S);
        fake_stop(&fake);
        bool newest = _i % 2 != 0;
        losses[_i / 2](segment_file(newest ? 3 : 2));
        start_again();
        for (uint32_t n = 0; n < second; n++) {
            known[n].acknowledged = known[n].segment != (newest ? 3 : 2);
            ck_assert_msg(!known[n].acknowledged || known[n].found, "value %u", n);
        }
        ck_assert(!known[300].found);
    }
END_TEST

/* One bad page costs nothing: tombstones are written twice. */
START_TEST(a_bad_page_of_tombstones_costs_nothing)
    {
        scan();
        list_members();
        for (uint32_t n = 0; n < 8; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        forget_value(3);
        pass_and_pump(SL_NS_PER_S);
        fake_stop(&fake);
        struct mem_file *file = segment_file(1);
        uint64_t end = 0;
        for (uint64_t at = SL_PAGE_BYTES; at < file->bytes - SL_PAGE_BYTES; at += SL_PAGE_BYTES) {
            uint64_t magic = 0;
            memcpy(&magic, file->now + at, sizeof(magic));
            end = magic == TI_FRAME_MAGIC ? at : end;
        }
        wipe(file, end - (uint64_t)_i * SL_PAGE_BYTES, end + SL_PAGE_BYTES * (1 - (uint64_t)_i));
        start_again();
        check_all(true);
        ck_assert(!known[3].found);
    }
END_TEST

/* A list of disks that arrives while a tombstone is being named follows it: the sender does not
 * have to ask again. */
START_TEST(a_list_waits_for_a_tombstone_that_is_being_named)
    {
        struct sl_msg reply, msg = {.type = SL_MSG_DISK_MEMBERS};
        scan();
        list_members();
        ck_assert_int_eq(write_value(3), SL_OK);
        uint64_t seq = forget_start(3);
        pump((uint64_t)_i);
        msg.body.disk_members.epoch = ++members_epoch;
        fake_give(&fake, "registrar", &msg);
        pump(UINT64_MAX);
        ck_assert(fake_take_reply(&fake, "registrar", seq, &reply));
        ck_assert_uint_eq(reply.body.disk_forget_reply.codes.at[0], SL_OK);
        ck_assert(fake_take_reply(&fake, "registrar", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        restart();
        ck_assert(!known[3].found);
    }
END_TEST

/* Its tombstone is due to be named in the turn in which the disk gets another name. That page must
 * not bring back the old name, and with it values removed while the disk was missing. */
START_TEST(a_disk_that_was_emptied_keeps_its_new_name)
    {
        const struct tierer *self = fake.state;
        struct sl_msg reply, msg = {.type = SL_MSG_DISK_MEMBERS};
        scan();
        list_members();
        for (uint32_t n = 0; n < 4; n++) {
            ck_assert_int_eq(write_value(n), SL_OK);
        }
        forget_value(3);
        fake_advance(&fake, 10 * SL_NS_PER_S);
        pump(UINT64_MAX);
        msg.body.disk_members.epoch = ++members_epoch;
        msg.body.disk_members.empty = true;
        fake_give(&fake, "registrar", &msg);
        pump(UINT64_MAX);
        ck_assert(fake_take_reply(&fake, "registrar", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(self->members.emptied);
        if (_i == 1) { /* another list in the same turn */
            msg.body.disk_members.epoch = ++members_epoch;
            msg.body.disk_members.empty = false;
            ck_assert_int_eq(fake.actor->handle(fake.state, &msg), SL_ERR_DEVICE);
            pump(UINT64_MAX);
        }
        fake_stop(&fake);
        start_again();
        for (uint32_t n = 0; n < 4; n++) {
            ck_assert(!known[n].found);
            known[n].acknowledged = false;
        }
        check_all(true);
    }
END_TEST

/* ---- the format before ---- */

START_TEST(a_directory_that_vanished_ends_the_actor_with_a_heartbeat)
    {
        scan();
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
        hello.body.hello_reply.boot_generation = boot_generation;
        ck_assert_int_eq(fake.actor->handle(fake.state, &hello), SL_OK);
        disk.gone = true;

        ck_assert_int_eq(fake.actor->handle(fake.state, &hello), SL_ERR_DEVICE);
        ck_assert_int_eq(health(), SL_HEALTH_DEGRADED);
    }
END_TEST

static const struct {
    uint64_t budget, usable_ppm, used, length;
    sl_err want;
} budgets[] = {
    {100000, 900000, 0, 4096, SL_OK},
    {100000, 900000, 80000, 4096, SL_ERR_BUSY},
    {100000, 900000, 0, 88000, SL_OK}, /* by itself */
    {100000, 900000, 1, 88000, SL_ERR_BUSY},
    {100000, 900000, 0, 100000, SL_ERR_LIMIT},
    {100000, 900000, 50000, 100000, SL_ERR_LIMIT},
    {12288, 1000000, 0, 1, SL_OK},
    {12287, 1000000, 0, 1, SL_ERR_LIMIT},
};

START_TEST(staging_budget_is_kept)
    {
        struct ti_staging staging;
        ti_staging_init(&staging, budgets[_i].budget, budgets[_i].usable_ppm);
        staging.used_bytes = budgets[_i].used;

        ck_assert_int_eq(ti_staging_take(&staging, budgets[_i].length, NULL), budgets[_i].want);
    }
END_TEST

START_TEST(no_disk_is_a_clear_refusal)
    {
        static const char *const settings[] = {"disk", "0", NULL};
        struct sl_error why = {0};
        fake_open(&fake, &sl_tierer_actor, settings);
        ck_assert_int_eq(fake_start(&fake, &why), SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(why.text, "disk is 0"));
        fake_close(&fake);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("tierer");
    TCase *node = tcase_create("node");
    tcase_add_checked_fixture(node, open_node, close_node);
    tcase_set_timeout(node, 240);
    tcase_add_test(node, written_values_of_all_sizes_are_read_back);
    tcase_add_test(node, what_comes_behind_a_fence_of_everything_is_not_done);
    tcase_add_test(node, a_scan_is_repeated_after_a_fence_of_everything);
    tcase_add_test(node, what_was_never_synced_is_made_durable_before_it_is_told);
    tcase_add_test(node, reads_that_fail_for_a_moment_at_the_start_cost_nothing);
    tcase_add_loop_test(node, an_outage_while_the_log_is_read_costs_nothing, 0, 10);
    tcase_add_test(node, a_disk_with_more_files_than_descriptors_says_what_helps);
    tcase_add_test(node, an_outage_that_the_page_of_members_does_not_show_costs_nothing);
    tcase_add_test(node, many_bad_segments_keep_no_disk_from_its_start);
    tcase_add_loop_test(node, a_bad_page_at_the_start_costs_what_lies_there, 0, 2);
    tcase_add_test(node, tombstone_without_a_place_forgets_what_is_there_by_then);
    tcase_add_test(node, tombstone_waits_for_the_write_that_is_under_way);
    tcase_add_test(node, a_value_that_is_being_forgotten_is_written_again);
    tcase_add_test(node, nothing_is_acknowledged_before_its_sync);
    tcase_add_test(node, repeated_write_keeps_the_place);
    tcase_add_test(node, bytes_that_are_not_what_was_announced_stay_out);
    tcase_add_test(node, only_the_registrar_is_served);
    tcase_add_test(node, read_of_another_place_or_key_is_refused);
    tcase_add_test(node, fence_waits_for_reads_in_flight);
    tcase_add_test(node, clean_restart_finds_everything);
    tcase_add_test(node, file_with_a_number_that_no_segment_has_is_left_alone);
    tcase_add_loop_test(node, power_cut_after_any_write_loses_nothing_acknowledged, 0, 3);
    tcase_add_test(node, flipped_bits_are_never_served);
    tcase_add_loop_test(node, ceiling_holds_and_the_oldest_segment_goes, 0, 2);
    tcase_add_test(node, forgotten_value_does_not_come_back);
    tcase_add_test(node, a_repeated_write_gets_the_same_answer);
    tcase_add_test(node, a_repeated_read_gets_the_same_answer_and_reads_nothing);
    tcase_add_test(node, a_scan_tells_of_the_batch_that_was_under_way);
    tcase_add_loop_test(node, any_failed_call_is_an_answer_and_heals, 0, 2);
    tcase_add_loop_test(node, a_lost_newest_segment_with_tombstones_voids_what_is_older, 0,
                        SL_COUNT(losses));
    tcase_add_loop_test(node, a_lost_segment_with_tombstones_voids_what_is_older, 0,
                        SL_COUNT(losses));
    tcase_add_loop_test(node, a_lost_segment_without_tombstones_costs_itself, 0,
                        2 * SL_COUNT(losses));
    tcase_add_loop_test(node, a_bad_page_of_tombstones_costs_nothing, 0, 2);
    tcase_add_loop_test(node, a_list_waits_for_a_tombstone_that_is_being_named, 0, 8);
    tcase_add_loop_test(node, a_disk_that_was_emptied_keeps_its_new_name, 0, 2);
    tcase_add_test(node, a_place_that_stays_unreadable_is_given_up);
    tcase_add_test(node, a_place_that_can_be_read_again_is_not_given_up);
    tcase_add_test(node, a_disk_that_reads_nothing_is_left_alone_until_a_probe_succeeds);
    tcase_add_test(node, a_failure_with_nothing_left_to_write_is_over_by_itself);
    tcase_add_loop_test(node, a_disk_that_is_not_well_is_looked_at_about_once_a_second, 0, 4);
    tcase_add_test(node, loads_do_not_wait_behind_write_back);
    tcase_add_test(node, demand_goes_before_prefetch_and_prefetch_before_write_back);
    tcase_add_test(node, a_prefetch_that_somebody_waits_for_goes_with_the_others);
    tcase_add_test(node, the_page_tells_what_is_waited_for_and_how_long_was_read);
    tcase_add_test(node, nothing_starves_under_demand);
    tcase_add_test(node, a_repeated_prefetch_is_read_once);
    tcase_add_test(node, a_segment_that_is_being_removed_is_not_read_for_a_new_registrar);
    tcase_add_test(node, no_segment_is_named_while_the_file_of_the_one_before_is_renamed);
    tcase_add_test(node, a_scan_does_not_end_while_the_file_of_a_segment_is_renamed);
    tcase_add_test(node, a_scan_ends_though_the_file_of_a_segment_cannot_be_renamed);
    tcase_add_loop_test(node, a_scan_waits_for_a_disk_that_cannot_be_read, 0, 2);
    tcase_add_test(node, a_tombstone_is_written_while_its_file_is_renamed);
    tcase_add_test(node, a_file_that_has_gone_is_told_until_the_registrar_knows_it);
    tcase_add_loop_test(node, a_segment_that_cannot_be_removed_keeps_its_values, 0, 2);
    tcase_add_test(node, a_directory_that_vanished_ends_the_actor_with_a_heartbeat);
    tcase_add_loop_test(node, a_segment_without_memory_for_its_records_costs_nothing, 0, 2);
    tcase_add_test(node, a_start_without_memory_for_records_takes_over_all_that_is_there);
    tcase_add_loop_test(node, a_start_without_memory_to_look_at_a_footer_ends_and_gives_up_nothing,
                        0, 2);
    suite_add_tcase(suite, node);
    TCase *large = tcase_create("large");
    tcase_add_checked_fixture(large, open_large_node, close_node);
    tcase_set_timeout(large, 240);
    tcase_add_test(large, pieces_may_end_in_any_order);
    tcase_add_loop_test(large, a_piece_that_cannot_be_read_costs_its_value_alone, 0, 4);
    tcase_add_loop_test(large, a_wrong_byte_in_any_piece_is_seen, 0, 4);
    tcase_add_test(large, the_disk_has_a_few_pieces_at_a_time_in_their_order);
    tcase_add_test(large, a_scan_tells_many_records_in_slices);
    suite_add_tcase(suite, large);
    TCase *tight = tcase_create("narrow");
    tcase_add_checked_fixture(tight, open_narrow_node, close_node);
    tcase_add_test(tight, a_value_that_could_never_be_read_is_not_written);
    suite_add_tcase(suite, tight);
    TCase *many = tcase_create("many");
    tcase_add_checked_fixture(many, open_many_node, close_node);
    tcase_set_timeout(many, 240);
    tcase_add_test(many, segments_leave_in_slices_while_their_keys_are_written_again);
    suite_add_tcase(suite, many);
    TCase *pure = tcase_create("pure");
    tcase_add_test(pure, entries_of_a_segment_leave_in_slices);
    tcase_add_loop_test(pure, staging_budget_is_kept, 0, (int)SL_COUNT(budgets));
    tcase_add_test(pure, no_disk_is_a_clear_refusal);
    suite_add_tcase(suite, pure);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
