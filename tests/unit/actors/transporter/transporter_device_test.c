/* tests/unit/actors/transporter/transporter_device_test.c - engines' device memory in the fabric,
 * by dmabufs of the rank's swapper, on a NIC that the test plays. Received bytes only count with
 * digests from that swapper. The test plays registrar, swapper and peer. */
#include "actors/swapper/exports.h"
#include "actors/transporter/handover/handover.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/peers/peers.h"
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/places.h"
#include "actors/transporter/transporter.h"
#include "cuda/sl_device.h"
#include "ipc/msg/sl_ticket.h"
#include "ipc/shm/sl_index.h"
#include "runtime/base/sl_descriptors.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_env.h"
#include "tests/support/fake_net.h"
#include "tests/support/fake_verbs.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENGINE  7u
#define STRIDE  65536u
#define BLOCKS  8u
#define LAYERS  2u
#define LAYER   ((uint64_t)BLOCKS * STRIDE)
#define TENSOR  (LAYERS * LAYER)
#define PART    ((uint64_t)LAYERS * STRIDE)
#define GPU     ((uint64_t)2 * SL_MIB)
#define AHEAD   UINT64_C(8192) /* of the memory in its dmabuf */
#define TURNS   160u
#define REGIONS 8u /* that the device memory is cut into */

#define RANKS 2u
enum check { CHECK_RIGHT, CHECK_WRONG, CHECK_FAILS, CHECK_SHORT, CHECK_SILENT, CHECK_BUSY };
static struct bed {
    struct fake_env fake;
    struct fake_net net;
    struct transporter *self;
    struct sl_arena *arena;
    struct sl_index *index;
    struct fabric_end peer; /* b's fabric */
    struct sl_verbs_lib *lib;
    unsigned char address[SL_FABRIC_BLOB_MAX]; /* of ours */
    uint32_t address_bytes;
    int shared_fd, gpu_fds[RANKS];
    unsigned char *gpus[RANKS]; /* what the device of a rank has from AHEAD on */
    unsigned char *gpu;         /* of rank 0 */
    struct sl_proc_id proc;
    bool engine_is_there;
    struct sl_item_region regions[2 * LAYERS]; /* rank 0: of a device; rank 1: shared memory */
    unsigned char handles[RANKS][64];
    struct sw_exports *exports;   /* of the swappers */
    uint32_t exports_asked, busy; /* this number is refused as busy */
    sl_err export_code;
    bool swapper_dies; /* between its answer and the fetch */
    enum check check;
    uint32_t check_rank; /* the others find all right */
    uint32_t checks;
    uint64_t silent_seq; /* the last question that was not answered */
} bed;
/* A swapper's thread gives out descriptors and may have to wait for a core: an existing one is
 * waited for until then. */
#define HANDED_OUT_NS (60 * SL_NS_PER_S)
sl_err __real_sl_descriptors_fetch(const struct sl_descriptors_source *source,
                                   const struct sl_descriptors_request *ask,
                                   sl_descriptors_take_fn take, void *context, uint64_t deadline_ns,
                                   struct sl_error *why);
sl_err __wrap_sl_descriptors_fetch(const struct sl_descriptors_source *source,
                                   const struct sl_descriptors_request *ask,
                                   sl_descriptors_take_fn take, void *context, uint64_t deadline_ns,
                                   struct sl_error *why);
sl_err __wrap_sl_descriptors_fetch(const struct sl_descriptors_source *source,
                                   const struct sl_descriptors_request *ask,
                                   sl_descriptors_take_fn take, void *context, uint64_t deadline_ns,
                                   struct sl_error *why)
{
    return __real_sl_descriptors_fetch(source, ask, take, context, deadline_ns + HANDED_OUT_NS,
                                       why);
}

static uint32_t gpu_ranks =
    1; /* ranks with device memory, from 0 on; the others have shared memory */

static void registered(void *context, uint32_t memory, uint32_t region_index,
                       const struct sl_error *why)
{
    (void)region_index;
    if (!tr_pools_registered(context, memory, why)) {
        tr_memory_registered(context, memory, why);
    }
}

static void moved(void *context, const struct sl_fabric_done *done)
{
    if (!tr_take_read(context, done)) {
        tr_fetch_batch_read(context, done);
    }
}

static void addressed(void *context, uint32_t peer, const void *blob, uint32_t length_bytes)
{
    (void)context;
    (void)peer;
    memcpy(bed.address, blob, length_bytes);
    bed.address_bytes = length_bytes;
}

static void regions_put(void)
{
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        bool device = i / LAYERS < gpu_ranks;
        bed.regions[i] = (struct sl_item_region){
            .rank = i / LAYERS,
            .layer = i % LAYERS,
            .handle_kind = device ? SL_MEMORY_CUDA_IPC : SL_MEMORY_SHARED_FD,
            .handle = {.at = bed.handles[i / LAYERS], .length = device ? 64 : 0},
            .pid = bed.proc.pid,
            .fd = device ? 0 : (uint64_t)bed.shared_fd,
            .offset_bytes = i % LAYERS * LAYER,
            .length_bytes = LAYER,
            .block_stride_bytes = STRIDE,
            .piece_bytes = STRIDE,
            .block_count = BLOCKS};
    }
}

static void nodes_open(void)
{
    struct sl_error why = {0};
    bool created = false;
    struct sl_arena_options arena = {
        .directory = bed.fake.paths.shm_dir, .data_bytes = 4 * SL_MIB, .chunk_bytes = 4 * SL_MIB};
    ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &bed.arena, &why), SL_OK);
    struct sl_index_options index = {
        .shm_dir = bed.fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = bed.arena};
    ck_assert_int_eq(sl_index_open(&index, &created, &bed.index, &why), SL_OK);
}

/* ---- the swappers ---- */

static void export_play(uint32_t rank, const char *swapper, const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = bed.export_code};
    struct sl_error why = {0};
    struct sw_export made;
    const struct sl_body_pool_export *body = &msg->body.pool_export;
    ck_assert_uint_eq(body->engine_id, ENGINE);
    ck_assert_uint_eq(body->rank, rank);
    ck_assert_uint_eq(body->handle_kind, SL_MEMORY_CUDA_IPC);
    ck_assert_uint_eq(body->handle.length, 64);
    ck_assert_mem_eq(body->handle.at, bed.handles[rank], 64);
    ck_assert_uint_eq(body->length_bytes, TENSOR);
    bed.exports_asked++;
    if (bed.busy > 0) {
        bed.busy--;
        reply.code = SL_ERR_BUSY;
    } else if (bed.export_code == SL_OK) {
        struct sl_device_dmabuf dmabuf = {.fd = fcntl(bed.gpu_fds[rank], F_DUPFD_CLOEXEC, 0),
                                          .offset_bytes = AHEAD,
                                          .length_bytes = GPU};
        ck_assert_msg(sw_exports_add(&bed.exports, &bed.fake.env, &dmabuf, ENGINE, &made, &why) ==
                          SL_OK,
                      "%s", why.text);
        reply.body.pool_export_reply = (struct sl_body_pool_export_reply){.pid = (uint64_t)getpid(),
                                                                          .number = made.number,
                                                                          .name = made.name,
                                                                          .life = made.life,
                                                                          .length_bytes = GPU,
                                                                          .offset_bytes = AHEAD};
        if (bed.swapper_dies) {
            sw_exports_close(&bed.exports);
        }
    }
    fake_answer(&bed.fake, swapper, msg, &reply);
}

