/* tests/unit/actors/transporter/transporter_pools_test.c - pools of engines as memory of the
 * fabric: region boundaries, and that nothing stays registered or mapped whenever something fails
 * or ends. The back end is that of tcp; the test counts its regions and makes them fail. */
#include "actors/transporter/internal.h"
#include "actors/transporter/peers/peers.h"
#include "actors/transporter/regions/places.h"
#include "actors/transporter/transporter.h"
#include "runtime/base/sl_descriptors.h"
#include "runtime/net/fabric/tcp/tcp.h"
#include "tests/support/fake_env.h"
#include "tests/support/fake_net.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- spans ---- */

#define SPANS_MAX 6u
static const struct {
    struct tr_span in[SPANS_MAX], want[SPANS_MAX];
    uint32_t in_count, want_count;
    sl_err code;
} joins[] = {
    /* layers of one allocation, in reverse order */
    {{{0, 2000, 1000, 100, 100}, {0, 1000, 1000, 100, 100}, {0, 0, 1000, 100, 100}},
     {{0, 0, 3000, 100, 100}},
     3,
     1,
     SL_OK},
    /* the rest of the stride of a layer's last block is between them */
    {{{0, 0, 960, 100, 60}, {0, 1000, 960, 100, 60}}, {{0, 0, 1960, 100, 60}}, 2, 1, SL_OK},
    /* two parts, whose heads are adjacent in every block */
    {{{0, 50, 950, 100, 50}, {0, 0, 950, 100, 50}}, {{0, 0, 1000, 100, 50}}, 2, 1, SL_OK},
    /* the same of two layers */
    {{{0, 0, 950, 100, 50},
      {0, 50, 950, 100, 50},
      {0, 1000, 950, 100, 50},
      {0, 1050, 950, 100, 50}},
     {{0, 0, 2000, 100, 50}},
     4,
     1,
     SL_OK},
    /* buffers of their own */
    {{{1, 0, 1000, 100, 100}, {0, 0, 1000, 100, 100}},
     {{0, 0, 1000, 100, 100}, {1, 0, 1000, 100, 100}},
     2,
     2,
     SL_OK},
    /* a gap, and another stride after it */
    {{{0, 0, 1000, 100, 100}, {0, 1100, 1000, 100, 100}, {0, 2100, 640, 64, 64}},
     {{0, 0, 1000, 100, 100}, {0, 1100, 1000, 100, 100}, {0, 2100, 640, 64, 64}},
     3,
     3,
     SL_OK},
    /* blocks that would cross the end of a stride */
    {{{0, 0, 1000, 100, 100}, {0, 950, 1000, 100, 100}},
     {{0, 0, 0, 0, 0}},
     2,
     0,
     SL_ERR_UNSUPPORTED},
    {{{0, 0, 1000, 100, 100}, {0, 500, 640, 64, 64}}, {{0, 0, 0, 0, 0}}, 2, 0, SL_ERR_UNSUPPORTED},
};
START_TEST(regions_that_follow_each_other_are_one_memory)
    {
        struct tr_span spans[SPANS_MAX];
        struct sl_error why = {0};
        uint32_t count = joins[_i].in_count;
        memcpy(spans, joins[_i].in, sizeof(spans));

        ck_assert_int_eq(tr_spans_join(spans, &count, &why), joins[_i].code);

        for (uint32_t i = 0; joins[_i].code == SL_OK && i < joins[_i].want_count; i++) {
            ck_assert_uint_eq(count, joins[_i].want_count);
            ck_assert_uint_eq(spans[i].buffer, joins[_i].want[i].buffer);
            ck_assert_uint_eq(spans[i].offset_bytes, joins[_i].want[i].offset_bytes);
            ck_assert_uint_eq(spans[i].length_bytes, joins[_i].want[i].length_bytes);
            ck_assert_uint_eq(spans[i].stride_bytes, joins[_i].want[i].stride_bytes);
        }
    }
END_TEST

/* ---- a transporter, an engine, and a registrar that the test plays ---- */

#define STRIDE      12288u
#define BLOCKS      10u
#define LAYERS      3u
#define LIMIT       (4 * STRIDE + 100) /* a region has four blocks */
#define LAYER       ((uint64_t)BLOCKS * STRIDE)
#define TENSOR      (LAYERS * LAYER)
#define REGIONS     16u /* 8 of each rank: 30 blocks, four in a region */
#define REGIONS_MAX 64u

