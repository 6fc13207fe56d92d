/* tests/fuzz/hostile.c - see hostile.h. */
#include "tests/fuzz/hostile.h"
#include "ipc/msg/msg_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_MAX       64u
#define FRAMES_STEP_MAX 1024u /* of one operation */
#define TICKS_STEP_MAX  4096u
#define ITEMS_MAX       24u

const char *const hostile_senders[HOSTILE_SENDERS] = {
    "client.10.0", "client.11.0", "coordinator", "swapper.0",
    "swapper.1",   "tierer.0",    "keyer",       "registrar",
};
static const char *const roles[HOSTILE_SENDERS] = {
    "client", "client", "coordinator", "swapper", "swapper", "tierer", "keyer", "registrar",
};

struct sl_proc_id hostile_proc(uint32_t sender)
{
    /* Above every pid that a system assigns, so that it cannot mean a real process. */
    return (struct sl_proc_id){.pid = (1u << 23) + sender, .start_time = 7};
}

uint32_t hostile_sender_of(const char *name)
{
    uint32_t at = 0;
    while (at < HOSTILE_SENDERS && strcmp(hostile_senders[at], name) != 0) {
        at++;
    }
    return at;
}

void hostile_directory_remove(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        (void)unlinkat(dirfd(directory), entry->d_name, 0); /* not "." and ".." */
    }
    (void)closedir(directory);
    (void)rmdir(path);
}

/* ---- input ---- */

uint64_t hostile_byte(struct hostile_input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

uint64_t hostile_number(struct hostile_input *input, uint64_t low, uint64_t high)
{
    uint64_t value = 0;
    uint64_t how = hostile_byte(input);
    if (how < 128) { /* small */
        value = how;
    } else if (how < 160) {
        value = high - (how & 7);
    } else if (how < 208) { /* a power of two and its neighbours */
        value = (UINT64_C(1) << (hostile_byte(input) & 63)) + (how & 3) - 1;
    } else {
        for (int i = 0; i < 8; i++) {
            value = value << 8 | hostile_byte(input);
        }
    }
    if (value >= low && value <= high) {
        return value;
    }
    return high - low == UINT64_MAX ? value : low + value % (high - low + 1);
}

/* ---- remembered values ---- */

struct memory {
    char field[24];
    uint64_t values[HOSTILE_SLOTS];
};
static struct memory memories[64];
static uint32_t memory_count;

static struct memory *memory_of(const char *field, bool make)
{
    for (uint32_t i = 0; i < memory_count; i++) {
        if (strcmp(memories[i].field, field) == 0) {
            return &memories[i];
        }
    }
    if (!make || memory_count == SL_COUNT(memories)) {
        return NULL;
    }
    struct memory *fresh = &memories[memory_count++];
    memset(fresh, 0, sizeof(*fresh));
    (void)snprintf(fresh->field, sizeof(fresh->field), "%s", field);
    return fresh;
}

static void remember_at(const char *field, uint64_t slot, uint64_t value)
{
    struct memory *memory = memory_of(field, true);
    if (memory != NULL) {
        memory->values[slot % HOSTILE_SLOTS] = value;
    }
}

void hostile_remember(struct hostile *hostile, const char *field, uint64_t value)
{
    remember_at(field, hostile->next_slot, value);
}

static void remember_fields(struct hostile *hostile, const struct sl_shape *shape,
                            const unsigned char *from)
{
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        const unsigned char *at = from + field->offset_bytes;
        if (field->kind == SL_FIELD_U64) {
            uint64_t value;
            memcpy(&value, at, sizeof(value));
            remember_at(field->name, hostile->next_slot, value);
        } else if (field->kind == SL_FIELD_LIST) {
            struct sl_counted list;
            memcpy(&list, at, sizeof(list));
            const struct sl_shape *item = field->item();
            for (uint64_t k = 0; k < list.count && k < HOSTILE_SLOTS; k++) {
                hostile->next_slot++;
                remember_fields(hostile, item,
                                (const unsigned char *)list.at + k * item->struct_bytes);
            }
        }
    }
}

/* ---- messages made of input bytes ---- */