/* Digests the device's bytes, wherever they are. */
static void copy_play(uint32_t rank, const char *swapper, const struct sl_msg *msg)
{
    static unsigned char digests[64 * 16], done[8], value[PART];
    enum check check = rank == bed.check_rank ? bed.check : CHECK_RIGHT;
    struct sl_msg reply = {.code = check == CHECK_FAILS ? SL_ERR_IO : SL_OK};
    if (check == CHECK_BUSY) { /* its queue is full, then it maps the engine, then it looks */
        reply.code = bed.busy == 2 ? SL_ERR_LIMIT : SL_ERR_BUSY;
        bed.check = --bed.busy > 0 ? CHECK_BUSY : CHECK_RIGHT;
    }
    const struct sl_body_copy *body = &msg->body.copy;
    ck_assert_uint_eq(body->rank, rank);
    ck_assert(body->out && body->look);
    ck_assert_uint_eq(body->engine_id, ENGINE);
    bed.checks++;
    memset(done, 0, sizeof(done));
    for (uint64_t i = 0; i < body->items.count; i++) {
        const struct sl_item_piece *block = &body->items.at[i];
        ck_assert_uint_eq(block->length_bytes, PART);
        for (uint64_t l = 0; l < LAYERS; l++) {
            memcpy(value + l * STRIDE, bed.gpus[rank] + l * LAYER + block->device_block * STRIDE,
                   STRIDE);
        }
        uint64_t layers = block->layer_end > 0 ? block->layer_end - block->first_layer : LAYERS;
        ck_assert_uint_le(block->first_layer + layers, LAYERS);
        struct sl_digest digest =
            sl_digest_of(value + block->first_layer * STRIDE, layers * STRIDE);
        digest.low ^= check == CHECK_WRONG && i == 0 ? 1 : 0;
        memcpy(digests + 16 * i, &digest, 16);
        done[i / 8] |= (unsigned char)(check == CHECK_SHORT && i == 0 ? 0 : 1u << i % 8);
    }
    reply.body.copy_reply.done =
        (struct sl_bytes){.at = done, .length = (body->items.count + 7) / 8};
    reply.body.copy_reply.digests =
        (struct sl_bytes){.at = digests, .length = body->items.count * 16};
    if (check != CHECK_SILENT) {
        fake_answer(&bed.fake, swapper, msg, &reply);
    } else {
        bed.silent_seq = msg->seq;
    }
}

static void swappers_play(void)
{
    static const char *const swappers[RANKS] = {"swapper.0", "swapper.1"};
    struct sl_msg msg;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        while (fake_take(&bed.fake, swappers[rank], SL_MSG_POOL_EXPORT, &msg)) {
            export_play(rank, swappers[rank], &msg);
        }
        while (fake_take(&bed.fake, swappers[rank], SL_MSG_COPY, &msg)) {
            copy_play(rank, swappers[rank], &msg);
        }
    }
}

static void registrar_play(void)
{
    struct sl_msg msg;
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINES, &msg)) {
        static const uint64_t ids[] = {ENGINE};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.engines_reply.engine_ids =
            (struct sl_u64s){.at = ids, .count = bed.engine_is_there ? 1 : 0};
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINE_GET, &msg)) {
        static const struct sl_item_pool pool = {.name = {.at = "attention", .length = 9},
                                                 .part_count = 1};
        struct sl_msg reply = {.code = SL_OK};
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
        reply.body.engine_get_reply.regions.at = bed.regions;
        reply.body.engine_get_reply.regions.count = SL_COUNT(bed.regions);
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
}

/* Exchanges addresses, as HELLOs would carry them. */
static void links_turn(void)
{
    sl_fabric_step(bed.peer.fabric, bed.fake.env.now_ns);
    if (bed.address_bytes > 0) {
        uint32_t length_bytes = bed.address_bytes;
        bed.address_bytes = 0;
        ck_assert_int_eq(
            sl_fabric_peer_address(bed.peer.fabric, bed.peer.peer, bed.address, length_bytes, NULL),
            SL_OK);
    }
    if (bed.peer.address_bytes > 0 && bed.self->peer_count > 0) {
        uint32_t length_bytes = bed.peer.address_bytes;
        bed.peer.address_bytes = 0;
        ck_assert_int_eq(sl_fabric_peer_address(bed.self->fabric, bed.self->peers[0].fabric_peer,
                                                bed.peer.address, length_bytes, NULL),
                         SL_OK);
    }
}

static void turn(void)
{
    bed.self->env->ops->wake_at(bed.self->env, 0);
    fake_advance(&bed.fake, 2 * SL_NS_PER_US);
    registrar_play();
    swappers_play();
    links_turn();
}

static void turns(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        turn();
    }
}

static void peer_lives(void)
{
    struct sl_msg hello, reply = {.type = SL_MSG_PEER_HELLO_REPLY};
    const struct sl_fabric_grant want = {
        .memory = bed.peer.memory, .peer = bed.peer.peer, .length_bytes = SL_MIB};
    (void)end_grant(&bed.peer, &want);
    struct sl_item_window window = {.arena = 0,
                                    .length_bytes = SL_MIB,
                                    .key = {.at = bed.peer.key, .length = bed.peer.key_bytes}};
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_HELLO, &hello));
    reply.reply_to = hello.seq;
    reply.body.peer_hello_reply = (struct sl_body_peer_hello_reply){
        .node = sl_text_of("b"), .incarnation = 3, .fabric = sl_text_of("verbs")};
    reply.body.peer_hello_reply.windows.at = &window;
    reply.body.peer_hello_reply.windows.count = 1;
    (void)fake_net_deliver(&bed.net, "b", reply, true);
    turns(10);
    ck_assert(bed.self->peers[0].window.used);
    ck_assert_int_eq(sl_fabric_peer_link(bed.self->fabric, bed.self->peers[0].fabric_peer),
                     SL_FABRIC_UP);
}

static void fabrics_open(void)
{
    struct sl_error why = {0};
    struct sl_fabric_options options;
    sl_fabric_options_init(&options, "verbs");
    options.backend_context = bed.lib;
    options.region_bytes_max = TENSOR / REGIONS;
    options.places_max = TR_BATCH_PLACES_MAX + TR_HANDOVER_PLACES_MAX;
    options.events = (struct sl_fabric_events){.context = bed.self,
                                               .done = moved,
                                               .address = addressed,
                                               .registered = registered,
                                               .granted = tr_fabric_granted,
                                               .grant_ended = tr_fabric_grant_ended};
    ck_assert_msg(sl_fabric_open(&options, &bed.self->fabric, &why) == SL_OK, "%s", why.text);
    bed.self->fabric_name = "verbs";
    end_options(&bed.peer, &options, "verbs");
    options.backend_context = bed.lib;
    ck_assert_int_eq(end_open(&bed.peer, &options, SL_MIB, 0, &why), SL_OK);
    pattern_fill(bed.peer.bytes, SL_MIB, 3);
    while (!bed.peer.registered) {
        sl_fabric_step(bed.peer.fabric, bed.fake.env.now_ns);
    }
}

