/* tests/fuzz/fuzz_client.c - the client library against a hostile registrar and coordinator: index
 * and arena header hold arbitrary bytes and keep changing, answers are arbitrary. No call may
 * crash, hang, return more bytes than its buffer holds, or return an unknown code.
 *
 * An input: changes of the index, calls, and the bytes from which answers are made. */
#include "client/include/sluice.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/shm/index_internal.h"
#include "tests/fuzz/hostile_node.h"
#include "tests/support/mailbox_wait.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define CALL_NS     (6 * SL_NS_PER_MS)
#define ITEMS_MAX   16u
#define ROOM        256u
#define CALLS_MAX   6u
#define CHANGES_MAX 24u

static struct hostile_node node;
static unsigned char *image; /* the index's data as the registrar left it */
static struct sl_client *client;
static struct sl_engine *engine;

/* ---- the registrar and coordinator ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hostile answers; /* under the lock */
static char directory[128];

struct way {
    struct sl_mailbox *mailbox;
    struct sl_codec *codec;
    char to[32];
};

static void way_send(void *context, const struct sl_msg *reply)
{
    struct way *way = context;
    const void *frame = NULL;
    size_t length = 0;
    struct sl_msg named = *reply;
    named.sender = sl_text_of("registrar");
    HOSTILE_MUST(sl_codec_encode(way->codec, &named, &frame, &length, NULL) == SL_OK);
    (void)sl_mailbox_send(way->mailbox, way->to, frame, length, true);
}

static void answered(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply)
{
    static struct sl_item_grant grants[ITEMS_MAX];
    (void)hostile;
    if (request->type == SL_MSG_HELLO) {
        reply->body.hello_reply =
            (struct sl_body_hello_reply){.boot_generation = 7, .arena_count = 1, .rank_count = 1};
    } else if (request->type == SL_MSG_RESERVE) {
        uint64_t count = SL_MIN(request->body.reserve.items.count, ITEMS_MAX);
        for (uint64_t i = 0; i < count; i++) {
            grants[i] = (struct sl_item_grant){
                .ref = i + 1, .generation = i + 1, .offset_bytes = 512 * SL_KIB + i * 4096};
        }
        reply->body.reserve_reply.items.at = grants;
        reply->body.reserve_reply.items.count = count;
    }
}

static void serve(struct sl_mailbox *mailbox, struct sl_codec *in, struct sl_codec *out)
{
    const char *from = NULL;
    const void *frame = NULL;
    size_t length = 0;
    while (sl_mailbox_receive(mailbox, &from, &frame, &length) == SL_OK) {
        struct sl_msg msg;
        struct way way = {.mailbox = mailbox, .codec = out};
        (void)snprintf(way.to, sizeof(way.to), "%s", from);
        if (sl_codec_decode(in, frame, length, &msg, NULL) != SL_OK || SL_MSG_IS_REPLY(msg.type)) {
            continue;
        }
        pthread_mutex_lock(&lock);
        uint64_t times = hostile_byte(&answers.input) >= 240 ? 3 : 1; /* one answer too many */
        for (uint64_t i = 0; i < times; i++) {
            hostile_reply(&answers, &msg, way_send, &way);
        }
        pthread_mutex_unlock(&lock);
    }
}

static void *registrar_run(void *unused)
{
    static const char *const names[] = {"registrar", "coordinator"};
    struct sl_mailbox *mailboxes[SL_COUNT(names)];
    struct sl_codec *in = NULL;
    struct sl_codec *out = NULL;
    (void)unused;
    HOSTILE_MUST(sl_codec_create(SL_MIB, &in, NULL) == SL_OK);
    HOSTILE_MUST(sl_codec_create(SL_MIB, &out, NULL) == SL_OK);
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        struct sl_mailbox_options options = {.runtime_dir = directory,
                                             .name = names[i],
                                             .message_bytes_max = SL_MIB,
                                             .ring_bytes = 512 * SL_KIB,
                                             .lanes_max = 8};
        HOSTILE_MUST(sl_mailbox_open(&options, &mailboxes[i], NULL) == SL_OK);
    }
    for (;;) {
        (void)mailbox_wait(mailboxes[0], SL_NS_PER_MS / 4);
        serve(mailboxes[0], in, out);
        serve(mailboxes[1], in, out);
    }
    return NULL;
}

