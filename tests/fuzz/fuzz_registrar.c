/* tests/fuzz/fuzz_registrar.c - the registrar with hostile clients, engines and a hostile tierer:
 * every claim is in one record, the allocator agrees with the records, and when all processes have
 * died only committed values are left. */
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/engines/engines.h"
#include "actors/registrar/engines/pools.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/registrar.h"
#include "ipc/shm/index_internal.h"
#include "tests/fuzz/hostile.h"
#include "tests/fuzz/registrar_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define PIN_SLOTS 32u
#define ITEMS_MAX 512u

static const uint32_t requests[] = {
    SL_MSG_RESERVE,     SL_MSG_RESERVE,      SL_MSG_RESERVE,      SL_MSG_COMMIT,
    SL_MSG_COMMIT,      SL_MSG_ABORT,        SL_MSG_REMOVE,       SL_MSG_BRING,
    SL_MSG_BRING,       SL_MSG_EXPLAIN,      SL_MSG_FLUSH,        SL_MSG_HELLO,
    SL_MSG_DISK_FOUND,  SL_MSG_DISK_FOUND,   SL_MSG_DISK_RECLAIM, SL_MSG_ENGINE_REGISTER,
    SL_MSG_ENGINE_GET,  SL_MSG_ENGINE_END,   SL_MSG_PING,         SL_MSG_BRING,
    SL_MSG_DAMAGED,     SL_MSG_POOL_TAKE,    SL_MSG_POOL_AWAIT,   SL_MSG_POOL_READY,
    SL_MSG_POOL_MAPPED, SL_MSG_POOL_RELEASE, SL_MSG_POOL_REVOKE,  SL_MSG_POOLS,
    SL_MSG_ENGINES,
};

/* For nodes with contributed memory: the same, and the requests for contributions. */
static const uint32_t requests_contributed[] = {
    SL_MSG_RESERVE,    SL_MSG_RESERVE, SL_MSG_RESERVE,       SL_MSG_COMMIT,       SL_MSG_COMMIT,
    SL_MSG_ABORT,      SL_MSG_REMOVE,  SL_MSG_HOLD,          SL_MSG_BRING,        SL_MSG_BRING,
    SL_MSG_COMMIT,     SL_MSG_COMMIT,  SL_MSG_CONTRIBUTE,    SL_MSG_CONTRIBUTE,   SL_MSG_WITHDRAW,
    SL_MSG_DISK_FOUND, SL_MSG_HOLD,    SL_MSG_CONTRIBUTIONS, SL_MSG_DISK_RECLAIM, SL_MSG_EXPLAIN,
};

struct world {
    struct sl_pins *pins[2];                /* of the two clients, used as a client does */
    struct sl_shm_file segments[2];         /* the same, for damage */
    struct sl_item_claim grants[ITEMS_MAX]; /* of the last RESERVE_REPLY */
    uint64_t grant_count;
    uint32_t grant_owner;
    uint64_t next_offset; /* on the disk */
    uint64_t pool_epoch;  /* of the last reported pool */
};

static void prepare(struct hostile *hostile)
{
    struct world *world = calloc(1, sizeof(*world));
    HOSTILE_MUST(world != NULL);
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_pins_options options = {.shm_dir = hostile->fake.paths.shm_dir,
                                          .name = hostile_senders[i],
                                          .self = hostile_proc(i),
                                          .slot_count = PIN_SLOTS,
                                          .access_count = 16,
                                          .pinned_bytes_max = SL_MIB};
        char file[48];
        (void)snprintf(file, sizeof(file), "pins.%s", hostile_senders[i]);
        HOSTILE_MUST(sl_pins_create(&options, &world->pins[i], NULL) == SL_OK);
        struct sl_shm_file_want want = {
            .directory = hostile->fake.paths.shm_dir, .name = file, .kind = SL_SHM_FILE_PINS};
        HOSTILE_MUST(sl_shm_file_open(&want, true, &world->segments[i], NULL) == SL_OK);
    }
    hostile->own = world;
}

static void finish(struct hostile *hostile)
{
    struct world *world = hostile->own;
    for (uint32_t i = 0; i < 2; i++) {
        sl_shm_file_close(&world->segments[i]);
        sl_pins_destroy(&world->pins[i]);
    }
    free(world);
}

