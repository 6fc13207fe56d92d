/* tests/unit/client_lend_test.c - memory that is lent to a node, and gets of other nodes' values that go
 * straight into it. A thread plays registrar, transporter and coordinator over real mailboxes; what a
 * transporter writes, it writes through the descriptor that it was told. */
#include "client/lib/lend.h"
#include "ipc/sl_index.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_NS     (20 * SL_NS_PER_S)
#define BUFFER      (3 * SL_MIB)
#define VALUE       (BUFFER - 5) /* the most that is got */
#define ENGINES_MAX 20u
#define OLD         0x11 /* bytes of a buffer before */
#define NEW         0x22 /* bytes of a value */

enum habit {
    WRITES,   /* the value, and says so */
    SILENT,   /* says nothing */
    REFUSES,  /* all of it */
    LACKS,    /* has nobody to ask */
    BLUNDERS, /* says that it has written, and has not */
};

static struct bed {
    struct sl_tmpdir dir;
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_client *client;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic uint32_t habit;
    _Atomic uint64_t value_bytes; /* of a value */
    _Atomic uint32_t pulls, fetches, fences, registered, ended;
    _Atomic uint32_t fences_wanted;             /* questions before an op is fenced */
    struct sl_item_region regions[ENGINES_MAX]; /* engine i + 1 */
} bed;

/* ---- the other side ---- */

static void stretch_write(const struct sl_item_lent *lent, uint64_t length_bytes)
{
    char path[64];
    unsigned char *bytes = malloc(length_bytes + 1);
    const struct sl_item_region *region = &bed.regions[lent->engine_id - 1];
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, NEW, length_bytes);
    (void)snprintf(path, sizeof path, "/proc/%u/fd/%u", (unsigned)region->pid,
                   (unsigned)region->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_le(lent->offset_bytes + length_bytes, region->length_bytes);
    ck_assert_int_eq(
        pwrite(fd, bytes, length_bytes, (off_t)(region->offset_bytes + lent->offset_bytes)),
        (ssize_t)length_bytes);
    (void)close(fd);
    free(bytes);
}

static void pull_answer(const struct sl_body_pull_objects *body, struct sl_msg *reply)
{
    static uint64_t codes[64], lengths[64];
    uint32_t habit = bed.habit;
    ck_assert_uint_le(body->items.count, SL_COUNT(codes));
    for (uint64_t i = 0; i < body->items.count; i++) {
        codes[i] = habit == LACKS ? SL_ERR_NOT_FOUND : SL_OK;
        lengths[i] = habit == LACKS ? 0 : bed.value_bytes;
    }
    uint64_t left_bytes = bed.value_bytes;
    for (uint64_t i = 0; habit == WRITES && i < body->buffers.count; i++) {
        const struct sl_item_lent *lent = &body->buffers.at[i];
        left_bytes = i > 0 && lent[-1].item == lent->item ? left_bytes : bed.value_bytes;
        uint64_t share_bytes = SL_MIN(left_bytes, lent->length_bytes);
        stretch_write(lent, share_bytes);
        left_bytes -= share_bytes;
    }
    reply->code = habit == REFUSES ? SL_ERR_BUSY : SL_OK;
    reply->body.pull_objects_reply.codes = (struct sl_u64s){codes, body->items.count};
    reply->body.pull_objects_reply.lengths = (struct sl_u64s){lengths, body->items.count};
}

