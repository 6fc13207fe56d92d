/* tests/fuzz/fuzz_codec.c - any bytes are decoded or refused; what was decoded can be sent on and
 * means the same. */
#include "tests/unit/messaging_support.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    /* Two, since decoding reuses storage: the second must not touch what the first gave. */
    static struct sl_codec *first;
    static struct sl_codec *second;
    struct sl_msg msg;
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
    again.version = msg.version; /* a newer sender's message goes on as ours */
    SL_ASSERT(messages_equal(&msg, &again, difference, sizeof(difference)));
    return 0;
}
