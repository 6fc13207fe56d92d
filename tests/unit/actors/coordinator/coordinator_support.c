/* tests/unit/actors/coordinator/coordinator_support.c - see coordinator_support.h. */
#include "tests/unit/actors/coordinator/coordinator_support.h"

/* ---- a node around it ---- */

void answer(struct bed *bed, const char *sender, const struct sl_msg *request, struct sl_msg reply)
{
    fake_answer(&bed->fake, sender, request, &reply);
}

struct sl_msg take(struct bed *bed, const char *to, uint32_t type)
{
    struct sl_msg msg = {0};
    ck_assert_msg(fake_take(&bed->fake, to, type, &msg), "no %s was sent to %s", sl_msg_name(type),
                  to);
    return msg;
}

bool sent(struct bed *bed, const char *to, uint32_t type)
{
    struct sl_msg msg;
    return fake_take(&bed->fake, to, type, &msg);
}

void swapper_name(uint32_t rank, char name[16])
{
    (void)snprintf(name, 16, "swapper.%u", rank & 63);
}

/* Brings it to where ops can run: HELLO exchanged with swappers, pins known. */
void bed_greet(struct bed *bed)
{
    const struct sl_msg hello = {.type = SL_MSG_HELLO}; /* the process says it, for every actor */
    fake_advance(&bed->fake, 0);
    answer(bed, "registrar", &hello,
           (struct sl_msg){
               .body.hello_reply = {.boot_generation = 5, .arena_count = 1, .rank_count = RANKS}});
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        char name[16];
        swapper_name(rank, name);
        struct sl_msg fence = take(bed, name, SL_MSG_FENCE);
        ck_assert_uint_eq(fence.op_id, 0);
        answer(bed, name, &fence, (struct sl_msg){.code = SL_OK});
        struct sl_msg ping = take(bed, name, SL_MSG_PING);
        fake_process_add(&bed->fake, swapper_procs[rank]);
        answer(bed, name, &ping,
               (struct sl_msg){.body.pong = {.name = sl_text_of(name),
                                             .pid = swapper_procs[rank].pid,
                                             .start_time = swapper_procs[rank].start_time}});
    }
}

void bed_open(struct bed *bed, const char *const *settings)
{
    struct sl_error why = {0};
    memset(bed, 0, sizeof(*bed));
    fake_open(&bed->fake, &sl_coordinator_actor, settings);
    fake_set(&bed->fake, "ranks", "2");
    fake_set(&bed->fake, "queue_messages", "16");
    struct sl_arena_options arena = {
        .directory = bed->fake.paths.shm_dir, .data_bytes = 4 * SL_MIB, .chunk_bytes = 4 * SL_MIB};
    bool created = false;
    ck_assert_msg(sl_arena_open_owner(&arena, &created, &bed->arena, &why) == SL_OK, "%s",
                  why.text);
    struct sl_index_options index = {
        .shm_dir = bed->fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = bed->arena};
    ck_assert_msg(sl_index_open(&index, &created, &bed->index, &why) == SL_OK, "%s", why.text);
    fake_process_add(&bed->fake, engine_proc);
    bed->next_generation = 1000;
    bed->world = RANKS;
    ck_assert_msg(fake_start(&bed->fake, &why) == SL_OK, "%s", why.text);
}

struct bed *bed_make(const char *const *settings)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    ck_assert_ptr_nonnull(bed);
    bed_open(bed, settings);
    bed_greet(bed);
    return bed;
}

const char *const pool_load_settings[] = {
    "fabric", "tcp", "fabric_pools", "true", "cache_remote_loads", "false", NULL};
const struct sl_proc_id transporter_proc = {.pid = 701, .start_time = 1};

void transporter_greeted(struct bed *bed)
{
    struct sl_msg fence = take(bed, "transporter.0", SL_MSG_FENCE);
    ck_assert_uint_eq(fence.op_id, 0);
    answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
    struct sl_msg ping = take(bed, "transporter.0", SL_MSG_PING);
    fake_process_add(&bed->fake, transporter_proc);
    answer(bed, "transporter.0", &ping,
           (struct sl_msg){.body.pong = {.name = sl_text_of("transporter.0"),
                                         .pid = transporter_proc.pid,
                                         .start_time = transporter_proc.start_time}});
}