/* ---- the client ---- */

static void need(sl_err err, const struct sl_error *why)
{
    if (err != SL_OK) {
        fprintf(stderr, "fuzz_client: %s\n", why->text);
        exit(1);
    }
}

static void engine_make(void)
{
    static const struct sl_engine_layer layer = {
        .length_bytes = 4096, .block_stride_bytes = 64, .piece_bytes = 64};
    static const struct sl_engine_pool pool = {
        .name = "kv", .layer_count = 1, .layers = &layer, .memory_bytes = 4096};
    static const struct sl_engine_options options = {.name = "engine",
                                                     .model = {.name = "m"},
                                                     .key_format = "sluice",
                                                     .block_tokens = 4,
                                                     .world = 1,
                                                     .block_count = 64,
                                                     .pool_count = 1,
                                                     .pools = &pool};
    struct sl_error why = {0};
    need(sl_engine_register(client, &options, 5 * SL_NS_PER_S, &engine, &why), &why);
}

static void leave(void)
{
    hostile_directory_remove(directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const struct hostile_target target = {.answered = answered};
    static char runtime_setting[160];
    static char shm_setting[160];
    const char *settings[] = {runtime_setting, shm_setting, "call_retry=5ms", NULL};
    struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .settings = settings, .timeout_ns = 20 * SL_NS_PER_S};
    struct sl_error why = {0};
    pthread_t thread;
    (void)argc;
    (void)argv;
    (void)snprintf(directory, sizeof(directory), "/dev/shm/sluice-fuzz-client-XXXXXX");
    HOSTILE_MUST(mkdtemp(directory) != NULL);
    (void)atexit(leave);
    (void)snprintf(runtime_setting, sizeof(runtime_setting), "runtime_dir=%s", directory);
    (void)snprintf(shm_setting, sizeof(shm_setting), "shm_dir=%s", directory);
    hostile_node_make(&node, directory);
    const struct sl_index_view *view = sl_index_as_view(node.index);
    image = malloc(view->segment.data_bytes);
    HOSTILE_MUST(image != NULL);
    memcpy(image, view->segment.data, view->segment.data_bytes);
    answers.target = &target;
    HOSTILE_MUST(pthread_create(&thread, NULL, registrar_run, NULL) == 0);
    need(sl_client_open(&options, &client, &why), &why);
    engine_make();
    /* Everything is mapped and connected: the names are no longer needed, except for the pin file
     * that a new HELLO makes. */
    return 0;
}

static struct sl_object_key key_of(struct hostile_input *input)
{
    static char texts[ITEMS_MAX][SL_KEY_BYTES_MAX + 1];
    static uint32_t next;
    char *text = texts[next++ % ITEMS_MAX];
    uint64_t how = hostile_byte(input);
    if (how < 200) {
        (void)snprintf(text, SL_KEY_BYTES_MAX, NODE_MODEL "/b%u/%u/kv", (unsigned)how % 5,
                       (unsigned)how / 8 % 2);
    } else {
        memset(text, 'k', SL_KEY_BYTES_MAX);
        text[SL_MAX(how - 200, 1) * 18] = '\0';
    }
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

static bool listed(void *context, const struct sl_object_info *info)
{
    uint64_t *count = context;
    uint64_t sum = info->length_bytes + info->digest_low;
    HOSTILE_MUST(info->key.length >= 1 && info->key.length <= SL_KEY_BYTES_MAX);
    for (uint32_t i = 0; i < info->key.length; i++) {
        sum += (unsigned char)info->key.at[i];
    }
    return ++*count < 10000 && sum != 1;
}

static void codes_check(const sl_err *codes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        HOSTILE_MUST(codes[i] >= SL_OK && codes[i] < SL_ERR_COUNT);
    }
}