static const char *name_of(uint64_t number)
{
    static const char *const names[] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"};
    return names[number % SL_COUNT(names)];
}

/* A client's own pin file: sampled accesses, pins, arbitrary words. */
static void pins_change(struct hostile *hostile)
{
    struct world *world = hostile->own;
    const struct registrar *self = hostile->fake.state;
    struct hostile_input *input = &hostile->input;
    uint64_t how = hostile_byte(input);
    uint32_t client = how & 1;
    /* A live record in most cases. */
    sl_ref ref = (sl_ref)hostile_number(input, 0, UINT32_MAX);
    struct sl_entry entry = {.extent.generation = hostile_number(input, 0, UINT64_MAX)};
    if (sl_index_ref_live(self->index, ref)) {
        sl_index_read(self->index, ref, &entry);
    }
    if (how < 128) {
        sl_pins_note_access(world->pins[client], ref, entry.extent.generation);
    } else if (how < 192) {
        uint64_t *slots = (uint64_t *)(void *)world->segments[client].data;
        slots[how / 2 % PIN_SLOTS] = entry.extent.generation;
        uint64_t *own = sl_shm_file_own(&world->segments[client]);
        own[hostile_byte(input) % 8] = PIN_SLOTS;
    } else {
        uint64_t at = hostile_byte(input);
        uint64_t *words = how < 224 ? sl_shm_file_own(&world->segments[client])
                                    : (uint64_t *)(void *)world->segments[client].data;
        words[at % (how < 224 ? 8u : PIN_SLOTS + 16u)] = hostile_number(input, 0, UINT64_MAX);
    }
}

/* The lease words, which all clients write: lookups, and arbitrary words. */
static void leases_change(struct hostile *hostile, uint64_t how)
{
    struct registrar *self = hostile->fake.state;
    struct hostile_input *input = &hostile->input;
    if (self->index->leases.slots == NULL) {
        return;
    }
    uint64_t now_ns = hostile->fake.env.now_ns;
    uint64_t at = hostile_number(input, 0, UINT32_MAX);
    if (how < 128) {
        const struct sl_leases leases = {.map = self->index->leases,
                                         .view = sl_index_as_view(self->index)};
        struct sl_key key = {.at = name_of(at), .length = (uint32_t)strlen(name_of(at))};
        struct sl_entry entry;
        uint64_t end_ns = 0;
        (void)sl_leases_find(&leases, &key, now_ns, &entry, &end_ns);
        return;
    }
    uint64_t slot_words = self->index->leases.bucket_count * LEASE_BUCKET_WORDS;
    index_word *word = how < 200 ? &self->index->leases.slots[at % slot_words]
                                 : &self->index->leases.bundles[at % SL_LEASE_BUNDLES];
    uint64_t end = lease_units(now_ns + hostile_number(input, 0, 4 * SL_NS_PER_S));
    *word = (how & 1) != 0   ? LEASE_CLOSED
            : (how & 2) != 0 ? end
                             : hostile_number(input, 0, UINT64_MAX);
}

/* ---- valid moves, as a proper node makes them, so that the bad ones meet a node in use ---- */

/* A tierer that does as requested: a place of its own for each value. */
static void answered(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply)
{
    static struct sl_item_spilled spilled[REG_WRITE_ITEMS_MAX];
    static uint64_t codes[ITEMS_MAX];
    struct world *world = hostile->own;
    uint64_t how = hostile_byte(&hostile->input);
    uint64_t count = SL_MIN(request->body.disk_write.items.count, SL_COUNT(spilled));
    if (request->type == SL_MSG_DISK_WRITE) {
        for (uint64_t i = 0; i < count; i++) {
            spilled[i] = (struct sl_item_spilled){
                .generation = request->body.disk_write.items.at[i].generation,
                .segment = how % 4 + 1,
                .disk_offset_bytes = world->next_offset};
            world->next_offset += 4096;
        }
        reply->body.disk_write_reply.items.at = spilled;
        reply->body.disk_write_reply.items.count = count;
    } else if (request->type == SL_MSG_DISK_READ && how < 200) {
        count = SL_MIN(request->body.disk_read.items.count, SL_COUNT(codes));
        reply->body.disk_read_reply.codes = (struct sl_u64s){codes, count};
    } else if (request->type == SL_MSG_DISK_FORGET && how < 200) {
        count = SL_MIN(request->body.disk_forget.items.count, SL_COUNT(codes));
        reply->body.disk_forget_reply.codes = (struct sl_u64s){codes, count};
    } else if (request->type == SL_MSG_POOL_MAKE) {
        reply->body.pool_make_reply.handle_kind = 1;
        reply->body.pool_make_reply.pid = hostile_proc(how < 200 ? 3 : 4).pid;
        reply->body.pool_make_reply.fd = how;
    }
}

