/* tests/unit/ipc/msg/codec_test.c - the codec, for every message of the table. */
#include "tests/unit/ipc/msg/messaging_support.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES_MAX (4 * SL_MIB)
#define SEEDS           100u
#define TYPE_COUNT_MAX  200

/* Types that travel, in the table's order. */
static uint32_t travelling[TYPE_COUNT_MAX];
static int travelling_count;

static void find_travelling(void)
{
    for (uint32_t i = 0; sl_msg_info_at(i) != NULL; i++) {
        if (sl_msg_info_at(i)->type < SL_MSG_LOCAL_MIN) {
            travelling[travelling_count++] = sl_msg_info_at(i)->type;
        }
    }
}

static struct sl_codec *codec_made(void)
{
    struct sl_codec *codec = NULL;
    ck_assert_int_eq(sl_codec_create(FRAME_BYTES_MAX, &codec, NULL), SL_OK);
    return codec;
}

START_TEST(message_survives_a_round_trip)
    {
        struct sl_codec *codec = codec_made();
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct made made = {0};
            struct sl_msg msg = make_message(&made, travelling[_i], seed);
            const void *frame = NULL;
            size_t length_bytes = 0;
            struct sl_msg got;
            char difference[96];
            struct sl_error why = {0};

            sl_err err = sl_codec_encode(codec, &msg, &frame, &length_bytes, &why);
            ck_assert_msg(err == SL_OK, "seed %" PRIu64 ": %s", seed, why.text);
            err = sl_codec_decode(codec, frame, length_bytes, &got, &why);

            ck_assert_msg(err == SL_OK, "seed %" PRIu64 ": %s", seed, why.text);
            ck_assert_msg(messages_equal(&msg, &got, difference, sizeof(difference)),
                          "seed %" PRIu64 ": %s differs", seed, difference);
            made_free(&made);
        }
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(encoder_agrees_with_an_independent_one)
    {
        struct sl_codec *codec = codec_made();
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct made made = {0};
            struct sl_msg msg = make_message(&made, travelling[_i], seed);
            msg.code = SL_OK; /* a failed reply may leave out its body */
            unsigned char *other = NULL;
            size_t other_bytes = 0;
            const void *frame = NULL;
            size_t length_bytes = 0;
            ck_assert(encode_broken(&msg, 0, -1, BREAK_NOTHING, &other, &other_bytes));

            ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);

            ck_assert_uint_eq(length_bytes, other_bytes);
            ck_assert_mem_eq(frame, other, length_bytes);
            free(other);
            made_free(&made);
        }
        sl_codec_destroy(&codec);
    }
END_TEST

static size_t golden_read(uint32_t type, unsigned char *bytes, size_t bytes_max)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "tests/unit/ipc/msg/golden/%s.bin", sl_msg_name(type));
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is missing: SL_GOLDEN_WRITE=1 makes it", path);
    size_t got = fread(bytes, 1, bytes_max, file);
    (void)fclose(file);
    return got;
}

static void golden_write(uint32_t type, const void *bytes, size_t length_bytes)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "tests/unit/ipc/msg/golden/%s.bin", sl_msg_name(type));
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "cannot write %s", path);
    ck_assert_uint_eq(fwrite(bytes, 1, length_bytes, file), length_bytes);
    (void)fclose(file);
}

START_TEST(wire_form_is_the_golden_one)
    {
        static unsigned char golden[65536];
        struct sl_codec *codec = codec_made();
        struct made made = {0};
        /* The seed depends only on the type, so that a new message changes no other's file. */
        struct sl_msg msg = make_message(&made, travelling[_i], 1000 + travelling[_i]);
        const void *frame = NULL;
        size_t length_bytes = 0;
        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);
        if (getenv("SL_GOLDEN_WRITE") != NULL) {
            golden_write(travelling[_i], frame, length_bytes);
        }

        size_t golden_bytes = golden_read(travelling[_i], golden, sizeof(golden));

        ck_assert_uint_eq(length_bytes, golden_bytes);
        ck_assert_mem_eq(frame, golden, golden_bytes);
        made_free(&made);
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(every_prefix_is_refused)
    {
        struct sl_codec *codec = codec_made();
        struct made made = {0};
        struct sl_msg msg = make_message(&made, travelling[_i], 7);
        const void *frame = NULL;
        size_t length_bytes = 0;
        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);
        for (size_t prefix = 0; prefix < length_bytes; prefix++) {
            /* A block of its own, so that asan sees a read past the end. */
            unsigned char *cut = malloc(prefix + 1);
            ck_assert_ptr_nonnull(cut);
            memcpy(cut, frame, prefix);
            unsigned char *exact = realloc(cut, prefix > 0 ? prefix : 1);
            ck_assert_ptr_nonnull(exact);
            struct sl_msg got;
            struct sl_error why = {0};

            sl_err err = sl_codec_decode(codec, exact, prefix, &got, &why);

            ck_assert_int_eq(err, SL_ERR_PROTOCOL);
            ck_assert(why.text[0] != '\0');
            free(exact);
        }
        made_free(&made);
        sl_codec_destroy(&codec);
    }