struct bed *direct_bed(const char *const *more)
{
    const char *settings[16] = {"fabric", "tcp", "fabric_pools", "true", "node_name", "d"};
    for (uint32_t i = 0; more != NULL && more[i] != NULL; i++) {
        settings[6 + i] = more[i];
    }
    struct bed *bed = bed_make(settings);
    transporter_greeted(bed);
    return bed;
}

struct bed *bed_straight(void)
{
    struct bed *bed = bed_make(pool_load_settings);
    transporter_greeted(bed);
    sl_index_set_remote(bed->index, true);
    return bed;
}

void bed_end(struct bed *bed)
{
    sl_index_close(&bed->index);
    sl_arena_close(&bed->arena);
    fake_close(&bed->fake);
    free(bed);
}

void answer_engine(struct bed *bed)
{
    struct sl_msg get = take(bed, "registrar", SL_MSG_ENGINE_GET);
    struct sl_item_pool pool = {.name = sl_text_of("attn")};
    struct sl_item_region regions[2 * RANKS];
    for (uint32_t i = 0; i < 2 * RANKS; i++) {
        regions[i] = (struct sl_item_region){.rank = i / 2,
                                             .layer = i % 2,
                                             .handle_kind = 1,
                                             .pid = engine_proc.pid,
                                             .fd = 3,
                                             .length_bytes = 300 * PART_BYTES,
                                             .block_stride_bytes = PART_BYTES,
                                             .piece_bytes = PART_BYTES / 2,
                                             .block_count = 300};
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_get_reply = (struct sl_body_engine_get_reply){
        .engine_id = get.body.engine_get.engine_id,
        .pid = engine_proc.pid,
        .start_time = engine_proc.start_time,
        .name = sl_text_of("e"),
        .model = sl_text_of(MODEL),
        .key_format = sl_text_of("sluice"),
        .block_tokens = 4,
        .world = bed->world,
        .pools = {&pool, 1},
        .regions = {regions, 2 * bed->world},
    };
    answer(bed, "registrar", &get, reply);
}

/* Block i has key "bI". */
void answer_keys(struct bed *bed)
{
    struct sl_msg keys = take(bed, "keyer", SL_MSG_KEYS);
    static char texts[BLOCKS_MAX][8];
    struct sl_text list[BLOCKS_MAX];
    uint64_t count = keys.body.keys.tokens.length / 16;
    ck_assert_uint_le(count, BLOCKS_MAX);
    for (uint64_t i = 0; i < count; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "b%u", (uint32_t)i % BLOCKS_MAX);
        list[i] = sl_text_of(texts[i]);
    }
    answer(bed, "keyer", &keys, (struct sl_msg){.body.keys_reply.keys = {list, count}});
}

/* Sends STORE or LOAD of blocks 0..count; device block i is 10 + i. Returns its sequence. */
uint64_t op_send_as(struct bed *bed, const char *client, uint32_t type, uint64_t op_id,
                    uint32_t count)
{
    static uint32_t tokens[BLOCKS_MAX * 4];
    static uint64_t device[BLOCKS_MAX];
    for (uint64_t i = 0; i < BLOCKS_MAX; i++) {
        device[i] = 10 + i;
    }
    struct sl_msg msg = {.type = type, .op_id = op_id, .trace_id = op_id};
    struct sl_body_store body = {.engine_id = ENGINE_ID,
                                 .tokens = {tokens, count * 16ull},
                                 .device_blocks = {device, count}};
    if (type == SL_MSG_STORE) {
        msg.body.store = body;
    } else {
        msg.body.load = (struct sl_body_load){
            .engine_id = ENGINE_ID, .tokens = body.tokens, .device_blocks = body.device_blocks};
    }
    fake_give(&bed->fake, client, &msg);
    return msg.seq;
}

uint64_t op_send(struct bed *bed, uint32_t type, uint64_t op_id, uint32_t count)
{
    return op_send_as(bed, "client.1.0", type, op_id, count);
}

/* A test's first op also asks for the engine. */
uint64_t op_begin(struct bed *bed, uint32_t type, uint64_t op_id, uint32_t count)
{
    uint64_t seq = op_send(bed, type, op_id, count);
    answer_engine(bed);
    answer_keys(bed);
    return seq;
}

