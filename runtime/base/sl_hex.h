/* runtime/base/sl_hex.h - conversion of bytes to and from the hexadecimal digits of keys. */
#ifndef SL_HEX_H
#define SL_HEX_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte");

/* Writes 2 * count lower-case digits without a terminating zero. Eight digits per step, without a
 * table: each byte of a 64-bit word holds one nibble. */
static inline void sl_hex_write(char *to, const void *bytes, size_t count)
{
    const unsigned char *from = (const unsigned char *)bytes;
    for (; count >= 4; count -= 4, from += 4, to += 8) {
        uint64_t word = (uint64_t)from[0] | (uint64_t)from[1] << 16 | (uint64_t)from[2] << 32 |
                        (uint64_t)from[3] << 48;
        uint64_t nibbles =
            (word >> 4 & UINT64_C(0x000f000f000f000f)) | (word & UINT64_C(0x000f000f000f000f)) << 8;
        /* adding 6 carries values over 9 into bit 4; these get 39 = 'a' - '0' - 10 more */
        uint64_t letters =
            (nibbles + UINT64_C(0x0606060606060606)) >> 4 & UINT64_C(0x0101010101010101);
        uint64_t digits = nibbles + UINT64_C(0x3030303030303030) + letters * 39;
        memcpy(to, &digits, sizeof digits);
    }
    for (; count > 0; count--, from++, to += 2) {
        to[0] = "0123456789abcdef"[*from >> 4];
        to[1] = "0123456789abcdef"[*from & 15];
    }
}

/* The value of a digit of either case; -1: not a digit. */
static inline int sl_hex_digit(char digit)
{
    int lower = digit | 0x20;
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Reads 2 * count digits. Returns the number of digits read; it stops at the first non-digit. */
static inline size_t sl_hex_read(void *to, const char *digits, size_t count)
{
    unsigned char *out = (unsigned char *)to;
    size_t taken = 0;
    for (int value; taken < 2 * count && (value = sl_hex_digit(digits[taken])) >= 0; taken++) {
        unsigned before = taken % 2 == 0 ? 0u : out[taken / 2];
        out[taken / 2] = (unsigned char)(before << 4 | (unsigned)value);
    }
    return taken;
}

#endif