static void memories_make(void)
{
    bed.shared_fd = memfd_create("pool-of-the-test", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(bed.shared_fd, (off_t)TENSOR), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        bed.gpu_fds[i] = memfd_create("gpu-of-the-test", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(bed.gpu_fds[i], (off_t)GPU), 0);
        bed.gpus[i] = mmap(NULL, GPU, PROT_READ | PROT_WRITE, MAP_SHARED, bed.gpu_fds[i], 0);
        ck_assert(bed.gpus[i] != MAP_FAILED);
        bed.gpus[i] += AHEAD;
        memset(bed.handles[i], 0x5a + (int)i, sizeof(bed.handles[i]));
    }
    bed.gpu = bed.gpus[0];
}

static void bed_start(void)
{
    static const char *const settings[] = {
        "node_name",      "a",   "memory", "4MiB", "fabric_pools", "true", "peer_timeout", "500ms",
        "peer_heartbeat", "60s", NULL};
    struct sl_error why = {0};
    memset(&bed, 0, sizeof(bed));
    bed.lib = fake_verbs_lib();
    fake_open(&bed.fake, &sl_transporter_actor, settings);
    bed.fake.env.name = "transporter.0";
    nodes_open();
    ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
    bed.self = bed.fake.state;
    fake_set(&bed.fake, "peers", "b@host:1");
    fabrics_open();
    fake_net_open(&bed.net);
    bed.self->control = &bed.net.base;
    memories_make();
    bed.proc = (struct sl_proc_id){.pid = (uint32_t)getpid(), .start_time = 77};
    fake_process_add(&bed.fake, bed.proc);
    regions_put();
    bed.engine_is_there = true;
}

/* Starts the cluster with the settings made in `bed` before. */
static void bed_run(void)
{
    struct sl_error why = {0};
    ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
    turns(TURNS);
}

static void bed_close(void)
{
    tr_cluster_fini(bed.self);
    bed.self->control = NULL;
    sl_fabric_close(&bed.self->fabric);
    bed.self->calls = NULL;
    end_close(&bed.peer);
    ck_assert_uint_eq(fake_verbs.regions, 0);
    sw_exports_close(&bed.exports);
    sl_index_close(&bed.index);
    sl_arena_close(&bed.arena);
    fake_net_close(&bed.net);
    for (uint32_t i = 0; i < RANKS; i++) {
        munmap(bed.gpus[i] - AHEAD, GPU);
        close(bed.gpu_fds[i]);
    }
    close(bed.shared_fd);
    (void)sl_shm_file_remove(bed.fake.paths.shm_dir, "arena.0", NULL);
    (void)sl_shm_file_remove(bed.fake.paths.shm_dir, "index", NULL);
    fake_close(&bed.fake);
}

static uint64_t metric(const char *name)
{
    struct sl_metrics *page = bed.self->env->metrics;
    return sl_metric_get(page, sl_metric_define(page, name));
}

/* ---- requests ---- */

static const struct sl_text keys[] = {
    {.at = "m/b0/0/attention", .length = 16},
    {.at = "m/b1/0/attention", .length = 16},
};
static const struct sl_item_group groups[] = {
    {.key = {.at = "m/b0", .length = 4}, .part_count = 1},
    {.key = {.at = "m/b1", .length = 4}, .part_count = 1},
};

/* Pulls both blocks to the device. */
static uint64_t pull_send(bool both_ranks)
{
    static const struct sl_item_slot first_rank[] = {
        {.engine_id = ENGINE, .device_block = 3},
        {.engine_id = ENGINE, .device_block = 5, .item = 1}};
    static const struct sl_item_slot ranks[] = {
        {.engine_id = ENGINE, .device_block = 3},
        {.engine_id = ENGINE, .rank = 1, .device_block = 3},
        {.engine_id = ENGINE, .device_block = 5, .item = 1}};
    struct sl_msg msg = {.type = SL_MSG_BRING, .op_id = 11, .budget_ns = 2 * SL_NS_PER_S};
    msg.body.bring.chain = true;
    msg.body.bring.keys.at = keys;
    msg.body.bring.keys.count = SL_COUNT(keys);
    msg.body.bring.groups.at = groups;
    msg.body.bring.groups.count = SL_COUNT(groups);
    msg.body.bring.slots.at = both_ranks ? ranks : first_rank;
    msg.body.bring.slots.count = both_ranks ? SL_COUNT(ranks) : SL_COUNT(first_rank);
    fake_give(&bed.fake, "coordinator", &msg);
    turn();
    return msg.seq;
}

/* The peer has both, one after the other. */
static void peer_places(void)
{
    struct sl_item_place places[2];
    struct sl_msg pin, reply = {.type = SL_MSG_PEER_PIN_REPLY};
    for (uint64_t i = 0; i < 2; i++) {
        struct sl_digest digest = sl_digest_of(bed.peer.bytes + i * PART, PART);
        places[i] = (struct sl_item_place){.code = SL_OK,
                                           .offset_bytes = i * PART,
                                           .length_bytes = PART,
                                           .digest_low = digest.low,
                                           .digest_high = digest.high};
    }
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin));
    reply.reply_to = pin.seq;
    reply.body.peer_pin_reply = (struct sl_body_peer_pin_reply){.pin_id = 5, .ttl_ns = SL_NS_PER_S};
    reply.body.peer_pin_reply.items.at = places;
    reply.body.peer_pin_reply.items.count = 2;
    (void)fake_net_deliver(&bed.net, "b", reply, true);
    turns(6);
}

static void codes_are(uint64_t seq, sl_err first, sl_err second)
{
    struct sl_msg reply;
    ck_assert(fake_take_reply(&bed.fake, "coordinator", seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.bring_reply.codes.count, 2);
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], first);
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[1], second);
    ck_assert_uint_eq(bed.self->fetch_open, 0);
    ck_assert_uint_eq(bed.self->fetch_batches_open, 0);
    ck_assert_uint_eq(bed.self->parts_open, 0);
}

/* ---- registered ---- */

START_TEST(device_memory_is_registered_by_dmabuf)
    {
        bed_start();
        bed_run();
        ck_assert_uint_eq(fake_verbs.dmabufs, REGIONS);
        ck_assert_uint_eq(metric("pool_engines"), 1);
        ck_assert_uint_eq(metric("pool_device_bytes"), TENSOR);
        ck_assert_uint_eq(metric("pool_bytes"), 2 * TENSOR);
        ck_assert_uint_eq(sw_exports_waiting(bed.exports), 0);
        bed_close();
    }
END_TEST

/* The swapper maps the engine meanwhile, or died with the descriptor and has restarted. */
START_TEST(what_is_not_there_yet_is_asked_for_again)
    {
        bed_start();
        bed.busy = _i == 0 ? 3 : 0;
        bed.swapper_dies = _i == 1;
        bed_run();
        ck_assert_uint_eq(fake_verbs.dmabufs, 0);
        bed.swapper_dies = false;
        for (int i = 0; i < 5; i++) {
            fake_advance(&bed.fake, 150 * SL_NS_PER_MS);
            turns(5);
        }
        turns(TURNS);
        ck_assert_uint_eq(fake_verbs.dmabufs, REGIONS);
        ck_assert_uint_eq(bed.exports_asked, _i == 0 ? 4 : 2);
        bed_close();
    }
END_TEST

/* The rest of the engine is registered; pulls into this memory are refused, and nothing of it is
 * kept. */
