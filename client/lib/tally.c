/* client/lib/tally.c - see tally.h. */
#include "client/lib/tally.h"

#define TIMED_EVERY 16u

static inline uint32_t codes_count(const struct tally *tally, sl_err code)
{
    uint32_t count = 0;
    if (tally->count == 1) { /* a fast path: the general one would take longer to set up */
        return tally->codes[0] == code;
    }
    for (uint32_t i = 0; i < tally->count; i++) {
        count += tally->codes[i] == code;
    }
    return count;
}

void sl_tally_begin(struct tally *tally, const sl_err *codes, uint32_t count)
{
    static _Thread_local uint32_t turn;
    bool timed = count > 1 || turn++ % TIMED_EVERY == 0;
    tally->codes = codes;
    tally->count = count;
    tally->begin_ns = timed ? sl_clock_monotonic_ns() : 0;
    tally->weight = count > 1 ? 1 : TIMED_EVERY;
    tally->found = 0;
    tally->bytes = 0;
    tally->tier_count = 0;
}

void sl_tally_tier(struct tally *tally, enum sl_tier tier, uint64_t bytes)
{
    uint32_t found = codes_count(tally, SL_OK);
    if (found > tally->found) {
        SL_ASSERT(tally->tier_count < SL_TIER_COUNT);
        uint32_t at = tally->tier_count++;
        tally->tiers[at].tier = tier;
        tally->tiers[at].found = found - tally->found;
        tally->tiers[at].bytes = bytes - tally->bytes;
        tally->tiers[at].ns = tally->begin_ns != 0 ? sl_clock_monotonic_ns() - tally->begin_ns : 0;
    }
    tally->found = found;
    tally->bytes = bytes;
}

void sl_tally_wait(struct tally *tally)
{
    if (tally->begin_ns == 0) { /* the lookup so far took less than a clock read */
        tally->begin_ns = sl_clock_monotonic_ns();
    }
    tally->weight = 1;
}

/* Counts items that were not found. A caller with too small a buffer or too many pins tries again,
 * and is counted then. */
static void rest_count(const struct tally *tally, uint32_t *missed, uint32_t *failed)
{
    if (tally->found < tally->count) {
        *missed = codes_count(tally, SL_ERR_NOT_FOUND);
        *failed = tally->count - tally->found - *missed - codes_count(tally, SL_ERR_LIMIT);
    }
}

/* Out of line, since it is rare. */
static void __attribute__((noinline))
tenant_count(const struct tally *tally, struct sl_client *client, const struct sl_reader *reader)
{
    struct sl_labels *labels = sl_client_labels(sl_client_attachment(client));
    uint32_t label = sl_client_tenant_label(client, labels);
    for (uint32_t i = 0; i < tally->tier_count; i++) {
        sl_label_add(labels, label, reader->number, SL_LABEL_MEMORY + tally->tiers[i].tier,
                     tally->tiers[i].found);
    }
    uint32_t missed = 0;
    uint32_t failed = 0;
    rest_count(tally, &missed, &failed);
    sl_label_add(labels, label, reader->number, SL_LABEL_BYTES, tally->bytes);
    sl_label_add(labels, label, reader->number, SL_LABEL_NONE, missed);
    sl_label_add(labels, label, reader->number, SL_LABEL_FAILED, failed);
}

void sl_tally_end(const struct tally *tally, struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_counts_row row = sl_client_counts(sl_client_attachment(client), reader);
    if (__builtin_expect(client->has_tenant, 0)) {
        tenant_count(tally, client, reader);
    }
    for (uint32_t i = 0; i < tally->tier_count; i++) {
        uint32_t tier = tally->tiers[i].tier;
        uint32_t found = tally->tiers[i].found;
        sl_count(row, SL_COUNT_GET_MEMORY + tier, found);
        sl_count(row, SL_COUNT_GET_MEMORY_BYTES + tier, tally->tiers[i].bytes);
        if (tally->tiers[i].ns != 0) {
            sl_counts_time(row, tier, tally->tiers[i].ns, found * tally->weight);
        }
    }
    if (tally->found < tally->count) {
        uint32_t missed = 0;
        uint32_t failed = 0;
        rest_count(tally, &missed, &failed);
        sl_count(row, SL_COUNT_GET_MISSED, missed);
        sl_count(row, SL_COUNT_GET_FAILED, failed);
    }
}