/* Grants every part but those of `block`, which get code. */
void answer_reserve(struct bed *bed, uint32_t block, sl_err code)
{
    struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
    struct sl_item_grant grants[BLOCKS_MAX * RANKS];
    uint64_t count = reserve.body.reserve.items.count;
    ck_assert_uint_le(count, SL_COUNT(grants));
    for (uint64_t i = 0; i < count; i++) {
        grants[i] = (struct sl_item_grant){
            .ref = 1 + i, .generation = bed->next_generation++, .offset_bytes = i * PART_BYTES};
        if (i / bed->world == block) {
            grants[i] = (struct sl_item_grant){
                .code = code, .busy_ns = code == SL_ERR_BUSY ? 50 * SL_NS_PER_MS : 0};
        }
    }
    answer(bed, "registrar", &reserve,
           (struct sl_msg){.body.reserve_reply.items = {grants, count}});
}

/* The swapper has copied everything except item `missing`. Returns the number of items. */
uint64_t answer_copy(struct bed *bed, uint32_t rank, uint64_t missing)
{
    char name[16];
    uint8_t done[BLOCKS_MAX / 8] = {0};
    struct sl_digest digests[BLOCKS_MAX] = {0};
    swapper_name(rank, name);
    struct sl_msg copy = take(bed, name, SL_MSG_COPY);
    ck_assert_uint_eq(copy.body.copy.rank, rank);
    uint64_t count = copy.body.copy.items.count;
    for (uint64_t i = 0; i < count; i++) {
        done[i / 8] = (uint8_t)(done[i / 8] | (i == missing ? 0u : 1u << (i % 8)));
        digests[i] = (struct sl_digest){.low = rank + 1, .high = i};
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.copy_reply.done = (struct sl_bytes){done, (count + 7) / 8};
    if (copy.body.copy.out) {
        reply.body.copy_reply.digests = (struct sl_bytes){digests, count * 16};
    }
    answer(bed, name, &copy, reply);
    return count;
}

void answer_commit(struct bed *bed)
{
    struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT);
    uint64_t codes[BLOCKS_MAX * RANKS] = {0};
    answer(bed, "registrar", &commit,
           (struct sl_msg){.body.commit_reply.codes = {codes, commit.body.commit.items.count}});
}

struct sl_msg reply_to(struct bed *bed, uint64_t seq)
{
    struct sl_msg reply = {0};
    ck_assert_msg(fake_take_reply(&bed->fake, "client.1.0", seq, &reply),
                  "the op was not answered");
    return reply;
}

void answer_fence(struct bed *bed, uint32_t rank, uint64_t op_id)
{
    char name[16];
    swapper_name(rank, name);
    struct sl_msg fence = take(bed, name, SL_MSG_FENCE);
    ck_assert_uint_eq(fence.op_id, op_id);
    answer(bed, name, &fence, (struct sl_msg){.code = SL_OK});
}

/* Puts block i's parts into the index: in memory, or only on disk. */
void index_put(struct bed *bed, uint32_t block, bool in_memory, uint64_t length_bytes)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        char key[80];
        struct sl_error why = {0};
        sl_ref ref = 0;
        (void)snprintf(key, sizeof(key), MODEL "/b%u/%u/attn", block, rank);
        struct sl_entry entry = {
            .kind = SL_RECORD_COMMITTED, .key = key, .key_length = (uint16_t)strlen(key)};
        entry.extent.length_bytes = length_bytes;
        if (in_memory) {
            entry.extent.generation = sl_arena_next_generation(bed->arena);
            entry.extent.offset_bytes = (block * RANKS + rank) * PART_BYTES;
        } else {
            entry.disk = (struct sl_disk_place){.offset_bytes = 4096, .valid = 1};
        }
        ck_assert_msg(sl_index_insert(bed->index, &entry, &ref, &why) == SL_OK, "%s", why.text);
    }
}

void index_remove(struct bed *bed, uint32_t block)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        char key[80];
        struct sl_entry entry;
        (void)snprintf(key, sizeof(key), MODEL "/b%u/%u/attn", block, rank);
        ck_assert_int_eq(sl_index_find_any(bed->index, key, (uint32_t)strlen(key), &entry), SL_OK);
        sl_index_unlink(bed->index, entry.ref, SL_RECORD_FREE);
    }
}

static void count_pin(void *context, uint64_t generation)
{
    (void)generation;
    ++*(uint32_t *)context;
}

uint32_t pins(struct bed *bed)
{
    struct sl_pins_view *view = NULL;
    struct sl_error why = {0};
    uint32_t count = 0;
    ck_assert_msg(sl_pins_view_open(bed->fake.paths.shm_dir, "pins.coordinator", &view, &why) ==
                      SL_OK,
                  "%s", why.text);
    sl_pins_view_scan(view, count_pin, &count);
    sl_pins_view_close(&view);
    return count;
}