static void left_out_is(const char *cause)
{
    static const char *const causes[] = {"pool_device_out_fabric_bytes",
                                         "pool_device_out_swapper_bytes",
                                         "pool_device_out_nic_bytes"};
    struct sl_msg reply;
    turns(TURNS);
    ck_assert_uint_eq(fake_verbs.dmabufs, 0);
    ck_assert_uint_eq(metric("pool_engines"), 1);
    ck_assert_uint_eq(metric("pool_device_bytes"), 0);
    ck_assert_uint_eq(metric("pool_bytes"), TENSOR);
    for (size_t i = 0; i < SL_COUNT(causes); i++) {
        ck_assert_uint_eq(metric(causes[i]), strcmp(causes[i], cause) == 0 ? TENSOR : 0);
    }
    uint64_t seq = pull_send(false);
    ck_assert(fake_take_reply(&bed.fake, "coordinator", seq, &reply));
    ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
}

START_TEST(memory_without_a_dmabuf_is_left_out)
    {
        static const sl_err codes[] = {SL_ERR_UNSUPPORTED, SL_ERR_INVALID};
        bed_start();
        bed.export_code = codes[_i];
        bed_run();
        ck_assert_uint_eq(bed.exports_asked, 1);
        left_out_is("pool_device_out_swapper_bytes");
        bed_close();
    }
END_TEST

START_TEST(a_swapper_that_never_has_it_is_not_asked_for_ever)
    {
        bed_start();
        bed.busy = UINT32_MAX;
        bed_run();
        for (int i = 0; i < 110; i++) {
            fake_advance(&bed.fake, 100 * SL_NS_PER_MS);
            turns(2);
        }
        uint32_t asked = bed.exports_asked;
        ck_assert_uint_le(asked, 110);
        left_out_is("pool_device_out_swapper_bytes");
        ck_assert_uint_eq(bed.exports_asked, asked);
        bed_close();
    }
END_TEST

/* For each of its regions, and each way to fail. */
START_TEST(what_the_nic_does_not_take_is_left_out)
    {
        bed_start();
        struct sl_msg reply;
        (void)reply;
        fake_verbs.fail_dmabuf_at = 1 + (uint32_t)_i % REGIONS;
        fake_verbs.fail_code = (uint32_t)_i < REGIONS ? EOPNOTSUPP : ENOMEM;
        bed_run();
        left_out_is("pool_device_out_nic_bytes");
        bed_close();
    }
END_TEST

START_TEST(an_old_library_is_not_asked)
    {
        bed_start();
        bed.lib->verbs_reg_dmabuf_mr = NULL;
        tr_cluster_fini(bed.self);
        sl_fabric_close(&bed.self->fabric);
        end_close(&bed.peer);
        fabrics_open();
        bed_run();
        ck_assert_uint_eq(bed.exports_asked, 0);
        left_out_is("pool_device_out_fabric_bytes");
        bed_close();
    }
END_TEST

/* In any step of mapping and registering: the answer is sent when nothing of it is left. */
START_TEST(an_end_at_any_time_leaves_nothing)
    {
        struct sl_msg over = {.type = SL_MSG_ENGINE_OVER}, reply;
        struct sl_error why = {0};
        bed_start();
        ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
        turns((uint32_t)_i);
        over.body.engine_over.engine_id = ENGINE;
        bed.engine_is_there = false;
        fake_give(&bed.fake, "registrar", &over);
        turns(TURNS);
        ck_assert(fake_take_reply(&bed.fake, "registrar", over.seq, &reply));
        ck_assert_uint_eq(fake_verbs.dmabufs, 0);
        ck_assert_uint_eq(metric("pool_bytes"), 0);
        ck_assert_uint_eq(metric("pool_device_out_nic_bytes"), 0);
        bed_close();
    }
END_TEST

/* ---- pulled ---- */

START_TEST(bytes_count_when_the_swapper_has_found_them)
    {
        bed_start();
        bed_run();
        peer_lives();
        uint64_t seq = pull_send(false);
        peer_places();
        codes_are(seq, SL_OK, SL_OK);
        ck_assert_uint_eq(bed.checks, 1);
        for (uint64_t l = 0; l < LAYERS; l++) {
            ck_assert_mem_eq(bed.gpu + l * LAYER + 3 * STRIDE, bed.peer.bytes + l * STRIDE, STRIDE);
            ck_assert_mem_eq(bed.gpu + l * LAYER + 5 * STRIDE, bed.peer.bytes + PART + l * STRIDE,
                             STRIDE);
        }
        bed_close();
    }
END_TEST

/* The first has wrong bytes, or is not checked; the other counts. */
START_TEST(a_wrong_digest_is_never_pulled)
    {
        struct sl_msg reply;
        bed_start();
        bed.check = _i == 0 ? CHECK_WRONG : CHECK_SHORT;
        bed_run();
        peer_lives();
        uint64_t seq = pull_send(false);
        peer_places();
        turns(4);
        ck_assert(fake_take_reply(&bed.fake, "coordinator", seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0],
                          _i == 0 ? SL_ERR_CORRUPT : SL_ERR_PROTOCOL);
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[1], SL_OK);
        ck_assert_uint_eq(metric("digests_bad"), _i == 0 ? 1 : 0);
        bed_close();
    }
END_TEST

START_TEST(what_nobody_checked_is_not_pulled)
    {
        struct sl_msg reply;
        bed_start();
        bed.check = _i == 0 ? CHECK_FAILS : CHECK_SILENT;
        bed_run();
        peer_lives();
        if (_i == 2) {
            strcpy(bed.fake.unreachable, "swapper.0");
        }
        uint64_t seq = pull_send(false);
        peer_places();
        if (_i >= 1) {
            ck_assert(!fake_take_reply(&bed.fake, "coordinator", seq, &reply));
            fake_advance(&bed.fake, 3 * SL_NS_PER_S);
            turns(3);
        }
        ck_assert(fake_take_reply(&bed.fake, "coordinator", seq, &reply));
        ck_assert_uint_ne(reply.body.bring_reply.codes.at[0], SL_OK);
        ck_assert_uint_ne(reply.body.bring_reply.codes.at[1], SL_OK);
        ck_assert_uint_eq(bed.self->fetch_batches_open, 0);
        bed_close();
    }
END_TEST

/* During the swapper's check no byte is written any more, so the fence is answered at once. */
START_TEST(a_fence_does_not_wait_for_a_check)
    {
        struct sl_msg reply, fence = {.type = SL_MSG_FENCE, .op_id = 11},
                             over = {.type = SL_MSG_ENGINE_OVER};
        bed_start();
        bed.check = CHECK_SILENT;
        bed_run();
        peer_lives();
        uint64_t seq = pull_send(false);
        peer_places();
        ck_assert_uint_eq(bed.self->fetch_batches[0].phase, TR_CHECK);
        if (_i == 0) {
            fake_give(&bed.fake, "coordinator", &fence);
        } else {
            over.body.engine_over.engine_id = ENGINE;
            bed.engine_is_there = false;
            fake_give(&bed.fake, "registrar", &over);
        }
        turns(TURNS);
        sl_err want = _i == 0 ? SL_ERR_CANCELLED : SL_ERR_NOT_FOUND;
        codes_are(seq, want, want);
        if (_i == 0) {
            ck_assert(fake_take_reply(&bed.fake, "coordinator", fence.seq, &reply));
        } else {
            ck_assert(fake_take_reply(&bed.fake, "registrar", over.seq, &reply));
            ck_assert_uint_eq(fake_verbs.dmabufs, 0);
        }
        bed_close();
    }
