/* tests/fuzz/fuzz_tierer.c - the tierer with hostile peers and a hostile disk. Log files are made
 * by the real writer, then changed, and their digests recomputed if the input asks for it. A value
 * that is served has the right bytes, the byte limit holds, and a restart on any contents ends. */
#include "actors/tierer/segment_format.h"
#include "actors/tierer/tierer.h"
#include "tests/fuzz/hostile_node.h"
#include "tests/support/mem_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define DISK_BYTES SL_MIB
#define VALUES     32u
#define VALUES_AT  (512 * SL_KIB) /* where written values are in the arena */
#define VALUE_ROOM (12 * SL_KIB)
#define TARGET_AT  (960 * SL_KIB) /* target of reads */

static const uint32_t requests[] = {
    SL_MSG_DISK_WRITE,  SL_MSG_DISK_READ, SL_MSG_DISK_READ, SL_MSG_DISK_FORGET, SL_MSG_HELLO_REPLY,
    SL_MSG_HELLO_REPLY, SL_MSG_PING,      SL_MSG_DISK_READ, SL_MSG_DISK_READ,
};

struct world {
    struct hostile_node node;
    struct mem_disk disk;
    struct {
        uint64_t length;
        uint32_t segment;
        uint64_t offset;
        bool written;
    } values[VALUES];
    uint64_t write_seq; /* of the DISK_WRITE in flight, and its values */
    uint32_t write_value;
    bool write_ok;
    uint64_t read_seq;
    uint32_t read_value;
    bool foreign; /* files that the tierer did not make: the limit no longer holds */
};

/* ---- values ---- */

static uint64_t length_of(uint32_t n)
{
    static const uint64_t lengths[] = {1, 600, 4096, 4097, 12000};
    return lengths[n % SL_COUNT(lengths)];
}

static void content(uint32_t n, unsigned char *out)
{
    for (uint64_t i = 0; i < length_of(n); i++) {
        out[i] = (unsigned char)((i + 1) * (n * 2654435761u + 12345) >> 11);
    }
}

static const char *key_of(uint32_t n)
{
    static char key[32];
    (void)snprintf(key, sizeof(key), "m/b%u/0/kv", n);
    return key;
}

static struct sl_digest digest_for(uint32_t n)
{
    static unsigned char bytes[VALUE_ROOM];
    content(n, bytes);
    return sl_digest_of(bytes, length_of(n));
}

static void pump(struct hostile *hostile, uint64_t most, int os_code)
{
    struct world *world = hostile->own;
    struct mem_done done;
    while (most-- > 0 && mem_disk_take_done(&world->disk, &done)) {
        struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
        msg.body.local_io.cookie = done.cookie;
        msg.body.local_io.bytes = os_code == 0 ? done.bytes : 0;
        msg.body.local_io.os_code = (uint64_t)(os_code != 0 ? os_code : done.os_code);
        sl_err err = hostile->fake.actor->handle(hostile->fake.state, &msg);
        hostile_collect(hostile);
        if (err != SL_OK) { /* a disk that it cannot vouch for any more: see the next start */
            HOSTILE_MUST(err == SL_ERR_DEVICE);
            hostile_restart(hostile);
            return;
        }
    }
}

static void move_write(struct hostile *hostile, uint64_t how)
{
    struct world *world = hostile->own;
    uint32_t n = (uint32_t)how % VALUES;
    uint64_t at = VALUES_AT + n * VALUE_ROOM;
    struct sl_digest digest = digest_for(n);
    struct sl_msg msg = {.type = SL_MSG_DISK_WRITE};
    content(n, sl_arena_at(world->node.arena, at, length_of(n)));
    struct sl_item_spill item = {.key = sl_text_of(key_of(n)),
                                 .group_key = sl_text_of((how & 0x80) != 0 ? "m/b" : ""),
                                 .part_count = how >> 7,
                                 .offset_bytes = at,
                                 .length_bytes = length_of(n),
                                 .generation = n + 1,
                                 .digest_low = digest.low,
                                 .digest_high = digest.high};
    msg.body.disk_write.items.at = &item;
    msg.body.disk_write.items.count = 1;
    world->write_value = n;
    world->write_seq = ++hostile->fake.seq;
    msg.seq = world->write_seq;
    hostile_give(hostile, "registrar", &msg);
    pump(hostile, (how & 0x40) != 0 ? how & 3 : UINT64_MAX, 0);
}