END_TEST

/* A message whose lists all have an item. */
static struct sl_msg message_with_items(struct made *made, uint32_t type)
{
    for (uint64_t seed = 0;; seed++) {
        struct sl_msg msg = make_message(made, type, seed);
        const struct sl_shape *shape = sl_msg_info(type)->body();
        bool full = msg.code == SL_OK;
        for (uint32_t i = 0; i < shape->field_count; i++) {
            struct sl_counted list;
            memcpy(&list, (unsigned char *)&msg.body + shape->fields[i].offset_bytes,
                   shape->fields[i].kind == SL_FIELD_LIST ? sizeof(list) : 0);
            full = full && (shape->fields[i].kind != SL_FIELD_LIST || list.count > 0);
        }
        if (full) {
            return msg;
        }
        made_free(made);
    }
}

/* Breaks one field in every way; each is refused with a text that names it. */
static uint32_t refusals(struct sl_codec *codec, const struct sl_msg *msg, uint32_t field,
                         int item_field, const char *name)
{
    uint32_t refused = 0;
    for (enum breakage breakage = BREAK_KIND; breakage < BREAK_COUNT; breakage++) {
        unsigned char *frame = NULL;
        size_t length_bytes = 0;
        struct sl_msg got = {.type = 4242};
        struct sl_error why = {0};
        if (!encode_broken(msg, field, item_field, breakage, &frame, &length_bytes)) {
            continue;
        }
        sl_err err = sl_codec_decode(codec, frame, length_bytes, &got, &why);
        sl_err want = breakage == BREAK_TOO_HIGH ? SL_ERR_LIMIT : SL_ERR_PROTOCOL;
        if (length_bytes > FRAME_BYTES_MAX) { /* 16 MiB of tokens: the frame's bound is first */
            free(frame);
            continue;
        }
        ck_assert_msg(err == want, "%s.%s broken by %d: %s %s", sl_msg_name(msg->type), name,
                      (int)breakage, sl_err_name(err), why.text);
        ck_assert_msg(strstr(why.text, name) != NULL, "'%s' does not name %s", why.text, name);
        ck_assert_uint_eq(got.type, 4242); /* all or nothing */
        free(frame);
        refused++;
    }
    return refused;
}

START_TEST(broken_field_is_refused_by_name)
    {
        struct sl_codec *codec = codec_made();
        struct made made = {0};
        struct sl_msg msg = message_with_items(&made, travelling[_i]);
        const struct sl_shape *shape = sl_msg_info(msg.type)->body();
        for (uint32_t i = 0; i < shape->field_count; i++) {
            const struct sl_field *field = &shape->fields[i];
            ck_assert_uint_ge(refusals(codec, &msg, i, -1, field->name), 2);
            for (uint32_t k = 0; field->kind == SL_FIELD_LIST && k < field->item()->field_count;
                 k++) {
                ck_assert_uint_ge(refusals(codec, &msg, i, (int)k, field->item()->fields[k].name),
                                  2);
            }
        }
        made_free(&made);
        sl_codec_destroy(&codec);
    }
END_TEST

/* Puts an out-of-range value into a made message; false when the field has no such value. */
static bool overstep(struct sl_msg *msg, const struct sl_field *field, bool high)
{
    unsigned char *at = (unsigned char *)&msg->body + field->offset_bytes;
    uint64_t value = high ? field->high + 1 : field->low - 1;
    if (field->kind == SL_FIELD_BOOL || (high ? field->high == UINT64_MAX : field->low == 0)) {
        return false;
    }
    if (field->kind == SL_FIELD_U64) {
        memcpy(at, &value, sizeof(value));
    } else {
        /* The bound is checked before a byte there is read. */
        static const char nothing[1];
        const struct sl_counted counted = {.at = nothing, .count = value};
        memcpy(at, &counted, sizeof(counted));
    }
    return true;
}

START_TEST(encoder_refuses_what_breaks_a_bound)
    {
        struct sl_codec *codec = codec_made();
        const struct sl_shape *shape = sl_msg_info(travelling[_i])->body();
        for (uint32_t i = 0; i < 2 * shape->field_count; i++) {
            const struct sl_field *field = &shape->fields[i / 2];
            struct made made = {0};
            struct sl_msg msg = message_with_items(&made, travelling[_i]);
            const void *frame = NULL;
            size_t length_bytes = 0;
            struct sl_error why = {0};
            if (overstep(&msg, field, i % 2 == 1)) {
                sl_err err = sl_codec_encode(codec, &msg, &frame, &length_bytes, &why);

                ck_assert_int_eq(err, SL_ERR_INVALID);
                ck_assert_ptr_nonnull(strstr(why.text, field->name));
                ck_assert_ptr_nonnull(strstr(why.text, sl_msg_name(msg.type)));
            }
            made_free(&made);
        }
        sl_codec_destroy(&codec);
    }
