/* client/lib/tally.c - see tally.h. */
#include "client/lib/tally.h"

#define TIMED_EVERY 16u

static uint32_t codes_count(const struct tally *tally, sl_err code)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tally->count; i++) {
        count += tally->codes[i] == code;
    }
    return count;
}

void sl_tally_begin(struct tally *tally, const sl_err *codes, uint32_t count)
{
    static _Thread_local uint32_t turn;
    bool timed = count > 1 || turn++ % TIMED_EVERY == 0;
    *tally = (struct tally){.codes = codes,
                            .count = count,
                            .begin_ns = timed ? sl_clock_monotonic_ns() : 0,
                            .weight = count > 1 ? 1 : TIMED_EVERY};
}

void sl_tally_tier(struct tally *tally, enum sl_tier tier, uint64_t bytes)
{
    uint32_t found = codes_count(tally, SL_OK);
    if (found > tally->found) {
        tally->tiers[tier].found = found - tally->found;
        tally->tiers[tier].bytes = bytes - tally->bytes;
        tally->tiers[tier].ns =
            tally->begin_ns != 0 ? sl_clock_monotonic_ns() - tally->begin_ns : 0;
    }
    tally->found = found;
    tally->bytes = bytes;
}

void sl_tally_wait(struct tally *tally)
{
    if (tally->begin_ns == 0) { /* the look at memory took less than a look at a clock */
        tally->begin_ns = sl_clock_monotonic_ns();
    }
    tally->weight = 1;
}

void sl_tally_end(const struct tally *tally, struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_counts_row row = sl_client_counts(sl_client_attachment(client), reader);
    for (uint32_t tier = 0; tier < SL_TIER_COUNT; tier++) {
        uint32_t found = tally->tiers[tier].found;
        if (found > 0) {
            sl_count(row, SL_COUNT_GET_MEMORY + tier, found);
            sl_count(row, SL_COUNT_GET_MEMORY_BYTES + tier, tally->tiers[tier].bytes);
        }
        if (tally->tiers[tier].ns != 0) {
            sl_counts_time(row, tier, tally->tiers[tier].ns, found * tally->weight);
        }
    }
    if (tally->found < tally->count) {
        uint32_t missed = codes_count(tally, SL_ERR_NOT_FOUND);
        sl_count(row, SL_COUNT_GET_MISSED, missed);
        sl_count(row, SL_COUNT_GET_FAILED, tally->count - tally->found - missed);
    }
}
