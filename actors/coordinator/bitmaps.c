/* actors/coordinator/bitmaps.c - counting in bitmaps of blocks. */
#include "actors/coordinator/internal.h"

uint32_t co_bits_count(const uint8_t *bits, uint32_t count)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < count; i++) {
        set += co_bit(bits, i) ? 1u : 0u;
    }
    return set;
}