END_TEST

/* ---- parts that several ranks have ---- */

static void place_is(const unsigned char *bytes, uint64_t block, uint64_t part)
{
    for (uint64_t l = 0; l < LAYERS; l++) {
        ck_assert_mem_eq(bytes + l * LAYER + block * STRIDE,
                         bed.peer.bytes + part * PART + l * STRIDE, STRIDE);
    }
}

/* Each in its own device memory, by a read of its own, checked by its own swapper. */
START_TEST(a_part_of_two_gpus_is_read_into_each)
    {
        gpu_ranks = 2;
        bed_start();
        bed_run();
        peer_lives();
        ck_assert_uint_eq(metric("pool_device_bytes"), 2 * TENSOR);
        uint64_t seq = pull_send(true);
        peer_places();
        codes_are(seq, SL_OK, SL_OK);
        ck_assert_uint_eq(bed.checks, 2);
        place_is(bed.gpus[0], 3, 0);
        place_is(bed.gpus[0], 5, 1);
        place_is(bed.gpus[1], 3, 0);
        ck_assert_uint_eq(metric("pull_copied_bytes"), 0);
        ck_assert_uint_eq(metric("pulled_bytes"), 2 * PART);
        ck_assert_uint_eq(metric("pull_again_bytes"), PART);
        bed_close();
    }
END_TEST

/* One rank's memory is a GPU's, the other's is shared: no byte is copied from one to the other. */
START_TEST(a_part_of_a_gpu_and_of_the_host_is_read_into_each)
    {
        unsigned char *shared = NULL;
        bed_start();
        bed_run();
        peer_lives();
        shared = mmap(NULL, TENSOR, PROT_READ, MAP_SHARED, bed.shared_fd, 0);
        ck_assert(shared != MAP_FAILED);
        uint64_t seq = pull_send(true);
        peer_places();
        codes_are(seq, SL_OK, SL_OK);
        ck_assert_uint_eq(bed.checks, 1);
        place_is(bed.gpu, 3, 0);
        place_is(shared, 3, 0);
        ck_assert_uint_eq(metric("pull_again_bytes"), PART);
        munmap(shared, TENSOR);
        bed_close();
    }
END_TEST

/* If one rank's part is wrong in any way, the block does not count, but the other one does. */
START_TEST(a_part_that_one_of_two_ranks_has_wrong_is_never_pulled)
    {
        static const struct {
            enum check check;
            uint32_t rank;
            sl_err want, other; /* other: block 1, which only rank 0 has */
        } cases[] = {{CHECK_WRONG, 1, SL_ERR_CORRUPT, SL_OK},
                     {CHECK_SHORT, 1, SL_ERR_PROTOCOL, SL_OK},
                     {CHECK_FAILS, 1, SL_ERR_IO, SL_OK},
                     {CHECK_SILENT, 1, SL_ERR_TIMEOUT, SL_ERR_TIMEOUT}, /* of the whole pull */
                     {CHECK_FAILS, 0, SL_ERR_IO, SL_ERR_IO}};
        gpu_ranks = 2;
        bed_start();
        bed.check = cases[_i].check;
        bed.check_rank = cases[_i].rank;
        bed_run();
        peer_lives();
        uint64_t seq = pull_send(true);
        peer_places();
        if (bed.check == CHECK_SILENT) {
            fake_advance(&bed.fake, 3 * SL_NS_PER_S);
            turns(3);
        }
        turns(4);
        codes_are(seq, cases[_i].want, cases[_i].other);
        ck_assert_uint_eq(metric("pull_again_bytes"), 0);
        bed_close();
    }
END_TEST

/* It has the pieces of more than one part: the fabric's answers are matched by reads. */
START_TEST(a_read_into_one_of_two_gpus_that_fails_costs_its_block)
    {
        struct sl_msg reply;
        gpu_ranks = 2;
        bed_start();
        bed_run();
        peer_lives();
        fake_verbs.refuse_at = fake_verbs.requests_met + 1 + (uint32_t)_i;
        uint64_t seq = pull_send(true);
        peer_places();
        fake_advance(&bed.fake, 3 * SL_NS_PER_S);
        turns(4);
        ck_assert(fake_take_reply(&bed.fake, "coordinator", seq, &reply));
        const struct sl_u64s *codes = &reply.body.bring_reply.codes;
        ck_assert(codes->at[0] != SL_OK || codes->at[1] != SL_OK);
        if (codes->at[0] == SL_OK) {
            place_is(bed.gpus[0], 3, 0);
            place_is(bed.gpus[1], 3, 0);
        }
        if (codes->at[1] == SL_OK) {
            place_is(bed.gpus[0], 5, 1);
        }
        ck_assert_uint_eq(bed.self->fetch_batches_open, 0);
        bed_close();
    }
END_TEST

/* During the check by the second rank's swapper. */
START_TEST(a_fence_ends_the_checks_of_all_ranks)
    {
        struct sl_msg reply, fence = {.type = SL_MSG_FENCE, .op_id = 11};
        gpu_ranks = 2;
        bed_start();
        bed.check = CHECK_SILENT;
        bed.check_rank = 1;
        bed_run();
        peer_lives();
        uint64_t seq = pull_send(true);
        peer_places();
        ck_assert_uint_eq(bed.checks, 2);
        ck_assert_uint_eq(bed.self->fetch_batches[0].phase, TR_CHECK);
        fake_give(&bed.fake, "coordinator", &fence);
        turns(4);
        codes_are(seq, SL_ERR_CANCELLED, SL_ERR_CANCELLED);
        ck_assert(fake_take_reply(&bed.fake, "coordinator", fence.seq, &reply));
        bed_close();
    }
END_TEST