END_TEST

/* -------------------------------------------- structure of hostile frames
 * -------------------------------------------- */

static const struct {
    const char *name;
    unsigned char bytes[40];
    size_t length_bytes;
} hostile[] = {
    {"nothing", {0}, 0},
    {"array of 2^32 - 1", {0xdd, 0xff, 0xff, 0xff, 0xff}, 5},
    {"map of 2^32 - 1", {0xdf, 0xff, 0xff, 0xff, 0xff}, 5},
    {"inner array of 2^32 - 1", {0x92, 0x9a, 0xdd, 0xff, 0xff, 0xff, 0xff, 0x00}, 8},
    {"text of 2^32 - 1", {0x92, 0xdb, 0xff, 0xff, 0xff, 0xff, 'a'}, 7},
    {"bytes of 2^32 - 1", {0x92, 0xc6, 0xff, 0xff, 0xff, 0xff, 'a'}, 7},
    {"ext of 2^32 - 1", {0x92, 0xc9, 0xff, 0xff, 0xff, 0xff, 1, 'a'}, 8},
    {"array of 65535", {0xdc, 0xff, 0xff, 0, 0, 0}, 6},
    {"byte 0xc1", {0x92, 0xc1, 0x90}, 3},
    {"bytes after the end", {0x92, 0x90, 0x90, 0x00}, 4},
    {"header without its count", {0xdd, 0x00}, 2},
};

START_TEST(hostile_structure_is_refused_without_allocation)
    {
        struct sl_codec *codec = codec_made();
        struct sl_msg got;
        struct sl_error why = {0};

        sl_err err =
            sl_codec_decode(codec, hostile[_i].bytes, hostile[_i].length_bytes, &got, &why);

        ck_assert_msg(err == SL_ERR_PROTOCOL, "%s: %s", hostile[_i].name, sl_err_name(err));
        ck_assert_uint_eq(codec->bump.total_bytes, 0);
        sl_codec_destroy(&codec);
    }
END_TEST

/* [[6, PING, 0, 0, "c", 1, 0, 5, 0, ""], [0, and then two unknown values. */
static const unsigned char before_unknown[] = {0x92, 0x9a, 0x06, 0x02, 0x00, 0x00, 0xa1, 'c',
                                               0x01, 0x00, 0x05, 0x00, 0xa0, 0x93, 0x00, 0xc0};

START_TEST(hostile_structure_behind_the_known_fields_is_refused)
    {
        unsigned char frame[sizeof(before_unknown) + sizeof(hostile[0].bytes)];
        struct sl_codec *codec = codec_made();
        struct sl_msg got;
        struct sl_error why = {0};
        memcpy(frame, before_unknown, sizeof(before_unknown));
        memcpy(frame + sizeof(before_unknown), hostile[_i].bytes, hostile[_i].length_bytes);

        sl_err err = sl_codec_decode(codec, frame,
                                     sizeof(before_unknown) + hostile[_i].length_bytes, &got, &why);

        ck_assert_msg(err == SL_ERR_PROTOCOL, "%s: %s", hostile[_i].name, sl_err_name(err));
        ck_assert_uint_le(codec->bump.total_bytes, 4096); /* for the name of its sender */
        sl_codec_destroy(&codec);
    }
END_TEST

/* A frame of PING with `count` bytes of this value after the known fields, and a last one. */
static sl_err decode_unknown(unsigned char value, uint32_t count, struct sl_error *why)
{
    struct sl_codec *codec = codec_made();
    size_t length_bytes = sizeof(before_unknown) + count + 1;
    unsigned char *frame = malloc(length_bytes);
    struct sl_msg got;
    ck_assert_ptr_nonnull(frame);
    memcpy(frame, before_unknown, sizeof(before_unknown));
    memset(frame + sizeof(before_unknown), value, count);
    frame[length_bytes - 1] = 0;
    sl_err err = sl_codec_decode(codec, frame, length_bytes, &got, why);
    free(frame);
    sl_codec_destroy(&codec);
    return err;
}

