/* tests/fuzz/fuzz_codec.c - arbitrary bytes are decoded or refused; a decoded message can be
 * encoded again with the same meaning.
 *
 * Now and then the input is replaced by a message of any type, valid or with one field broken: byte
 * changes rarely keep a frame well-formed. */
#include "tests/unit/ipc/msg/messaging_support.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t length_bytes, size_t length_bytes_max);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length_bytes, size_t length_bytes_max,
                               unsigned seed);

static size_t message_of(uint8_t *bytes, size_t length_bytes_max, unsigned seed)
{
    static struct made made;
    unsigned char *frame = NULL;
    size_t length_bytes = 0;
    uint32_t count = 0;
    while (sl_msg_info_at(count) != NULL) {
        count++;
    }
    const struct sl_msg_info *info = sl_msg_info_at(seed / 8 % count);
    const struct sl_shape *shape = info->body();
    if (info->type >= SL_MSG_LOCAL_MIN) {
        return 0;
    }
    struct sl_msg msg = make_message(&made, info->type, seed);
    uint32_t field_index = seed / 512 % shape->field_count;
    const struct sl_field *field = &shape->fields[field_index];
    int item_field_index = field->kind == SL_FIELD_LIST && (seed & 4) != 0
                               ? (int)(seed / 4096 % field->item()->field_count)
                               : -1;
    enum breakage breakage = (seed & 3) != 0 ? seed / 65536 % BREAK_COUNT : BREAK_NOTHING;
    if (encode_broken(&msg, field_index, item_field_index, breakage, &frame, &length_bytes) &&
        length_bytes <= length_bytes_max) {
        memcpy(bytes, frame, length_bytes);
    } else {
        length_bytes = 0;
    }
    free(frame);
    made_free(&made);
    return length_bytes;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length_bytes, size_t length_bytes_max,
                               unsigned seed)
{
    size_t made = seed % 16 == 0 ? message_of(bytes, length_bytes_max, seed / 16) : 0;
    return made != 0 ? made : LLVMFuzzerMutate(bytes, length_bytes, length_bytes_max);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    /* Two, since decoding reuses storage: the second must not change the result of the first. */
    static struct sl_codec *first;
    static struct sl_codec *second;
    struct sl_msg msg = {0};
    struct sl_msg again;
    struct sl_error why = {0};
    if (first == NULL) {
        SL_ASSERT(sl_codec_create(SL_MIB, &first, NULL) == SL_OK);
        SL_ASSERT(sl_codec_create(SL_MIB, &second, NULL) == SL_OK);
    }
    sl_err err = sl_codec_decode(first, bytes, length_bytes, &msg, &why);
    if (err != SL_OK) {
        SL_ASSERT(why.code == err && why.text[0] != '\0');
        return 0;
    }
    const void *frame = NULL;
    size_t frame_bytes = 0;
    char difference[96];
    SL_ASSERT(sl_codec_encode(second, &msg, &frame, &frame_bytes, &why) == SL_OK);
    SL_ASSERT(sl_codec_decode(second, frame, frame_bytes, &again, &why) == SL_OK);
    again.version = msg.version; /* a newer sender's message is encoded as ours */
    SL_ASSERT(messages_equal(&msg, &again, difference, sizeof(difference)));
    return 0;
}