static const char *const texts[] = {
    "k0",
    "k1",
    "k2",
    "k3",
    "k4",
    "m/b0",
    "m/b1",
    "m/b0/0/kv",
    "m/b0/1/kv",
    "m/b1/0/kv",
    "m/b1/1/kv",
    "m/b2",
    "swapper.0",
    "swapper.1",
    "tierer.0",
    "client.10.0",
    "client.11.0",
    "coordinator",
    "client",
    "tierer",
    "pins.client.10.0",
    "pins.client.11.0",
    "kv",
    "state",
    "0123456789abcdef0123456789abcdef",
    "sluice",
    "vllm-sha256-cbor",
    "sglang",
    "fastdeploy",
    "lmcache",
    "[[\"a\"],[1,2]]",
    "\xc3\xa9/\xe2\x82\xac",
};

#define TEXTS_FORMATS 25u /* where the formats begin */

struct making {
    struct hostile *hostile;
    uint64_t slot; /* of the remembered tuple that this item uses */
    void *blocks[512];
    uint32_t block_count;
};

static void *keep(struct making *making, size_t bytes)
{
    HOSTILE_MUST(making->block_count < SL_COUNT(making->blocks));
    void *block = calloc(1, bytes + 1);
    HOSTILE_MUST(block != NULL);
    making->blocks[making->block_count++] = block;
    return block;
}