START_TEST(what_is_not_known_may_nest_as_deep_as_it_likes_and_has_a_bound)
    {
        struct sl_error why = {0};
        ck_assert_msg(decode_unknown(0x91, 100000, &why) == SL_OK, "%s", why.text);
        /* The value before them counts, and the last one. */
        ck_assert_msg(decode_unknown(0x91, (1u << 20) - 2, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(decode_unknown(0x91, (1u << 20) - 1, &why), SL_ERR_LIMIT);
        ck_assert_msg(strstr(why.text, "values that are not known") != NULL, "%s", why.text);
    }
END_TEST

START_TEST(frame_over_the_bound_is_refused_by_both_sides)
    {
        static unsigned char large[8192];
        struct sl_codec *small = NULL;
        struct sl_msg got;
        const void *frame = NULL;
        size_t length_bytes = 0;
        ck_assert_int_eq(sl_codec_create(4096, &small, NULL), SL_OK);
        struct sl_msg msg = {.type = SL_MSG_KEYS, .sender = sl_text_of("keyer")};
        msg.body.keys = (struct sl_body_keys){.format = sl_text_of("sluice"),
                                              .block_tokens = 4,
                                              .tokens = {.at = large, .length = sizeof(large)}};

        ck_assert_int_eq(sl_codec_encode(small, &msg, &frame, &length_bytes, NULL), SL_ERR_LIMIT);
        ck_assert_int_eq(sl_codec_decode(small, large, sizeof(large), &got, NULL), SL_ERR_LIMIT);
        sl_codec_destroy(&small);
    }
END_TEST

START_TEST(same_message_is_decoded_without_new_storage)
    {
        struct sl_codec *codec = codec_made();
        struct made made = {0};
        struct sl_msg got;
        const void *frame = NULL;
        size_t length_bytes = 0;
        struct sl_text *keys = calloc(20000, sizeof(*keys));
        ck_assert_ptr_nonnull(keys);
        for (uint32_t i = 0; i < 20000; i++) {
            keys[i] = sl_text_of("0123456789abcdef0123456789abcdef/0123456789abcdef/0/kv");
        }
        struct sl_msg msg = {.type = SL_MSG_REMOVE, .sender = sl_text_of("client.1.0")};
        msg.body.remove.keys = (struct sl_texts){.at = keys, .count = 20000};
        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);
        ck_assert_int_eq(sl_codec_decode(codec, frame, length_bytes, &got, NULL), SL_OK);
        ck_assert_int_eq(sl_codec_decode(codec, frame, length_bytes, &got, NULL),
                         SL_OK); /* one block from here on */
        const struct sl_bump_block *block = codec->bump.newest;
        uint64_t total_bytes = codec->bump.total_bytes;

        for (uint32_t i = 0; i < 10; i++) {
            ck_assert_int_eq(sl_codec_decode(codec, frame, length_bytes, &got, NULL), SL_OK);
        }

        ck_assert_ptr_eq(codec->bump.newest, block);
        ck_assert_uint_eq(codec->bump.total_bytes, total_bytes);
        ck_assert_uint_eq(got.body.remove.keys.count, 20000);
        ck_assert_str_eq(got.body.remove.keys.at[19999].at, keys[0].at);
        free(keys);
        made_free(&made);
        sl_codec_destroy(&codec);
    }
END_TEST

/* ----------------------------------------------------- envelope
 * ----------------------------------------------------- */

static sl_err decode_changed(struct sl_msg msg, struct sl_msg *got, struct sl_error *why)
{
    struct sl_codec *codec = codec_made();
    unsigned char *frame = NULL;
    size_t length_bytes = 0;
    ck_assert(encode_broken(&msg, 0, -1, BREAK_NOTHING, &frame, &length_bytes));
    sl_err err = sl_codec_decode(codec, frame, length_bytes, got, why);
    got->sender = (struct sl_text){0};
    got->text = (struct sl_text){0};
    free(frame);
    sl_codec_destroy(&codec);
    return err;
}

static struct sl_msg ping(void)
{
    return (struct sl_msg){.version = SL_WIRE_VERSION,
                           .type = SL_MSG_PING,
                           .sender = sl_text_of("client.1.0"),
                           .seq = 9};
}

static const struct {
    uint32_t version;
    sl_err want;
} versions[] = {
    {SL_WIRE_VERSION_MIN - 1, SL_ERR_VERSION},
    {SL_WIRE_VERSION, SL_OK},
    {SL_WIRE_VERSION + 1, SL_OK}, /* its N-1 is us */
    {SL_WIRE_VERSION + 2, SL_ERR_VERSION},
};

START_TEST(neighbouring_version_is_understood)
    {
        struct sl_msg msg = ping();
        struct sl_msg got;
        struct sl_error why = {0};
        msg.version = versions[_i].version;

        sl_err err = decode_changed(msg, &got, &why);

        ck_assert_msg(err == versions[_i].want, "%s", why.text);
    }
END_TEST

START_TEST(fields_after_the_known_ones_are_ignored)
    {
        /* [[6, PING, 0, 0, "c", 1, 0, 5, 0, "", "new", 7], [0, {1: [2]}]] */
        static const unsigned char newer[] = {0x92, 0x9c, 0x06, 0x02, 0x00, 0x00, 0xa1, 'c',
                                              0x01, 0x00, 0x05, 0x00, 0xa0, 0xa3, 'n',  'e',
                                              'w',  0x07, 0x92, 0x00, 0x81, 0x01, 0x91, 0x02};
        struct sl_codec *codec = codec_made();
        struct sl_msg got;
        struct sl_error why = {0};

        sl_err err = sl_codec_decode(codec, newer, sizeof(newer), &got, &why);

        ck_assert_msg(err == SL_OK, "%s", why.text);
        ck_assert_uint_eq(got.version, SL_WIRE_VERSION_MIN);
        ck_assert_uint_eq(got.budget_ns, 5);
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(what_is_ignored_may_be_of_any_kind_and_must_be_whole)
    {
        /* [[6, PING, 0, 0, "c", 1, 0, 5, 0, ""], [0, nil, true, two extensions, two floats, -1,
         * 2^56, "a", b"b", [7], {1: 2}, -1, {1: [2]}]] */
        static const unsigned char kinds[] = {
            0x92, 0x9a, 0x06, 0x02, 0x00, 0x00, 0xa1, 'c',  0x01, 0x00, 0x05, 0x00,
            0xa0, 0xdc, 0x00, 0x0f, 0x00, 0xc0, 0xc3, 0xc7, 0x01, 0x05, 'x',  0xd4,
            0x05, 'x',  0xca, 1,    2,    3,    4,    0xcb, 1,    2,    3,    4,
            5,    6,    7,    8,    0xd0, 0xff, 0xd3, 1,    0,    0,    0,    0,
            0,    0,    0,    0xd9, 0x01, 'a',  0xc4, 0x01, 'b',  0xdc, 0x00, 0x01,
            0x07, 0xde, 0x00, 0x01, 0x01, 0x02, 0xff, 0x81, 0x01, 0x91, 0x02, 0x00};
        struct sl_codec *codec = codec_made();
        for (size_t length_bytes = 0; length_bytes <= sizeof(kinds); length_bytes++) {
            struct sl_msg got;
            struct sl_error why = {0};

            sl_err err = sl_codec_decode(codec, kinds, length_bytes, &got, &why);

            ck_assert_msg(err == (length_bytes == sizeof(kinds) - 1 ? SL_OK : SL_ERR_PROTOCOL),
                          "%zu bytes: %s", length_bytes, why.text);
        }
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(an_older_sender_may_lack_only_what_may_be_0)
    {
        /* [[6, ENGINE_GET, 3, 4, "c", 11, 0, 5, 0, ""], []] */
        static const unsigned char no_engine[] = {0x92, 0x9a, 0x06, 0x20, 0x03, 0x04, 0xa1,
                                                  'c',  0x0b, 0x00, 0x05, 0x00, 0xa0, 0x90};
        /* [[6, HELLO_REPLY, 3, 4, "c", 11, 12, 5, 0, ""], [7]] */
        static const unsigned char no_arenas[] = {0x92, 0x9a, 0x06, 0x0b, 0x03, 0x04, 0xa1, 'c',
                                                  0x0b, 0x0c, 0x05, 0x00, 0xa0, 0x91, 0x07};
        struct sl_codec *codec = codec_made();
        struct sl_msg got;
        struct sl_error why = {0};

        ck_assert_int_eq(sl_codec_decode(codec, no_engine, sizeof(no_engine), &got, &why),
                         SL_ERR_PROTOCOL);
        ck_assert_str_eq(why.text, "ENGINE_GET.engine_id: missing");
        ck_assert_int_eq(sl_codec_decode(codec, no_arenas, sizeof(no_arenas), &got, &why), SL_OK);
        ck_assert_uint_eq(got.body.hello_reply.boot_generation, 7);
        ck_assert_uint_eq(got.body.hello_reply.arena_count, 0);
        sl_codec_destroy(&codec);
    }
END_TEST

/* The sender must be notified: in any version, fields are only appended to an envelope. */
START_TEST(unknown_version_leaves_an_envelope_to_answer)
    {
        /* [[9, 900, 3, 4, "c", 11, 0, 5, 0, "", "new"], []] */
        static const unsigned char unknown[] = {0x92, 0x9b, 0x09, 0xcd, 0x03, 0x84, 0x03,
                                                0x04, 0xa1, 'c',  0x0b, 0x00, 0x05, 0x00,
                                                0xa0, 0xa3, 'n',  'e',  'w',  0x90};
        struct sl_codec *codec = codec_made();
        struct sl_msg got = {0};
        struct sl_msg envelope = {0};
        struct sl_error why = {0};

        sl_err err = sl_codec_decode(codec, unknown, sizeof(unknown), &got, &why);

        ck_assert_int_eq(err, SL_ERR_VERSION);
        ck_assert_uint_eq(got.seq, 11);
        ck_assert(sl_codec_last_envelope(codec, &envelope));
        ck_assert_uint_eq(envelope.type, 900);
        ck_assert_uint_eq(envelope.seq, 11);
        ck_assert_str_eq(envelope.sender.at, "c");
        ck_assert_msg(strstr(why.text, "wire version 9") != NULL, "%s", why.text);
        ck_assert_msg(strstr(why.text, "sluice " SL_VERSION " speaks 6 to 8") != NULL, "%s",
                      why.text);
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(unknown_type_leaves_an_envelope_to_answer)
    {
        /* [[6, 900, 3, 4, "c", 11, 0, 5, 0, ""], []] */
        static const unsigned char unknown[] = {0x92, 0x9a, 0x06, 0xcd, 0x03, 0x84, 0x03, 0x04,
                                                0xa1, 'c',  0x0b, 0x00, 0x05, 0x00, 0xa0, 0x90};
        struct sl_codec *codec = codec_made();
        struct sl_msg got = {0};
        struct sl_error why = {0};

        sl_err err = sl_codec_decode(codec, unknown, sizeof(unknown), &got, &why);

        ck_assert_int_eq(err, SL_ERR_UNSUPPORTED);
        ck_assert_uint_eq(got.type, 900);
        ck_assert_uint_eq(got.op_id, 3);
        ck_assert_uint_eq(got.trace_id, 4);
        ck_assert_uint_eq(got.seq, 11);
        ck_assert_str_eq(got.sender.at, "c");
        sl_codec_destroy(&codec);
    }
END_TEST

/* The sender knows the reply's type. A decoder that does not know it returns only the envelope. */
START_TEST(a_request_of_unknown_type_can_be_refused_and_not_answered)
    {
        struct sl_codec *codec = codec_made();
        const void *frame = NULL;
        size_t length_bytes = 0;
        struct sl_msg msg = ping();
        struct sl_msg got = {0};
        msg.type = 901;
        msg.reply_to = 11;
        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_ERR_INVALID);
        msg.code = SL_ERR_UNSUPPORTED;

        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);
        struct sl_codec *other = codec_made();
        ck_assert_int_eq(sl_codec_decode(other, frame, length_bytes, &got, NULL),
                         SL_ERR_UNSUPPORTED);

        ck_assert_uint_eq(got.type, 901);
        ck_assert_uint_eq(got.reply_to, 11);
        ck_assert_int_eq(got.code, SL_ERR_UNSUPPORTED);
        sl_codec_destroy(&other);
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(local_message_does_not_travel)
    {
        struct sl_codec *codec = codec_made();
        const void *frame = NULL;
        size_t length_bytes = 0;
        struct sl_msg msg = ping();
        struct sl_msg got;
        msg.type = SL_MSG_LOCAL_IO;

        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(decode_changed(msg, &got, NULL), SL_ERR_UNSUPPORTED);
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(unknown_code_is_refused_by_name)
    {
        struct sl_msg msg = ping();
        struct sl_msg got;
        struct sl_error why = {0};
        msg.code = SL_ERR_COUNT;

        ck_assert_int_eq(decode_changed(msg, &got, &why), SL_ERR_LIMIT);
        ck_assert_ptr_nonnull(strstr(why.text, "code"));
    }
END_TEST

static const char *const bad_senders[] = {
    "", "../x", ".hidden", "a b", "a/b", "01234567890123456789012345678901", "\xc3\xa9"};

START_TEST(sender_that_is_no_name_is_refused)
    {
        struct sl_msg msg = ping();
        struct sl_msg got;
        struct sl_error why = {0};
        msg.sender = sl_text_of(bad_senders[_i]);

        sl_err err = decode_changed(msg, &got, &why);

        ck_assert(err == SL_ERR_PROTOCOL || err == SL_ERR_LIMIT);
        ck_assert_ptr_nonnull(strstr(why.text, "sender"));
    }
END_TEST

START_TEST(failed_reply_may_have_no_body)
    {
        struct sl_codec *codec = codec_made();
        const void *frame = NULL;
        size_t length_bytes = 0;
        struct sl_msg got;
        /* PONG wants a name of one byte at least. */
        struct sl_msg msg = {
            .type = SL_MSG_PONG, .sender = sl_text_of("keyer"), .code = SL_ERR_BUSY};

        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);
        ck_assert_int_eq(sl_codec_decode(codec, frame, length_bytes, &got, NULL), SL_OK);
        ck_assert_int_eq(got.code, SL_ERR_BUSY);
        ck_assert_uint_eq(got.body.pong.name.length, 0);

        msg.code = SL_OK;
        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_ERR_INVALID);
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(refused_body_leaves_an_envelope_to_answer)
    {
        struct sl_codec *codec = codec_made();
        struct made made = {0};
        struct sl_msg msg = message_with_items(&made, SL_MSG_COPY);
        unsigned char *frame = NULL;
        size_t length_bytes = 0;
        struct sl_msg got;
        ck_assert(encode_broken(&msg, 0, -1, BREAK_KIND, &frame, &length_bytes));

        ck_assert_int_eq(sl_codec_decode(codec, frame, length_bytes, &got, NULL), SL_ERR_PROTOCOL);

        ck_assert(sl_codec_last_envelope(codec, &got));
        ck_assert_uint_eq(got.seq, msg.seq);
        ck_assert_int_eq(sl_codec_decode(codec, frame, 3, &got, NULL), SL_ERR_PROTOCOL);
        ck_assert(!sl_codec_last_envelope(codec, &got));
        free(frame);
        made_free(&made);
        sl_codec_destroy(&codec);
    }
END_TEST

START_TEST(budget_can_be_changed_in_place)
    {
        static const uint64_t budgets[] = {0, 1, 127, 128, 65536, UINT64_MAX};
        struct sl_codec *codec = codec_made();
        struct sl_msg msg = ping();
        struct sl_msg got;
        const void *frame = NULL;
        size_t length_bytes = 0;
        unsigned char copy[256];
        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);
        memcpy(copy, frame, length_bytes);
        for (uint32_t i = 0; i < SL_COUNT(budgets); i++) {
            sl_frame_set_budget(copy, codec->budget_offset_bytes, budgets[i]);

            ck_assert_int_eq(sl_codec_decode(codec, copy, length_bytes, &got, NULL), SL_OK);
            ck_assert_uint_eq(got.budget_ns, budgets[i]);
            ck_assert_uint_eq(got.seq, msg.seq);
        }
        sl_codec_destroy(&codec);
    }
END_TEST

/* ------------------------------------------------------- rest
 * ------------------------------------------------------- */

START_TEST(mutated_frames_are_decoded_or_refused)
    {
        struct sl_codec *codec = codec_made();
        struct made random = {.random = 20261121};
        for (uint32_t round = 0; round < 200; round++) {
            struct made made = {0};
            struct sl_msg msg = make_message(&made, travelling[_i], round);
            const void *frame = NULL;
            size_t length_bytes = 0;
            ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length_bytes, NULL), SL_OK);
            unsigned char *changed = malloc(length_bytes);
            ck_assert_ptr_nonnull(changed);
            memcpy(changed, frame, length_bytes);
            for (uint32_t k = 0; k <= round % 4; k++) {
                random.random =
                    random.random * UINT64_C(6364136223846793005) + 1442695040888963407u;
                changed[(random.random >> 33) % length_bytes] =
                    (unsigned char)(random.random >> 25);
            }
            struct sl_msg got;
            struct sl_error why = {0};

            sl_err err = sl_codec_decode(codec, changed, length_bytes, &got, &why);

            if (err == SL_OK) { /* then it is a message that can be sent on */
                ck_assert_int_eq(sl_codec_encode(codec, &got, &frame, &length_bytes, &why), SL_OK);
            } else {
                ck_assert(why.text[0] != '\0');
            }
            free(changed);
            made_free(&made);
        }
        sl_codec_destroy(&codec);
    }