/* False: it says nothing. */
static bool node_answer(const struct sl_msg *request, struct sl_msg *reply)
{
    static uint64_t missing[64] = {[0 ... 63] = SL_ERR_NOT_FOUND};
    uint32_t id = 0;
    switch (request->type) {
    case SL_MSG_HELLO:
        reply->body.hello_reply =
            (struct sl_body_hello_reply){.boot_generation = 7, .arena_count = 1, .rank_count = 1};
        return true;
    case SL_MSG_ENGINE_REGISTER:
        ck_assert_uint_eq(request->body.engine_register.pools.at[0].kind, SL_POOL_LENT);
        ck_assert_str_eq(request->body.engine_register.name.at, request->sender.at);
        id = ++bed.registered;
        ck_assert_uint_le(id, ENGINES_MAX);
        bed.regions[id - 1] = request->body.engine_register.regions.at[0];
        reply->body.engine_register_reply.engine_id = id;
        reply->body.engine_register_reply.region_bytes_max = 12345;
        return true;
    case SL_MSG_ENGINE_END:
        bed.ended++;
        return true;
    case SL_MSG_PULL_OBJECTS:
        bed.pulls++;
        if (bed.habit != SILENT) {
            pull_answer(&request->body.pull_objects, reply);
        }
        return bed.habit != SILENT;
    case SL_MSG_FETCH:
        bed.fetches++;
        reply->body.fetch_reply.codes = (struct sl_u64s){missing, request->body.fetch.items.count};
        return true;
    case SL_MSG_OP_FENCED:
        bed.fences++;
        reply->body.op_fenced_reply.fenced = bed.fences >= bed.fences_wanted;
        return true;
    default:
        return true;
    }
}

static void node_serve(struct sl_mailbox *mailbox, struct sl_codec *in, struct sl_codec *out)
{
    const char *from = NULL;
    const void *frame = NULL;
    size_t length = 0;
    while (sl_mailbox_receive(mailbox, &from, &frame, &length) == SL_OK) {
        struct sl_msg request;
        char to[32];
        (void)snprintf(to, sizeof to, "%s", from);
        if (sl_codec_decode(in, frame, length, &request, NULL) != SL_OK) {
            continue;
        }
        struct sl_msg reply = {.type = request.type + 1,
                               .sender = sl_text_of("node"),
                               .op_id = request.op_id,
                               .reply_to = request.seq};
        if (node_answer(&request, &reply) &&
            sl_codec_encode(out, &reply, &frame, &length, NULL) == SL_OK) {
            (void)sl_mailbox_send(mailbox, to, frame, length, true);
        }
    }
}

static void *node_run(void *context)
{
    static const char *const names[] = {"registrar", "transporter.0", "coordinator"};
    struct sl_mailbox *mailboxes[SL_COUNT(names)];
    struct sl_codec *in = NULL, *out = NULL;
    ck_assert_int_eq(sl_codec_create(SL_MIB, &in, NULL), SL_OK);
    ck_assert_int_eq(sl_codec_create(SL_MIB, &out, NULL), SL_OK);
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        struct sl_mailbox_options options = {.runtime_dir = bed.dir.path,
                                             .name = names[i],
                                             .bind = true,
                                             .queue_messages = 64,
                                             .message_bytes_max = SL_MIB};
        ck_assert_int_eq(sl_mailbox_open(&options, &mailboxes[i], NULL), SL_OK);
    }
    while (!atomic_load_explicit(&bed.stop, memory_order_relaxed)) {
        (void)sl_mailbox_wait(mailboxes[0], SL_NS_PER_MS);
        for (uint32_t i = 0; i < SL_COUNT(names); i++) {
            node_serve(mailboxes[i], in, out);
        }
    }
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        sl_mailbox_close(&mailboxes[i]);
    }
    sl_codec_destroy(&in);
    sl_codec_destroy(&out);
    return context;
}

static void bed_open(enum habit habit, const char *keeps)
{
    char runtime_dir[96], shm_dir[96];
    const char *settings[] = {runtime_dir, shm_dir, keeps, "log_level=debug", NULL};
    bool created = false;
    struct sl_error why = {0};
    memset(&bed, 0, sizeof bed);
    bed.habit = habit;
    bed.value_bytes = VALUE;
    bed.fences_wanted = 1;
    sl_tmpdir_make(&bed.dir, "/dev/shm");
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", bed.dir.path);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", bed.dir.path);
    struct sl_arena_options arena = {
        .directory = bed.dir.path, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &bed.arena, NULL), SL_OK);
    struct sl_index_options index = {
        .shm_dir = bed.dir.path, .index_bytes_max = SL_MIB, .arena = bed.arena};
    ck_assert_int_eq(sl_index_open(&index, &created, &bed.index, NULL), SL_OK);
    sl_index_set_remote(bed.index, true);
    ck_assert_int_eq(pthread_create(&bed.thread, NULL, node_run, NULL), 0);
    struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .settings = settings, .timeout_ns = WAIT_NS};
    ck_assert_msg(sl_client_open(&options, &bed.client, &why) == SL_OK, "%s", why.text);
}