/* Reads a value from its place, or from anywhere. */
static void move_read(struct hostile *hostile, uint64_t how)
{
    struct world *world = hostile->own;
    uint32_t n = (uint32_t)how % VALUES;
    struct sl_digest digest = digest_for(n);
    struct sl_entry claim = {.kind = SL_RECORD_PROMOTING,
                             .key = key_of(n),
                             .key_length = (uint16_t)strlen(key_of(n)),
                             .owner = hostile->fake.env.self,
                             .writer = hostile->fake.env.self};
    sl_ref ref = 0;
    claim.extent = (struct sl_extent){.generation = sl_arena_next_generation(world->node.arena),
                                      .offset_bytes = TARGET_AT,
                                      .length_bytes = length_of(n)};
    if (world->node.scribbled || sl_index_claim(world->node.index, &claim, &ref, NULL) != SL_OK) {
        return;
    }
    bool ahead = (how & 0x40) != 0;
    struct sl_msg msg = {.type = SL_MSG_DISK_READ};
    bool anywhere = !world->values[n].written || how >= 192;
    struct sl_item_fill item = {
        .key = sl_text_of(key_of(n)),
        .segment = anywhere ? hostile_byte(&hostile->input) % 8 : world->values[n].segment,
        .disk_offset_bytes =
            anywhere ? hostile_byte(&hostile->input) % 64 * SL_PAGE_BYTES : world->values[n].offset,
        .length_bytes = length_of(n),
        .digest_low = digest.low,
        .digest_high = digest.high,
        .offset_bytes = TARGET_AT,
        .ref = ref,
        .generation = claim.extent.generation};
    msg.body.disk_read.items.at = &item;
    msg.body.disk_read.items.count = 1;
    msg.body.disk_read.ahead = ahead;
    memset(sl_arena_at(world->node.arena, TARGET_AT, VALUE_ROOM), 0xee, VALUE_ROOM);
    world->read_value = n;
    world->read_seq = ++hostile->fake.seq;
    msg.seq = world->read_seq;
    hostile_give(hostile, "registrar", &msg);
    if (ahead && (how & 0x20) != 0) {
        struct sl_msg raise = {.type = SL_MSG_DISK_READ};
        raise.body.disk_read.raise = item.generation;
        hostile_give(hostile, "registrar", &raise);
    }
    hostile_collect(hostile);
    pump(hostile, UINT64_MAX, how % 11 == 10 ? EIO : 0);
    world->read_seq = 0; /* a late answer may meet another claim's bytes */
    sl_index_set_kind(world->node.index, ref, SL_RECORD_FREE);
}

static void replied(struct hostile *hostile, const char *to, const struct sl_msg *reply)
{
    struct world *world = hostile->own;
    static unsigned char want[VALUE_ROOM];
    (void)to;
    const struct sl_u64s *codes = &reply->body.disk_read_reply.codes;
    bool read = reply->type == SL_MSG_DISK_READ_REPLY;
    if (read && reply->reply_to == world->read_seq && reply->code == SL_OK && codes->count == 1 &&
        codes->at[0] == SL_OK) {
        uint64_t length = length_of(world->read_value);
        content(world->read_value, want);
        HOSTILE_MUST(memcmp(want, sl_arena_at(world->node.arena, TARGET_AT, length), length) == 0);
    }
    if (reply->type == SL_MSG_DISK_WRITE_REPLY && reply->reply_to == world->write_seq &&
        reply->code == SL_OK && reply->body.disk_write_reply.items.count == 1 &&
        reply->body.disk_write_reply.items.at[0].code == SL_OK) {
        const struct sl_item_spilled *item = &reply->body.disk_write_reply.items.at[0];
        world->values[world->write_value].written = true;
        world->values[world->write_value].segment = (uint32_t)item->segment;
        world->values[world->write_value].offset = item->disk_offset_bytes;
        hostile->next_slot++;
        hostile_remember(hostile, "segment", item->segment);
        hostile_remember(hostile, "disk_offset_bytes", item->disk_offset_bytes);
    }
}

/* ---- damage to the disk ---- */

static struct sl_digest page_digest(const void *bytes, uint64_t length)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, length);
    return (struct sl_digest){.low = hash.low64, .high = hash.high64};
}

/* Recomputes the digest of a changed page. */
static void page_sign(struct mem_file *file, uint64_t at)
{
    uint64_t magic;
    memcpy(&magic, file->now + at, sizeof(magic));
    if (magic == TI_HEADER_MAGIC) {
        struct ti_header *header = (void *)(file->now + at);
        header->digest = (struct sl_digest){0};
        header->digest = page_digest(header, sizeof(*header));
    } else if (magic == TI_TRAILER_MAGIC) {
        struct ti_trailer *trailer = (void *)(file->now + at);
        trailer->digest = (struct sl_digest){0};
        trailer->digest = page_digest(trailer, sizeof(*trailer));
    } else if (magic == TI_FRAME_MAGIC) {
        struct ti_frame *frame = (void *)(file->now + at);
        if (frame->header_bytes >= SL_PAGE_BYTES && frame->header_bytes <= file->bytes - at) {
            frame->digest = (struct sl_digest){0};
            frame->digest = page_digest(frame, frame->header_bytes);
        }
    }
}

static struct mem_file *any_file(struct mem_disk *disk, uint64_t number)
{
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        struct mem_file *file = &disk->files[(number + i) % MEM_DISK_FILES_MAX];
        if (file->name[0] != '\0' && file->bytes >= SL_PAGE_BYTES) {
            return file;
        }
    }
    return NULL;
}