END_TEST

static const struct {
    const char *bytes;
    uint64_t length;
    bool clean;
} texts[] = {
    {"", 0, true},
    {"plain", 5, true},
    {"\xc3\xa9", 2, true},
    {"\xe2\x82\xac", 3, true},
    {"\xf0\x9f\x9a\xb0", 4, true},
    {"\xf4\x8f\xbf\xbf", 4, true},
    {"a\0b", 3, false},
    {"eight by eight, and some", 24, true},
    {"eight by\0ight, and some", 24, false},
    {"eight by eight\0and some", 24, false},
    {"eight by eight, and som\0", 24, false},
    {"eight b\xc3\xa9 eight by e", 19, true}, /* across two words */
    {"eight by eight \x80", 16, false},
    {"eight by eight \xc3", 16, false},
    {"\x80", 1, false},
    {"\xc0\xaf", 2, false},         /* overlong */
    {"\xe0\x80\xaf", 3, false},     /* overlong */
    {"\xf0\x80\x80\xaf", 4, false}, /* overlong */
    {"\xed\xa0\x80", 3, false},     /* surrogate */
    {"\xf4\x90\x80\x80", 4, false}, /* beyond U+10FFFF */
    {"\xe2\x82", 2, false},
    {"\xc3", 1, false},
    {"\xff", 1, false},
};

