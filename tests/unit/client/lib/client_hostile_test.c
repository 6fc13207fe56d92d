/* tests/unit/client/lib/client_hostile_test.c - the client library and a node that sends invalid
 * answers. A thread plays registrar and coordinator over real mailboxes. */
#include "client/include/sluice.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/msg/sl_msg.h"
#include "ipc/shm/index_internal.h"
#include "ipc/shm/sl_leases.h"
#include "runtime/base/sl_clock.h"
#include "tests/support/mailbox_wait.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_NS (20 * SL_NS_PER_S) /* events are waited for, not measured */

struct node {
    struct sl_tmpdir dir;
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_client *client;
    struct sl_engine *engine;
    pthread_t thread;
    _Atomic bool stop;
    uint64_t load_block_count; /* of every LOAD_REPLY */
    _Atomic unsigned version;  /* of its answers; 0: ours */
    _Atomic unsigned strange;  /* this number of REMOVE and FLUSH requests is answered as from an
                                  unknown process */
    _Atomic sl_err removed;    /* code of every key of a REMOVE, and of a FLUSH */
    _Atomic sl_err paused;     /* code of a SESSION_PAUSE */
    struct sl_body_session_pause said; /* the last one; of its thread until it was answered */
    struct sl_body_session_turn turn;  /* likewise, without its keys, */
    uint64_t turn_key_count;           /* number of its keys */
    uint64_t turn_op_id;
    uint32_t turn_count, asked_count; /* messages received; those with `asked` */
    uint64_t open_ns;                 /* how long a client tries to attach; 0: WAIT_NS */
    sl_err brought;                   /* code of every key of a BRING */
    uint64_t value_bytes;             /* length of values put into the index with it */
    uint32_t bring_count;             /* number received, */
    uint64_t bring_key_count;         /* and keys in all, */
    uint64_t bring_keys_max;          /* and in one */
    uint32_t held_until;              /* the first is answered after this number */
    uint64_t held_seq;                /* its number */
    bool bring_seen[4096];            /* by number: they may come in another order */
    const char *setting;              /* of the client; NULL: message_bytes_max=1MiB */
};

/* ---- the other side ---- */

/* Answers like a registrar that has restarted, or one whose disk is missing. */
static void node_answer_removal(struct node *node, const struct sl_msg *request,
                                struct sl_msg *reply)
{
    static uint64_t code;
    code = (uint64_t)atomic_load_explicit(&node->removed, memory_order_relaxed);
    if (atomic_load_explicit(&node->strange, memory_order_relaxed) > 0) {
        atomic_fetch_sub_explicit(&node->strange, 1, memory_order_relaxed);
        reply->code = SL_ERR_UNREACHABLE;
        reply->text = sl_text_of("no HELLO from the client");
    } else if (request->type == SL_MSG_REMOVE && !request->body.remove.all) {
        reply->body.remove_reply.codes = (struct sl_u64s){.at = &code, .count = 1};
    } else {
        reply->code = (sl_err)code;
    }
}

static void object_put(struct node *node, const struct sl_text *key, bool in_memory)
{
    sl_ref ref = 0;
    struct sl_entry entry = {
        .kind = SL_RECORD_COMMITTED, .key = key->at, .key_length = (uint16_t)key->length};
    entry.extent.generation = in_memory ? sl_arena_next_generation(node->arena) : 0;
    entry.extent.length_bytes = node->value_bytes;
    entry.disk.valid = !in_memory;
    ck_assert_int_eq(sl_index_insert(node->index, &entry, &ref, NULL), SL_OK);
}

/* Answers like the registrar, or the transporter. */
static void node_answer_bring(struct node *node, const struct sl_msg *request, struct sl_msg *reply)
{
    static uint64_t codes[8192];
    const struct sl_texts *keys = &request->body.bring.keys;
    bool *seen = &node->bring_seen[request->seq % SL_COUNT(node->bring_seen)];
    bool again = *seen; /* sent again: the machine is busy */
    *seen = true;
    node->bring_count += again ? 0 : 1;
    node->bring_key_count += again ? 0 : keys->count;
    node->bring_keys_max = SL_MAX(node->bring_keys_max, keys->count);
    ck_assert_uint_le(keys->count, SL_COUNT(codes));
    for (uint32_t i = 0; i < keys->count; i++) {
        codes[i] = (uint64_t)node->brought;
        if (node->value_bytes > 0 && !again) {
            object_put(node, &keys->at[i], true);
        }
    }
    reply->body.bring_reply.codes = (struct sl_u64s){.at = codes, .count = keys->count};
}

