/* tests/fuzz/fuzz_recover.c - a registrar starts on damaged shm files: index, arena header, pin
 * files. It refuses, or repairs them until its own checks hold, and serves.
 *
 * A registrar makes the node once: objects in memory and on disk, blocks complete and half written,
 * reservations, quarantine, engines, processes. An input is a list of changes: words of the
 * headers, of buckets and of live records, and records copied over each other. */
#include "actors/registrar/registrar.h"
#include "ipc/shm/index_internal.h"
#include "tests/fuzz/hostile.h"
#include "tests/fuzz/registrar_check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define LIVE_MAX    512u
#define CHANGES_MAX 64u
#define ARENA_BYTES SL_PAGE_BYTES /* of the arena: only its header page */

static const char *const settings[] = {"memory",
                                       "1MiB",
                                       "memory_chunk",
                                       "1MiB",
                                       "index_memory",
                                       "512KiB",
                                       "index_keys",
                                       "40",
                                       "reservations_max",
                                       "48",
                                       "clients_max",
                                       "8",
                                       "engines_max",
                                       "3",
                                       "ghosts_max",
                                       "64",
                                       "queue_messages",
                                       "16",
                                       "ranks",
                                       "2",
                                       "populate_threads",
                                       "1",
                                       "evict_batch",
                                       "4",
                                       "disk",
                                       "8MiB",
                                       "disk_segment",
                                       "1MiB",
                                       NULL};
static const char *const files[] = {"index", "arena.0", "pins.client.10.0"};
enum { FILE_INDEX, FILE_ARENA, FILE_PINS };

static struct {
    unsigned char *bytes;
    uint64_t length, file_length; /* of the kept part, and of the file */
} base[SL_COUNT(files)], changed[SL_COUNT(files)];
static uint64_t live[LIVE_MAX]; /* offset of each live record in the index file */
static uint32_t live_words[LIVE_MAX];
static uint32_t live_count;
static uint64_t buckets_at, bucket_words, records_at, record_words;

/* ---- the node before the damage ---- */

static void give(struct fake_env *fake, const char *sender, struct sl_msg *msg,
                 struct sl_msg *reply)
{
    fake_give(fake, sender, msg);
    HOSTILE_MUST(fake_take_reply(fake, sender, msg->seq, reply));
    HOSTILE_MUST(reply->code == SL_OK);
}

static void node_hello(struct fake_env *fake, uint32_t sender, const char *role)
{
    struct sl_msg msg = {.type = SL_MSG_HELLO};
    struct sl_msg reply;
    msg.body.hello = (struct sl_body_hello){
        .role = sl_text_of(role),
        .name = sl_text_of(hostile_senders[sender]),
        .pid = hostile_proc(sender).pid,
        .start_time = hostile_proc(sender).start_time,
        .segment = sl_text_of(sender == 0 ? files[FILE_PINS] : ""),
    };
    fake_process_add(fake, hostile_proc(sender));
    give(fake, hostile_senders[sender], &msg, &reply);
}

/* Reserves two objects, or the two parts of a block, and commits the first `commit` of them. */
static void node_put(struct fake_env *fake, const char *const *keys, const char *group,
                     uint64_t length, uint32_t commit)
{
    struct sl_item_want items[2];
    struct sl_item_claim claims[2];
    struct sl_item_group one = {.part_count = 2};
    struct sl_msg msg = {.type = SL_MSG_RESERVE};
    struct sl_msg reply;
    for (uint32_t i = 0; i < 2; i++) {
        items[i] = (struct sl_item_want){.key = sl_text_of(keys[i]),
                                         .length_bytes = length,
                                         .group = group != NULL,
                                         .part_index = group != NULL ? i : 0,
                                         .writer = sl_text_of(group != NULL ? "swapper.0" : "")};
    }
    one.key = sl_text_of(group != NULL ? group : "");
    msg.body.reserve.ttl_ns = 3600 * SL_NS_PER_S;
    msg.body.reserve.items.at = items;
    msg.body.reserve.items.count = 2;
    msg.body.reserve.groups.at = &one;
    msg.body.reserve.groups.count = group != NULL;
    give(fake, hostile_senders[group != NULL ? 2 : 0], &msg, &reply);
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_item_grant *grant = &reply.body.reserve_reply.items.at[i];
        HOSTILE_MUST(grant->code == SL_OK);
        claims[i] = (struct sl_item_claim){.ref = grant->ref, .generation = grant->generation};
    }
    if (commit > 0) {
        struct sl_msg done = {.type = SL_MSG_COMMIT};
        done.body.commit.items.at = claims;
        done.body.commit.items.count = commit;
        give(fake, hostile_senders[group != NULL ? 2 : 0], &done, &reply);
    }
}