static void replied(struct hostile *hostile, const char *to, const struct sl_msg *reply)
{
    struct world *world = hostile->own;
    bool pool = reply->type == SL_MSG_POOL_TAKE_REPLY || reply->type == SL_MSG_POOL_AWAIT_REPLY;
    if (pool && reply->code == SL_OK && reply->body.pool_await_reply.epoch != 0) {
        world->pool_epoch = reply->body.pool_await_reply.epoch;
    }
    if (reply->type != SL_MSG_RESERVE_REPLY || reply->code != SL_OK) {
        return;
    }
    world->grant_count = 0;
    world->grant_owner = hostile_sender_of(to);
    for (uint64_t i = 0; i < reply->body.reserve_reply.items.count; i++) {
        const struct sl_item_grant *grant = &reply->body.reserve_reply.items.at[i];
        if (grant->code == SL_OK && world->grant_count < ITEMS_MAX) {
            world->grants[world->grant_count++] =
                (struct sl_item_claim){.ref = grant->ref, .generation = grant->generation};
        }
    }
}

static const char *contribution_of(uint64_t number)
{
    static const char *const names[] = {"c0", "c1", "c2", "c3"};
    return names[number % SL_COUNT(names)];
}

/* Memory is contributed and withdrawn. */
static void move_contribute(struct hostile *hostile, uint64_t how)
{
    struct sl_msg msg = {.type = (how & 3) == 3 ? SL_MSG_WITHDRAW : SL_MSG_CONTRIBUTE};
    if (msg.type == SL_MSG_WITHDRAW) {
        msg.body.withdraw.name = sl_text_of(contribution_of(how >> 2));
    } else {
        msg.body.contribute.name = sl_text_of(contribution_of(how >> 2));
        msg.body.contribute.length_bytes = (1 + (how >> 4)) * 65536;
        msg.body.contribute.lasting = (how & 7) == 6;
    }
    hostile_give(hostile, hostile_senders[how & 1], &msg);
}