static void node_answer(struct node *node, const struct sl_msg *request, struct sl_msg *reply)
{
    *reply = (struct sl_msg){.type = request->type + 1,
                             .sender = sl_text_of("node"),
                             .op_id = request->op_id,
                             .reply_to = request->seq};
    if (request->type == SL_MSG_HELLO) {
        reply->body.hello_reply =
            (struct sl_body_hello_reply){.boot_generation = 7, .arena_count = 1, .rank_count = 1};
    } else if (request->type == SL_MSG_ENGINE_REGISTER) {
        reply->body.engine_register_reply.engine_id = 5;
    } else if (request->type == SL_MSG_STORE) { /* like one that does not know events */
        reply->body.store_reply.block_count = request->body.store.device_blocks.count;
        reply->body.store_reply.fenced = true;
    } else if (request->type == SL_MSG_LOAD) {
        reply->body.load_reply.block_count = node->load_block_count;
        reply->body.load_reply.from_memory = node->load_block_count;
        reply->body.load_reply.fenced = true;
    } else if (request->type == SL_MSG_REMOVE || request->type == SL_MSG_FLUSH) {
        node_answer_removal(node, request, reply);
    } else if (request->type == SL_MSG_BRING) {
        node_answer_bring(node, request, reply);
    } else if (request->type == SL_MSG_SESSION_PAUSE) {
        node->said = request->body.session_pause;
        reply->code = atomic_load_explicit(&node->paused, memory_order_acquire);
        reply->text = sl_text_of(reply->code == SL_OK ? "" : "envelope.type: message 190");
    } else if (request->type == SL_MSG_SESSION_TURN) {
        node->turn = request->body.session_turn;
        if (request->op_id != node->turn_op_id) { /* else it is sent again */
            node->turn_op_id = request->op_id;
            node->turn_count++;
            node->asked_count += request->body.session_turn.asked;
            node->turn_key_count += request->body.session_turn.keys.count;
        }
        reply->code = atomic_load_explicit(&node->paused, memory_order_acquire);
        reply->text = sl_text_of(reply->code == SL_OK ? "" : "envelope.type: message 192");
    }
}

static void node_send(struct node *node, struct sl_mailbox *mailbox, struct sl_codec *out,
                      const char *to, const struct sl_msg *reply)
{
    static unsigned char bytes[SL_MIB];
    const void *frame = NULL;
    size_t length = 0;
    if (sl_codec_encode(out, reply, &frame, &length, NULL) == SL_OK) {
        unsigned version = atomic_load_explicit(&node->version, memory_order_relaxed);
        ck_assert_uint_le(length, sizeof bytes);
        memcpy(bytes, frame, length);
        bytes[2] = version != 0 ? (unsigned char)version : bytes[2];
        (void)sl_mailbox_send(mailbox, to, bytes, length, true);
    }
}

static void node_serve(struct node *node, struct sl_mailbox *mailbox, struct sl_codec *in,
                       struct sl_codec *out)
{
    const char *from = NULL;
    const void *frame = NULL;
    size_t length = 0;
    while (sl_mailbox_receive(mailbox, &from, &frame, &length) == SL_OK) {
        struct sl_msg request;
        struct sl_msg reply;
        char to[32];
        (void)snprintf(to, sizeof(to), "%s", from);
        if (sl_codec_decode(in, frame, length, &request, NULL) == SL_OK &&
            !SL_MSG_IS_REPLY(request.type)) {
            node_answer(node, &request, &reply);
            bool hold = node->held_until > 0 && request.type == SL_MSG_BRING;
            if (hold && node->bring_count == 1) { /* like a silent peer */
                node->held_seq = request.seq;
                continue;
            }
            node_send(node, mailbox, out, to, &reply);
            if (hold && node->bring_count == node->held_until) {
                reply.reply_to = node->held_seq;
                node_send(node, mailbox, out, to, &reply);
            }
        }
    }
}

static void *node_run(void *context)
{
    static const char *const names[] = {"registrar", "coordinator", "transporter.0"};
    struct node *node = context;
    struct sl_mailbox *mailboxes[SL_COUNT(names)];
    struct sl_codec *in = NULL;
    struct sl_codec *out = NULL;
    ck_assert_int_eq(sl_codec_create(SL_MIB, &in, NULL), SL_OK);
    ck_assert_int_eq(sl_codec_create(SL_MIB, &out, NULL), SL_OK);
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        struct sl_mailbox_options options = {.runtime_dir = node->dir.path,
                                             .name = names[i],
                                             .message_bytes_max = SL_MIB,
                                             .ring_bytes = 512 * SL_KIB,
                                             .lanes_max = 8};
        ck_assert_int_eq(sl_mailbox_open(&options, &mailboxes[i], NULL), SL_OK);
    }
    while (!atomic_load_explicit(&node->stop, memory_order_relaxed)) {
        (void)mailbox_wait(mailboxes[0], SL_NS_PER_MS);
        for (uint32_t i = 0; i < SL_COUNT(names); i++) {
            node_serve(node, mailboxes[i], in, out);
        }
    }
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        sl_mailbox_close(&mailboxes[i]);
    }
    sl_codec_destroy(&in);
    sl_codec_destroy(&out);
    return NULL;
}

/* ---- this side ---- */

static sl_err client_open(struct node *node, struct sl_error *why)
{
    char runtime_dir[96];
    char shm_dir[96];
    const char *settings[] = {runtime_dir, shm_dir,
                              node->setting != NULL ? node->setting : "message_bytes_max=1MiB",
                              NULL};
    (void)snprintf(runtime_dir, sizeof(runtime_dir), "runtime_dir=%s", node->dir.path);
    (void)snprintf(shm_dir, sizeof(shm_dir), "shm_dir=%s", node->dir.path);
    struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                        .settings = settings,
                                        .timeout_ns = node->open_ns != 0 ? node->open_ns : WAIT_NS};
    return sl_client_open(&options, &node->client, why);
}