/* More reads than a fetch batch allows. */
START_TEST(reads_of_a_block_are_bounded)
    {
        static struct sl_item_slot slots[TR_KEYS_MAX + 1];
        struct sl_msg reply, msg = {.type = SL_MSG_BRING, .op_id = 11, .budget_ns = SL_NS_PER_S};
        bed_start();
        bed_run();
        peer_lives();
        for (uint32_t i = 0; i < SL_COUNT(slots); i++) {
            slots[i] = (struct sl_item_slot){.engine_id = ENGINE, .device_block = i % BLOCKS};
        }
        msg.body.bring.keys.at = keys;
        msg.body.bring.keys.count = 1;
        msg.body.bring.groups.at = groups;
        msg.body.bring.groups.count = 1;
        msg.body.bring.slots.at = slots;
        msg.body.bring.slots.count = SL_COUNT(slots);
        fake_give(&bed.fake, "coordinator", &msg);
        turn();
        ck_assert(fake_take_reply(&bed.fake, "coordinator", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
        ck_assert_uint_eq(bed.self->parts_open, 0);
        bed_close();
    }
END_TEST

/* ---- lending ---- */

static struct sl_bytes ticket_for(const char *node)
{
    static unsigned char bytes[SL_TICKET_BYTES_MAX];
    struct sl_ticket_fields ticket = {.number = 5, .secret = {7}};
    (void)snprintf(ticket.node, sizeof(ticket.node), "%s", node);
    return (struct sl_bytes){.at = bytes, .length = sl_ticket_write(&ticket, bytes)};
}

static uint64_t lend_send(const char *node)
{
    struct sl_item_arrived piece = {.length_bytes = PART, .digest_low = 1};
    struct sl_item_slot slot = {.engine_id = ENGINE, .device_block = 2};
    struct sl_msg msg = {.type = SL_MSG_LEND, .op_id = 90, .budget_ns = 2 * SL_NS_PER_S};
    msg.body.lend = (struct sl_body_lend){.ticket = ticket_for(node), .number = 1, .last = true};
    msg.body.lend.pieces.at = &piece;
    msg.body.lend.pieces.count = 1;
    msg.body.lend.slots.at = &slot;
    msg.body.lend.slots.count = 1;
    fake_give(&bed.fake, "coordinator", &msg);
    turns(12);
    return msg.seq;
}

/* The peer's NIC reads it; the peer checks it by the digests sent with it. */
START_TEST(a_block_is_lent_from_device_memory)
    {
        struct sl_msg named, reply = {.type = SL_MSG_PEER_LEND_REPLY};
        uint32_t key = 0;
        bed_start();
        bed_run();
        peer_lives();
        pattern_fill(bed.gpu, TENSOR, 21);
        uint64_t seq = lend_send("b");
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND, &named));
        ck_assert_uint_eq(named.body.peer_lend.pieces.at[0].digest_low, 1);
        ck_assert_uint_eq(named.body.peer_lend.doors.count, 1);
        const struct sl_item_door *door = &named.body.peer_lend.doors.at[0];
        ck_assert_int_eq(sl_fabric_key_open(bed.peer.fabric, bed.peer.peer, door->key.at,
                                            (uint32_t)door->key.length, &key, NULL),
                         SL_OK);
        ck_assert_int_eq(end_post(&bed.peer, key, 0, PART, 8, bed.fake.env.now_ns + SL_NS_PER_S),
                         SL_OK);
        turns(12);
        ck_assert_int_eq(end_done_of(&bed.peer, 8)->code, SL_OK);
        for (uint64_t l = 0; l < LAYERS; l++) {
            ck_assert_mem_eq(bed.peer.bytes + l * STRIDE, bed.gpu + l * LAYER + 2 * STRIDE, STRIDE);
        }
        reply.reply_to = named.seq;
        reply.op_id = named.op_id;
        reply.body.peer_lend_reply.number = 1;
        (void)fake_net_deliver(&bed.net, "b", reply, true);
        turns(12);
        ck_assert(fake_take_reply(&bed.fake, "coordinator", seq, &reply));
        ck_assert_msg(reply.code == SL_OK, "%s", reply.text.at);
        bed_close();
    }
END_TEST

START_TEST(on_this_node_it_goes_by_extents)
    {
        struct sl_msg reply;
        bed_start();
        bed_run();
        peer_lives();
        uint64_t seq = lend_send("a");
        ck_assert(fake_take_reply(&bed.fake, "coordinator", seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        bed_close();
    }
END_TEST

/* ---- read from what a peer lends ---- */

/* Part 0 is rank 0's, part 1 is rank 1's: in device memory if gpu_ranks includes the rank. */
#define LENT_PARTS 2u
#define BRING_NS   SL_NS_PER_S
static const uint32_t lent_blocks[LENT_PARTS] = {2, 4};
static struct lent {
    uint64_t bring; /* its number */
    unsigned char keys[LENT_PARTS][SL_FABRIC_BLOB_MAX];
    struct sl_item_door doors[LENT_PARTS];
    struct sl_item_arrived pieces[2 * LENT_PARTS];
    uint32_t door_count, piece_count;
} lent;

static void bring_ask(const char *from, bool both_have_it)
{
    static struct sl_item_slot slots[LENT_PARTS];
    struct sl_msg msg = {.type = SL_MSG_BRING, .op_id = 91, .budget_ns = BRING_NS};
    for (uint32_t i = 0; i < LENT_PARTS; i++) {
        slots[i] = (struct sl_item_slot){.engine_id = ENGINE,
                                         .rank = i,
                                         .device_block = lent_blocks[i],
                                         .item = both_have_it ? 0 : i};
    }
    msg.body.bring.ticket = ticket_for("a");
    msg.body.bring.from = sl_text_of(from);
    msg.body.bring.slots.at = slots;
    msg.body.bring.slots.count = LENT_PARTS;
    fake_give(&bed.fake, "coordinator", &msg);
    turns(3);
    lent.bring = msg.seq;
}

static bool told(struct sl_msg *out)
{
    return fake_take(&bed.fake, "coordinator", SL_MSG_LANDED, out);
}

static void taken(uint64_t state)
{
    struct sl_msg msg, reply = {.code = SL_OK};
    ck_assert(told(&msg));
    ck_assert_uint_eq(msg.body.landed.state, state);
    fake_answer(&bed.fake, "coordinator", &msg, &reply);
    turns(3);
}

static void take_bed_start(enum check check)
{
    bed_start();
    bed.check = check;
    bed.busy = 0;
    bed_run();
    peer_lives();
    struct sl_msg hello = {.type = SL_MSG_PEER_HELLO};
    hello.body.peer_hello = (struct sl_body_peer_hello){
        .node = sl_text_of("b"), .incarnation = 3, .fabric = sl_text_of("verbs")};
    (void)fake_net_deliver(&bed.net, "b", hello, false);
    turns(3);
    memset(&lent, 0, sizeof(lent));
    bring_ask("", false);
    taken(0);
}

/* The peer has it at the same offset of its memory. */
static void peer_lends(uint64_t part, uint64_t from, uint64_t length_bytes)
{
    struct sl_digest digest = sl_digest_of(bed.peer.bytes + part * PART + from, length_bytes);
    lent.pieces[lent.piece_count++] = (struct sl_item_arrived){.part = part,
                                                               .part_offset_bytes = from,
                                                               .length_bytes = length_bytes,
                                                               .digest_low = digest.low,
                                                               .digest_high = digest.high};
    if (from == 0) {
        const struct sl_fabric_place place = {
            .memory = bed.peer.memory, .offset_bytes = part * PART, .length_bytes = PART};
        const struct sl_fabric_grant want = {
            .peer = bed.peer.peer, .length_bytes = PART, .places = &place, .place_count = 1};
        (void)end_grant(&bed.peer, &want);
        memcpy(lent.keys[part], bed.peer.key, bed.peer.key_bytes);
        lent.doors[lent.door_count++] = (struct sl_item_door){
            .part = part, .key = {.at = lent.keys[part], .length = bed.peer.key_bytes}};
    }
}

/* Sends a PEER_LEND for the pieces lent since the last one. */
static void peer_says(uint64_t number, bool last)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_LEND, .op_id = 3, .budget_ns = 2 * SL_NS_PER_S};
    msg.body.peer_lend =
        (struct sl_body_peer_lend){.ticket = ticket_for("a"), .number = number, .last = last};
    msg.body.peer_lend.doors.at = lent.doors;
    msg.body.peer_lend.doors.count = lent.door_count;
    msg.body.peer_lend.pieces.at = lent.pieces;
    msg.body.peer_lend.pieces.count = lent.piece_count;
    (void)fake_net_deliver(&bed.net, "b", msg, false);
    lent.door_count = lent.piece_count = 0;
    turns(8);
}

/* The coordinator accepts it, and the peer gets that answer. */
static void told_and_taken(uint64_t number, uint64_t state)
{
    struct sl_msg reply;
    taken(state);
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND_REPLY, &reply));
    ck_assert_uint_eq(reply.body.peer_lend_reply.number, number);
    ck_assert_int_eq(reply.code, SL_OK);
}