static struct bed {
    struct fake_env fake;
    struct fake_net net;
    struct transporter *self;
    int fds[2]; /* of the ranks */
    struct sl_proc_id proc;
    uint64_t engine_id; /* that the registrar lists; 0: none */
    struct sl_item_region items[2 * LAYERS + 2];
    uint64_t item_count;
} bed;

static struct { /* calls to the back end */
    struct {
        const unsigned char *at;
        uint64_t length_bytes;
    } live[REGIONS_MAX];
    uint32_t live_count, added;
    uint32_t fail_at; /* this call and no other; UINT32_MAX: none */
} regions;
static struct fabric_backend backend;

static sl_err region_add(struct fabric_rail *rail, const struct sl_fabric_dmabuf *dmabuf, void *at,
                         uint64_t length_bytes, struct fabric_region *out, struct sl_error *why)
{
    (void)rail;
    ck_assert_ptr_null(dmabuf);
    if (regions.added++ == regions.fail_at) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no more regions");
    }
    ck_assert_uint_lt(regions.live_count, REGIONS_MAX);
    regions.live[regions.live_count].at = at;
    regions.live[regions.live_count++].length_bytes = length_bytes;
    out->handle = at;
    return SL_OK;
}

static void region_remove(struct fabric_rail *rail, struct fabric_region *region)
{
    uint32_t i = 0;
    while (i < regions.live_count && regions.live[i].at != region->handle) {
        i++;
    }
    ck_assert_uint_lt(i, regions.live_count);
    regions.live[i] = regions.live[--regions.live_count];
    (void)rail;
}

static void registered(void *context, uint32_t memory, uint32_t region_index,
                       const struct sl_error *why)
{
    (void)region_index;
    ck_assert(tr_pools_registered(context, memory, why));
}

static void regions_put(uint32_t rank)
{
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        bed.items[bed.item_count++] = (struct sl_item_region){
            .rank = rank,
            .layer = layer,
            .handle_kind = 1,
            .pid = bed.proc.pid,
            .fd = (uint64_t)bed.fds[rank],
            .offset_bytes = layer * LAYER,
            .length_bytes = LAYER,
            .block_stride_bytes = STRIDE,
            .piece_bytes = STRIDE,
            .block_count = BLOCKS,
        };
    }
}

static void bed_open(const char *setting)
{
    const char *const settings[] = {
        "node_name", "a", "memory", "4MiB", "fabric_pools", setting, "mr_bytes_max", "49252", NULL};
    struct sl_error why = {0};
    struct sl_fabric_options options;
    memset(&bed, 0, sizeof(bed));
    memset(&regions, 0, sizeof(regions));
    regions.fail_at = UINT32_MAX;
    fake_open(&bed.fake, &sl_transporter_actor, settings);
    bed.fake.env.name = "transporter.0";
    ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
    bed.self = bed.fake.state;
    backend = sl_fabric_tcp;
    backend.region_add = region_add;
    backend.region_remove = region_remove;
    sl_fabric_options_init(&options, "tcp");
    options.backend = &backend;
    options.region_bytes_max = LIMIT;
    options.events = (struct sl_fabric_events){.context = bed.self,
                                               .address = tr_fabric_address,
                                               .registered = registered,
                                               .granted = tr_fabric_granted,
                                               .grant_ended = tr_fabric_grant_ended};
    ck_assert_msg(sl_fabric_open(&options, &bed.self->fabric, &why) == SL_OK, "%s", why.text);
    bed.self->fabric_name = "tcp";
    fake_net_open(&bed.net);
    bed.self->control = &bed.net.base;
    ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
    bed.proc = (struct sl_proc_id){.pid = (uint32_t)getpid(), .start_time = 77};
    fake_process_add(&bed.fake, bed.proc);
    for (uint32_t i = 0; i < 2; i++) {
        bed.fds[i] = memfd_create("pool-of-the-test", MFD_CLOEXEC);
        ck_assert_int_ge(bed.fds[i], 0);
        ck_assert_int_eq(ftruncate(bed.fds[i], (off_t)TENSOR), 0);
        regions_put(i);
    }
}