/* Fields whose numbers mean nothing unless a message has contained them before. */
static bool is_handle(const char *name)
{
    static const char *const handles[] = {
        "ref",       "generation", "engine_id",         "segment",      "op_id",
        "target_op", "arena",      "disk_offset_bytes", "offset_bytes", "length_bytes"};
    for (uint32_t i = 0; i < SL_COUNT(handles); i++) {
        if (strcmp(handles[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static uint64_t make_number(struct making *making, const struct sl_field *field)
{
    struct hostile_input *input = &making->hostile->input;
    uint64_t how = hostile_byte(input);
    uint64_t value = 0;
    const struct memory *memory = memory_of(field->name, false);
    if (strcmp(field->name, "pid") == 0) {
        return hostile_proc((uint32_t)how % (HOSTILE_SENDERS + 2)).pid;
    }
    if (strcmp(field->name, "start_time") == 0 && how < 250) {
        return hostile_proc(0).start_time;
    }
    if (memory != NULL && how < (is_handle(field->name) ? 224 : 48)) {
        value = memory->values[making->slot % HOSTILE_SLOTS];
    } else if (how < 208) {
        value = field->low + how % 3;
    } else {
        value = hostile_number(input, field->low, field->high);
    }
    return value >= field->low && value <= field->high ? value : field->low;
}

/* A text that a peer would send; NULL: anything. */
static const char *usual_text(const char *field, uint64_t how)
{
    if (strcmp(field, "writer") == 0) {
        return how % 4 == 0 ? hostile_senders[how / 4 % HOSTILE_SENDERS] : "";
    }
    if (strcmp(field, "key_format") == 0 || strcmp(field, "format") == 0) {
        return texts[TEXTS_FORMATS + how % 5];
    }
    if (strcmp(field, "model") == 0) {
        return texts[TEXTS_FORMATS - 1];
    }
    if (strcmp(field, "key") == 0 || strcmp(field, "keys") == 0) {
        return texts[how % 12];
    }
    if (strcmp(field, "group_key") == 0) {
        return how % 3 == 0 ? "" : texts[5 + how % 2];
    }
    return NULL;
}

static struct sl_text make_text(struct making *making, const char *field, uint64_t low,
                                uint64_t high)
{
    struct hostile_input *input = &making->hostile->input;
    uint64_t how = hostile_byte(input);
    char *text;
    uint64_t length;
    const char *usual = how < 200 ? usual_text(field, how) : NULL;
    if (usual != NULL && strlen(usual) >= low && strlen(usual) <= high) {
        text = keep(making, strlen(usual));
        memcpy(text, usual, strlen(usual));
        return (struct sl_text){.at = text, .length = strlen(usual)};
    }
    if (how == 255) { /* of maximum length */
        length = SL_MIN(high, UINT64_C(70000));
        text = keep(making, length);
        memset(text, 'x', length);
        return (struct sl_text){.at = text, .length = length};
    }
    if (how < 232 || low == high) {
        if (low == 0 && how % 8 == 7) {
            return (struct sl_text){.length = 0};
        }
        const char *chosen = texts[how % SL_COUNT(texts)];
        length = strlen(chosen);
        text = keep(making, SL_MAX(length, low));
        memcpy(text, chosen, length);
    } else {
        length = hostile_byte(input) % 64;
        text = keep(making, SL_MAX(length, low));
        for (uint64_t i = 0; i < length; i++) {
            uint64_t byte = hostile_byte(input) & 0x7f;
            text[i] = byte == 0 ? '0' : (char)byte;
        }
    }
    for (; length < low; length++) {
        text[length] = 'f';
    }
    /* A character of several bytes is not cut in half: the table's texts are valid. */
    length = length > high ? high : length;
    while (length > 0 && !sl_text_is_clean(text, length)) {
        length--;
    }
    for (; length < low; length++) {
        text[length] = 'e';
    }
    return (struct sl_text){.at = text, .length = length};
}

static struct sl_bytes make_bytes(struct making *making, const struct sl_field *field)
{
    struct hostile_input *input = &making->hostile->input;
    uint64_t length = hostile_byte(input);
    if (strcmp(field->name, "tokens") == 0) { /* whole tokens, mostly few of them */
        length = (length % 48) * 4;
    }
    length = SL_MAX(SL_MIN(length, field->high), field->low);
    unsigned char *bytes = keep(making, length);
    for (uint64_t i = 0; i < SL_MIN(length, 8); i++) {
        bytes[i] = (unsigned char)hostile_byte(input);
    }
    for (uint64_t i = 8; i < length; i++) {
        bytes[i] = (unsigned char)(bytes[i - 8] + i);
    }
    return (struct sl_bytes){.at = bytes, .length = length};
}

static void make_field(struct making *making, const struct sl_field *field, unsigned char *to,
                       uint64_t like);

static void make_struct(struct making *making, const struct sl_shape *shape, unsigned char *to,
                        uint64_t like)
{
    for (uint32_t i = 0; i < shape->field_count; i++) {
        make_field(making, &shape->fields[i], to + shape->fields[i].offset_bytes, like);
    }
}

/* Mostly no layers, then some that fit a pool of four. False: anything. */
static bool make_layers(struct making *making, unsigned char *to, uint64_t how)
{
    uint64_t count = how < 160 ? 0 : 1 + how % 4;
    uint64_t *values = keep(making, count * sizeof(*values));
    for (uint64_t i = 0; i < count; i++) {
        values[i] = (i + 1) * 4 / count;
    }
    const struct sl_counted list = {.at = values, .count = count};
    if (how < 250) {
        memcpy(to, &list, sizeof(list));
    }
    return how < 250;
}

static void make_list(struct making *making, const struct sl_field *field, unsigned char *to,
                      uint64_t like)
{
    struct hostile_input *input = &making->hostile->input;
    uint64_t how = hostile_byte(input);
    if (strcmp(field->name, "layer_ends") == 0 && make_layers(making, to, how)) {
        return;
    }
    uint64_t count = how < 128 && like != UINT64_MAX ? like : how % 8;
    count = how == 255 ? ITEMS_MAX : SL_MIN(count, ITEMS_MAX);
    count = SL_MAX(SL_MIN(count, field->high), field->low);
    struct sl_counted list = {.count = count};
    if (field->kind == SL_FIELD_U64S) {
        uint64_t *values = keep(making, count * sizeof(*values));
        for (uint64_t i = 0; i < count; i++) { /* codes, mostly good */
            uint64_t value = hostile_byte(input);
            values[i] = value < 128 ? 0 : value < 250 ? value % 26 : UINT64_MAX;
        }
        list.at = values;
    } else if (field->kind == SL_FIELD_TEXTS) {
        struct sl_text *at = keep(making, count * sizeof(*at));
        for (uint64_t i = 0; i < count; i++) {
            at[i] = make_text(making, field->name, 1, SL_TEXTS_BYTES_MAX);
        }
        list.at = at;
    } else {
        const struct sl_shape *shape = field->item();
        unsigned char *items = keep(making, count * shape->struct_bytes);
        for (uint64_t i = 0; i < count; i++) {
            making->slot = hostile_byte(input);
            make_struct(making, shape, items + i * shape->struct_bytes, UINT64_MAX);
        }
        list.at = items;
    }
    memcpy(to, &list, sizeof(list));
}

static void make_field(struct making *making, const struct sl_field *field, unsigned char *to,
                       uint64_t like)
{
    switch (field->kind) {
    case SL_FIELD_U64: {
        uint64_t value = make_number(making, field);
        memcpy(to, &value, sizeof(value));
        break;
    }
    case SL_FIELD_BOOL: {
        bool value = (hostile_byte(&making->hostile->input) & 1) != 0;
        memcpy(to, &value, sizeof(value));
        break;
    }
    case SL_FIELD_TEXT: {
        struct sl_text text = make_text(making, field->name, field->low, field->high);
        memcpy(to, &text, sizeof(text));
        break;
    }
    case SL_FIELD_BIN: {
        struct sl_bytes bytes = make_bytes(making, field);
        memcpy(to, &bytes, sizeof(bytes));
        break;
    }
    default:
        make_list(making, field, to, like);
        break;
    }
}

/* Every list of the body mostly gets `like` entries, unless that is UINT64_MAX. */
static void make_body(struct making *making, struct sl_msg *msg, uint64_t like)
{
    const struct sl_msg_info *info = sl_msg_info(msg->type);
    making->slot = hostile_byte(&making->hostile->input);
    make_struct(making, info->body(), (unsigned char *)&msg->body, like);
}

static void making_end(struct making *making)
{
    for (uint32_t i = 0; i < making->block_count; i++) {
        free(making->blocks[i]);
    }
}

/* ---- messages of the actor ---- */

/* Prints the steps of an input for people: HOSTILE_TRACE=1 in the environment. */
static bool traced(void)
{
    static int on = -1;
    on = on < 0 ? getenv("HOSTILE_TRACE") != NULL : on;
    return on != 0;
}

static void note_answer(struct hostile *hostile, const char *to, const struct sl_msg *reply)
{
    for (uint32_t i = 0; i < hostile->given_count; i++) {
        struct hostile_request_in *given = &hostile->given[i];
        if (given->seq == reply->reply_to && strcmp(given->sender, to) == 0) {
            given->answered++;
            HOSTILE_MUST(given->answered <= given->given);
            return;
        }
    }
    bool was_asked = false;
    HOSTILE_MUST(was_asked);
}

static void note_request(struct hostile *hostile, struct fake_frame *frame)
{
    if (hostile->asked_count == HOSTILE_ASKED_MAX) { /* the oldest is never answered */
        free(hostile->asked[0].frame);
        memmove(&hostile->asked[0], &hostile->asked[1],
                (HOSTILE_ASKED_MAX - 1) * sizeof(hostile->asked[0]));
        hostile->asked_count--;
    }
    struct hostile_request_out *asked = &hostile->asked[hostile->asked_count++];
    (void)snprintf(asked->to, sizeof(asked->to), "%s", frame->to);
    asked->frame = frame->bytes;
    asked->length_bytes = frame->length_bytes;
    frame->bytes = NULL;
}

/* Decodes and counts all frames since the last call, and keeps the requests. */
void hostile_collect(struct hostile *hostile)
{
    struct fake_env *fake = &hostile->fake;
    uint32_t frames = 0;
    for (uint32_t i = 0; i < fake->frame_count; i++) {
        struct fake_frame *frame = &fake->frames[i];
        struct sl_msg msg;
        struct sl_error why = {0};
        if (frame->taken) {
            continue;
        }
        frames++;
        sl_err err =
            sl_codec_decode(fake->take_codec, frame->bytes, frame->length_bytes, &msg, &why);
        HOSTILE_MUST(err == SL_OK);
        if (traced()) {
            fprintf(stderr, "    -> %s to %s, code %s %.*s\n", sl_msg_name(msg.type), frame->to,
                    sl_err_name(msg.code), (int)msg.text.length, msg.text.at);
        }
        HOSTILE_MUST(SL_MSG_IS_REPLY(msg.type) == frame->reply);
        hostile->next_slot++;
        remember_at("op_id", hostile->next_slot, msg.op_id);
        remember_fields(hostile, sl_msg_info(msg.type)->body(), (const unsigned char *)&msg.body);
        if (frame->reply) {
            note_answer(hostile, frame->to, &msg);
            if (hostile->target->replied != NULL) {
                hostile->target->replied(hostile, frame->to, &msg);
            }
        } else {
            note_request(hostile, frame);
        }
        free(frame->bytes);
        frame->bytes = NULL;
        frame->taken = true;
    }
    hostile->frames += frames;
    HOSTILE_MUST(frames <= FRAMES_STEP_MAX);
    fake->frame_count = 0;
    fake->killed_count = 0;
}

/* ---- operations ---- */

static void note_given(struct hostile *hostile, const char *sender, uint64_t seq)
{
    for (uint32_t i = 0; i < hostile->given_count; i++) {
        if (hostile->given[i].seq == seq && strcmp(hostile->given[i].sender, sender) == 0) {
            hostile->given[i].given++;
            return;
        }
    }
    HOSTILE_MUST(hostile->given_count < HOSTILE_GIVEN_MAX);
    struct hostile_request_in *given = &hostile->given[hostile->given_count++];
    *given = (struct hostile_request_in){.seq = seq, .given = 1};
    (void)snprintf(given->sender, sizeof(given->sender), "%s", sender);
}

void hostile_give(struct hostile *hostile, const char *sender, struct sl_msg *msg)
{
    if (!SL_MSG_IS_REPLY(msg->type)) {
        if (msg->seq == 0) {
            msg->seq = ++hostile->fake.seq;
        }
        note_given(hostile, sender, msg->seq);
    }
    if (traced()) {
        fprintf(stderr, "%llu: %s from %s, seq %llu, op %llu, code %s\n",
                (unsigned long long)hostile->fake.env.now_ns, sl_msg_name(msg->type), sender,
                (unsigned long long)(SL_MSG_IS_REPLY(msg->type) ? msg->reply_to : msg->seq),
                (unsigned long long)msg->op_id, sl_err_name(msg->code));
    }
    fake_give(&hostile->fake, sender, msg);
}

static void hello(struct hostile *hostile, uint32_t sender)
{
    char segment[64] = "";
    struct sl_msg msg = {.type = SL_MSG_HELLO};
    if (sender < 2) {
        (void)snprintf(segment, sizeof(segment), "pins.%s", hostile_senders[sender]);
    }
    msg.body.hello = (struct sl_body_hello){.role = sl_text_of(roles[sender]),
                                            .name = sl_text_of(hostile_senders[sender]),
                                            .pid = hostile_proc(sender).pid,
                                            .start_time = hostile_proc(sender).start_time,
                                            .segment = sl_text_of(segment)};
    hostile_give(hostile, hostile_senders[sender], &msg);
}

static void request(struct hostile *hostile)
{
    struct making making = {.hostile = hostile};
    struct hostile_input *input = &hostile->input;
    const struct hostile_target *target = hostile->target;
    uint64_t which = hostile_byte(input);
    struct sl_msg msg = {.type = target->requests[which % target->request_count]};
    if (which >= 248) { /* any message of the table, including answers without a request */
        const struct sl_msg_info *info = sl_msg_info_at((uint32_t)hostile_byte(input) % 64);
        msg.type = info != NULL && info->type < SL_MSG_LOCAL_MIN ? info->type : SL_MSG_PING;
    }
    uint64_t from = hostile_byte(input);
    hostile->last_sender = from < 128 ? hostile->last_sender : (uint32_t)from % HOSTILE_SENDERS;
    const char *sender = hostile_senders[hostile->last_sender];
    uint64_t how = hostile_byte(input);
    msg.op_id = how & 3;
    if (SL_MSG_IS_REPLY(msg.type)) {
        msg.reply_to = hostile->fake.env.next_seq - (how >> 4);
        msg.code = (sl_err)(hostile_byte(input) % SL_ERR_COUNT);
    } else if ((how & 0x60) == 0x60 && hostile->given_count > 0) { /* a number it had before */
        const struct hostile_request_in *given =
            &hostile->given[hostile_byte(input) % hostile->given_count];
        msg.seq = given->seq;
        sender = given->sender;
    } else if ((how & 0x18) == 0x18) {
        msg.budget_ns = hostile_number(input, 1, UINT64_MAX);
    }
    make_body(&making, &msg, (how & 0x80) != 0 ? hostile_byte(input) % 8 : UINT64_MAX);
    char copy[32];
    (void)snprintf(copy, sizeof(copy), "%s", sender); /* the table of given requests may move */
    hostile_give(hostile, copy, &msg);
    making_end(&making);
}

static uint64_t items_of(const struct sl_msg *msg)
{
    const struct sl_shape *shape = sl_msg_info(msg->type)->body();
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        if (field->kind == SL_FIELD_LIST || field->kind == SL_FIELD_TEXTS) {
            struct sl_counted list;
            memcpy(&list, (const unsigned char *)&msg->body + field->offset_bytes, sizeof(list));
            return list.count;
        }
    }
    return UINT64_MAX;
}

/* Answers one request; how: bits that choose. */
static void answer_one(struct hostile *hostile, const struct hostile_request_out *asked,
                       uint64_t how)
{
    struct making making = {.hostile = hostile};
    struct hostile_input *input = &hostile->input;
    struct sl_msg request_msg;
    /* A codec of its own: the request is needed while the answer is made and sent. */
    struct sl_codec *codec = NULL;
    HOSTILE_MUST(sl_codec_create(SL_MIB, &codec, NULL) == SL_OK);
    if (sl_codec_decode(codec, asked->frame, asked->length_bytes, &request_msg, NULL) == SL_OK) {
        struct sl_msg reply = {
            .type = request_msg.type + 1, .reply_to = request_msg.seq, .op_id = request_msg.op_id};
        reply.code = (how & 0x30) == 0x30 ? (sl_err)(hostile_byte(input) % SL_ERR_COUNT) : SL_OK;
        if (reply.code == SL_OK || (how & 1) != 0) {
            make_body(&making, &reply, items_of(&request_msg));
            if ((how & 0x0c) != 0 && hostile->target->answered != NULL) {
                hostile->target->answered(hostile, &request_msg, &reply);
            }
        }
        const char *sender = (how & 0x80) != 0 && (how & 2) != 0
                                 ? hostile_senders[hostile_byte(input) % HOSTILE_SENDERS]
                                 : asked->to;
        hostile_give(hostile, sender, &reply);
    }
    making_end(&making);
    sl_codec_destroy(&codec);
}

void hostile_reply(struct hostile *hostile, const struct sl_msg *request_msg,
                   void (*send)(void *context, const struct sl_msg *reply), void *context)
{
    struct making making = {.hostile = hostile};
    struct hostile_input *input = &hostile->input;
    struct sl_msg reply = {
        .type = request_msg->type + 1, .reply_to = request_msg->seq, .op_id = request_msg->op_id};
    uint64_t how = hostile_byte(input);
    reply.code = how >= 224 ? (sl_err)(hostile_byte(input) % SL_ERR_COUNT) : SL_OK;
    if (how != 255) {
        make_body(&making, &reply, items_of(request_msg));
    }
    if (how < 112 && hostile->target->answered != NULL) {
        hostile->target->answered(hostile, request_msg, &reply);
    }
    send(context, &reply);
    making_end(&making);
}

void hostile_make(struct hostile *hostile, uint32_t type,
                  void (*send)(void *context, struct sl_msg *msg), void *context)
{
    struct making making = {.hostile = hostile};
    struct sl_msg msg = {.type = type};
    make_body(&making, &msg, UINT64_MAX);
    send(context, &msg);
    making_end(&making);
}

static void asked_drop(struct hostile *hostile, uint32_t at)
{
    hostile->asked_count--;
    memmove(&hostile->asked[at], &hostile->asked[at + 1],
            (hostile->asked_count - at) * sizeof(hostile->asked[0]));
}

static void answer(struct hostile *hostile)
{
    struct hostile_input *input = &hostile->input;
    if (hostile->asked_count == 0) {
        return;
    }
    uint64_t how = hostile_byte(input);
    uint32_t at = (how & 0x40) != 0 ? (uint32_t)(hostile_byte(input) % hostile->asked_count)
                                    : hostile->asked_count - 1;
    struct hostile_request_out asked = hostile->asked[at];
    bool again = (how & 0x82) == 0x80; /* it stays and is answered twice */
    if (!again) {
        asked_drop(hostile, at);
    }
    answer_one(hostile, &asked, how);
    if (!again) {
        free(asked.frame);
    }
}

bool hostile_answer_all(struct hostile *hostile)
{
    uint32_t count = hostile->asked_count;
    for (uint32_t i = 0; i < count && hostile->asked_count > 0; i++) {
        struct hostile_request_out asked = hostile->asked[0];
        asked_drop(hostile, 0);
        answer_one(hostile, &asked, 0x04);
        free(asked.frame);
        hostile_collect(hostile);
    }
    return count > 0;
}

/* Like fake_advance, with a bound on the ticks: an actor that always wakes would use up a core. */
static void pass(struct hostile *hostile, uint64_t ns)
{
    struct fake_env *fake = &hostile->fake;
    uint64_t until_ns = fake->env.now_ns + ns;
    uint32_t ticks = 0;
    while (fake->wake_ns <= until_ns && hostile->fake.state != NULL) {
        uint64_t step_ns = fake->wake_ns > fake->env.now_ns ? fake->wake_ns - fake->env.now_ns : 1;
        HOSTILE_MUST(++ticks <= TICKS_STEP_MAX + ns / SL_NS_PER_MS);
        fake_advance(fake, SL_MIN(step_ns, until_ns - fake->env.now_ns));
        hostile_collect(hostile);
        if (fake->env.now_ns >= until_ns) {
            break;
        }
    }
    if (fake->env.now_ns < until_ns) {
        fake_advance(fake, until_ns - fake->env.now_ns);
    }
}

static bool is_living(const struct hostile *hostile, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < hostile->fake.living_count; i++) {
        if (sl_proc_id_equal(hostile->fake.living[i], proc)) {
            return true;
        }
    }
    return false;
}

static void come_or_go(struct hostile *hostile)
{
    uint64_t which = hostile_byte(&hostile->input);
    if (traced()) {
        fprintf(stderr, "%s starts or ends\n", hostile_senders[which % HOSTILE_SENDERS]);
    }
    struct sl_proc_id proc = hostile_proc((uint32_t)which % HOSTILE_SENDERS);
    if (!is_living(hostile, proc)) {
        fake_process_add(&hostile->fake, proc);
        if ((which & 0x80) != 0) {
            hello(hostile, (uint32_t)which % HOSTILE_SENDERS);
        }
    } else if ((which & 0x40) != 0) {
        hello(hostile, (uint32_t)which % HOSTILE_SENDERS);
    } else {
        fake_process_end(&hostile->fake, proc);
    }
}

static void start(struct hostile *hostile)
{
    struct sl_error why = {0};
    sl_err err = fake_start(&hostile->fake, &why);
    if (err != SL_OK) {
        fprintf(stderr, "start: %s\n", why.text);
    }
    HOSTILE_MUST(err == SL_OK);
}

void hostile_restart(struct hostile *hostile)
{
    fake_stop(&hostile->fake);
    for (uint32_t i = 0; i < hostile->asked_count; i++) {
        free(hostile->asked[i].frame);
    }
    hostile->asked_count = 0;
    start(hostile);
}

static void step(struct hostile *hostile)
{
    static const uint64_t spans_ns[8] = {SL_NS_PER_US,       SL_NS_PER_MS,       10 * SL_NS_PER_MS,
                                         100 * SL_NS_PER_MS, 300 * SL_NS_PER_MS, SL_NS_PER_S,
                                         3 * SL_NS_PER_S,    40 * SL_NS_PER_S};
    struct hostile_input *input = &hostile->input;
    uint64_t what = hostile_byte(input);
    if (traced()) {
        fprintf(stderr, "step %llu: %llu\n", (unsigned long long)hostile->steps,
                (unsigned long long)what);
    }
    if (what < 80) {
        request(hostile);
    } else if (what < 136) {
        if (hostile->target->world != NULL) {
            hostile->target->world(hostile);
        }
    } else if (what < 176) {
        answer(hostile);
    } else if (what < 208) {
        /* Half of the time in one step, as for an actor that was stopped. */
        uint64_t span_ns = spans_ns[what & 7];
        uint64_t jump_ns = (what & 8) != 0 || span_ns > SL_NS_PER_S ? span_ns / 4 * 3 : 0;
        hostile->fake.env.now_ns += jump_ns;
        pass(hostile, SL_MIN(span_ns - jump_ns, SL_NS_PER_S));
    } else if (what < 224) {
        come_or_go(hostile);
    } else if (what < 240) {
        (void)hostile_answer_all(hostile);
    } else if (what < 244) {
        hostile->lossy = true;
        (void)snprintf(hostile->fake.unreachable, sizeof(hostile->fake.unreachable), "%s",
                       what == 240 ? "" : hostile_senders[hostile_byte(input) % HOSTILE_SENDERS]);
    } else if (what < 250) {
        if (hostile->target->restarts) {
            hostile_restart(hostile);
        }
    } else if (what == 250) {
        hostile->target->actor->drain(hostile->fake.state);
    }
    hostile_collect(hostile);
    if (hostile->target->check != NULL) {
        hostile->target->check(hostile, false);
    }
}

/* All processes die, and everything expires: nothing may be left over. */
static void end(struct hostile *hostile)
{
    hostile->fake.unreachable[0] = '\0';
    hostile->input.at = hostile->input.end; /* from here on all messages are valid */
    for (uint32_t i = 0; i < 4; i++) {
        (void)hostile_answer_all(hostile);
        pass(hostile, SL_NS_PER_S / 4);
    }
    for (uint32_t i = 0; i < HOSTILE_SENDERS + 2; i++) {
        fake_process_end(&hostile->fake, hostile_proc(i));
        hostile_collect(hostile);
    }
    for (uint32_t i = 0; i < 4; i++) { /* as after a stop: the clock jumps */
        hostile->fake.env.now_ns += 35 * SL_NS_PER_S;
        pass(hostile, SL_NS_PER_S);
        (void)hostile_answer_all(hostile);
    }
    if (hostile->target->check != NULL) {
        hostile->target->check(hostile, true);
    }
}

void hostile_run(const struct hostile_target *target, const uint8_t *bytes, size_t length_bytes)
{
    static struct hostile hostile;
    memset(&hostile, 0, sizeof(hostile));
    memory_count = 0;
    hostile.target = target;
    hostile.input = (struct hostile_input){bytes, bytes + length_bytes};
    fake_open(&hostile.fake, target->actor, target->settings);
    char name[32];
    (void)snprintf(name, sizeof(name), "%s%s", target->actor->role,
                   target->actor->ranked ? ".0" : "");
    hostile.fake.env.name = name;
    hostile.ops = *hostile.fake.env.ops;
    hostile.fake.env.ops = &hostile.ops;
    if (target->prepare != NULL) {
        target->prepare(&hostile);
    }
    start(&hostile);
    hostile_collect(&hostile);
    for (uint32_t i = 0; i < HOSTILE_SENDERS; i++) { /* bits of the first byte: what runs */
        fake_process_add(&hostile.fake, hostile_proc(i));
    }
    uint64_t there = hostile_byte(&hostile.input);
    for (uint32_t i = 0; i < HOSTILE_SENDERS; i++) {
        if ((there >> i & 1) != 0 && strcmp(hostile_senders[i], hostile.fake.env.name) != 0) {
            hello(&hostile, i);
            hostile_collect(&hostile);
        }
    }
    while (hostile.input.at < hostile.input.end && hostile.steps++ < STEPS_MAX &&
           !hostile.fake.finished) {
        step(&hostile);
    }
    if (!hostile.fake.finished) {
        end(&hostile);
    }
    for (uint32_t i = 0; i < hostile.asked_count; i++) {
        free(hostile.asked[i].frame);
    }
    if (hostile.fake.state != NULL) {
        fake_stop(&hostile.fake);
    }
    if (target->finish != NULL) {
        target->finish(&hostile);
    }
    fake_close(&hostile.fake);
}