static void node_disk(struct fake_env *fake)
{
    struct sl_item_found found[2] = {
        {.key = sl_text_of("d0"), .length_bytes = 4096, .segment = 1, .disk_offset_bytes = 4096},
        {.key = sl_text_of("d1"), .length_bytes = 100, .segment = 2, .disk_offset_bytes = 8192}};
    struct sl_msg msg = {.type = SL_MSG_DISK_FOUND};
    struct sl_msg reply;
    msg.body.disk_found.first = true;
    msg.body.disk_found.last = true;
    msg.body.disk_found.items.at = found;
    msg.body.disk_found.items.count = 2;
    give(fake, "tierer.0", &msg, &reply);
    struct sl_text key = sl_text_of("d1");
    struct sl_msg promote = {.type = SL_MSG_BRING};
    promote.body.bring.keys = (struct sl_texts){&key, 1};
    fake_give(fake, hostile_senders[0], &promote); /* remains a PROMOTING claim */
}

static void node_engine(struct fake_env *fake)
{
    struct sl_item_pool pool = {.name = sl_text_of("kv")};
    struct sl_item_region region = {.handle_kind = 1,
                                    .pid = hostile_proc(0).pid,
                                    .fd = 5,
                                    .length_bytes = 4096,
                                    .block_stride_bytes = 64,
                                    .piece_bytes = 64,
                                    .block_count = 64};
    struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER};
    struct sl_msg reply;
    msg.body.engine_register = (struct sl_body_engine_register){
        .pid = hostile_proc(0).pid,
        .start_time = hostile_proc(0).start_time,
        .name = sl_text_of("engine"),
        .model = sl_text_of("0123456789abcdef0123456789abcdef"),
        .key_format = sl_text_of("sluice"),
        .block_tokens = 16,
        .world = 1,
        .pools = {&pool, 1},
        .regions = {&region, 1},
    };
    give(fake, hostile_senders[0], &msg, &reply);
}