static void bed_close(void)
{
    tr_cluster_fini(bed.self);
    bed.self->control = NULL;
    sl_fabric_close(&bed.self->fabric);
    bed.self->calls = NULL;
    ck_assert_uint_eq(regions.live_count, 0);
    fake_net_close(&bed.net);
    close(bed.fds[0]);
    close(bed.fds[1]);
    fake_close(&bed.fake);
}

/* Mappings of the engine's memory in this process: those of the transporter. */
static uint32_t mappings(void)
{
    char line[512];
    uint32_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "pool-of-the-test") != NULL ? 1 : 0;
    }
    (void)fclose(maps);
    return count;
}

static uint64_t metric(const char *name)
{
    struct sl_metrics *page = bed.self->env->metrics;
    return sl_metric_get(page, sl_metric_define(page, name));
}

/* One turn of the actor, and the registrar's answers to it. */
static void turn(void)
{
    struct sl_msg msg;
    fake_advance(&bed.fake, 2 * SL_NS_PER_US);
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINES, &msg)) {
        struct sl_msg reply = {.code = SL_OK};
        reply.body.engines_reply.engine_ids =
            (struct sl_u64s){.at = &bed.engine_id, .count = bed.engine_id != 0 ? 1 : 0};
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINE_GET, &msg)) {
        static const struct sl_item_pool pool = {.name = {.at = "attention", .length = 9}};
        struct sl_msg reply = {.code = bed.engine_id != 0 ? SL_OK : SL_ERR_NOT_FOUND};
        reply.body.engine_get_reply = (struct sl_body_engine_get_reply){
            .engine_id = msg.body.engine_get.engine_id,
            .pid = bed.proc.pid,
            .start_time = bed.proc.start_time,
            .name = sl_text_of("engine"),
            .model = sl_text_of("0123456789abcdef0123456789abcdef"),
            .key_format = sl_text_of("sluice"),
            .block_tokens = 16,
            .world = 2,
        };
        reply.body.engine_get_reply.pools.at = &pool;
        reply.body.engine_get_reply.pools.count = 1;
        reply.body.engine_get_reply.regions.at = bed.items;
        reply.body.engine_get_reply.regions.count = bed.item_count;
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
}

static void turns(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        turn();
    }
}

/* The registrar has this engine from now on, and includes it in the next list. */
static void engine_comes(uint64_t id)
{
    turn();
    bed.engine_id = id;
    fake_advance(&bed.fake, SL_NS_PER_S);
}

#define TURNS_MAX 200u /* enough for all steps of registering, or of taking back */

static bool over_answered(uint64_t seq)
{
    struct sl_msg reply;
    bool answered = fake_take_reply(&bed.fake, "registrar", seq, &reply);
    ck_assert(!answered || reply.code == SL_OK);
    return answered;
}

static uint64_t over_told(uint64_t id)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_OVER};
    msg.body.engine_over.engine_id = id;
    bed.engine_id = 0;
    fake_give(&bed.fake, "registrar", &msg);
    return msg.seq;
}

/* ---- registered ---- */

START_TEST(pools_are_registered_in_whole_blocks)
    {
        bed_open("true");
        engine_comes(7);

        turns(TURNS_MAX);

        ck_assert_uint_eq(mappings(), 2);
        ck_assert_uint_eq(regions.live_count, REGIONS);
        const unsigned char *end = NULL;
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < REGIONS; i++) {
            bool first = i % (REGIONS / 2) == 0; /* of a rank */
            ck_assert_uint_le(regions.live[i].length_bytes, LIMIT);
            ck_assert_uint_eq(regions.live[i].length_bytes % STRIDE, 0);
            ck_assert(first || regions.live[i].at == end);
            end = regions.live[i].at + regions.live[i].length_bytes;
            bytes += regions.live[i].length_bytes;
        }
        ck_assert_uint_eq(bytes, 2 * TENSOR);
        ck_assert_uint_eq(metric("pool_engines"), 1);
        ck_assert_uint_eq(metric("pool_memories"), 2);
        ck_assert_uint_eq(metric("pool_bytes"), 2 * TENSOR);
        ck_assert_uint_eq(metric("regions_registered"), REGIONS);
        bed_close();
    }
END_TEST