static void bed_close(void)
{
    sl_client_close(&bed.client);
    atomic_store_explicit(&bed.stop, true, memory_order_relaxed);
    (void)pthread_join(bed.thread, NULL);
    sl_index_close(&bed.index);
    sl_arena_close(&bed.arena);
    sl_tmpdir_remove(&bed.dir);
}

/* ---- this side ---- */

/* Whether the log of the node's clients has the words. */
static bool logged(const char *words)
{
    char path[1200], line[1024];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/clients.jsonl", bed.client->paths.log_dir);
    FILE *log = fopen(path, "re");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        found = found || strstr(line, words) != NULL;
    }
    if (log != NULL) {
        (void)fclose(log);
    }
    return found;
}

static unsigned char *buffer_make(void)
{
    void *at = NULL;
    ck_assert_int_eq(sl_memory_alloc(BUFFER, &at, NULL), SL_OK);
    memset(at, OLD, BUFFER);
    return at;
}

static unsigned char *buffer_lent(void)
{
    struct sl_error why = {0};
    unsigned char *at = buffer_make();
    ck_assert_msg(sl_memory_lend(bed.client, at, BUFFER, WAIT_NS, &why) == SL_OK, "%s", why.text);
    return at;
}

static sl_err get(unsigned char *at, uint64_t room_bytes, uint64_t *length_bytes,
                  uint64_t timeout_ns)
{
    const struct sl_object_key key = {"elsewhere", 9};
    return sl_get(bed.client, key, (struct sl_buffer){.at = at, .length_bytes = room_bytes},
                  length_bytes, timeout_ns, NULL);
}

static bool all_are(const unsigned char *at, uint64_t length_bytes, unsigned char byte)
{
    for (uint64_t i = 0; i < length_bytes; i++) {
        if (at[i] != byte) {
            return false;
        }
    }
    return true;
}

static const uint64_t value_lengths[] = {8, 9, 4096, 2 * SL_MIB, 2 * SL_MIB + 3, VALUE};