/* The same with values in pieces: put with options, got by ranges, written step by step. */
static void call_pieces(struct hostile_input *input, uint64_t what, uint32_t count)
{
    static unsigned char rooms[ITEMS_MAX][ROOM];
    static const char *const names[] = {"a", "b"};
    struct sl_object_key keys[ITEMS_MAX];
    struct sl_iov pieces[ITEMS_MAX][2];
    struct sl_iov_list items[ITEMS_MAX];
    struct sl_put_session *drafts[ITEMS_MAX] = {NULL};
    uint64_t lengths[ITEMS_MAX] = {0};
    sl_err codes[ITEMS_MAX] = {SL_OK};
    const struct sl_put_options terms = {.replace = (what & 64) != 0,
                                         .hard_pin = (what & 32) != 0,
                                         .contributions = names,
                                         .contribution_count = (uint32_t)(what >> 5 & 2)};
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t cut = hostile_byte(input) % 200;
        keys[i] = key_of(input);
        pieces[i][0] = (struct sl_iov){rooms[i], cut, 0};
        pieces[i][1] = (struct sl_iov){rooms[i] + cut, 200 - cut, cut};
        items[i] = (struct sl_iov_list){.key = keys[i], .at = pieces[i], .count = 2};
        lengths[i] = 200;
    }
    switch (what % 3) {
    case 0:
        err = sl_putv(client, items, count, &terms, codes, CALL_NS, NULL);
        break;
    case 1:
        err = sl_getv(client, items, count, (what & 8) != 0, lengths, codes, CALL_NS, NULL);
        break;
    default:
        err = sl_put_start(client, keys, NULL, lengths, count, &terms, 0, drafts, codes, CALL_NS,
                           NULL);
        for (uint32_t i = 0; i < count; i++) {
            if (drafts[i] != NULL) {
                (void)sl_put_write(drafts[i], pieces[i], 1 + (uint32_t)(what & 1), NULL);
            }
        }
        if (hostile_byte(input) < 128) {
            (void)sl_put_end(client, drafts, count, codes, CALL_NS, NULL);
        }
        for (uint32_t i = 0; i < count; i++) {
            sl_put_abort(&drafts[i]);
        }
        break;
    }
    if (err == SL_OK) {
        codes_check(codes, count);
    }
}

static void call_batch(struct hostile_input *input, uint64_t what, uint32_t count)
{
    struct sl_object_key keys[ITEMS_MAX];
    static unsigned char rooms[ITEMS_MAX][ROOM];
    struct sl_buffer buffers[ITEMS_MAX];
    struct sl_view views[ITEMS_MAX] = {{0}};
    uint64_t lengths[ITEMS_MAX] = {0};
    sl_err codes[ITEMS_MAX] = {SL_OK};
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = key_of(input);
        buffers[i] = (struct sl_buffer){rooms[i], ROOM - i * 12};
    }
    switch (what % 7) {
    case 0:
        err = sl_get_batch(client, keys, buffers, count, lengths, codes, CALL_NS, NULL);
        for (uint32_t i = 0; err == SL_OK && i < count; i++) {
            HOSTILE_MUST(codes[i] != SL_OK || lengths[i] <= buffers[i].length_bytes);
        }
        break;
    case 1:
        err = sl_put_batch(client, keys, buffers, count, codes, CALL_NS, NULL);
        break;
    case 2:
        err = sl_exists_batch(client, keys, count, codes);
        break;
    case 3:
        err = sl_remove_batch(client, keys, count, NULL, codes, CALL_NS, NULL);
        break;
    case 4:
        err = sl_prefetch_batch(client, keys, count, codes, CALL_NS, NULL);
        break;
    default:
        err = sl_get_pinned_batch(client, keys, views, count, codes, CALL_NS, NULL);
        for (uint32_t i = 0; err == SL_OK && i < count; i++) {
            if (codes[i] == SL_OK) {
                const volatile unsigned char *bytes = views[i].at;
                (void)(bytes[0] + bytes[views[i].length_bytes - 1]);
                sl_view_release(client, &views[i]);
            }
        }
        break;
    }
    if (err == SL_OK) {
        codes_check(codes, count);
    }
}