START_TEST(an_engine_that_was_told_is_not_waited_for)
    {
        struct sl_msg msg = {.type = SL_MSG_ENGINE_ADDED}, reply;
        bed_open("true");
        turn();
        bed.engine_id = msg.body.engine_added.engine_id = 7;
        for (uint32_t i = 0; i < 2; i++) { /* reported twice, it counts once */
            msg.seq = 0;
            fake_give(&bed.fake, "registrar", &msg);
            ck_assert(fake_take_reply(&bed.fake, "registrar", msg.seq, &reply));
            ck_assert_int_eq(reply.code, SL_OK);
        }
        turns(TURNS_MAX); /* less than a second */
        ck_assert_uint_eq(regions.live_count, REGIONS);
        ck_assert_uint_eq(regions.added, REGIONS);
        bed_close();
    }
END_TEST

START_TEST(without_the_setting_nobody_is_asked)
    {
        bed_open("false");
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_uint_eq(regions.added, 0);
        ck_assert(!fake_is_watched(&bed.fake, bed.proc));
        ck_assert(over_answered(over_told(7)));
        bed_close();
    }
END_TEST

START_TEST(other_messages_are_answered_between_two_regions)
    {
        uint32_t most = 0;
        bed_open("true");
        engine_comes(7);
        for (uint32_t i = 0; i < TURNS_MAX; i++) {
            uint32_t before = regions.added;
            turn();
            most = SL_MAX(most, regions.added - before);
        }
        ck_assert_uint_eq(regions.live_count, REGIONS);
        ck_assert_uint_le(most, 3); /* of a pass of 2 us, in which the actor has as many turns */
        bed_close();
    }
END_TEST

START_TEST(with_a_nic_the_pages_are_there_before_they_are_registered)
    {
        struct stat status;
        bed_open("true");
        bed.self->whole_arena = true;
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_uint_eq(regions.live_count, REGIONS);
        ck_assert_int_eq(fstat(bed.fds[1], &status), 0);
        ck_assert_uint_ge((uint64_t)status.st_blocks * 512, TENSOR);
        bed_close();
    }
END_TEST

START_TEST(memory_that_cannot_be_mapped_is_left_out)
    {
        bed_open("true");
        for (uint32_t i = 0; i < LAYERS; i++) {
            bed.items[i].handle_kind = 5;
        }
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_uint_eq(mappings(), 1);
        ck_assert_uint_eq(metric("pool_engines"), 1);
        ck_assert_uint_eq(metric("pool_bytes"), TENSOR);
        bed_close();
    }
END_TEST

/* ---- refused ---- */

static void bad_length(struct sl_item_region *region)
{
    region->length_bytes = LAYER - 1;
}
static void bad_offset(struct sl_item_region *region)
{
    region->offset_bytes = UINT64_MAX - LAYER / 2;
}
static void bad_count(struct sl_item_region *region)
{
    region->block_count = UINT32_MAX;
}
static void bad_stride(struct sl_item_region *region)
{
    region->block_stride_bytes = UINT64_MAX;
    region->block_count = 1;
}
static void bad_piece(struct sl_item_region *region)
{
    region->piece_bytes = STRIDE + 1;
}
static void bad_fd(struct sl_item_region *region)
{
    region->fd = 900;
}
static void behind_the_end(struct sl_item_region *region)
{
    region->offset_bytes = TENSOR;
}
static void over_others(struct sl_item_region *region)
{
    region->offset_bytes = STRIDE / 2;
}
static void layer_twice(struct sl_item_region *region)
{
    region->layer = 0;
}
static void (*const spoilers[])(struct sl_item_region *) = {
    bad_length, bad_offset,     bad_count,   bad_stride, bad_piece,
    bad_fd,     behind_the_end, over_others, layer_twice};
START_TEST(what_cannot_be_is_refused_as_a_whole)
    {
        bed_open("true");
        spoilers[_i](&bed.items[LAYERS + 1]);
        engine_comes(7);

        turns(TURNS_MAX);

        ck_assert_uint_eq(regions.live_count, 0);
        ck_assert_uint_eq(mappings(), 0);
        ck_assert_uint_eq(metric("pools_refused"), 1);
        ck_assert_uint_eq(metric("pool_engines"), 0);
        ck_assert(!fake_is_watched(&bed.fake, bed.proc));
        bed_close();
    }
END_TEST

