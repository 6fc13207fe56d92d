/* runtime/base/sl_text.c - see sl_text.h. */
#include "runtime/base/sl_text.h"

#include <string.h>

uint32_t sl_text_next(const char *text, size_t left, size_t *length)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t count = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    *length = 1;
    if ((at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4 || count > left) {
        return SL_TEXT_NO_CHARACTER;
    }
    uint32_t character = count == 1 ? at[0] : at[0] & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return SL_TEXT_NO_CHARACTER;
        }
        character = character << 6 | (at[i] & 0x3fu);
    }
    bool overlong = (count == 3 && character < 0x800) || (count == 4 && character < 0x10000);
    if (overlong || (character >= 0xd800 && character < 0xe000) || character > 0x10ffff) {
        return SL_TEXT_NO_CHARACTER;
    }
    *length = count;
    return character;
}

bool sl_text_is_plain(uint32_t character)
{
    static const struct {
        uint32_t first, last;
    } obeyed[] = {{0, 0x1f},
                  {0x7f, 0x9f},
                  {0x61c, 0x61c},   /* bidirectional */
                  {0x200e, 0x200f}, /* likewise */
                  {0x2028, 0x202e}, /* line, paragraph, bidirectional */
                  {0x2066, 0x2069}, /* bidirectional */
                  {SL_TEXT_NO_CHARACTER, SL_TEXT_NO_CHARACTER}};
    for (size_t i = 0; i < SL_COUNT(obeyed); i++) {
        if (character >= obeyed[i].first && character <= obeyed[i].last) {
            return false;
        }
    }
    return true;
}

void sl_text_clean(char *text)
{
    size_t length = 0;
    for (size_t left = strlen(text); left > 0; left -= length, text += length) {
        if (!sl_text_is_plain(sl_text_next(text, left, &length)) && *text != '\n' &&
            *text != '\t') {
            memset(text, '?', length);
        }
    }
}