/* Makes its memory and starts the thread that plays its actors. */
static void node_start(struct node *node)
{
    bool created = false;
    sl_tmpdir_make(&node->dir, "/dev/shm");
    struct sl_arena_options arena = {
        .directory = node->dir.path, .data_bytes = 4 * SL_MIB, .chunk_bytes = 4 * SL_MIB};
    ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &node->arena, NULL), SL_OK);
    ck_assert_int_eq(sl_arena_populate_now(node->arena, 4 * SL_MIB, true, NULL), SL_OK);
    struct sl_index_options index = {
        .shm_dir = node->dir.path, .index_bytes_max = SL_MIB, .arena = node->arena};
    ck_assert_int_eq(sl_index_open(&index, &created, &node->index, NULL), SL_OK);
    ck_assert_int_eq(pthread_create(&node->thread, NULL, node_run, node), 0);
}

static void node_open(struct node *node)
{
    static const struct sl_engine_layer layer = {
        .length_bytes = 4096, .block_stride_bytes = 64, .piece_bytes = 64};
    static const struct sl_engine_pool pool = {
        .name = "kv", .layer_count = 1, .layers = &layer, .memory_bytes = 4096};
    static const struct sl_engine_options engine = {.name = "engine",
                                                    .model = {.name = "m"},
                                                    .key_format = "sluice",
                                                    .block_tokens = 4,
                                                    .world = 1,
                                                    .block_count = 64,
                                                    .pool_count = 1,
                                                    .pools = &pool};
    struct sl_error why = {0};
    node_start(node);
    ck_assert_msg(client_open(node, &why) == SL_OK, "%s", why.text);
    ck_assert_msg(sl_engine_register(node->client, &engine, WAIT_NS, &node->engine, &why) == SL_OK,
                  "%s", why.text);
}

static void node_close(struct node *node)
{
    sl_engine_end(&node->engine);
    sl_client_close(&node->client);
    atomic_store_explicit(&node->stop, true, memory_order_relaxed);
    ck_assert_int_eq(pthread_join(node->thread, NULL), 0);
    sl_index_close(&node->index);
    sl_arena_close(&node->arena);
    sl_tmpdir_remove(&node->dir);
}

/* ---- another build ---- */

START_TEST(answers_of_another_wire_version_end_a_call_by_name)
    {
        struct node node = {0};
        struct sl_error why = {0};
        const struct sl_object_key key = {.at = "k", .length = 1};
        node_open(&node);
        atomic_store_explicit(&node.version, SL_WIRE_VERSION + 2, memory_order_relaxed);
        uint64_t started_ns = sl_clock_monotonic_ns();

        sl_err err = sl_remove(node.client, key, WAIT_NS, &why);

        ck_assert_int_eq(err, SL_ERR_VERSION);
        ck_assert_uint_lt(sl_clock_monotonic_ns() - started_ns, WAIT_NS);
        char said[32];
        (void)snprintf(said, sizeof said, "wire version %d", SL_WIRE_VERSION + 2);
        ck_assert_msg(strstr(why.text, said) != NULL, "%s", why.text);
        atomic_store_explicit(&node.version, 0, memory_order_relaxed);
        node_close(&node);
    }
END_TEST

/* ---- a registrar that does not know us, and a missing disk ---- */

static sl_err remove_one(struct sl_client *client, struct sl_error *why)
{
    const struct sl_object_key key = {.at = "k", .length = 1};
    return sl_remove(client, key, WAIT_NS, why);
}
static sl_err remove_all(struct sl_client *client, struct sl_error *why)
{
    return sl_remove_all(client, WAIT_NS, why);
}
static sl_err flush(struct sl_client *client, struct sl_error *why)
{
    return sl_flush(client, WAIT_NS, why);
}
static sl_err (*const waits_for_disks[])(struct sl_client *client,
                                         struct sl_error *why) = {remove_one, remove_all, flush};

START_TEST(a_registrar_that_began_anew_is_asked_again)
    {
        struct node node = {0};
        struct sl_error why = {0};
        node_open(&node);
        atomic_store_explicit(&node.strange, 1, memory_order_relaxed);

        sl_err err = waits_for_disks[_i](node.client, &why);

        ck_assert_msg(err == SL_OK, "%s: %s", sl_err_name(err), why.text);
        ck_assert_uint_eq(atomic_load_explicit(&node.strange, memory_order_relaxed), 0);
        node_close(&node);
    }
END_TEST

START_TEST(a_disk_that_is_away_has_a_code_of_its_own)
    {
        struct node node = {0};
        struct sl_error why = {0};
        node_open(&node);
        atomic_store_explicit(&node.removed, SL_ERR_DISK_AWAY, memory_order_relaxed);
        uint64_t started_ns = sl_clock_monotonic_ns();

        sl_err err = waits_for_disks[_i](node.client, &why);

        ck_assert_msg(err == SL_ERR_DISK_AWAY, "%s: %s", sl_err_name(err), why.text);
        ck_assert_uint_lt(sl_clock_monotonic_ns() - started_ns, WAIT_NS);
        node_close(&node);
    }
END_TEST

static const char *const forged[] = {"index", "arena.0", "leases"};