static void over(sl_err code)
{
    struct sl_msg reply;
    turns(4);
    ck_assert(fake_take_reply(&bed.fake, "coordinator", lent.bring, &reply));
    ck_assert_msg(reply.code == code, "%s: %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
    ck_assert_uint_eq(metric("takes_open"), 0);
}

static void peer_heard(sl_err code)
{
    struct sl_msg reply;
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND_REPLY, &reply));
    ck_assert_msg(reply.code == code, "%s", reply.text.length > 0 ? reply.text.at : "");
}

static void late_answer(void)
{
    struct sl_msg reply = {.code = SL_OK}, msg;
    struct sl_digest digest = sl_digest_of(bed.peer.bytes, PART);
    const unsigned char done = 1;
    const struct sl_msg request = {.type = SL_MSG_COPY, .seq = bed.silent_seq};
    ck_assert_uint_ne(bed.silent_seq, 0);
    reply.body.copy_reply.done = (struct sl_bytes){.at = &done, .length = 1};
    reply.body.copy_reply.digests = (struct sl_bytes){.at = (void *)&digest, .length = 16};
    fake_answer(&bed.fake, "swapper.0", &request, &reply);
    turns(4);
    ck_assert(!told(&msg));
    ck_assert_uint_eq(metric("landed_bytes"), 0);
}

/* One GPU and shared memory, or two GPUs: it is reported when the swappers have checked it. */
START_TEST(a_block_is_read_into_device_memory)
    {
        gpu_ranks = 1 + (uint32_t)_i;
        take_bed_start(CHECK_RIGHT);
        peer_lends(0, 0, PART);
        peer_lends(1, 0, PART);
        peer_says(1, true);
        ck_assert_uint_eq(bed.checks, gpu_ranks);
        told_and_taken(1, 2);
        over(SL_OK);
        place_is(bed.gpu, lent_blocks[0], 0);
        if (gpu_ranks == 2) {
            place_is(bed.gpus[1], lent_blocks[1], 1);
        }
        ck_assert_uint_eq(metric("landed_bytes"), 2 * PART);
        bed_close();
    }
END_TEST

/* Each layer counts by itself. */
START_TEST(layers_are_read_into_device_memory)
    {
        gpu_ranks = 2;
        take_bed_start(CHECK_RIGHT);
        for (uint64_t layer = 0; layer < LAYERS; layer++) {
            peer_lends(0, layer * STRIDE, STRIDE);
            peer_lends(1, layer * STRIDE, STRIDE);
            peer_says(layer + 1, layer + 1 == LAYERS);
            ck_assert_uint_eq(bed.checks, 2 * (layer + 1));
            told_and_taken(layer + 1, layer + 1 == LAYERS ? 2 : 1);
            ck_assert_uint_eq(metric("landed_bytes"), 2 * (layer + 1) * STRIDE);
        }
        place_is(bed.gpus[0], lent_blocks[0], 0);
        place_is(bed.gpus[1], lent_blocks[1], 1);
        bed_close();
    }
END_TEST

/* No swapper has a digest of such a piece, so it never counts. */
START_TEST(a_piece_that_is_not_whole_layers_ends_the_take)
    {
        take_bed_start(CHECK_RIGHT);
        if (_i == 1) { /* it ends within a layer that another one began */
            peer_lends(0, 0, STRIDE);
            peer_says(1, false);
            told_and_taken(1, 1);
        }
        peer_lends(0, _i == 1 ? STRIDE : 0, STRIDE / 2);
        peer_says(1 + (uint64_t)_i, false);
        ck_assert_uint_eq(bed.checks, (uint32_t)_i);
        peer_heard(SL_ERR_INVALID);
        over(SL_ERR_INVALID);
        bed_close();
    }
END_TEST

START_TEST(a_wrong_digest_in_device_memory_ends_the_take)
    {
        static const struct {
            enum check check;
            sl_err want;
        } cases[] = {{CHECK_WRONG, SL_ERR_CORRUPT},
                     {CHECK_SHORT, SL_ERR_PROTOCOL},
                     {CHECK_FAILS, SL_ERR_IO}};
        struct sl_msg msg;
        gpu_ranks = 1 + (uint32_t)_i % 2;
        take_bed_start(cases[_i / 2].check);
        bed.check_rank = gpu_ranks - 1; /* the other one's part is right */
        peer_lends(0, 0, PART);
        peer_lends(1, 0, PART);
        peer_says(1, true);
        ck_assert_uint_eq(bed.checks, gpu_ranks);
        ck_assert(!told(&msg));
        peer_heard(cases[_i / 2].want);
        over(cases[_i / 2].want);
        ck_assert_uint_eq(metric("digests_bad"), cases[_i / 2].check == CHECK_WRONG ? 1 : 0);
        bed_close();
    }
END_TEST

/* It is full, or is mapping the engine: both pass. */
START_TEST(a_busy_swapper_is_asked_again)
    {
        struct sl_msg msg;
        take_bed_start(CHECK_BUSY);
        bed.busy = 2;
        peer_lends(0, 0, PART);
        peer_says(1, false);
        ck_assert_uint_eq(bed.checks, 1);
        ck_assert(!told(&msg));
        for (int i = 0; i < 2; i++) {
            fake_advance(&bed.fake, 6 * SL_NS_PER_MS);
            turns(4);
        }
        ck_assert_uint_eq(bed.checks, 3);
        told_and_taken(1, 1);
        bed_close();
    }
END_TEST

/* It is always busy, silent, or missing: the deadline passes, and an answer after that is late. */
START_TEST(what_nobody_checked_in_time_is_not_told)
    {
        struct sl_msg msg;
        take_bed_start(_i == 0 ? CHECK_BUSY : CHECK_SILENT);
        bed.busy = UINT32_MAX;
        if (_i == 2) {
            strcpy(bed.fake.unreachable, "swapper.0");
        }
        peer_lends(0, 0, PART);
        peer_says(1, false);
        ck_assert(!told(&msg));
        fake_advance(&bed.fake, BRING_NS);
        turns(3);
        peer_heard(SL_ERR_TIMEOUT);
        over(SL_ERR_TIMEOUT);
        ck_assert_uint_eq(metric("landed_bytes"), 0);
        if (_i == 1) {
            late_answer();
        }
        bed_close();
    }
END_TEST