START_TEST(a_region_that_fails_leaves_nothing)
    {
        bed_open("true");
        regions.fail_at = (uint32_t)_i;
        engine_comes(7);

        turns(TURNS_MAX);

        ck_assert_uint_eq(regions.added, (uint32_t)_i + 1);
        ck_assert_uint_eq(regions.live_count, 0);
        ck_assert_uint_eq(mappings(), 0);
        ck_assert(!fake_is_watched(&bed.fake, bed.proc));
        ck_assert_uint_eq(metric("pools_refused"), 1);
        ck_assert_uint_eq(metric("regions_registered"), 0);
        fake_advance(&bed.fake, 3 * SL_NS_PER_S); /* it is not tried again */
        turns(TURNS_MAX);
        ck_assert_uint_eq(regions.added, (uint32_t)_i + 1);
        ck_assert(over_answered(over_told(7)));
        engine_comes(8); /* another one is */
        turns(TURNS_MAX);
        ck_assert_uint_eq(regions.live_count, REGIONS);
        bed_close();
    }
END_TEST

static sl_err memory_give(void *context, const struct sl_descriptors_request *ask, uint32_t first,
                          struct sl_descriptors_part *out, struct sl_error *why)
{
    (void)first;
    return atomic_load((atomic_bool *)context) ? sl_fail(why, SL_ERR_TIMEOUT, "stopped")
                                               : sl_descriptors_file(ask, out, why);
}

START_TEST(a_process_that_was_stopped_is_asked_again_when_it_is_used)
    {
        atomic_bool stopped = true;
        struct sl_descriptors *server = NULL;
        struct sl_error why = {0};
        struct tr_pool_view view;
        bed_open("true");
        ck_assert_int_eq(sl_descriptors_serve(bed.fake.paths.runtime_dir, 0, memory_give, &stopped,
                                              &server, &why),
                         SL_OK);
        for (uint32_t i = 0; i < bed.item_count; i++) {
            bed.items[i].start_time = sl_descriptors_number(server);
        }
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_uint_eq(metric("pools_refused"), 1);

        atomic_store(&stopped, false);
        fake_advance(&bed.fake, 3 * SL_NS_PER_S); /* it is not in use */
        turns(TURNS_MAX);
        ck_assert_uint_eq(regions.live_count, 0);
        ck_assert_int_eq(tr_pools_view(bed.self, 7, &view, &why), SL_ERR_UNSUPPORTED);
        fake_advance(&bed.fake, SL_NS_PER_S);
        turns(TURNS_MAX);

        ck_assert_uint_eq(regions.live_count, REGIONS);
        ck_assert_int_eq(tr_pools_view(bed.self, 7, &view, &why), SL_OK);
        sl_descriptors_stop(&server);
        bed_close();
    }
END_TEST

/* ---- ended ---- */

START_TEST(an_end_at_any_time_leaves_nothing)
    {
        bed_open("true");
        engine_comes(7);
        turns((uint32_t)_i);

        uint64_t seq = over_told(7);
        bool answered = over_answered(seq);
        for (uint32_t i = 0; !answered && i < TURNS_MAX; i++) {
            ck_assert(regions.live_count + mappings() > 0);
            turn();
            answered = over_answered(seq);
        }

        ck_assert(answered);
        ck_assert_uint_eq(regions.live_count, 0);
        ck_assert_uint_eq(mappings(), 0);
        ck_assert(!fake_is_watched(&bed.fake, bed.proc));
        turns(TURNS_MAX);
        ck_assert_uint_eq(regions.live_count, 0);
        bed_close();
    }
END_TEST

START_TEST(a_death_at_any_time_leaves_nothing)
    {
        bed_open("true");
        engine_comes(7);
        turns((uint32_t)_i);

        bed.engine_id = 0;
        fake_process_end(&bed.fake, bed.proc);
        fake_advance(&bed.fake, SL_NS_PER_S); /* one that is not watched yet: the list lacks it */
        turns(TURNS_MAX);
        fake_advance(&bed.fake, SL_NS_PER_S);
        turns(TURNS_MAX);

        ck_assert_uint_eq(regions.live_count, 0);
        ck_assert_uint_eq(mappings(), 0);
        ck_assert(!fake_is_watched(&bed.fake, bed.proc));
        bed_close();
    }
END_TEST

START_TEST(an_engine_that_the_registrar_lacks_goes)
    {
        bed_open("true");
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_uint_eq(regions.live_count, REGIONS);
        engine_comes(8); /* 7 is no longer listed */
        turns(2 * TURNS_MAX);
        ck_assert_uint_eq(regions.live_count, REGIONS);
        ck_assert_uint_eq(regions.added, 2 * REGIONS);
        ck_assert_uint_eq(mappings(), 2);
        bed_close();
    }