START_TEST(memory_of_another_layout_is_refused_at_once_and_by_name)
    {
        struct node node = {0};
        struct sl_error why = {0};
        char runtime_dir[96], shm_dir[96], path[128], said[64];
        const char *settings[] = {runtime_dir, shm_dir, "message_bytes_max=1MiB", NULL};
        uint32_t layout = 4711;
        bool created = false;
        sl_tmpdir_make(&node.dir, "/dev/shm");
        (void)snprintf(runtime_dir, sizeof(runtime_dir), "runtime_dir=%s", node.dir.path);
        (void)snprintf(shm_dir, sizeof(shm_dir), "shm_dir=%s", node.dir.path);
        struct sl_arena_options arena = {
            .directory = node.dir.path, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
        ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &node.arena, NULL), SL_OK);
        struct sl_index_options index = {.shm_dir = node.dir.path,
                                         .index_bytes_max = SL_MIB,
                                         .arena = node.arena,
                                         .leases.object_ns = SL_NS_PER_S};
        ck_assert_int_eq(sl_index_open(&index, &created, &node.index, NULL), SL_OK);
        ck_assert_int_eq(sl_index_leases_open(node.index, node.dir.path,
                                              (struct sl_lease_times){.object_ns = SL_NS_PER_S},
                                              &why),
                         SL_OK);
        /* A registrar that seems to be starting must not make it wait. */
        sl_tmpdir_write(sl_tmpdir_at(&node.dir, "registrar.sock", path, sizeof path), "", 0);
        int fd = open(sl_tmpdir_at(&node.dir, forged[_i], path, sizeof path), O_RDWR);
        ck_assert_int_eq(pwrite(fd, &layout, sizeof layout, 20), sizeof layout);
        (void)close(fd);
        struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                            .settings = settings,
                                            .leases = true,
                                            .timeout_ns = WAIT_NS};
        uint64_t started_ns = sl_clock_monotonic_ns();

        sl_err err = sl_client_open(&options, &node.client, &why);

        ck_assert_msg(err == SL_ERR_VERSION, "%s: %s", sl_err_name(err), why.text);
        ck_assert_uint_lt(sl_clock_monotonic_ns() - started_ns, WAIT_NS);
        (void)snprintf(said, sizeof said, "'%s' has layout 4711", forged[_i]);
        ck_assert_msg(strstr(why.text, said) != NULL, "%s", why.text);
        ck_assert_ptr_null(node.client);
        sl_index_close(&node.index);
        sl_arena_close(&node.arena);
        sl_tmpdir_remove(&node.dir);
    }
END_TEST

/* ---- memory that is cut short ---- */

static const struct {
    const char *name;
    off_t bytes;
} cuts[] = {{"arena.0", 0}, {"arena.0", SL_MIB}, {"index", 0}, {"index", 8192}};

struct mender {
    const char *whole, *path; /* the file to replace, and its replacement */
};

/* Like a registrar that finds a truncated shm file: later a new, complete one replaces it. */
static void *mend(void *context)
{
    const struct mender *mender = context;
    const struct timespec later = {.tv_nsec = 200 * (long)SL_NS_PER_MS};
    (void)nanosleep(&later, NULL);
    ck_assert_int_eq(rename(mender->whole, mender->path), 0);
    return NULL;
}

static void file_copy(const char *from, const char *to)
{
    static unsigned char bytes[8 * SL_MIB];
    int in = open(from, O_RDONLY);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ssize_t got = read(in, bytes, sizeof bytes);
    ck_assert(got > 0 && (size_t)got < sizeof bytes);
    ck_assert_int_eq(write(out, bytes, (size_t)got), got);
    (void)close(in);
    (void)close(out);
}

START_TEST(a_client_that_opens_while_memory_is_cut_short_waits_until_it_is_whole)
    {
        struct node node = {0};
        struct sl_error why = {0};
        char path[128], whole[128];
        pthread_t thread;
        node_start(&node);
        (void)sl_tmpdir_at(&node.dir, cuts[_i].name, path, sizeof path);
        (void)sl_tmpdir_at(&node.dir, "whole", whole, sizeof whole);
        file_copy(path, whole);
        ck_assert_int_eq(truncate(path, cuts[_i].bytes), 0);
        struct mender mender = {.whole = whole, .path = path};
        ck_assert_int_eq(pthread_create(&thread, NULL, mend, &mender), 0);

        sl_err err = client_open(&node, &why);

        ck_assert_msg(err == SL_OK, "%s: %s", sl_err_name(err), why.text);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        node_close(&node);
    }
END_TEST

START_TEST(a_client_says_that_memory_stayed_cut_short)
    {
        struct node node = {0};
        struct sl_error why = {0};
        char path[128];
        node_start(&node);
        node.open_ns = SL_NS_PER_S / 10;
        ck_assert_int_eq(truncate(sl_tmpdir_at(&node.dir, "arena.0", path, sizeof path), SL_MIB),
                         0);

        sl_err err = client_open(&node, &why);

        ck_assert_int_eq(err, SL_ERR_CORRUPT);
        ck_assert_msg(strstr(why.text, "arena.0") != NULL, "%s", why.text);
        ck_assert_ptr_null(node.client);
        node_close(&node);
    }
END_TEST