START_TEST(utf8_is_told_from_what_is_not)
    {
        char *exact = malloc(texts[_i].length + 1);
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, texts[_i].bytes, texts[_i].length);

        ck_assert(sl_text_is_clean(exact, texts[_i].length) == texts[_i].clean);
        free(exact);
    }
END_TEST

START_TEST(catalogue_has_every_message_and_field)
    {
        char *text = NULL;
        size_t length_bytes = 0;
        FILE *stream = open_memstream(&text, &length_bytes);
        ck_assert_ptr_nonnull(stream);

        sl_msg_print_catalogue(stream);
        (void)fclose(stream);

        for (uint32_t i = 0; sl_msg_info_at(i) != NULL; i++) {
            char heading[64];
            (void)snprintf(heading, sizeof(heading), "## %s (%u", sl_msg_info_at(i)->name,
                           sl_msg_info_at(i)->type);
            ck_assert_msg(strstr(text, heading) != NULL, "%s is missing", heading);
        }
        ck_assert_ptr_nonnull(strstr(text, "| piece_bytes | u64 | 1..1073741824 |"));
        free(text);
    }
END_TEST

START_TEST(numbers_pair_requests_with_replies)
    {
        for (uint32_t i = 0; sl_msg_info_at(i) != NULL; i++) {
            const struct sl_msg_info *info = sl_msg_info_at(i);
            if (info->type >= SL_MSG_LOCAL_MIN) {
                continue;
            }
            const struct sl_msg_info *other = sl_msg_info(info->type ^ 1u);
            ck_assert_msg(other != NULL, "%s has no partner", info->name);
            ck_assert_str_eq(sl_msg_name(info->type), info->name);
        }
        ck_assert_str_eq(sl_msg_name(4242), "?");
    }