END_TEST

START_TEST(memory_that_a_peer_may_use_is_kept_until_it_may_not)
    {
        struct sl_fabric_grant grant = {.length_bytes = LAYER};
        uint32_t handle = 0;
        struct sl_error why = {0};
        bed_open("true");
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_int_eq(sl_fabric_peer_add(bed.self->fabric, &grant.peer, &why), SL_OK);
        grant.memory = 1u << 16;                              /* the first life of the first slot */
        ck_assert(bed.self->fabric->memories[0].what.unread); /* peers read it only by grants */
        ck_assert_msg(sl_fabric_grant_add(bed.self->fabric, &grant, &handle, &why) == SL_OK, "%s",
                      why.text);

        uint64_t seq = over_told(7);
        fake_advance(&bed.fake, SL_NS_PER_S);
        turns(TURNS_MAX);

        ck_assert(!over_answered(seq));
        ck_assert_uint_eq(regions.live_count, REGIONS / 2);
        ck_assert_uint_eq(mappings(), 2);
        ck_assert_int_eq(sl_fabric_grant_end(bed.self->fabric, handle), SL_OK);
        fake_advance(&bed.fake, SL_NS_PER_S);
        turns(TURNS_MAX);
        ck_assert(over_answered(seq));
        ck_assert_uint_eq(regions.live_count + mappings(), 0);
        bed_close();
    }
END_TEST

/* ---- where blocks lie ---- */

static const struct tr_range whole = {.length_bytes = (uint64_t)LAYERS * STRIDE};

START_TEST(a_block_is_at_one_place_a_layer)
    {
        struct sl_fabric_place places[SL_FABRIC_PLACES_MAX];
        struct tr_slot slot = {.engine_id = 7, .rank = 1, .device_block = 4};
        struct sl_error why = {0};
        struct tr_slot_shape shape;
        uint32_t count = 0;
        bed_open("true");
        engine_comes(7);
        turns(TURNS_MAX);

        ck_assert_int_eq(tr_slot_shape(bed.self, &slot, &shape, &why), SL_OK);
        ck_assert_uint_eq(shape.length_bytes, whole.length_bytes);
        ck_assert_int_eq(
            tr_slot_places(bed.self, &slot, whole, places, SL_FABRIC_PLACES_MAX, &count, &why),
            SL_OK);
        ck_assert_uint_eq(count, LAYERS);
        for (uint32_t i = 0; i < LAYERS; i++) {
            ck_assert_uint_eq(places[i].memory, places[0].memory); /* one tensor is one memory */
            ck_assert_uint_eq(places[i].offset_bytes, i * LAYER + 4 * STRIDE);
            ck_assert_uint_eq(places[i].length_bytes, STRIDE);
        }
        struct tr_range middle = {.offset_bytes = STRIDE - 1, .length_bytes = STRIDE + 2};
        ck_assert_int_eq(tr_slot_places(bed.self, &slot, middle, places, 3, &count, &why), SL_OK);
        ck_assert_uint_eq(count, 3);
        ck_assert_uint_eq(places[0].length_bytes + places[2].length_bytes, 2);
        ck_assert_int_eq(tr_slot_places(bed.self, &slot, middle, places, 2, &count, &why),
                         SL_ERR_LIMIT);
        bed_close();
    }
END_TEST

START_TEST(the_cpu_finds_the_same_bytes)
    {
        struct tr_slot slot = {.engine_id = 7, .rank = 1, .device_block = BLOCKS - 1};
        struct tr_slot_walk walk;
        unsigned char *at = NULL;
        uint64_t length_bytes = 0, walked_bytes = 0;
        bed_open("true");
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            unsigned char piece[STRIDE];
            memset(piece, (int)(10 + layer), sizeof(piece));
            ck_assert_int_eq(pwrite(bed.fds[1], piece, sizeof(piece),
                                    (off_t)(layer * LAYER + (BLOCKS - 1) * STRIDE)),
                             sizeof(piece));
        }
        engine_comes(7);
        turns(TURNS_MAX);

        ck_assert_int_eq(tr_slot_walk_begin(bed.self, &slot, whole, &walk, NULL), SL_OK);
        while (tr_slot_walk_next(&walk, &at, &length_bytes)) {
            for (uint64_t i = 0; i < length_bytes; i++) {
                ck_assert_uint_eq(at[i], 10 + walked_bytes++ / STRIDE);
            }
        }
        ck_assert_uint_eq(walked_bytes, whole.length_bytes);
        bed_close();
    }