static const struct {
    uint64_t answered;
    sl_err code;
    uint32_t block_count;
} loads[] = {
    {.answered = 2, .code = SL_OK, .block_count = 2},
    {.answered = 3, .code = SL_ERR_PROTOCOL, .block_count = 0}, /* one more than was asked for */
    {.answered = UINT32_MAX, .code = SL_ERR_PROTOCOL, .block_count = 0},
};
START_TEST(more_blocks_than_were_asked_for_are_no_answer)
    {
        static const uint32_t tokens[8] = {0};
        static const uint32_t blocks[2] = {1, 2};
        struct node node = {.load_block_count = loads[_i].answered};
        struct sl_op *op = NULL;
        struct sl_op_result result;
        struct sl_op_request request = {.tokens = tokens,
                                        .token_count = 8,
                                        .device_blocks = blocks,
                                        .device_block_count = 2,
                                        .timeout_ns = WAIT_NS};
        node_open(&node);

        ck_assert_int_eq(sl_load_start(node.engine, &request, &op, NULL), SL_OK);
        ck_assert_int_eq(sl_op_wait(op, WAIT_NS, &result), SL_OK);

        ck_assert_int_eq(result.code, loads[_i].code);
        ck_assert_uint_eq(result.block_count, loads[_i].block_count);
        ck_assert_uint_eq(result.from_memory, loads[_i].block_count);
        ck_assert(result.code == SL_OK || result.why.text[0] != '\0');
        sl_op_release(&op);
        node_close(&node);
    }
END_TEST

/* Such a coordinator would read the blocks at once. It is therefore sent none, and the op reports
 * why nothing was stored. */
START_TEST(coordinator_without_events_is_named)
    {
        static const uint32_t tokens[8] = {0};
        static const uint32_t blocks[2] = {1, 2};
        static const struct sl_op_event event = {.rank = 0};
        struct node node = {.load_block_count = 0};
        struct sl_op *op = NULL;
        struct sl_op_result result;
        struct sl_op_request request = {.tokens = tokens,
                                        .token_count = 8,
                                        .device_blocks = blocks,
                                        .device_block_count = 2,
                                        .timeout_ns = WAIT_NS,
                                        .events = &event,
                                        .event_count = 1};
        node_open(&node);

        ck_assert_int_eq(sl_store_start(node.engine, &request, &op, NULL), SL_OK);
        ck_assert_int_eq(sl_op_wait(op, WAIT_NS, &result), SL_OK);

        ck_assert_int_eq(result.code, SL_ERR_VERSION);
        ck_assert_ptr_nonnull(strstr(result.why.text, "does not know events"));
        sl_op_release(&op);
        request.event_count = 0;
        ck_assert_int_eq(sl_store_start(node.engine, &request, &op, NULL), SL_OK);
        ck_assert_int_eq(sl_op_wait(op, WAIT_NS, &result), SL_OK);
        ck_assert_int_eq(result.code, SL_OK);
        ck_assert_uint_eq(result.block_count, 2);
        sl_op_release(&op);
        node_close(&node);
    }
END_TEST

static const unsigned char key_before[8];
static const struct {
    struct sl_hints hints;
    const unsigned char *before_hash;
    sl_err code;
    const char *named;
} hints[] = {
    {{.session = SL_SESSION_CONTINUES, .priority = SL_PRIORITY_HIGH, .keep_ns = SL_KEEP_NS_LIMIT},
     NULL,
     SL_OK,
     ""},
    {{.session = (enum sl_session)3}, NULL, SL_ERR_INVALID, "session 3"},
    {{.priority = (enum sl_priority)4}, NULL, SL_ERR_INVALID, "priority 4"},
    {{.keep_ns = SL_KEEP_NS_LIMIT + 1}, NULL, SL_ERR_INVALID, "keep_ns"},
    {{.session_id = "chat 7", .pause_ns = SL_KEEP_NS_LIMIT}, NULL, SL_OK, ""},
    {{.pause_ns = SL_KEEP_NS_LIMIT + 1}, NULL, SL_ERR_INVALID, "pause_ns"},
    {{.keep_ns = 0}, key_before, SL_ERR_INVALID, "before_hash"}, /* with tokens */
};

START_TEST(hints_out_of_their_bounds_are_refused_by_name)
    {
        static const uint32_t tokens[8] = {0};
        static const uint32_t blocks[2] = {1, 2};
        struct node node = {.load_block_count = 0};
        struct sl_op *op = NULL;
        struct sl_error why = {0};
        struct sl_op_request request = {.tokens = tokens,
                                        .token_count = 8,
                                        .device_blocks = blocks,
                                        .device_block_count = 2,
                                        .timeout_ns = WAIT_NS,
                                        .hints = hints[_i].hints,
                                        .before_hash = hints[_i].before_hash};
        node_open(&node);

        sl_err code = sl_store_start(node.engine, &request, &op, &why);

        ck_assert_int_eq(code, hints[_i].code);
        ck_assert_msg(strstr(why.text, hints[_i].named) != NULL, "%s", why.text);
        sl_op_release(&op);
        node_close(&node);
    }
END_TEST