static void call_op(struct hostile_input *input, uint64_t what)
{
    static uint32_t tokens[16];
    static const uint32_t blocks[4] = {1, 2, 3, 4};
    struct sl_op *op = NULL;
    struct sl_op_result result = {.code = SL_OK};
    struct sl_op_request request = {.tokens = tokens,
                                    .token_count = 4 + (uint32_t)what % 12,
                                    .device_blocks = blocks,
                                    .device_block_count = 1 + (uint32_t)what % 4,
                                    .timeout_ns = CALL_NS};
    sl_err err = (what & 16) != 0 ? sl_store_start(engine, &request, &op, NULL)
                                  : sl_load_start(engine, &request, &op, NULL);
    if (err != SL_OK) {
        return;
    }
    if (hostile_byte(input) >= 200) {
        (void)sl_op_cancel(op, NULL);
    }
    err = sl_op_wait(op, 4 * CALL_NS, &result);
    if (err == SL_OK) {
        HOSTILE_MUST(result.code >= SL_OK && result.code < SL_ERR_COUNT);
        HOSTILE_MUST(result.block_count <= request.device_block_count);
        HOSTILE_MUST(result.from_memory + (uint64_t)result.from_disk + result.from_remote <=
                     3u * request.device_block_count);
        HOSTILE_MUST(result.stored_count <= request.device_block_count);
    }
    for (uint32_t i = 0; i < 6; i++) {
        (void)(sl_op_block_stored(op, i) + sl_op_block_existed(op, i));
    }
    (void)sl_op_wait_fenced(op, CALL_NS, NULL);
    sl_op_release(&op);
}

static void call_one(struct hostile_input *input)
{
    uint64_t what = hostile_byte(input);
    uint64_t count = 0;
    struct sl_object_info info;
    if (what < 128) {
        call_batch(input, what, 1 + (uint32_t)(what / 6) % ITEMS_MAX);
    } else if (what < 160) {
        call_op(input, what);
    } else if (what < 184) {
        (void)sl_list(client, (what & 1) != 0 ? NODE_MODEL : NULL, listed, &count, NULL);
    } else if (what < 208) {
        (void)sl_stat(client, key_of(input), &info);
        (void)sl_size(client, key_of(input), &count);
    } else if (what < 216) {
        (void)sl_flush(client, CALL_NS, NULL);
    } else if (what < 244) {
        call_pieces(input, hostile_byte(input), 1 + (uint32_t)what % ITEMS_MAX);
    } else {
        (void)sl_remove_all(client, CALL_NS, NULL);
    }
}

static void change(struct hostile_input *input)
{
    const struct sl_index_view *view = sl_index_as_view(node.index);
    uint64_t how = hostile_byte(input);
    uint64_t at = hostile_byte(input) << 8;
    at |= hostile_byte(input);
    index_word *words = (index_word *)(void *)view->segment.data;
    uint64_t count = view->bucket_count * 8;
    if (how < 160) { /* a record's words */
        words = record_at(view, node.refs[at % SL_COUNT(node.refs)]);
        count = RECORD_KEY + 2;
        at >>= 4;
    } else if (how < 208) {
        words = view->records;
        count = 2048;
    }
    index_word *word = &words[at % count];
    uint64_t value = hostile_number(input, 0, UINT64_MAX);
    word_set(word, (how & 1) != 0 ? value ^ word_get(word) : value);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    const struct sl_index_view *view = sl_index_as_view(node.index);
    struct hostile_input input = {bytes, bytes + length_bytes};
    uint64_t changes = hostile_byte(&input) % CHANGES_MAX;
    uint64_t calls = hostile_byte(&input) % CALLS_MAX + 1;
    memcpy(view->segment.data, image, view->segment.data_bytes);
    for (uint64_t i = 0; i < changes; i++) {
        change(&input);
    }
    /* The second half of the rest is for the answers. */
    size_t left = (size_t)(input.end - input.at);
    pthread_mutex_lock(&lock);
    answers.input = (struct hostile_input){input.at + left / 2, input.end};
    pthread_mutex_unlock(&lock);
    input.end = input.at + left / 2;
    for (uint64_t i = 0; i < calls; i++) {
        call_one(&input);
    }
    pthread_mutex_lock(&lock);
    answers.input = (struct hostile_input){NULL, NULL}; /* the bytes are only borrowed */
    pthread_mutex_unlock(&lock);
    return 0;
}