/* Puts one object, or a block of two parts; with `commit` to the end. */
static void move_put(struct hostile *hostile, uint64_t how, bool commit)
{
    static const uint64_t lengths[] = {1, 64, 4096, 5000, 65536, 200000, 400000, 1048576};
    static const char *const blocks[] = {"m/b0", "m/b1", "m/b2"};
    static const char *const parts[][2] = {
        {"m/b0/0/kv", "m/b0/1/kv"}, {"m/b1/0/kv", "m/b1/1/kv"}, {"m/b2/0/kv", "m/b2/1/kv"}};
    static char long_keys[2][1025];
    struct world *world = hostile->own;
    struct sl_msg msg = {.type = SL_MSG_RESERVE, .op_id = how >> 5 & 3};
    struct sl_item_want items[2];
    uint64_t which = hostile_byte(&hostile->input);
    uint64_t length = lengths[which % SL_COUNT(lengths)];
    uint64_t terms = hostile_byte(&hostile->input);
    static const char *const bundles[] = {"", "", "b0", "b1"};
    bool block = (how & 1) != 0;
    const char *writer = (how & 2) != 0 ? "swapper.0" : "";
    struct sl_item_group group = {.key = sl_text_of(blocks[which / 8 % 3]),
                                  .part_count = 2,
                                  .transient_ns = (how & 4) != 0 ? 500 * SL_NS_PER_MS : 0};
    for (uint32_t i = 0; i < 2; i++) {
        const char *key = block ? parts[which / 8 % 3][i] : name_of(which / 8 + i);
        if (!block && (how & 0x60) == 0x60) { /* many keys of many lengths fill the index */
            uint64_t number = hostile_byte(&hostile->input);
            (void)snprintf(long_keys[i], sizeof(long_keys[i]), "%0*u", (int)(number * 4 + 3),
                           (unsigned)(number * 2 + i));
            key = long_keys[i];
        }
        items[i] = (struct sl_item_want){.key = sl_text_of(key),
                                         .length_bytes = length,
                                         .group = block,
                                         .part_index = block ? i : 0,
                                         .writer = sl_text_of(writer),
                                         .bundle = sl_text_of(block ? "" : bundles[terms % 4])};
    }
    msg.body.reserve.hard_pin = terms >= 232; /* a node full of pinned values accepts no more */
    msg.body.reserve.soft_pin_ns = (terms & 12) == 12 ? terms * 20 * SL_NS_PER_MS : 0;
    msg.body.reserve.replace = (terms & 48) == 48;
    struct sl_text wish = sl_text_of(contribution_of(terms >> 2));
    msg.body.reserve.contributions = (struct sl_texts){&wish, terms >> 7};
    const struct registrar *self = hostile->fake.state;
    if (self->contributions->on && self->space.contributed_bytes == 0) {
        move_contribute(hostile, 0xa0 | (how & 0x1d));
    }
    msg.body.reserve.wait = (how & 8) != 0;
    msg.body.reserve.items.at = items;
    msg.body.reserve.items.count = block || (how & 16) != 0 ? 2 : 1;
    msg.body.reserve.groups.at = &group;
    msg.body.reserve.groups.count = block;
    world->grant_count = 0;
    hostile_give(hostile, hostile_senders[(how & 16) != 0 ? 2 : which >> 7], &msg);
    hostile_collect(hostile);
    if (!commit || world->grant_count == 0) {
        return;
    }
    struct sl_msg done = {.type = SL_MSG_COMMIT, .op_id = msg.op_id};
    done.body.commit.tail_first = (how & 4) != 0;
    done.body.commit.items.at = world->grants;
    done.body.commit.items.count = world->grant_count;
    hostile_give(hostile, hostile_senders[world->grant_owner % HOSTILE_SENDERS], &done);
}

/* The tierer starts and reports its values. */
static void move_scan(struct hostile *hostile, uint64_t how)
{
    struct sl_msg msg = {.type = SL_MSG_DISK_FOUND};
    struct sl_item_found found[3];
    struct world *world = hostile->own;
    for (uint32_t i = 0; i < SL_COUNT(found); i++) {
        found[i] = (struct sl_item_found){.key = sl_text_of(name_of(how + i)),
                                          .length_bytes = 4096,
                                          .digest_low = how & 1,
                                          .segment = how % 4 + 1,
                                          .disk_offset_bytes = world->next_offset};
        world->next_offset += 4096;
    }
    msg.body.disk_found.first = (how & 4) == 0;
    msg.body.disk_found.last = (how & 8) == 0;
    msg.body.disk_found.items.at = found;
    msg.body.disk_found.items.count = how % (SL_COUNT(found) + 1);
    hostile_give(hostile, "tierer.0", &msg);
}

static void move_keys(struct hostile *hostile, uint64_t how)
{
    static const uint32_t types[] = {SL_MSG_BRING, SL_MSG_EXPLAIN, SL_MSG_REMOVE, SL_MSG_BRING};
    static const char *const more[] = {"m/b0",      "m/b0/0/kv", "m/b0/1/kv", "m/b1",
                                       "m/b1/0/kv", "m/b2/1/kv", "m/b2",      "m/b9"};
    struct sl_msg msg = {.type = types[how & 3]};
    uint64_t which = hostile_byte(&hostile->input);
    struct sl_text keys[3];
    for (uint32_t i = 0; i < SL_COUNT(keys); i++) {
        keys[i] = sl_text_of((which & 1) != 0 ? name_of(which / 2 + i) : more[(which / 2 + i) % 8]);
    }
    struct sl_texts list = {keys, 1 + (how >> 2) % SL_COUNT(keys)};
    if (msg.type == SL_MSG_REMOVE) {
        msg.body.remove.keys = list;
        msg.body.remove.respect_leases = (how & 16) != 0;
        msg.body.remove.report_busy = (how & 32) != 0;
    } else if (msg.type == SL_MSG_EXPLAIN) {
        msg.body.explain.keys = list;
    } else {
        msg.body.bring.keys = list;
        msg.body.bring.ahead = (how & 3) == 3;
    }
    hostile_give(hostile, hostile_senders[how >> 6], &msg);
}