static const struct {
    const char *name;
    uint64_t pause_ns;
    sl_err answered, code;
    const char *named;
    uint64_t said_ns; /* value that the node receives */
} pauses[] = {
    {"chat 7", 30 * SL_NS_PER_S, SL_OK, SL_OK, "", 30 * SL_NS_PER_S},
    {"chat 7", SL_KEEP_NS_LIMIT, SL_OK, SL_OK, "", SL_KEEP_NS_LIMIT},
    {"chat 7", 0, SL_OK, SL_OK, "", 0},
    {"chat 7", SL_PAUSE_UNKNOWN, SL_OK, SL_OK, "", 0},
    {"chat 8", 0, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND, "", 0},
    /* a coordinator that does not know the message */
    {"chat 7", 0, SL_ERR_UNSUPPORTED, SL_ERR_UNSUPPORTED, "message 190", 0},
    {"chat 7", SL_KEEP_NS_LIMIT + 1, SL_OK, SL_ERR_INVALID, "a week", 0},
    {NULL, 0, SL_OK, SL_ERR_INVALID, "no name", 0},
};
START_TEST(a_pause_is_told_by_the_name_that_ops_give_and_its_answer_is_the_nodes)
    {
        struct node node = {.load_block_count = 0};
        struct sl_error why = {0};
        const char *name = pauses[_i].name;
        node_open(&node);
        atomic_store_explicit(&node.paused, pauses[_i].answered, memory_order_release);

        sl_err code = sl_session_pause(node.client, name, pauses[_i].pause_ns, WAIT_NS, &why);

        ck_assert_int_eq(code, pauses[_i].code);
        ck_assert_msg(strstr(why.text, pauses[_i].named) != NULL, "%s", why.text);
        bool sent = code != SL_ERR_INVALID;
        ck_assert_uint_eq(node.said.session_id, sent ? sl_key_hash(name, strlen(name)) : 0);
        ck_assert_uint_eq(node.said.pause_ns, pauses[_i].said_ns);
        ck_assert(node.said.unknown == (pauses[_i].pause_ns == SL_PAUSE_UNKNOWN));
        node_close(&node);
    }
END_TEST

static const struct {
    struct sl_hints hints;
    uint32_t lane;
    sl_err answered, code;
    const char *named;
    bool sent;
} turns[] = {
    {{.session_id = "chat 7"}, 0, SL_OK, SL_OK, "", true},
    {{.session_id = "chat 7", .session = SL_SESSION_ENDS}, 63, SL_OK, SL_OK, "", true},
    {{.session_id = "chat 7", .pause_ns = SL_KEEP_NS_LIMIT}, 0, SL_OK, SL_OK, "", true},
    {{.session_id = "chat 7"}, 0, SL_ERR_UNSUPPORTED, SL_ERR_UNSUPPORTED, "message 192", true},
    /* hints about values only cost no message */
    {{.priority = SL_PRIORITY_HIGH, .keep_ns = 1, .pause_ns = 1}, 0, SL_OK, SL_OK, "", false},
    {{.session_id = "chat 7"}, 64, SL_OK, SL_ERR_INVALID, "lane", false},
    {{.session = 3}, 0, SL_OK, SL_ERR_INVALID, "session", false},
    {{.priority = 4}, 0, SL_OK, SL_ERR_INVALID, "priority", false},
    {{.keep_ns = SL_KEEP_NS_LIMIT + 1}, 0, SL_OK, SL_ERR_INVALID, "keep_ns", false},
    {{.pause_ns = SL_KEEP_NS_LIMIT + 1}, 0, SL_OK, SL_ERR_INVALID, "pause_ns", false},
};
START_TEST(a_turn_of_values_is_told_by_the_sessions_name)
    {
        static const struct sl_object_key keys[] = {{.at = "a", .length = 1},
                                                    {.at = "b", .length = 1}};
        struct node node = {.load_block_count = 0};
        struct sl_error why = {0};
        const struct sl_hinted of = {
            .keys = keys, .count = 2, .asked = true, .lane = turns[_i].lane};
        node_open(&node);
        atomic_store_explicit(&node.paused, turns[_i].answered, memory_order_release);

        sl_err code = sl_hint_batch(node.client, &turns[_i].hints, &of, WAIT_NS, &why);

        ck_assert_int_eq(code, turns[_i].code);
        ck_assert_msg(strstr(why.text, turns[_i].named) != NULL, "%s", why.text);
        ck_assert_uint_eq(node.turn_count, turns[_i].sent ? 1 : 0);
        if (turns[_i].sent) {
            ck_assert_uint_eq(node.turn.session_id, sl_key_hash("chat 7", strlen("chat 7")));
            ck_assert_uint_eq(node.turn.pause_ns, turns[_i].hints.pause_ns);
            ck_assert_uint_eq(node.turn.lane, turns[_i].lane);
            ck_assert(node.turn.ends == (turns[_i].hints.session == SL_SESSION_ENDS));
            ck_assert(node.turn.asked);
            ck_assert_uint_eq(node.turn_key_count, SL_COUNT(keys));
        }
        node_close(&node);
    }
END_TEST