START_TEST(a_value_of_another_node_comes_straight)
    {
        uint64_t length_bytes = 0;
        struct sl_lent_info info;
        bed_open(WRITES, "load_keeps=false");
        bed.value_bytes = value_lengths[_i];
        unsigned char *at = buffer_lent();

        ck_assert_int_eq(get(at + 1, VALUE, &length_bytes, WAIT_NS), SL_OK);

        ck_assert_uint_eq(length_bytes, value_lengths[_i]);
        ck_assert(all_are(at + 1, length_bytes, NEW));
        ck_assert_uint_eq(at[0], OLD);
        ck_assert(all_are(at + 1 + length_bytes, BUFFER - 1 - length_bytes, OLD));
        ck_assert_uint_eq(bed.fetches + bed.fences, 0);
        sl_lent(bed.client, &info);
        ck_assert_uint_eq(info.buffers, 1);
        ck_assert_uint_eq(info.straight_values, 1);
        ck_assert_uint_eq(info.straight_bytes, length_bytes);
        ck_assert_int_eq(sl_memory_reclaim(bed.client, at, WAIT_NS, NULL), SL_OK);
        ck_assert_uint_eq(bed.ended, 1);
        ck_assert_int_eq(sl_memory_reclaim(bed.client, at, WAIT_NS, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_memory_free(at, NULL), SL_OK);
        bed_close();
    }
END_TEST

START_TEST(a_value_goes_to_pieces_of_several_buffers)
    {
        uint64_t lengths[2] = {0};
        sl_err codes[2];
        bed_open(WRITES, "load_keeps=false");
        bed.value_bytes = 30000;
        unsigned char *one = buffer_lent(), *other = buffer_lent();
        struct sl_piece pieces[] = {
            {.at = one + 5, .length_bytes = 10001},
            {.at = other + 7, .length_bytes = 20000, .offset_bytes = 10001},
            {.at = one + 20000, .length_bytes = 5000, .offset_bytes = 30001}};
        struct sl_pieces items[] = {{.key = {"a", 1}, .at = pieces, .count = 3},
                                    {.key = {"b", 1}, .at = pieces, .count = 1}};

        ck_assert_int_eq(sl_get_pieces(bed.client, items, 1, true, lengths, codes, WAIT_NS, NULL),
                         SL_OK);

        ck_assert_int_eq(codes[0], SL_OK);
        ck_assert_uint_eq(lengths[0], 30000);
        ck_assert(all_are(one + 5, 10001, NEW));
        ck_assert(all_are(other + 7, 19999, NEW));
        ck_assert_uint_eq(one[4], OLD);
        ck_assert(all_are(other + 7 + 19999, 100, OLD));
        ck_assert(all_are(one + 20000, 5000, OLD)); /* the value has ended before it */
        bed_close();
    }
END_TEST

START_TEST(what_is_not_all_in_lent_memory_is_asked_for_as_ever)
    {
        uint64_t length_bytes = 0;
        bed_open(WRITES, "load_keeps=false");
        unsigned char *at = buffer_lent();
        unsigned char *plain = malloc(VALUE);
        ck_assert_int_eq(get(plain, VALUE, &length_bytes, WAIT_NS), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(get(at + 6, BUFFER - 5, &length_bytes, WAIT_NS), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(bed.pulls, 0);
        ck_assert_uint_eq(bed.fetches, 2);
        free(plain);
        bed_close();
    }
END_TEST

static const struct {
    enum habit habit;
    uint32_t fetches;
} others[] = {
    {LACKS, 0},    /* every node that could be was asked */
    {REFUSES, 1},  /* by the arena, then */
    {BLUNDERS, 1}, /* likewise */
};
START_TEST(what_does_not_come_straight_leaves_the_buffer_as_it_was)
    {
        uint64_t length_bytes = 0;
        struct sl_lent_info info;
        bed_open(others[_i].habit, "load_keeps=false");
        unsigned char *at = buffer_lent();

        ck_assert_int_eq(get(at, VALUE, &length_bytes, WAIT_NS), SL_ERR_NOT_FOUND);

        ck_assert_uint_eq(bed.pulls, 1);
        ck_assert_uint_eq(bed.fetches, others[_i].fetches);
        ck_assert(others[_i].habit == BLUNDERS || all_are(at, BUFFER, OLD));
        sl_lent(bed.client, &info);
        ck_assert_uint_eq(info.straight_values, 0);
        ck_assert_uint_eq(info.copied_values, 1);
        bed_close();
    }
END_TEST

/* A transporter that says nothing may still write. */
START_TEST(a_get_ends_when_its_op_is_fenced)
    {
        uint64_t length_bytes = 0;
        bed_open(SILENT, "load_keeps=false");
        bed.fences_wanted = 4;
        unsigned char *at = buffer_lent();

        ck_assert_int_eq(get(at, VALUE, &length_bytes, 2 * SL_NS_PER_S), SL_ERR_NOT_FOUND);

        ck_assert_uint_eq(bed.fences, 4);
        ck_assert(all_are(at, BUFFER, OLD));
        bed_close();
    }
END_TEST

/* The buffer is gone, and its addresses lead to other memory, of which nobody told. */
START_TEST(bytes_that_lie_elsewhere_are_not_said_to_be_there)
    {
        uint64_t length_bytes = 0;
        bed_open(WRITES, "load_keeps=false");
        unsigned char *at = buffer_lent();
        ck_assert_ptr_eq(mmap(at, BUFFER, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                         at);
        ck_assert_int_eq(get(at, VALUE, &length_bytes, WAIT_NS), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(bed.pulls, 1);
        ck_assert_uint_eq(bed.fetches, 1);
        ck_assert_int_eq(get(at, VALUE, &length_bytes, WAIT_NS), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(bed.pulls, 1); /* it is copied from now on */
        bed_close();
    }
END_TEST

static void *get_run(void *context)
{
    uint64_t length_bytes = 0;
    ck_assert_int_eq(get(context, VALUE, &length_bytes, 2 * SL_NS_PER_S), SL_ERR_NOT_FOUND);
    return NULL;
}

START_TEST(taking_it_back_waits_for_gets)
    {
        pthread_t thread;
        bed_open(SILENT, "load_keeps=false");
        unsigned char *at = buffer_lent();
        ck_assert_int_eq(pthread_create(&thread, NULL, get_run, at), 0);
        while (bed.pulls == 0) {
            sl_client_sleep(SL_NS_PER_MS);
        }
        ck_assert_int_eq(sl_memory_reclaim(bed.client, at, WAIT_NS, NULL), SL_OK);
        ck_assert_uint_ge(bed.fences, 1);
        ck_assert_uint_eq(bed.ended, 1);
        (void)pthread_join(thread, NULL);
        bed_close();
    }
END_TEST

START_TEST(with_copies_kept_nothing_is_lent)
    {
        struct sl_error why = {0};
        bed_open(WRITES, "load_keeps=true");
        unsigned char *at = buffer_make();
        ck_assert_int_eq(sl_memory_lend(bed.client, at, BUFFER, WAIT_NS, &why), SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(why.text, "load_keeps"));
        ck_assert_uint_eq(bed.registered, 0);
        bed_close();
    }
END_TEST

START_TEST(a_client_lends_so_many_buffers)
    {
        struct sl_error why = {0};
        struct sl_lent_info info;
        bed_open(WRITES, "load_keeps=false");
        for (uint32_t i = 0; i < 16; i++) {
            (void)buffer_lent();
        }
        ck_assert_int_eq(sl_memory_lend(bed.client, buffer_make(), BUFFER, WAIT_NS, &why),
                         SL_ERR_LIMIT);
        sl_lent(bed.client, &info);
        ck_assert_uint_eq(info.buffers, 16);
        ck_assert_uint_eq(info.bytes, 16 * BUFFER);
        ck_assert_uint_eq(info.region_bytes_max, 12345);
        bed_close();
        ck_assert_uint_eq(bed.ended, 17); /* and the one that was one too many */
    }
END_TEST

/* ---- which memory it can be ---- */

#define PAGES (16 * SL_PAGE_BYTES)

static int file_make(bool named)
{
    char path[128];
    int fd = memfd_create("of-the-test", MFD_CLOEXEC);
    if (named) {
        (void)close(fd);
        (void)snprintf(path, sizeof path, "%s/buffer", bed.dir.path);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, PAGES), 0);
    return fd;
}

static unsigned char *mapped(int fd, int protection, int flags)
{
    unsigned char *at = mmap(NULL, PAGES, protection, flags, fd, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    return at;
}

static const struct {
    const char *what;
    bool named, closed; /* a file in /dev/shm; the process has no descriptor of it any more */
    int protection, flags;
    sl_err code;
} memories[] = {
    {"memfd", false, false, PROT_READ | PROT_WRITE, MAP_SHARED, SL_OK},
    {"file", true, false, PROT_READ | PROT_WRITE, MAP_SHARED, SL_OK},
    {"closed file", true, true, PROT_READ | PROT_WRITE, MAP_SHARED, SL_OK},
    {"private", false, false, PROT_READ | PROT_WRITE, MAP_PRIVATE, SL_ERR_UNSUPPORTED},
    {"read only", false, false, PROT_READ, MAP_SHARED, SL_ERR_UNSUPPORTED},
    {"anonymous", false, true, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
     SL_ERR_UNSUPPORTED},
};
START_TEST(shared_memory_is_found_by_its_addresses)
    {
        int found = -1;
        uint64_t offset_bytes = 0;
        struct sl_error why = {0};
        bed_open(WRITES, "load_keeps=false");
        int fd = file_make(memories[_i].named);
        unsigned char *at = mapped((memories[_i].flags & MAP_ANONYMOUS) != 0 ? -1 : fd,
                                   memories[_i].protection, memories[_i].flags);
        if (memories[_i].closed) {
            (void)close(fd);
        }

        sl_err err = sl_memory_backing(at + 5000, 10000, &found, &offset_bytes, &why);

        ck_assert_msg(err == memories[_i].code, "%s: %s", memories[_i].what, why.text);
        if (err == SL_OK) {
            const char word[] = "through the descriptor";
            ck_assert_uint_eq(offset_bytes, 5000);
            ck_assert_int_eq(pwrite(found, word, sizeof word, 5000), sizeof word);
            ck_assert_str_eq((char *)at + 5000, word);
            (void)close(found);
        } else {
            struct sl_lent_info info;
            ck_assert_int_eq(found, -1);
            (void)mkdir(bed.client->paths.log_dir, 0700);
            ck_assert_int_eq(sl_memory_lend(bed.client, at, PAGES, WAIT_NS, NULL),
                             SL_ERR_UNSUPPORTED);
            sl_lent(bed.client, &info);
            ck_assert_uint_eq(info.plain_buffers, 1);
            ck_assert_uint_eq(info.buffers, 0);
            ck_assert(logged("is copied to: memory: 65536 bytes at"));
        }
        bed_close();
    }
END_TEST

START_TEST(one_shared_memory_may_be_mapped_in_parts)
    {
        int found = -1;
        uint64_t offset_bytes = 0;
        bed_open(WRITES, "load_keeps=false");
        int fd = file_make(false);
        unsigned char *at = mapped(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
        unsigned char *middle = at + 4 * SL_PAGE_BYTES;
        ck_assert_int_eq(mprotect(middle, SL_PAGE_BYTES, PROT_NONE), 0);
        ck_assert_int_eq(mprotect(middle, SL_PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
        ck_assert_int_eq(sl_memory_backing(at, PAGES, &found, &offset_bytes, NULL), SL_OK);
        (void)close(found);

        /* The same file, but other bytes of it. */
        ck_assert_ptr_eq(
            mmap(middle, SL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
            middle);
        ck_assert_int_eq(sl_memory_backing(at, PAGES, &found, &offset_bytes, NULL),
                         SL_ERR_UNSUPPORTED);

        ck_assert_int_eq(munmap(middle, SL_PAGE_BYTES), 0);
        ck_assert_int_eq(sl_memory_backing(at, PAGES, &found, &offset_bytes, NULL),
                         SL_ERR_UNSUPPORTED);
        bed_close();
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_lend");
    TCase *cases = tcase_create("lend");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, a_value_of_another_node_comes_straight, 0, SL_COUNT(value_lengths));
    tcase_add_test(cases, a_value_goes_to_pieces_of_several_buffers);
    tcase_add_test(cases, what_is_not_all_in_lent_memory_is_asked_for_as_ever);
    tcase_add_loop_test(cases, what_does_not_come_straight_leaves_the_buffer_as_it_was, 0,
                        SL_COUNT(others));
    tcase_add_test(cases, a_get_ends_when_its_op_is_fenced);
    tcase_add_test(cases, bytes_that_lie_elsewhere_are_not_said_to_be_there);
    tcase_add_test(cases, taking_it_back_waits_for_gets);
    tcase_add_test(cases, with_copies_kept_nothing_is_lent);
    tcase_add_test(cases, a_client_lends_so_many_buffers);
    tcase_add_loop_test(cases, shared_memory_is_found_by_its_addresses, 0, SL_COUNT(memories));
    tcase_add_test(cases, one_shared_memory_may_be_mapped_in_parts);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