/* During the swapper's check no byte is written any more, and the check is dropped. */
START_TEST(an_end_drops_the_check_of_a_take)
    {
        struct sl_msg reply, end = {.type = SL_MSG_FENCE, .op_id = 91};
        const char *from = "coordinator";
        take_bed_start(CHECK_SILENT);
        peer_lends(0, 0, PART);
        peer_says(1, false);
        ck_assert_uint_eq(bed.checks, 1);
        if (_i == 1) {
            end = (struct sl_msg){.type = SL_MSG_ENGINE_OVER};
            end.body.engine_over.engine_id = ENGINE;
            bed.engine_is_there = false;
            from = "registrar";
        }
        fake_give(&bed.fake, from, &end);
        turns(TURNS);
        ck_assert(fake_take_reply(&bed.fake, from, end.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        peer_heard(_i == 0 ? SL_ERR_CANCELLED : SL_ERR_STALE);
        ck_assert_uint_eq(fake_verbs.dmabufs, _i == 1 ? 0 : REGIONS);
        over(_i == 0 ? SL_ERR_CANCELLED : SL_ERR_NOT_FOUND);
        late_answer();
        bed_close();
    }
END_TEST

/* Later pieces are read meanwhile, and reported in order. */
START_TEST(a_check_holds_up_no_other_read)
    {
        struct sl_msg msg, reply = {.code = SL_OK};
        struct sl_digest digest = {0};
        const unsigned char done = 1;
        take_bed_start(CHECK_SILENT);
        peer_lends(0, 0, PART);
        digest = sl_digest_of(bed.peer.bytes, PART);
        peer_says(1, false);
        peer_lends(1, 0, PART);
        uint64_t read_bytes = bed.self->peers[0].read_bytes;
        peer_says(2, false);
        ck_assert_uint_eq(bed.self->peers[0].read_bytes, read_bytes + PART);
        ck_assert(!told(&msg));
        const struct sl_msg request = {.type = SL_MSG_COPY, .seq = bed.silent_seq};
        reply.body.copy_reply.done = (struct sl_bytes){.at = &done, .length = 1};
        reply.body.copy_reply.digests = (struct sl_bytes){.at = (void *)&digest, .length = 16};
        fake_answer(&bed.fake, "swapper.0", &request, &reply);
        turns(4);
        told_and_taken(1, 1);
        told_and_taken(2, 1);
        ck_assert_uint_eq(metric("landed_bytes"), 2 * PART);
        bed_close();
    }
END_TEST

/* The memory cannot be copied on, and to this node itself there is no NIC. */
START_TEST(nothing_is_begun_for_what_goes_by_extents)
    {
        static const struct {
            uint32_t gpu_ranks;
            bool both_have_it;
            const char *from, *peers;
        } cases[] = {{1, true, "", "b@host:1"},
                     {2, true, "", "b@host:1"},
                     {1, false, "a", "b@host:1"},
                     {1, false, "", ""}};
        struct sl_msg msg;
        gpu_ranks = cases[_i].gpu_ranks;
        bed_start();
        fake_set(&bed.fake, "peers", cases[_i].peers);
        bed_run();
        bring_ask(cases[_i].from, cases[_i].both_have_it);
        ck_assert(!told(&msg));
        over(SL_ERR_UNSUPPORTED);
        bed_close();
    }
END_TEST

/* The CPU would have to write there. */
START_TEST(a_lender_of_this_node_gets_nothing_into_device_memory)
    {
        struct sl_item_arrived piece = {.length_bytes = PART};
        struct sl_item_slot slot = {.engine_id = ENGINE, .rank = 1, .device_block = 1};
        struct sl_msg reply, msg = {.type = SL_MSG_LEND, .op_id = 90, .budget_ns = SL_NS_PER_S};
        take_bed_start(CHECK_RIGHT);
        msg.body.lend = (struct sl_body_lend){.ticket = ticket_for("a"), .number = 1};
        msg.body.lend.pieces.at = &piece;
        msg.body.lend.pieces.count = 1;
        msg.body.lend.slots.at = &slot;
        msg.body.lend.slots.count = 1;
        fake_give(&bed.fake, "prefiller.0", &msg);
        turns(3);
        ck_assert(fake_take_reply(&bed.fake, "prefiller.0", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        over(SL_ERR_UNSUPPORTED);
        bed_close();
    }
END_TEST

/* ---- what is not for it ---- */

START_TEST(nothing_of_this_process_touches_it)
    {
        struct tr_slot slot = {.engine_id = ENGINE, .device_block = 1, .unseen = true}, seen = slot;
        struct tr_slot other = {.engine_id = ENGINE, .rank = 1};
        struct tr_range range = {.length_bytes = PART};
        struct sl_fabric_place places[8];
        struct tr_slot_walk walk;
        struct tr_slot_shape shape;
        uint32_t count = 0;
        bed_start();
        bed_run();
        seen.unseen = false;
        ck_assert_int_eq(tr_slot_places(bed.self, &slot, range, places, 8, &count, NULL), SL_OK);
        ck_assert_int_eq(tr_slot_places(bed.self, &seen, range, places, 8, &count, NULL),
                         SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(tr_slot_walk_begin(bed.self, &slot, range, &walk, NULL),
                         SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(tr_slot_copy(bed.self, &slot, &other, range, NULL), SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(tr_slot_copy(bed.self, &other, &slot, range, NULL), SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(tr_slot_shape(bed.self, &slot, &shape, NULL), SL_OK);
        ck_assert(shape.device);
        bed_close();
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("transporter_device");
    TCase *cases = tcase_create("device");
    tcase_add_test(cases, device_memory_is_registered_by_dmabuf);
    tcase_add_loop_test(cases, what_is_not_there_yet_is_asked_for_again, 0, 2);
    tcase_add_loop_test(cases, memory_without_a_dmabuf_is_left_out, 0, 2);
    tcase_add_test(cases, a_swapper_that_never_has_it_is_not_asked_for_ever);
    tcase_add_loop_test(cases, what_the_nic_does_not_take_is_left_out, 0, 2 * REGIONS);
    tcase_add_test(cases, an_old_library_is_not_asked);
    tcase_add_loop_test(cases, an_end_at_any_time_leaves_nothing, 1, 32);
    tcase_add_test(cases, bytes_count_when_the_swapper_has_found_them);
    tcase_add_loop_test(cases, a_wrong_digest_is_never_pulled, 0, 2);
    tcase_add_loop_test(cases, what_nobody_checked_is_not_pulled, 0, 3);
    tcase_add_loop_test(cases, a_fence_does_not_wait_for_a_check, 0, 2);
    tcase_add_test(cases, a_part_of_two_gpus_is_read_into_each);
    tcase_add_test(cases, a_part_of_a_gpu_and_of_the_host_is_read_into_each);
    tcase_add_loop_test(cases, a_part_that_one_of_two_ranks_has_wrong_is_never_pulled, 0, 5);
    tcase_add_loop_test(cases, a_read_into_one_of_two_gpus_that_fails_costs_its_block, 0, 3);
    tcase_add_test(cases, a_fence_ends_the_checks_of_all_ranks);
    tcase_add_test(cases, reads_of_a_block_are_bounded);
    tcase_add_test(cases, a_block_is_lent_from_device_memory);
    tcase_add_test(cases, on_this_node_it_goes_by_extents);
    tcase_add_loop_test(cases, a_block_is_read_into_device_memory, 0, 2);
    tcase_add_test(cases, layers_are_read_into_device_memory);
    tcase_add_loop_test(cases, a_piece_that_is_not_whole_layers_ends_the_take, 0, 2);
    tcase_add_loop_test(cases, a_wrong_digest_in_device_memory_ends_the_take, 0, 6);
    tcase_add_test(cases, a_busy_swapper_is_asked_again);
    tcase_add_loop_test(cases, what_nobody_checked_in_time_is_not_told, 0, 3);
    tcase_add_loop_test(cases, an_end_drops_the_check_of_a_take, 0, 2);
    tcase_add_test(cases, a_check_holds_up_no_other_read);
    tcase_add_loop_test(cases, nothing_is_begun_for_what_goes_by_extents, 0, 4);
    tcase_add_test(cases, a_lender_of_this_node_gets_nothing_into_device_memory);
    tcase_add_test(cases, nothing_of_this_process_touches_it);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