END_TEST

int main(void)
{
    find_travelling();
    Suite *suite = suite_create("codec");
    TCase *table = tcase_create("table");
    tcase_set_timeout(table, 60);
    tcase_add_loop_test(table, message_survives_a_round_trip, 0, travelling_count);
    tcase_add_loop_test(table, encoder_agrees_with_an_independent_one, 0, travelling_count);
    tcase_add_loop_test(table, wire_form_is_the_golden_one, 0, travelling_count);
    tcase_add_loop_test(table, every_prefix_is_refused, 0, travelling_count);
    tcase_add_loop_test(table, broken_field_is_refused_by_name, 0, travelling_count);
    tcase_add_loop_test(table, encoder_refuses_what_breaks_a_bound, 0, travelling_count);
    tcase_add_loop_test(table, mutated_frames_are_decoded_or_refused, 0, travelling_count);
    tcase_add_test(table, catalogue_has_every_message_and_field);
    tcase_add_test(table, numbers_pair_requests_with_replies);
    suite_add_tcase(suite, table);
    TCase *frames = tcase_create("frames");
    tcase_add_loop_test(frames, hostile_structure_is_refused_without_allocation, 0,
                        SL_COUNT(hostile));
    tcase_add_loop_test(frames, hostile_structure_behind_the_known_fields_is_refused, 0,
                        SL_COUNT(hostile));
    tcase_add_test(frames, what_is_not_known_may_nest_as_deep_as_it_likes_and_has_a_bound);
    tcase_add_test(frames, frame_over_the_bound_is_refused_by_both_sides);
    tcase_add_test(frames, same_message_is_decoded_without_new_storage);
    tcase_add_loop_test(frames, neighbouring_version_is_understood, 0, SL_COUNT(versions));
    tcase_add_test(frames, fields_after_the_known_ones_are_ignored);
    tcase_add_test(frames, what_is_ignored_may_be_of_any_kind_and_must_be_whole);
    tcase_add_test(frames, an_older_sender_may_lack_only_what_may_be_0);
    tcase_add_test(frames, unknown_version_leaves_an_envelope_to_answer);
    tcase_add_test(frames, unknown_type_leaves_an_envelope_to_answer);
    tcase_add_test(frames, a_request_of_unknown_type_can_be_refused_and_not_answered);
    tcase_add_test(frames, local_message_does_not_travel);
    tcase_add_test(frames, unknown_code_is_refused_by_name);
    tcase_add_loop_test(frames, sender_that_is_no_name_is_refused, 0, SL_COUNT(bad_senders));
    tcase_add_test(frames, failed_reply_may_have_no_body);
    tcase_add_test(frames, refused_body_leaves_an_envelope_to_answer);
    tcase_add_test(frames, budget_can_be_changed_in_place);
    tcase_add_loop_test(frames, utf8_is_told_from_what_is_not, 0, SL_COUNT(texts));
    suite_add_tcase(suite, frames);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