static void move_engine(struct hostile *hostile, uint64_t how)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER};
    struct sl_item_pool pool = {.name = sl_text_of("kv")};
    struct sl_item_region region = {.handle_kind = 1,
                                    .pid = hostile_proc(0).pid,
                                    .fd = 5,
                                    .length_bytes = 4096,
                                    .block_stride_bytes = 64,
                                    .piece_bytes = 64,
                                    .block_count = 64};
    if (how >= 128) {
        region.pool_epoch = ((const struct world *)hostile->own)->pool_epoch;
    }
    msg.body.engine_register = (struct sl_body_engine_register){
        .pid = hostile_proc((uint32_t)how & 3).pid,
        .start_time = hostile_proc(0).start_time,
        .name = sl_text_of("engine"),
        .model = sl_text_of("0123456789abcdef0123456789abcdef"),
        .key_format = sl_text_of("sluice"),
        .block_tokens = 16,
        .world = 1,
        .pools = {&pool, 1},
        .regions = {&region, 1},
    };
    hostile_give(hostile, hostile_senders[how >> 2 & 3], &msg);
}

/* Three pools of two clients: taken, made, waited for, mapped, used by an engine, released. */
static void move_pool(struct hostile *hostile, uint64_t how)
{
    static const char *const pools[] = {"kv", "mamba", "conv"};
    struct world *world = hostile->own;
    uint64_t what = hostile_byte(&hostile->input);
    uint32_t client = how & 1;
    struct sl_text pool = sl_text_of(pools[(how >> 1) % SL_COUNT(pools)]);
    struct sl_text name = sl_text_of("deployment");
    struct sl_msg msg = {0};
    switch (what % 8) {
    case 0:
    case 1:
        msg.type = SL_MSG_POOL_TAKE;
        msg.body.pool_take = (struct sl_body_pool_take){
            .name = name, .pool = pool, .length_bytes = 4096, .sluice = (what & 1) != 0};
        break;
    case 2:
        msg.type = SL_MSG_POOL_READY;
        msg.body.pool_ready = (struct sl_body_pool_ready){.epoch = SL_MAX(world->pool_epoch, 1),
                                                          .handle_kind = 1,
                                                          .pid = hostile_proc(client).pid};
        break;
    case 3:
    case 4:
        msg.type = SL_MSG_POOL_AWAIT;
        msg.body.pool_await = (struct sl_body_pool_await){
            .name = name, .pool = pool, .epoch = what % 8 == 3 ? 0 : world->pool_epoch};
        break;
    case 5:
        msg.type = SL_MSG_POOL_MAPPED;
        msg.body.pool_mapped = (struct sl_body_pool_mapped){
            .epoch = SL_MAX(world->pool_epoch, 1), .has_fd = what < 200, .fd = what};
        break;
    case 6:
        msg.type = SL_MSG_POOL_RELEASE;
        msg.body.pool_release = (struct sl_body_pool_release){
            .name = name, .pool = pool, .epoch = what < 128 ? world->pool_epoch : 0};
        break;
    default:
        msg.type = SL_MSG_POOL_REVOKE;
        msg.body.pool_revoke.epoch = SL_MAX(world->pool_epoch, 1);
        break;
    }
    hostile_give(hostile, hostile_senders[client], &msg);
}