/* Keys that do not fit into one message follow in others, after the first ones. */
START_TEST(a_long_turn_of_values_is_told_in_several_messages)
    {
        enum { KEYS = 3000, KEY_BYTES = 1000 };
        struct node node = {.load_block_count = 0};
        struct sl_error why = {0};
        char *text = malloc(KEY_BYTES);
        struct sl_object_key *keys = malloc(KEYS * sizeof(*keys));
        memset(text, 'k', KEY_BYTES);
        for (uint32_t i = 0; i < KEYS; i++) {
            keys[i] = (struct sl_object_key){.at = text, .length = KEY_BYTES};
        }
        const struct sl_hints named = {.session_id = "chat 7"};
        const struct sl_hinted of = {.keys = keys, .count = KEYS, .asked = true};
        node_open(&node);

        sl_err code = sl_hint_batch(node.client, &named, &of, WAIT_NS, &why);

        ck_assert_msg(code == SL_OK, "%s", why.text);
        ck_assert_uint_gt(node.turn_count, 1);
        ck_assert_uint_eq(node.asked_count, 1); /* the first one */
        ck_assert_uint_eq(node.turn_key_count, KEYS);
        node_close(&node);
        free(keys);
        free(text);
    }
END_TEST

/* ---- values that are not in memory ---- */

/* Makes `count` keys of `length` bytes each, for free(). */
static struct sl_object_key *keys_make(uint32_t count, uint32_t length)
{
    struct sl_object_key *keys = malloc(count * (sizeof *keys + length + 1));
    char *at = (char *)&keys[count];
    for (uint32_t i = 0; i < count; i++, at += length + 1) {
        (void)snprintf(at, length + 1, "%0*u", (int)length, i);
        keys[i] = (struct sl_object_key){.at = at, .length = length};
    }
    return keys;
}

static const struct prefetched {
    const char *setting;
    sl_err brought;
    uint32_t count, length, message_count;
} prefetches[] = {
    /* A key counts as present only if it is: here it changed or was removed during the read. */
    {NULL, SL_ERR_BUSY, 1, 8, 1},
    /* Each disk reads on by itself: none waits for those of another that are asked in a message
       before. */
    {NULL, SL_OK, 5000, 8, 1},
    {"message_bytes_max=64KiB", SL_OK, 300, 1024, 6},
};

START_TEST(a_prefetch_reports_its_result_and_uses_few_messages)
    {
        const struct prefetched *of = &prefetches[_i];
        struct node node = {.brought = of->brought, .setting = of->setting};
        struct sl_error why = {0};
        struct sl_object_key *keys = keys_make(of->count, of->length);
        sl_err *codes = calloc(of->count, sizeof *codes);
        node_open(&node);

        sl_err err = sl_prefetch_batch(node.client, keys, of->count, codes, WAIT_NS, &why);

        ck_assert_msg(err == SL_OK, "%s", why.text);
        for (uint32_t i = 0; i < of->count; i++) {
            ck_assert_int_eq(codes[i], of->brought);
        }
        ck_assert_uint_eq(node.bring_key_count, of->count);
        ck_assert_uint_eq(node.bring_count, of->message_count);
        node_close(&node);
        free(codes);
        free(keys);
    }
END_TEST

/* Values of 16 KiB, four of which form a portion where memory is 4 MiB, and missing values. */
static const struct brought {
    uint64_t value_bytes;
    sl_err brought;
    uint32_t count, held_until;
    uint64_t least, most; /* keys in the largest portion */
} fetches[] = {
    {16 * SL_KIB, SL_OK, 64, 0, 4, 4},
    {0, SL_ERR_NOT_FOUND, 2000, 0, 64, 256},
    /* The first key's peer is silent: the other keys are still fetched. */
    {0, SL_ERR_NOT_FOUND, 4, 4, 1, 1},
};

START_TEST(values_of_other_nodes_come_in_portions_of_few_bytes)
    {
        const struct brought *of = &fetches[_i];
        struct node node = {
            .brought = of->brought, .value_bytes = of->value_bytes, .held_until = of->held_until};
        struct sl_error why = {0};
        char *got = malloc(of->count * 16 * SL_KIB);
        struct sl_object_key *keys = keys_make(of->count, 8);
        struct sl_buffer *buffers = calloc(of->count, sizeof *buffers);
        sl_err *codes = calloc(of->count, sizeof *codes);
        for (uint32_t i = 0; i < of->count; i++) {
            buffers[i] =
                (struct sl_buffer){.at = &got[i * 16 * SL_KIB], .length_bytes = 16 * SL_KIB};
        }
        node_open(&node);
        sl_index_set_remote(node.index, true);

        sl_err err =
            sl_get_batch(node.client, keys, buffers, of->count, NULL, codes, WAIT_NS, &why);

        ck_assert_msg(err == SL_OK, "%s", why.text);
        for (uint32_t i = 0; i < of->count; i++) {
            ck_assert_int_eq(codes[i], of->brought);
        }
        ck_assert_uint_eq(node.bring_key_count, of->count);
        ck_assert_uint_ge(node.bring_keys_max, of->least);
        ck_assert_uint_le(node.bring_keys_max, of->most);
        node_close(&node);
        free(codes);
        free(buffers);
        free(keys);
        free(got);
    }
END_TEST

START_TEST(who_has_no_time_is_told_that_the_disk_was_not_asked)
    {
        struct node node = {.value_bytes = 8};
        struct sl_error why = {0};
        char got[8];
        const struct sl_buffer buffer = {.at = got, .length_bytes = sizeof got};
        const struct sl_object_key key = {.at = "k", .length = 1};
        const struct sl_text text = {.at = "k", .length = 1};
        node_open(&node);
        object_put(&node, &text, false);

        sl_err err = sl_get(node.client, key, buffer, NULL, 1, &why);

        ck_assert_int_eq(err, SL_ERR_TIMEOUT);
        ck_assert_msg(strstr(why.text, "before the disk was asked") != NULL, "%s", why.text);
        ck_assert_uint_eq(node.bring_count, 0);
        node_close(&node);
    }