static void base_read(const struct fake_env *fake)
{
    for (uint32_t i = 0; i < SL_COUNT(files); i++) {
        char path[1200];
        struct stat status;
        (void)snprintf(path, sizeof(path), "%s/%s", fake->paths.shm_dir, files[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        HOSTILE_MUST(fd >= 0 && fstat(fd, &status) == 0);
        base[i].file_length = (uint64_t)status.st_size;
        base[i].length = i == FILE_ARENA ? ARENA_BYTES : (uint64_t)status.st_size;
        base[i].bytes = malloc(base[i].length);
        changed[i].bytes = malloc(base[i].length);
        HOSTILE_MUST(base[i].bytes != NULL && changed[i].bytes != NULL);
        HOSTILE_MUST(pread(fd, base[i].bytes, base[i].length, 0) == (ssize_t)base[i].length);
        (void)close(fd);
    }
}

static void base_map(const struct registrar *self)
{
    const struct sl_index *index = self->index;
    const unsigned char *start = index->view.segment.header;
    buckets_at = (uint64_t)((const unsigned char *)index->view.buckets - start);
    bucket_words = index->view.bucket_count * 8;
    records_at = (uint64_t)((const unsigned char *)index->view.records - start);
    record_words = (uint64_t)index->slab_count * INDEX_SLAB_BYTES / 8;
    for (uint32_t slab = 0; slab < index->slab_count; slab++) {
        const struct index_slab *at = &index->slabs[slab];
        for (uint32_t i = 0; at->units != 0 && i < at->capacity; i++) {
            if ((at->live[i / 64] >> (i % 64) & 1) != 0 && live_count < LIVE_MAX) {
                sl_ref ref = slab * INDEX_SLAB_UNITS + 1 + i * at->units;
                live_words[live_count] = at->units * INDEX_UNIT_WORDS;
                live[live_count++] = records_at + (uint64_t)ref * INDEX_UNIT_BYTES;
            }
        }
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static struct fake_env fake;
    static const char *const objects[][2] = {{"k0", "k1"}, {"k2", "k3"}, {"k4", "k5"}};
    static const char *const parts[][2] = {
        {"m/b0/0/kv", "m/b0/1/kv"}, {"m/b1/0/kv", "m/b1/1/kv"}, {"m/b2/0/kv", "m/b2/1/kv"}};
    struct sl_pins *pins = NULL;
    (void)argc;
    (void)argv;
    fake_open(&fake, &sl_registrar_actor, settings);
    struct sl_pins_options options = {.shm_dir = fake.paths.shm_dir,
                                      .name = hostile_senders[0],
                                      .self = hostile_proc(0),
                                      .slot_count = 32,
                                      .access_count = 16,
                                      .pinned_bytes_max = SL_MIB};
    HOSTILE_MUST(sl_pins_create(&options, &pins, NULL) == SL_OK);
    HOSTILE_MUST(fake_start(&fake, NULL) == SL_OK);
    node_hello(&fake, 0, "client");
    node_hello(&fake, 2, "coordinator");
    node_hello(&fake, 3, "swapper");
    node_hello(&fake, 5, "tierer");
    struct sl_msg fence; /* sent before it accepts a scan */
    struct sl_msg fenced = {.code = SL_OK};
    HOSTILE_MUST(fake_take(&fake, hostile_senders[5], SL_MSG_FENCE, &fence));
    fake_answer(&fake, hostile_senders[5], &fence, &fenced);
    node_put(&fake, objects[0], NULL, 100, 2);
    node_put(&fake, objects[1], NULL, 8192, 1);
    node_put(&fake, objects[2], NULL, 3000, 0);
    node_put(&fake, parts[0], "m/b0", 4096, 2);
    node_put(&fake, parts[1], "m/b1", 200, 1);
    node_put(&fake, parts[2], "m/b2", 20000, 0);
    node_disk(&fake);
    node_engine(&fake);
    (void)registrar_check(fake.state);
    base_map(fake.state);
    base_read(&fake);
    fake_stop(&fake);
    sl_pins_destroy(&pins);
    fake_close(&fake);
    return 0;
}

/* ---- the damage ---- */

static void word_change(unsigned char *at, struct hostile_input *input, uint64_t how)
{
    uint64_t old;
    uint64_t value;
    memcpy(&old, at, sizeof(old));
    value = hostile_number(input, 0, UINT64_MAX);
    switch (how % 4) {
    case 0: /* one of its four numbers */
        value = (old & ~(UINT64_C(0xffff) << (how / 4 % 4 * 16))) | (value & 0xffff)
                                                                        << (how / 4 % 4 * 16);
        break;
    case 1:
        value = old + value;
        break;
    case 2:
        value = old ^ value;
        break;
    default:
        break;
    }
    memcpy(at, &value, sizeof(value));
}

static void change(struct hostile_input *input)
{
    uint64_t what = hostile_byte(input);
    uint64_t how = hostile_byte(input);
    unsigned char *index = changed[FILE_INDEX].bytes;
    uint64_t record = hostile_byte(input) % live_count;
    uint64_t word = hostile_byte(input);
    if (what < 128) {
        word_change(index + live[record] + word % SL_MIN(live_words[record], GROUP_KEY + 2) * 8,
                    input, how);
    } else if (what < 160) { /* another record's bytes, with its version or the old one */
        uint64_t from = word % live_count;
        uint64_t words = SL_MIN(live_words[record], live_words[from]);
        uint64_t version;
        memcpy(&version, index + live[record], sizeof(version));
        memmove(index + live[record], index + live[from], words * 8);
        if ((how & 1) != 0) {
            memcpy(index + live[record], &version, sizeof(version));
        }
    } else if (what < 192) {
        word_change(index + buckets_at + (record << 8 | word) % bucket_words * 8, input, how);
    } else if (what < 208) { /* a slot points at a record of another */
        uint64_t slot = buckets_at + (record << 8 | word) % bucket_words * 8;
        uint64_t value = hostile_number(input, 0, UINT32_MAX) << 32 |
                         (live[how % live_count] - records_at) / INDEX_UNIT_BYTES;
        memcpy(index + slot, &value, sizeof(value));
    } else if (what < 216) { /* class of a slab */
        word_change(index + records_at +
                        record % (record_words * 8 / INDEX_SLAB_BYTES) * INDEX_SLAB_BYTES,
                    input, how);
    } else if (what < 232) {
        uint32_t file = (uint32_t)(how % SL_COUNT(files));
        word_change(changed[file].bytes + SL_SHM_FILE_OWN_OFFSET_BYTES + word % 10 * 8, input,
                    how / 4);
    } else if (what < 240) { /* the header that all shm files have, or pins */
        uint32_t file = (uint32_t)(how % SL_COUNT(files));
        word_change(changed[file].bytes + word % 10 * 8, input, how / 4);
    } else {
        uint64_t at = SL_PAGE_BYTES + word % 64 * 8;
        if (at + 8 <= base[FILE_PINS].length) {
            uint64_t generation; /* of a record, which is then pinned */
            memcpy(&generation, index + live[record] + RECORD_GENERATION * 8, sizeof(generation));
            memcpy(changed[FILE_PINS].bytes + at, &generation, sizeof(generation));
        }
    }
}

static void files_write(const struct fake_env *fake)
{
    for (uint32_t i = 0; i < SL_COUNT(files); i++) {
        char path[1200];
        (void)snprintf(path, sizeof(path), "%s/%s", fake->paths.shm_dir, files[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        HOSTILE_MUST(fd >= 0 && ftruncate(fd, (off_t)base[i].file_length) == 0);
        HOSTILE_MUST(pwrite(fd, changed[i].bytes, base[i].length, 0) == (ssize_t)base[i].length);
        (void)close(fd);
    }
}

/* ---- the node continues ---- */

static void keys_all(struct fake_env *fake, uint32_t type)
{
    static const char *const names[] = {"k0",   "k1",        "k2", "k4", "m/b0", "m/b0/0/kv",
                                        "m/b1", "m/b2/1/kv", "d0", "d1", "new"};
    struct sl_text keys[SL_COUNT(names)];
    struct sl_msg msg = {.type = type};
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        keys[i] = sl_text_of(names[i]);
    }
    struct sl_texts list = {keys, SL_COUNT(names)};
    if (type == SL_MSG_EXPLAIN) {
        msg.body.explain.keys = list;
    } else if (type == SL_MSG_REMOVE) {
        msg.body.remove.keys = list;
    } else {
        msg.body.bring.keys = list;
    }
    fake_give(fake, "client.11.0", &msg);
}

static void frames_drop(struct fake_env *fake)
{
    for (uint32_t i = 0; i < fake->frame_count; i++) {
        free(fake->frames[i].bytes);
    }
    fake->frame_count = 0;
    fake->killed_count = 0;
}

static void live_on(struct fake_env *fake)
{
    static const char *const fresh[] = {"new", "newer"};
    (void)registrar_check(fake->state);
    node_hello(fake, 1, "client");
    keys_all(fake, SL_MSG_EXPLAIN);
    keys_all(fake, SL_MSG_BRING);
    (void)registrar_check(fake->state);
    for (uint32_t i = 0; i < 8; i++) { /* needs space, so it evicts */
        struct sl_item_want want = {.key = sl_text_of(fresh[i & 1]),
                                    .length_bytes = UINT64_C(100000) << i};
        struct sl_msg msg = {.type = SL_MSG_RESERVE};
        msg.body.reserve.items.at = &want;
        msg.body.reserve.items.count = 1;
        fake_give(fake, "client.11.0", &msg);
    }
    fake_advance(fake, 200 * SL_NS_PER_MS);
    (void)registrar_check(fake->state);
    keys_all(fake, SL_MSG_REMOVE);
    for (uint32_t i = 0; i < HOSTILE_SENDERS; i++) {
        fake_process_end(fake, hostile_proc(i));
    }
    (void)registrar_check(fake->state);
    frames_drop(fake);
    for (uint32_t i = 0; i < 3; i++) {
        fake->env.now_ns += 40 * SL_NS_PER_S;
        fake_advance(fake, 100 * SL_NS_PER_MS);
        frames_drop(fake);
    }
    (void)registrar_check(fake->state);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static struct fake_env fake;
    struct sl_error why = {0};
    struct hostile_input input = {bytes, bytes + length_bytes};
    for (uint32_t i = 0; i < SL_COUNT(files); i++) {
        memcpy(changed[i].bytes, base[i].bytes, base[i].length);
    }
    for (uint32_t i = 0; i < CHANGES_MAX && input.at < input.end; i++) {
        change(&input);
    }
    fake_open(&fake, &sl_registrar_actor, settings);
    files_write(&fake);
    for (uint32_t i = 0; i < HOSTILE_SENDERS; i++) {
        if (i != 1 && (length_bytes + i) % 5 != 0) {
            fake_process_add(&fake, hostile_proc(i));
        }
    }
    if (fake_start(&fake, &why) == SL_OK) {
        live_on(&fake);
    } else {
        HOSTILE_MUST(why.text[0] != '\0');
    }
    fake_close(&fake);
    return 0;
}