static void move(struct hostile *hostile)
{
    uint64_t what = hostile_byte(&hostile->input);
    uint64_t how = hostile_byte(&hostile->input);
    switch (what % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        move_put(hostile, how, true);
        break;
    case 5:
    case 6:
        move_put(hostile, how, false);
        break;
    case 7:
        move_scan(hostile, what < 128 ? 0 : how); /* mostly an empty disk: ready for work */
        break;
    case 8:
    case 9:
    case 10:
        move_keys(hostile, how);
        break;
    case 11:
        move_engine(hostile, how);
        break;
    case 12:
    case 13:
        (void)hostile_answer_all(hostile);
        break;
    case 14:
        if (((const struct registrar *)hostile->fake.state)->contributions->on && what < 224) {
            move_contribute(hostile, how);
        } else {
            move_pool(hostile, how);
        }
        break;
    default:
        if (what < 128) {
            pins_change(hostile);
        } else {
            leases_change(hostile, how);
        }
        break;
    }
}

/* ---- invariants ---- */

static void check(struct hostile *hostile, bool end)
{
    struct registrar *self = hostile->fake.state;
    if (self == NULL) {
        return;
    }
    struct registrar_tally tally = registrar_check(self);
    if (!end) {
        return;
    }
    HOSTILE_MUST(self->claims->count == 0 && self->retired->count == 0);
    HOSTILE_MUST(self->claims->quarantined_bytes == 0 && self->engines->count == 0);
    HOSTILE_MUST(self->space.waiting_count == 0 && self->answers->end == 0);
    HOSTILE_MUST(self->pools->high == 0 && self->pools->waiter_count == 0);
    HOSTILE_MUST(self->contributions->ending == 0 && !self->contributions->lowering);
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        HOSTILE_MUST(!self->peers->all[i].used || !self->peers->all[i].present);
        HOSTILE_MUST(!self->peers->all[i].used || !self->peers->all[i].client);
    }
    if (hostile->steps % 4 != 0) {
        return; /* a start costs as much as everything before it */
    }
    /* A successor finds the same state. */
    fake_stop(&hostile->fake);
    HOSTILE_MUST(fake_start(&hostile->fake, NULL) == SL_OK);
    struct registrar_tally again = registrar_check(hostile->fake.state);
    HOSTILE_MUST(again.objects == tally.objects && again.claims == 0);
}

#define SETTINGS                                                                            \
    "memory", "1MiB", "memory_chunk", "1MiB", "index_memory", "512KiB", "index_keys", "40", \
        "reservations_max", "48", "clients_max", "8", "engines_max", "3", "pools_max", "4", \
        "ghosts_max", "64", "queue_messages", "16", "ranks", "2", "populate_threads", "1",  \
        "evict_batch", "4"
static const char *const without_disk[] = {SETTINGS, NULL};
static const char *const with_leases[] = {SETTINGS, "lease_ttl", "1s", NULL};
static const char *const with_disk[] = {SETTINGS, "disk", "8MiB", "disk_segment", "1MiB", NULL};
static const char *const with_both[] = {SETTINGS, "disk",      "8MiB", "disk_segment",
                                        "1MiB",   "lease_ttl", "1s",   NULL};

#define CONTRIBUTED "contributions", "true", "evict_watermark", "0.9", "evict_ratio", "0.3"
static const char *const contributed[] = {SETTINGS, CONTRIBUTED, NULL};
static const char *const contributed_with_disk[] = {
    SETTINGS, CONTRIBUTED, "disk", "8MiB", "disk_segment", "1MiB", "lease_ttl", "1s", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    struct hostile_target target = {
        .actor = &sl_registrar_actor,
        .requests = requests,
        .request_count = SL_COUNT(requests),
        .restarts = true,
        .prepare = prepare,
        .world = move,
        .answered = answered,
        .replied = replied,
        .check = check,
        .finish = finish,
    };
    if (length_bytes == 0) {
        return 0;
    }
    static const char *const *const settings[] = {without_disk, with_disk, with_leases, with_both};
    target.settings = settings[bytes[0] & 3];
    if (bytes[0] >= 192) { /* older seeds are below */
        target.settings = (bytes[0] & 1) != 0 ? contributed_with_disk : contributed;
        target.requests = requests_contributed;
        target.request_count = SL_COUNT(requests_contributed);
    }
    hostile_run(&target, bytes + 1, length_bytes - 1);
    return 0;
}