END_TEST

/* ---- entries that stay torn, as a registrar leaves them that was stopped ---- */

#define TORN_COUNT 300u /* more than are looked up at once */

static struct sl_object_key *torn_make(struct node *node, uint32_t count)
{
    struct sl_object_key *keys = keys_make(count, 8);
    node->value_bytes = 8;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_text text = {.at = keys[i].at, .length = keys[i].length};
        struct sl_entry entry;
        object_put(node, &text, true);
        ck_assert_int_eq(sl_index_find_any(node->index, keys[i].at, keys[i].length, &entry), SL_OK);
        atomic_store(&record_at(&node->index->view, entry.ref)[RECORD_VERSION], 0);
    }
    return keys;
}

static sl_err torn_exist(struct sl_client *client, const struct sl_object_key *keys, sl_err *codes)
{
    return sl_exists_batch(client, keys, TORN_COUNT, codes);
}
static sl_err torn_stat(struct sl_client *client, const struct sl_object_key *keys, sl_err *codes)
{
    static struct sl_stat stats[TORN_COUNT];
    return sl_stat_batch(client, keys, TORN_COUNT, stats, codes);
}
static sl_err (*const torn_looks[])(struct sl_client *client, const struct sl_object_key *keys,
                                    sl_err *codes) = {torn_exist, torn_stat};

/* The time of one lookup is waited for once, not for each: that would be 30 s. */
START_TEST(a_batch_of_look_ups_waits_once_for_what_stays_torn)
    {
        struct node node = {.setting = "op_timeout=100ms"};
        static sl_err codes[TORN_COUNT];
        node_open(&node);
        struct sl_object_key *keys = torn_make(&node, TORN_COUNT);
        uint64_t started_ns = sl_clock_monotonic_ns();

        sl_err err = torn_looks[_i](node.client, keys, codes);

        ck_assert_int_eq(err, SL_OK);
        ck_assert_uint_lt(sl_clock_monotonic_ns() - started_ns, WAIT_NS);
        for (uint32_t i = 0; i < TORN_COUNT; i++) {
            ck_assert_int_eq(codes[i], SL_ERR_BUSY);
        }
        node_close(&node);
        free(keys);
    }
END_TEST

START_TEST(a_look_up_of_what_stays_torn_hears_that_the_node_was_stopped)
    {
        struct node node = {.setting = "op_timeout=50s"};
        char path[128];
        node_open(&node);
        struct sl_object_key *keys = torn_make(&node, 1);
        ck_assert_int_eq(unlink(sl_tmpdir_at(&node.dir, "index", path, sizeof path)), 0);

        sl_err err = sl_exists(node.client, keys[0]);

        ck_assert_int_eq(err, SL_ERR_UNREACHABLE);
        node_close(&node);
        free(keys);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_hostile");
    TCase *tcase = tcase_create("answers");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, more_blocks_than_were_asked_for_are_no_answer, 0,
                        (int)SL_COUNT(loads));
    tcase_add_test(tcase, coordinator_without_events_is_named);
    tcase_add_loop_test(tcase, hints_out_of_their_bounds_are_refused_by_name, 0,
                        (int)SL_COUNT(hints));
    tcase_add_loop_test(tcase,
                        a_pause_is_told_by_the_name_that_ops_give_and_its_answer_is_the_nodes, 0,
                        (int)SL_COUNT(pauses));
    tcase_add_loop_test(tcase, a_turn_of_values_is_told_by_the_sessions_name, 0,
                        (int)SL_COUNT(turns));
    tcase_add_test(tcase, a_long_turn_of_values_is_told_in_several_messages);
    tcase_add_test(tcase, answers_of_another_wire_version_end_a_call_by_name);
    tcase_add_loop_test(tcase, a_registrar_that_began_anew_is_asked_again, 0,
                        SL_COUNT(waits_for_disks));
    tcase_add_loop_test(tcase, a_disk_that_is_away_has_a_code_of_its_own, 0,
                        SL_COUNT(waits_for_disks));
    tcase_add_loop_test(tcase, memory_of_another_layout_is_refused_at_once_and_by_name, 0,
                        (int)SL_COUNT(forged));
    tcase_add_loop_test(tcase,
                        a_client_that_opens_while_memory_is_cut_short_waits_until_it_is_whole, 0,
                        (int)SL_COUNT(cuts));
    tcase_add_test(tcase, a_client_says_that_memory_stayed_cut_short);
    tcase_add_loop_test(tcase, a_prefetch_reports_its_result_and_uses_few_messages, 0,
                        (int)SL_COUNT(prefetches));
    tcase_add_loop_test(tcase, values_of_other_nodes_come_in_portions_of_few_bytes, 0,
                        (int)SL_COUNT(fetches));
    tcase_add_test(tcase, who_has_no_time_is_told_that_the_disk_was_not_asked);
    tcase_add_loop_test(tcase, a_batch_of_look_ups_waits_once_for_what_stays_torn, 0,
                        (int)SL_COUNT(torn_looks));
    tcase_add_test(tcase, a_look_up_of_what_stays_torn_hears_that_the_node_was_stopped);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