END_TEST

static sl_err asked_for(uint64_t engine_id, uint32_t rank)
{
    struct sl_fabric_place places[LAYERS];
    struct tr_slot slot = {.engine_id = engine_id, .rank = rank};
    struct tr_slot_walk walk;
    struct sl_error why = {0};
    struct tr_slot_shape shape;
    uint32_t count = 0;
    sl_err err = tr_slot_places(bed.self, &slot, whole, places, LAYERS, &count, &why);
    ck_assert_int_eq(tr_slot_walk_begin(bed.self, &slot, whole, &walk, &why), err);
    ck_assert_int_eq(tr_slot_shape(bed.self, &slot, &shape, &why), err);
    return err;
}

START_TEST(only_an_engine_that_is_registered_has_places)
    {
        bed_open("true");
        ck_assert_int_eq(asked_for(7, 0), SL_ERR_NOT_FOUND);
        engine_comes(7);
        turns(2);
        ck_assert_int_eq(asked_for(7, 0), SL_ERR_NOT_FOUND); /* it is being registered */
        turns(TURNS_MAX);
        ck_assert_int_eq(asked_for(7, 0), SL_OK);
        ck_assert_int_eq(asked_for(7, 2), SL_ERR_INVALID);
        ck_assert_int_eq(asked_for(8, 0), SL_ERR_NOT_FOUND);
        (void)over_told(7);
        ck_assert_int_eq(asked_for(7, 0), SL_ERR_NOT_FOUND); /* from the notice on */
        turns(TURNS_MAX);
        ck_assert_int_eq(asked_for(7, 0), SL_ERR_NOT_FOUND);
        bed_close();
    }
END_TEST

START_TEST(places_of_other_memory_are_unsupported)
    {
        bed_open("true");
        bed.items[LAYERS + 1].handle_kind = 5;
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_int_eq(asked_for(7, 0), SL_OK);
        ck_assert_int_eq(asked_for(7, 1), SL_ERR_UNSUPPORTED);
        bed_close();
        bed_open("true");
        regions.fail_at = 1;
        engine_comes(7);
        turns(TURNS_MAX);
        ck_assert_int_eq(asked_for(7, 0), SL_ERR_UNSUPPORTED);
        bed_close();
        bed_open("false");
        ck_assert_int_eq(asked_for(7, 0), SL_ERR_UNSUPPORTED);
        bed_close();
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("transporter_pools");
    TCase *cases = tcase_create("pools");
    tcase_add_loop_test(cases, regions_that_follow_each_other_are_one_memory, 0, SL_COUNT(joins));
    tcase_add_test(cases, pools_are_registered_in_whole_blocks);
    tcase_add_test(cases, an_engine_that_was_told_is_not_waited_for);
    tcase_add_test(cases, without_the_setting_nobody_is_asked);
    tcase_add_test(cases, other_messages_are_answered_between_two_regions);
    tcase_add_test(cases, with_a_nic_the_pages_are_there_before_they_are_registered);
    tcase_add_test(cases, memory_that_cannot_be_mapped_is_left_out);
    tcase_add_loop_test(cases, what_cannot_be_is_refused_as_a_whole, 0, SL_COUNT(spoilers));
    tcase_add_loop_test(cases, a_region_that_fails_leaves_nothing, 0, REGIONS);
    tcase_add_test(cases, a_process_that_was_stopped_is_asked_again_when_it_is_used);
    tcase_add_loop_test(cases, an_end_at_any_time_leaves_nothing, 0, 30);
    tcase_add_loop_test(cases, a_death_at_any_time_leaves_nothing, 0, 30);
    tcase_add_test(cases, an_engine_that_the_registrar_lacks_goes);
    tcase_add_test(cases, memory_that_a_peer_may_use_is_kept_until_it_may_not);
    tcase_add_test(cases, a_block_is_at_one_place_a_layer);
    tcase_add_test(cases, the_cpu_finds_the_same_bytes);
    tcase_add_test(cases, only_an_engine_that_is_registered_has_places);
    tcase_add_test(cases, places_of_other_memory_are_unsupported);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