static void move_disk(struct hostile *hostile, uint64_t how)
{
    struct hostile_input *input = &hostile->input;
    struct world *world = hostile->own;
    struct mem_file *file = any_file(&world->disk, how & 7);
    if (file == NULL) {
        return;
    }
    uint64_t pages = file->bytes / SL_PAGE_BYTES;
    uint64_t at = hostile_byte(input) % pages * SL_PAGE_BYTES;
    uint64_t word = hostile_byte(input) % 64 * 8;
    switch (how >> 4) {
    case 0: { /* a page copied to another place */
        uint64_t from = hostile_byte(input) % pages * SL_PAGE_BYTES;
        memmove(file->now + at, file->now + from, SL_PAGE_BYTES);
        break;
    }
    case 1:
        memset(file->now + at, 0, SL_PAGE_BYTES);
        break;
    case 2: /* shorter */
        file->bytes =
            at + (word & 0xff) + SL_PAGE_BYTES > file->bytes ? file->bytes : at + (word & 0xff);
        world->foreign = true;
        break;
    case 3: /* under another name */
        (void)snprintf(file->name, sizeof(file->name), "segment.%010u",
                       (unsigned)hostile_number(input, 0, UINT32_MAX));
        world->foreign = true;
        break;
    case 4:
        world->disk.fail_request = world->disk.requests + 1 + (how & 3);
        world->disk.fail_os_code = (how & 4) != 0 ? ENOSPC : EIO;
        break;
    default: { /* a word, and mostly its digest */
        uint64_t value = hostile_number(input, 0, UINT64_MAX);
        uint64_t old;
        memcpy(&old, file->now + at + word, sizeof(old));
        value = (how & 8) != 0 ? old ^ value : value;
        memcpy(file->now + at + word, &value, sizeof(value));
        if (how >> 4 > 6) {
            page_sign(file, at);
        }
        if (how >> 4 > 6 && at == 0) {
            world->foreign = true; /* a header with another size */
        }
        break;
    }
    }
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        struct mem_file *each = &world->disk.files[i];
        if (each->name[0] != '\0') {
            memcpy(each->durable, each->now, each->bytes);
        }
    }
}

static void move(struct hostile *hostile)
{
    struct world *world = hostile->own;
    uint64_t what = hostile_byte(&hostile->input);
    uint64_t how = hostile_byte(&hostile->input);
    switch (what % 8) {
    case 0:
    case 1:
    case 2:
        move_write(hostile, how);
        break;
    case 3:
        move_read(hostile, how);
        break;
    case 4:
        move_disk(hostile, how);
        break;
    case 5:
        pump(hostile, how, how > 250 ? EIO : 0);
        break;
    case 6: { /* a new registrar: everything is reported again */
        struct sl_msg msg = {.type = SL_MSG_HELLO_REPLY};
        msg.body.hello_reply.boot_generation = how;
        hostile_give(hostile, "registrar", &msg);
        break;
    }
    default:
        if (what < 64) {
            hostile_node_change(&world->node, hostile);
        } else if (what < 128) { /* the power is cut and returns */
            fake_stop(&hostile->fake);
            mem_disk_crash(&world->disk, how);
            HOSTILE_MUST(fake_start(&hostile->fake, NULL) == SL_OK);
        } else {
            (void)hostile_answer_all(hostile);
        }
        break;
    }
    hostile_collect(hostile);
}

/* ---- the actor's world ---- */

static sl_err disk_open(struct sl_env *env, const char *directory, uint32_t depth, bool direct,
                        struct sl_disk **out, struct sl_error *why)
{
    struct hostile *hostile = (struct hostile *)env;
    struct world *world = hostile->own;
    (void)directory, (void)depth, (void)direct, (void)why;
    *out = &world->disk.base;
    return SL_OK;
}

static void prepare(struct hostile *hostile)
{
    struct world *world = calloc(1, sizeof(*world));
    HOSTILE_MUST(world != NULL);
    hostile_node_make(&world->node, hostile->fake.paths.shm_dir);
    mem_disk_init(&world->disk);
    hostile->own = world;
    hostile->ops.disk_open = disk_open;
}

static void finish(struct hostile *hostile)
{
    struct world *world = hostile->own;
    hostile_node_end(&world->node);
    mem_disk_fini(&world->disk);
    free(world);
}

static void check(struct hostile *hostile, bool end)
{
    struct world *world = hostile->own;
    HOSTILE_MUST(world->foreign || mem_disk_bytes(&world->disk) <= DISK_BYTES);
    if (!end) {
        return;
    }
    world->disk.fail_request = 0;
    pump(hostile, UINT64_MAX, 0);
    for (uint32_t n = 0; n < VALUES; n++) {
        if (world->values[n].written) {
            move_read(hostile, n);
        }
    }
}

static const char *const settings[] = {"disk", "1MiB",   "disk_segment", "1MiB", "disk_staging",
                                       "1MiB", "memory", "1MiB",         NULL};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static const struct hostile_target target = {
        .actor = &sl_tierer_actor,
        .settings = settings,
        .requests = requests,
        .request_count = SL_COUNT(requests),
        .restarts = true,
        .prepare = prepare,
        .world = move,
        .replied = replied,
        .check = check,
        .finish = finish,
    };
    hostile_run(&target, bytes, length_bytes);
    return 0;
}
